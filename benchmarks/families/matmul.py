"""matmul -> bias -> activation, and gate/up products with the gating after both, against cuBLASLt (through
PyTorch)."""
from graph import Spec

from .case import Case, double


class Epilogue(Case):
    pattern = "matmul_epilogue"

    def __init__(self, act, m, n, k, dtype="bf16"):
        super().__init__(tokens=m)
        self.act, self.n, self.k, self.dtype = act, n, k, dtype
        self.group = f"matmul+bias+{ {'gelu': 'GELU', 'silu': 'SiLU'}[act] }"
        self.label = f"{m}, {n}, {k}"
        self.name = f"{self.group} {m}x{n}x{k} {dtype}"
        self.flops = 2 * m * n * k

    def shrunk(self):
        return Epilogue(self.act, 3, 128, 96, self.dtype)

    def tensors(self):
        return {"x": Spec(self.dtype, ("tokens", self.k)),
                "w": Spec(self.dtype, (self.n, self.k), weight=True, scale=self.k ** -0.5),
                "b": Spec(self.dtype, (self.n,), weight=True)}

    def body(self, graph, v):
        row = (self.dtype, ("tokens", self.n))
        y = graph.op("matmul", [v["x"], v["w"]], row, transpose_b=True)
        y = graph.op("add", [y, v["b"]], row)
        return {"y": graph.op("gelu", [y], row, approximate="tanh") if self.act == "gelu"
                else graph.op("silu", [y], row)}

    def activated(self, y):
        from torch.nn.functional import gelu, silu
        return silu(y) if self.act == "silu" else gelu(y, approximate="tanh")

    def eager(self, t):
        from torch.nn.functional import linear
        return {"y": self.activated(linear(t["x"], t["w"], t["b"]))}

    def exact(self, t):
        from torch.nn.functional import linear
        return {"y": self.activated(linear(*(double(t[name]) for name in "xwb")))}

    def peers(self):
        import torch
        if self.act != "gelu":
            return {"cublaslt": "cuBLASLt has no SiLU epilogue"}
        return {"cublaslt": lambda t: {"y": torch._addmm_activation(t["b"], t["x"], t["w"].t(), use_gelu=True)}}


class GatedMatmul(Case):
    pattern = "gated_matmul"

    def __init__(self, m, n=14336, k=4096, dtype="bf16"):
        super().__init__(tokens=m)
        self.n, self.k, self.dtype = n, k, dtype
        self.group = "gate/up matmul+SwiGLU"
        self.label = f"{m}, 2x{n}, {k}"
        self.name = f"{self.group} {m}x{n}x{k} {dtype}"
        self.flops = 4 * m * n * k

    def shrunk(self):
        return GatedMatmul(3, 128, 96, self.dtype)

    def tensors(self):
        weight = Spec(self.dtype, (self.n, self.k), weight=True, scale=self.k ** -0.5)
        return {"x": Spec(self.dtype, ("tokens", self.k)), "gate": weight, "up": weight}

    def body(self, graph, v):
        row = (self.dtype, ("tokens", self.n))
        gate, up = (graph.op("matmul", [v["x"], v[name]], row, transpose_b=True) for name in ("gate", "up"))
        return {"y": graph.op("mul", [graph.op("silu", [gate], row), up], row)}

    def eager(self, t):
        from torch.nn.functional import linear, silu
        return {"y": silu(linear(t["x"], t["gate"])) * linear(t["x"], t["up"])}

    def exact(self, t):
        return self.eager({name: double(tensor) for name, tensor in t.items()})

    def peers(self):
        """The way serving engines do it: one product with packed weights, then a compiled gating."""
        def step(t):
            import torch
            packed = torch.cat([t["gate"], t["up"]])
            n = self.n

            @torch.compile(dynamic=False)
            def gating(p):
                return torch.nn.functional.silu(p[:, :n]) * p[:, n:]
            return lambda: {"y": gating(t["x"] @ packed.t())}, lambda: None
        step.prepares = True
        return {"packed cublas + compiled gating": step}
