"""Matmuls of quantised weights: of bf16 activations, few rows, and of activations that are quantised too. The
opponents: cuBLAS with the same operands in bf16 (eager), and what PyTorch has for the quantised ones."""
from graph import Spec

from .case import Case, double


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


class QuantisedOperands(Case):
    """Both operands are codes; the result is bf16."""
    pattern = "matmul_epilogue"  # the rounding to bf16
    compiles = False
    rate = 2
    KINDS = {"f8 per tensor": ("f8E4M3FN", "tensor"), "f8 per row": ("f8E4M3FN", "row"),
             "f8 in blocks": ("f8E4M3FN", "block"), "int8 per row": ("i8", "row")}
    BLOCK = 128  # activations: along k; weights: in both dims

    def __init__(self, kind, m, n, k):
        super().__init__(tokens=m)
        self.kind, self.n, self.k = kind, n, k
        self.codes, self.scaling = self.KINDS[kind]
        self.kernels = 2 if self.scaling == "block" else 1  # once: a scale for each row of the weights
        self.group = f"matmul of {kind}"
        self.label = f"{m}, {n}, {k}"
        self.name = f"{self.group} {m}x{n}x{k}"
        self.flops = 2 * m * n * k

    def shrunk(self):
        return QuantisedOperands(self.kind, 5, 256, 384)

    def tensors(self):
        spread = {"f8E4M3FN": 1.0, "i8": 40.0}[self.codes]
        shapes = {"tensor": ((), ()), "row": (("tokens",), (self.n,)),
                  "block": (("tokens", self.k // self.BLOCK), (self.n // self.BLOCK, self.k // self.BLOCK))}
        found = {}
        for name, rows, shape, size in (("x", "tokens", shapes[self.scaling][0], 1.0),
                                        ("w", self.n, shapes[self.scaling][1], self.k ** -0.5)):
            found[name] = Spec(self.codes, (rows, self.k), weight=name == "w", scale=spread)
            found[name + "_scale"] = Spec("f32", shape, weight=name == "w", scale=0.1 * size / spread,
                                          shift=size / spread)
        return found

    def body(self, graph, v):
        def wide(name, rows, scale):
            where = {"axis": 1, "block_size": self.BLOCK} if self.scaling == "block" else {"axis": 0}
            return graph.op("dequantize", [v[name], scale], ("f32", (rows, self.k)), **where)

        scale = v["w_scale"]
        if self.scaling == "block":  # a row of blocks is the scales of as many rows
            high, deep = self.n // self.BLOCK, self.k // self.BLOCK
            scale = graph.op("reshape", [scale], ("f32", (high, 1, deep)), shape=[high, 1, deep])
            scale = graph.op("expand", [scale], ("f32", (high, self.BLOCK, deep)),
                             shape=[high, self.BLOCK, deep])
            scale = graph.op("reshape", [scale], ("f32", (self.n, deep)), shape=[self.n, deep])
        product = graph.op("matmul", [wide("x", "tokens", v["x_scale"]), wide("w", self.n, scale)],
                           ("f32", ("tokens", self.n)), transpose_b=True)
        return {"y": graph.op("cast", [product], ("bf16", ("tokens", self.n)))}

    def wide(self, t, name):
        """An operand in f64."""
        codes, scale = double(t[name]), double(t[name + "_scale"])
        if self.scaling == "row":
            scale = scale.unsqueeze(1)
        if self.scaling == "block":
            scale = scale.repeat_interleave(self.BLOCK, 1)
            scale = scale.repeat_interleave(self.BLOCK, 0) if name == "w" else scale
        return codes * scale

    def prepared(self, t):
        """For opponents: the operands in bf16, and scales as they want them."""
        import torch
        found = {**t, **{"dense_" + name: self.wide(t, name).to(torch.bfloat16) for name in "xw"}}
        if self.scaling == "row":
            found["x_scale"], found["w_scale"] = t["x_scale"].unsqueeze(1), t["w_scale"].unsqueeze(0)
        if self.scaling == "block":  # those of the activations: neighbouring rows side by side
            found["x_scale"], found["w_scale"] = t["x_scale"].t().contiguous().t(), t["w_scale"].t()
        return found

    def eager(self, t):
        from torch.nn.functional import linear
        return {"y": linear(t["dense_x"], t["dense_w"])}

    def exact(self, t):
        from torch.nn.functional import linear
        return {"y": linear(self.wide(t, "x"), self.wide(t, "w"))}

    def peers(self):
        import torch
        if self.codes == "i8":
            if self.sizes["tokens"] <= 16:
                return {"torch int8": "torch._int_mm takes more than 16 rows"}

            def integers(t):
                sums = torch._int_mm(t["x"], t["w"].t())
                return {"y": (sums.float() * t["x_scale"] * t["w_scale"]).to(torch.bfloat16)}
            return {"torch int8": integers, "torch int8, compiled": torch.compile(integers, dynamic=False)}

        def scaled(fast):
            return lambda t: {"y": torch._scaled_mm(t["x"], t["w"].t(), t["x_scale"], t["w_scale"],
                                                    out_dtype=torch.bfloat16, use_fast_accum=fast)}
        found = {"torch f8": scaled(False)}
        if self.scaling != "block":  # whose sums are f32 always
            found["torch f8, fast sums"] = scaled(True)
        return found
