"""A chain of all-reduce -> add -> RMSNorm [-> fp8], as tensor-parallel layers have two of: partial sums of
its own for each link, the residual goes on."""
from graph import Spec

from .case import Case, double
from .norm import EPS, QUANT, eager_quantized, quantized, saturated

LINKS = "abcdefghijkl"
WIRE, HOP = 366e3, 1.85  # bytes a microsecond and direction between H200s of one host; microseconds until a word is seen


class Chain(Case):
    """All ranks have the same inputs. Nothing but its norms, or what they are quantised to, is read of a
    link, as of one in front of a product; nobody reads the last sum."""
    kernels = None

    def __init__(self, tokens, hidden=8192, dtype="bf16", quant=None, ranks=1):
        super().__init__(tokens=tokens)
        self.hidden, self.dtype, self.quant, self.ranks = hidden, dtype, quant, ranks
        self.name = f"all-reduce+add+RMSNorm{QUANT[quant]} {tokens}x{hidden} {dtype}"
        # Up to twelve roundings of the sum follow from one another; NCCL rounds on its way around the ring
        # too.
        self.tolerance = {f"norm{link}": 1.5e-2 for link in LINKS}

    def shrunk(self):
        return Chain(3, 256, self.dtype, self.quant, self.ranks)

    def tensors(self):
        row = Spec(self.dtype, ("tokens", self.hidden))
        tensors = {f"x{link}": row for link in LINKS}
        tensors |= {"r": row, "w": Spec(self.dtype, (self.hidden,), weight=True, scale=0.06, shift=1.0)}
        if self.quant == "static":
            tensors["scale"] = Spec("f32", (), weight=True, scale=0.0, shift=0.015)
        return tensors

    def body(self, graph, v):
        row = (self.dtype, ("tokens", self.hidden))
        s, results = v["r"], {}
        for link in LINKS:
            s = graph.op("add", [graph.op("all_reduce", [v[f"x{link}"]], row), s], row)
            n = graph.op("rms_norm", [s, v["w"]], row, eps=EPS)
            results |= named(link, quantized(graph, n, self.quant, v.get("scale")) if self.quant
                             else {"norm": n})
        return results

    def linked(self, t, reduced, after):
        """The chain in PyTorch. reduced(x): the sum over ranks, in place or not; after(sum, residual, t): the
        new residual and what a link results in."""
        s, results = t["r"], {}
        for link in LINKS:
            s, made = after(reduced(t[f"x{link}"]), s, t)
            results |= named(link, made)
        return results

    def after(self, total, residual, t):
        """As PyTorch users write it: its own norm is one kernel."""
        from torch.nn.functional import rms_norm
        s = total + residual
        n = rms_norm(s, s.shape[-1:], t["w"], EPS)
        return s, eager_quantized(n, self.quant, t.get("scale")) if self.quant else {"norm": n}

    def exact(self, t):
        """Every result rounds, since the next link reads what it rounded to; within a link all is exact."""
        import torch

        def after(total, residual, t):
            s = (double(total) + double(residual)).to(residual.dtype)
            f = double(s)
            n = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS) * double(t["w"])
            return s, {"q" if self.quant else "norm": saturated(n, self.quant, t).to(torch.float32)}
        return self.linked(t, lambda x: (double(x) * self.ranks).to(x.dtype), after)

    def wire(self):
        """Microseconds at least for a link: one hop with every message to every rank, or two with a shard of
        it, of which the second has the normed rows."""
        elements, others = self.sizes["tokens"] * self.hidden, self.ranks - 1
        back = {None: 2, "static": 1, "token": 1 + 4 / self.hidden, "group": 1 + 4 / 128}[self.quant]
        return min(others * elements * 2 / WIRE + HOP,
                   others / self.ranks * elements * (2 + back) / WIRE + 2 * HOP)


def named(link, results):
    return {f"{name}{link}": value for name, value in results.items()}
