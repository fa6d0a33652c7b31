"""A chain of all-reduce -> add -> RMSNorm [-> static fp8], as tensor-parallel layers have two of: each link's sum goes on."""
from graph import Spec

from .case import Case, double
from .norm import EPS, eager_quantized, quantized, saturated

LINKS = 12
WIRE, HOP = 366e3, 1.85  # bytes a microsecond and direction between H200s of one host; microseconds until a word is seen


class Chain(Case):
    """With f32 or half results the norm is what the ranks sum next and the sum is the residual. With fp8 ones the ranks
    sum the sum again, so that nothing but the eight bits is read of a norm, as of one in front of a quantised product.
    All ranks have the same inputs."""
    kernels = None

    def __init__(self, tokens, hidden=8192, dtype="bf16", quant=None, ranks=1):
        super().__init__(tokens=tokens)
        self.hidden, self.dtype, self.quant, self.ranks = hidden, dtype, quant, ranks
        self.name = f"all-reduce+add+RMSNorm{' -> static fp8' if quant else ''} {tokens}x{hidden} {dtype}"
        # Twelve roundings of the sum follow from one another; NCCL rounds on its way around the ring too.
        self.tolerance = {"sum": 1.5e-2, "norm": 1.5e-2}

    def shrunk(self):
        return Chain(3, 256, self.dtype, self.quant, self.ranks)

    def tensors(self):
        row = Spec(self.dtype, ("tokens", self.hidden))
        tensors = {"x": row, "r": row, "w": Spec(self.dtype, (self.hidden,), weight=True, scale=0.06, shift=1.0)}
        if self.quant:
            tensors["scale"] = Spec("f32", (), weight=True, scale=0.0, shift=0.015)
        return tensors

    def body(self, graph, v):
        row = (self.dtype, ("tokens", self.hidden))
        given, residual, results = v["x"], v["r"], {}
        for i in range(LINKS):
            s = graph.op("add", [graph.op("all_reduce", [given], row), residual], row)
            n = graph.op("rms_norm", [s, v["w"]], row, eps=EPS)
            if self.quant:
                given = s
                results[f"q{'abcdefghijkl'[i]}"] = quantized(graph, n, self.quant, v["scale"])["q"]
            else:
                given, residual = n, s
        return {"sum": s, **(results or {"norm": n})}

    def linked(self, t, reduced, after):
        """The chain in PyTorch. reduced(x): the sum over ranks, in place or not; after(sum, residual, t): what a link does
        with it."""
        given, residual, results = t["x"].clone(), t["r"], {}
        for i in range(LINKS):
            s, n = after(reduced(given), residual, t)
            if self.quant:
                given = s
                results[f"q{'abcdefghijkl'[i]}"] = n
            else:
                given, residual = n, s
        return {"sum": s, **(results or {"norm": n})}

    def after(self, total, residual, t):
        """As PyTorch users write it: its own norm is one kernel."""
        from torch.nn.functional import rms_norm
        s = total + residual
        n = rms_norm(s, s.shape[-1:], t["w"], EPS)
        return s, eager_quantized(n, self.quant, t["scale"])["q"] if self.quant else n

    def exact(self, t):
        """Every result rounds, since the next link reads what it rounded to; within a link all is exact."""
        import torch

        def after(total, residual, t):
            s = (double(total) + double(residual)).to(residual.dtype)
            f = double(s)
            n = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS) * double(t["w"])
            return s, saturated(n, self.quant, t) if self.quant else n.to(s.dtype)
        results = self.linked(t, lambda x: (double(x) * self.ranks).to(x.dtype), after)
        return {name: double(value) for name, value in results.items()}

    def wire(self):
        """Microseconds at least for a link: one hop with every message to every rank, or two with pieces of it."""
        message, others = self.sizes["tokens"] * self.hidden * 2, self.ranks - 1
        return min(others * message / WIRE + HOP, 2 * others / self.ranks * message / WIRE + 2 * HOP)
