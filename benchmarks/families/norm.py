"""add -> norm [-> quantise]: what FlashInfer calls fused_add_rmsnorm and Inductor fuses into one Triton
kernel."""
from graph import Spec

from .case import Case, double

EPS = 1e-6
KINDS = {"rms": "add+RMSNorm", "layer": "add+LayerNorm", "gemma": "add+Gemma norm"}
QUANT = {None: "", "static": " -> static fp8", "token": " -> per-token fp8", "group": " -> per-group-128 fp8"}
F8_MAX = 448.0


class AddNorm(Case):
    small = {"tokens": 3, "hidden": 384}

    def __init__(self, kind, tokens, hidden, dtype="bf16", quant=None):
        super().__init__(tokens=tokens)
        self.kind, self.hidden, self.dtype, self.quant = kind, hidden, dtype, quant
        self.pattern = "add_norm_quant" if quant else "add_norm"
        self.name = f"{KINDS[kind]}{QUANT[quant]} {tokens}x{hidden} {dtype}"
        self.group = f"{KINDS[kind]}{QUANT[quant]}"
        self.label = f"{tokens}x{hidden}" + ("" if dtype == "bf16" else f" {dtype}")
        self.flops = tokens * hidden * (5 + 3 * (kind == "layer") + 2 * bool(quant))

    def shrunk(self):
        # An odd width stays odd.
        hidden = self.small["hidden"] + (0 if self.quant == "group" else self.hidden % 8)
        return AddNorm(self.kind, self.small["tokens"], hidden, self.dtype, self.quant)

    def tensors(self):
        row, column = ("tokens", self.hidden), (self.hidden,)
        tensors = {"x": Spec(self.dtype, row), "r": Spec(self.dtype, row),
                   "w": Spec(self.dtype, column, weight=True, scale=0.3,
                             shift=0.0 if self.kind == "gemma" else 1.0)}
        if self.kind == "layer":
            tensors["b"] = Spec(self.dtype, column, weight=True)
        if self.quant == "static":
            tensors["scale"] = Spec("f32", (), weight=True, scale=0.0, shift=0.015)
        return tensors

    def body(self, graph, v):
        row = (self.dtype, ("tokens", self.hidden))
        s = graph.op("add", [v["x"], v["r"]], row)
        if self.kind == "layer":
            n = graph.op("layer_norm", [s, v["w"], v["b"]], row, eps=EPS)
        elif self.kind == "gemma":
            n = graph.op("rms_norm", [s, v["w"]], row, eps=EPS, weight_bias=1.0, raw="scale_in = f32")
        else:
            n = graph.op("rms_norm", [s, v["w"]], row, eps=EPS)
        if not self.quant:
            return {"sum": s, "norm": n}
        return {"sum": s, **quantized(graph, n, self.quant, v.get("scale"))}

    def eager(self, t):
        import torch
        s = t["x"] + t["r"]
        f = s.float()
        if self.kind == "layer":
            n = torch.nn.functional.layer_norm(s, s.shape[-1:], t["w"], t["b"], EPS)
        elif self.kind == "gemma":
            n = (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS) * (1 + t["w"].float())).to(s.dtype)
        else:
            n = (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)).to(s.dtype) * t["w"]
        return {"sum": s, "norm": n} if not self.quant else {"sum": s,
                                                             **eager_quantized(n, self.quant, t.get("scale"))}

    def exact(self, t):
        import torch
        s = t["x"] + t["r"]  # the sum is a result: it rounds, and the norm reads what it rounded to
        f, w = double(s), double(t["w"])
        if self.kind == "layer":
            f = f - f.mean(-1, keepdim=True)
        n = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)
        n = n * (w + 1 if self.kind == "gemma" else w)
        if self.kind == "layer":
            n = n + double(t["b"])
        return {"sum": double(s), "q" if self.quant else "norm": saturated(n, self.quant, t)}

    def peers(self):
        return {"flashinfer": flashinfer_norm(self)}


def quantized(graph, value, quant, scale):
    rows, width = value.dims
    if quant == "static":
        return {"q": graph.op("quantize", [value, scale], ("f8E4M3FN", value.dims))}
    groups = 1 if quant == "token" else width // 128
    q, scales = graph.op("dynamic_quantize", [value], ("f8E4M3FN", value.dims), ("f32", (rows, groups)),
                         group_size=0 if quant == "token" else 128)
    return {"q": q, "scales": scales}


def saturated(exact, quant, t):
    """What 8 bits can hold of an exact result: with a scale given beforehand, its ends are cut off."""
    return exact.clamp(-F8_MAX * double(t["scale"]),
                       F8_MAX * double(t["scale"])) if quant == "static" else exact


def eager_quantized(n, quant, scale):
    import torch
    f = n.float()
    if quant == "static":
        return {"q": (f / scale).clamp(-F8_MAX, F8_MAX).to(torch.float8_e4m3fn)}
    groups = f.reshape(f.shape[0], 1 if quant == "token" else -1, f.shape[1] if quant == "token" else 128)
    scales = groups.abs().amax(-1, keepdim=True) / F8_MAX
    q = (groups / scales).clamp(-F8_MAX, F8_MAX).to(torch.float8_e4m3fn)
    return {"q": q.reshape(f.shape), "scales": scales.squeeze(-1)}


def flashinfer_norm(case):
    """FlashInfer adds and normalises in place, so each call works on copies that are made before the
    timing."""
    try:
        import flashinfer
    except ImportError:
        return "flashinfer is not installed"
    if case.kind == "layer" or case.quant not in (None, "static") or (case.kind == "gemma" and case.quant):
        return "no such kernel in flashinfer"
    if case.quant == "static" and not hasattr(flashinfer.norm, "fused_add_rmsnorm_quant"):
        return "this flashinfer has no fused_add_rmsnorm_quant"

    def step(t):
        import torch
        x, r = t["x"].clone(), t["r"].clone()

        def call():
            if case.quant == "static":
                q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
                flashinfer.norm.fused_add_rmsnorm_quant(q, x, r, t["w"], t["scale"], eps=EPS, enable_pdl=True)
                return {"sum": r, "q": q}
            f = flashinfer.norm.gemma_fused_add_rmsnorm if case.kind == "gemma" else flashinfer.norm.fused_add_rmsnorm
            f(x, r, t["w"], eps=EPS, enable_pdl=True)
            return {"sum": r, "norm": x}

        def restore():
            x.copy_(t["x"])
            r.copy_(t["r"])
        return call, restore
    step.prepares = True
    return step
