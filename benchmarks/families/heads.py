"""QK-norm -> RoPE of the query and key heads in a packed QKV product, 128 wide (Qwen 3); without norms it is Llama's."""
from graph import Spec

from .case import Case, double

EPS, WIDTH = 1e-6, 128


class QkNormRope(Case):
    pattern = "qk_norm_rope"

    def __init__(self, tokens, heads=32, kv_heads=8, dtype="bf16", norm=True):
        super().__init__(tokens=tokens)
        self.heads, self.kv_heads, self.dtype, self.norm = heads, kv_heads, dtype, norm
        if not norm:
            self.pattern = "rope"
        self.group = "QK-norm+RoPE" if norm else "RoPE"
        self.label = f"{tokens}x({heads}+{kv_heads})" + ("" if dtype == "bf16" else f" {dtype}")
        self.name = f"{self.group} {tokens}x({heads}+{kv_heads})x{WIDTH} {dtype}"
        self.flops = tokens * (heads + kv_heads) * WIDTH * (7 if norm else 3)

    def shrunk(self):
        return QkNormRope(5, 4, 2, self.dtype, self.norm)

    def columns(self):
        return (self.heads + 2 * self.kv_heads) * WIDTH

    def tensors(self):
        tensors = {"qkv": Spec(self.dtype, ("tokens", self.columns())),
                   "cos": Spec(self.dtype, ("tokens", WIDTH // 2)), "sin": Spec(self.dtype, ("tokens", WIDTH // 2))}
        if self.norm:
            for name in ("qw", "kw"):
                tensors[name] = Spec(self.dtype, (WIDTH,), weight=True, scale=0.3, shift=1.0)
        return tensors

    def body(self, graph, v):
        half = (self.dtype, (1, "tokens", 1, WIDTH // 2))
        cos, sin = (graph.op("reshape", [v[name]], half, shape=[1, "tokens", 1, WIDTH // 2]) for name in ("cos", "sin"))
        results, start = {}, 0
        for name, count in (("q", self.heads), ("k", self.kv_heads)):
            heads = (self.dtype, (1, "tokens", count, WIDTH))
            part = graph.op("slice", [v["qkv"]], (self.dtype, ("tokens", count * WIDTH)),
                            sizes=["tokens", count * WIDTH], starts=[0, start], steps=(1, 1))
            x = graph.op("reshape", [part], heads, shape=[1, "tokens", count, WIDTH])
            if self.norm:
                x = graph.op("rms_norm", [x, v[f"{name}w"]], heads, eps=EPS)
            results[name] = graph.op("rope", [x, cos, sin], heads, interleaved=False, rotary_dim=WIDTH)
            start += count * WIDTH
        return results

    def split(self, t):
        shape = (1, t["qkv"].shape[0], -1, WIDTH)
        q, k = self.heads * WIDTH, self.kv_heads * WIDTH
        return {"q": t["qkv"][:, :q].reshape(shape), "k": t["qkv"][:, q:q + k].reshape(shape)}

    def eager(self, t):
        import torch
        return self.computed(t, torch.float32)

    def exact(self, t):
        import torch
        return self.computed({name: double(tensor) for name, tensor in t.items()}, torch.float64)

    def computed(self, t, wide):
        import torch
        results = {}
        cos, sin = (torch.cat([t[name]] * 2, -1)[None, :, None] for name in ("cos", "sin"))
        for name, x in self.split(t).items():
            if self.norm:
                f = x.to(wide)
                x = (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * t[f"{name}w"]
            turned = torch.cat([-x[..., WIDTH // 2:], x[..., :WIDTH // 2]], -1)
            results[name] = x * cos + turned * sin
        return results

    def bytes(self):
        values = self.columns() - self.kv_heads * WIDTH  # the value heads are not touched
        whole = super().bytes()
        return whole - self.sizes["tokens"] * 2 * (self.columns() - values)
