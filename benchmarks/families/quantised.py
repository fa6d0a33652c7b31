"""Matmuls of bf16 activations and quantised weights, few rows. The opponents: cuBLAS with the same weights in
bf16 (eager), and what PyTorch has for weights of 4 bits."""
from graph import Spec

from .case import Case


class QuantisedMatmul(Case):
    pattern = "scaled_matmul"
    compiles = False
    # The type of codes, neighbours along k that share a scale (0: all), the type of scales.
    KINDS = {"bf16": None, "f8": ("f8E4M3FN", 0, "f32"), "int8": ("i8", 0, "f32"),
             "int4": ("ui4", 128, "bf16"), "int4 blocks of 32": ("ui4", 32, "bf16")}

    def __init__(self, kind, m, n, k):
        super().__init__(tokens=m)
        self.kind, self.n, self.k = kind, n, k
        self.pattern = self.pattern if self.KINDS[kind] else None
        self.group = f"matmul of {kind} weights"
        self.label = f"{m}, {n}, {k}"
        self.name = f"{self.group} {m}x{n}x{k}"
        self.flops = 2 * m * n * k

    def shrunk(self):
        return QuantisedMatmul(self.kind, 5, 64, 256)

    def tensors(self):
        found = {"x": Spec("bf16", ("tokens", self.k))}
        if not self.KINDS[self.kind]:
            return {**found, "w": Spec("bf16", (self.n, self.k), weight=True, scale=self.k ** -0.5)}
        codes, block, scales = self.KINDS[self.kind]
        shape = (self.n, self.k // block) if block else (self.n,)
        spread = {"f8E4M3FN": 1.0, "i8": 40.0, "ui4": 1.0}[codes]  # of the codes
        found["w"] = Spec(codes, (self.n, self.k), weight=True, scale=spread)
        size = self.k ** -0.5 / {"f8E4M3FN": 1, "i8": 40, "ui4": 6}[codes]
        found["s"] = Spec(scales, shape, weight=True, scale=0.1 * size, shift=size)
        if codes == "ui4":
            found["z"] = Spec(codes, shape, weight=True)
        return found

    def body(self, graph, v):
        weight = v["w"]
        if self.KINDS[self.kind]:
            block = self.KINDS[self.kind][1]
            where = {"axis": 1, "block_size": block} if block else {"axis": 0}
            operands = [v[name] for name in "wsz" if name in v]
            weight = graph.op("dequantize", operands, ("bf16", (self.n, self.k)), **where)
        return {"y": graph.op("matmul", [v["x"], weight], ("bf16", ("tokens", self.n)), transpose_b=True)}

    def codes(self, packed):
        """As f32, one an element."""
        import torch
        if self.kind.startswith("int4"):
            packed = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
        return packed.float()

    def dense(self, t):
        """The weights in bf16, as the graph dequantises them."""
        import torch
        if not self.KINDS[self.kind]:
            return t["w"]
        block = self.KINDS[self.kind][1]
        codes = self.codes(t["w"]).view(self.n, -1, block or self.k)
        if "z" in t:
            codes = codes - self.codes(t["z"]).unsqueeze(-1)
        return (codes * t["s"].float().view(self.n, -1, 1)).view(self.n, self.k).to(torch.bfloat16)

    def prepared(self, t):
        """For opponents: what a program computes once."""
        found = {**t, "dense": self.dense(t)}
        if self.kind.startswith("int4"):
            import torch
            scale = t["s"]
            zero = scale * (8 - self.codes(t["z"])).to(torch.bfloat16)
            found["scales_and_zeros"] = torch.stack([scale, zero], -1).transpose(0, 1).contiguous()
            swapped = (t["w"] << 4) | (t["w"] >> 4)  # PyTorch wants the high half first
            found["packed"] = torch._convert_weight_to_int4pack(swapped, 8)
        return found

    def eager(self, t):
        from torch.nn.functional import linear
        return {"y": linear(t["x"], t["dense"])}

    def exact(self, t):
        from torch.nn.functional import linear
        return {"y": linear(t["x"].double(), self.dense(t).double())}

    def peers(self):
        import torch
        if self.kind.startswith("int4"):
            block = self.KINDS[self.kind][1]
            return {"torch int4": lambda t: {
                "y": torch._weight_int4pack_mm(t["x"], t["packed"], block, t["scales_and_zeros"])}}
        return {}
