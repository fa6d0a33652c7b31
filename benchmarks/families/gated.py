"""act(gate) * up [-> quantise]: SwiGLU and GeGLU, gate and up in one packed tensor (what FlashInfer takes) or
in two."""
from graph import Spec

from .case import Case, double
from .norm import QUANT, eager_quantized, quantized, saturated


class Gated(Case):
    pattern = "gated_activation"
    small = {"tokens": 3, "hidden": 256}

    def __init__(self, act, tokens, hidden, dtype="bf16", quant=None, packed=True):
        super().__init__(tokens=tokens)
        self.act, self.hidden, self.dtype, self.quant, self.packed = act, hidden, dtype, quant, packed
        layout = "" if packed else " two inputs"
        self.group = f"{'SwiGLU' if act == 'silu' else 'GeGLU'}{layout}{QUANT[quant]}"
        self.label = f"{tokens}x{hidden}" + ("" if dtype == "bf16" else f" {dtype}")
        self.name = f"{self.group} {tokens}x{hidden} {dtype}"
        self.flops = tokens * hidden * (6 + 2 * bool(quant))

    def shrunk(self):
        return Gated(self.act, self.small["tokens"], self.small["hidden"] + self.hidden % 8, self.dtype,
                     self.quant,
                     self.packed)

    def tensors(self):
        if self.packed:
            tensors = {"p": Spec(self.dtype, ("tokens", 2 * self.hidden))}
        else:
            tensors = {name: Spec(self.dtype, ("tokens", self.hidden)) for name in ("gate", "up")}
        if self.quant == "static":
            tensors["scale"] = Spec("f32", (), weight=True, scale=0.0, shift=0.015)
        return tensors

    def body(self, graph, v):
        half = (self.dtype, ("tokens", self.hidden))
        gate, up = v.get("gate"), v.get("up")
        if self.packed:
            gate, up = (graph.op("slice", [v["p"]], half, sizes=["tokens", self.hidden], starts=[0, start],
                                 steps=(1, 1))
                        for start in (0, self.hidden))
        if self.act == "silu":
            a = graph.op("silu", [gate], half)
        else:
            a = graph.op("gelu", [gate], half, approximate="tanh")
        m = graph.op("mul", [a, up], half)
        return {"y": m} if not self.quant else quantized(graph, m, self.quant, v.get("scale"))

    def halves(self, t):
        return (t["p"][:, :self.hidden], t["p"][:, self.hidden:]) if self.packed else (t["gate"], t["up"])

    def activated(self, gate):
        from torch.nn.functional import gelu, silu
        return silu(gate) if self.act == "silu" else gelu(gate, approximate="tanh")

    def eager(self, t):
        gate, up = self.halves(t)
        m = self.activated(gate) * up
        return {"y": m} if not self.quant else eager_quantized(m, self.quant, t.get("scale"))

    def exact(self, t):
        gate, up = self.halves(t)
        return {"q" if self.quant else "y": saturated(self.activated(double(gate)) * double(up), self.quant,
                                                      t)}

    def peers(self):
        if not self.packed or self.quant:
            return {}
        try:
            import flashinfer
        except ImportError:
            return {"flashinfer": "flashinfer is not installed"}
        f = flashinfer.activation.silu_and_mul if self.act == "silu" else flashinfer.activation.gelu_tanh_and_mul
        return {"flashinfer": lambda t: {"y": f(t["p"], enable_pdl=True)}}
