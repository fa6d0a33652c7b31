"""QK-norm -> RoPE of the query and key heads in a packed QKV product, 128 wide (Qwen 3); without norms it is
Llama's. With a cache, keys and values are written behind what it holds."""
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
                   "cos": Spec(self.dtype, ("tokens", WIDTH // 2)),
                   "sin": Spec(self.dtype, ("tokens", WIDTH // 2))}
        if self.norm:
            for name in ("qw", "kw"):
                tensors[name] = Spec(self.dtype, (WIDTH,), weight=True, scale=0.3, shift=1.0)
        return tensors

    def body(self, graph, v):
        half = (self.dtype, (1, "tokens", 1, WIDTH // 2))
        cos, sin = (graph.op("reshape", [v[name]], half, shape=[1, "tokens", 1, WIDTH // 2])
                    for name in ("cos", "sin"))
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


class QkNormRopeCache(QkNormRope):
    """The queries leave; the keys and the values, which are only moved, go into caches behind `past`
    positions."""
    pattern = "rope_kv_write"

    def __init__(self, tokens, past, heads=32, kv_heads=8, dtype="bf16"):
        super().__init__(tokens, heads, kv_heads, dtype)
        self.pattern = "rope_kv_write"
        self.sizes["past"] = past
        self.options = (f"--kv-capacity={past + tokens}",)
        self.group = "QK-norm+RoPE+KV write"
        self.label = f"{tokens}x({heads}+{kv_heads})"
        self.name = f"{self.group} {tokens} behind {past} x({heads}+{kv_heads})x{WIDTH} {dtype}"

    def shrunk(self):
        return QkNormRopeCache(5, 3, 4, 2, self.dtype)

    def tensors(self):
        cache = Spec(self.dtype, (1, self.kv_heads, "past", WIDTH))
        return {**super().tensors(), "pastk": cache, "pastv": cache}

    def body(self, graph, v):
        half, whole = (self.dtype, (1, 1, "tokens", WIDTH // 2)), (self.dtype,
                                                                   (1, self.kv_heads, "past + tokens", WIDTH))
        cos, sin = (graph.op("reshape", [v[name]], half, shape=[1, 1, "tokens", WIDTH // 2])
                    for name in ("cos", "sin"))
        results, start = {}, 0
        for name, count in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
            heads = (self.dtype, (1, count, "tokens", WIDTH))
            x = graph.op("slice", [v["qkv"]], (self.dtype, ("tokens", count * WIDTH)),
                         sizes=["tokens", count * WIDTH], starts=[0, start], steps=(1, 1))
            x = graph.op("reshape", [x], (self.dtype, (1, "tokens", count, WIDTH)),
                         shape=[1, "tokens", count, WIDTH])
            x = graph.op("transpose", [x], heads, perm=(0, 2, 1, 3))
            if name != "v":
                x = graph.op("rms_norm", [x, v[f"{name}w"]], heads, eps=EPS)
                x = graph.op("rope", [x, cos, sin], heads, interleaved=False, rotary_dim=WIDTH)
            results[name] = x if name == "q" else graph.op("concat", [v[f"past{name}"], x], whole, axis=2)
            start += count * WIDTH
        return {"q": results["q"], "keys": results["k"], "values": results["v"]}

    def new(self, t, wide):
        """Queries, keys and values, by heads."""
        found = super().computed(t, wide)
        values = t["qkv"][:, (self.heads + self.kv_heads) * WIDTH:].reshape(1, t["qkv"].shape[0], -1, WIDTH)
        return [x.transpose(1, 2) for x in (found["q"], found["k"], values)]

    def computed(self, t, wide):
        import torch
        q, k, v = self.new(t, wide)
        return {"q": q, "keys": torch.cat([t["pastk"], k], 2), "values": torch.cat([t["pastv"], v], 2)}

    def eager(self, t):
        """In a cache with room, as serving engines keep it."""
        import torch
        q, k, v = self.new(t, torch.float32)
        past = self.sizes["past"]
        t["cachek"][:, :, past:] = k
        t["cachev"][:, :, past:] = v
        return {"q": q.contiguous(), "keys": t["cachek"], "values": t["cachev"]}

    def prepared(self, t):
        """The peers' tensors: the past in a buffer with room."""
        import torch
        room = t["pastk"].new_zeros((1, self.kv_heads, self.sizes["tokens"], WIDTH))
        return {**t, "cachek": torch.cat([t["pastk"], room], 2), "cachev": torch.cat([t["pastv"], room], 2)}

    def bytes(self):
        """All of the product is read; the past is not touched."""
        past = self.kv_heads * self.sizes["past"] * WIDTH * 2
        return super().bytes() + self.sizes["tokens"] * 2 * self.kv_heads * WIDTH - 4 * past
