"""A decoder layer shaped like Llama 3 8B's: prefill of one prompt, or decode of one token a sequence over a
cache."""
from graph import Spec

from .case import Case, double

EPS = 1e-5


class Layer(Case):
    kernels = None  # a layer is several
    autotune = True
    small_config = {"hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "width": 16}

    def __init__(self, batch, new, past, hidden=4096, ffn=14336, heads=32, kv_heads=8, width=128,
                 dtype="bf16"):
        # The cache's length with the new tokens is a size of its own to the graph, as exporters print it.
        super().__init__(batch=batch, new=new, past=past)
        self.hidden, self.ffn, self.heads, self.kv_heads, self.width = hidden, ffn, heads, kv_heads, width
        self.dtype = dtype
        if past:  # the cache is extended where it lies, as the peers do it
            self.options = (f"--kv-capacity={past + new}",)
        self.tolerance = {name: 1.5e-2 for name in ("y", "keys", "values")}
        kind = f"decode {batch}" if past else f"prefill {new}"
        self.group, self.label = "Llama-3-8B layer", kind
        self.name = f"decoder layer {kind}{f' over {past}' if past else ''} {dtype}"
        tokens, kv = batch * new, kv_heads * width
        self.flops = 2 * tokens * hidden * (heads * width * 2 + 2 * kv + 3 * ffn)
        self.flops += 4 * batch * heads * width * (new * past + new * (new + 1) // 2)

    def shrunk(self):
        return Layer(2, 1 if self.sizes["past"] else 5, 7 if self.sizes["past"] else 0, dtype=self.dtype,
                     **self.small_config)

    def tensors(self):
        d, kv = self.dtype, self.kv_heads * self.width
        weight = lambda rows, columns: Spec(d, (rows, columns), weight=True, scale=columns ** -0.5)
        norm = Spec(d, (self.hidden,), weight=True, scale=0.3, shift=1.0)
        tensors = {"x": Spec(d, ("batch", "new", self.hidden)),
                   "cos": Spec(d, ("new", self.width)), "sin": Spec(d, ("new", self.width)),
                   "norm1": norm, "wq": weight(self.heads * self.width, self.hidden),
                   "wk": weight(kv, self.hidden),
                   "wv": weight(kv, self.hidden), "wo": weight(self.hidden, self.heads * self.width),
                   "norm2": norm,
                   "gate": weight(self.ffn, self.hidden), "up": weight(self.ffn, self.hidden),
                   "down": weight(self.hidden, self.ffn)}
        if self.sizes["past"]:
            past = Spec(d, ("batch", self.kv_heads, "past", self.width))
            tensors.update(pastk=past, pastv=past)
        return tensors

    def body(self, graph, v):
        d, row = self.dtype, ("batch", "new", self.hidden)
        total = "past + new" if self.sizes["past"] else "new"
        n = graph.op("rms_norm", [v["x"], v["norm1"]], (d, row), eps=EPS)
        table = (d, (1, 1, "new", self.width))
        cos, sin = (graph.op("reshape", [v[name]], table, shape=[1, 1, "new", self.width])
                    for name in ("cos", "sin"))
        heads = {}
        for name, count in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
            m = graph.op("matmul", [n, v[f"w{name}"]], (d, ("batch", "new", count * self.width)),
                         transpose_b=True)
            m = graph.op("reshape", [m], (d, ("batch", "new", count, self.width)),
                         shape=["batch", "new", count, self.width])
            heads[name] = graph.op("transpose", [m], (d, ("batch", count, "new", self.width)),
                                   perm=(0, 2, 1, 3))
        for name in "qk":
            heads[name] = graph.op("rope", [heads[name], cos, sin], (d, heads[name].dims), interleaved=False,
                                   rotary_dim=self.width)
        results = {}
        if self.sizes["past"]:
            whole = (d, ("batch", self.kv_heads, total, self.width))
            for name in "kv":
                heads[name] = graph.op("concat", [v[f"past{name}"], heads[name]], whole, axis=2)
            results = {"keys": heads["k"], "values": heads["v"]}
        a = graph.op("attention", [heads["q"], heads["k"], heads["v"]], (d, heads["q"].dims),
                     scale=self.width ** -0.5, causal=True)
        a = graph.op("transpose", [a], (d, ("batch", "new", self.heads, self.width)), perm=(0, 2, 1, 3))
        merged = self.heads * self.width
        a = graph.op("reshape", [a], (d, ("batch", "new", merged)), shape=["batch", "new", merged])
        o = graph.op("matmul", [a, v["wo"]], (d, row), transpose_b=True)
        s = graph.op("add", [v["x"], o], (d, row))
        n = graph.op("rms_norm", [s, v["norm2"]], (d, row), eps=EPS)
        wide = (d, ("batch", "new", self.ffn))
        gate, up = (graph.op("matmul", [n, v[name]], wide, transpose_b=True) for name in ("gate", "up"))
        m = graph.op("mul", [graph.op("silu", [gate], wide), up], wide)
        y = graph.op("add", [s, graph.op("matmul", [m, v["down"]], (d, row), transpose_b=True)], (d, row))
        return {"y": y, **results}

    def eager(self, t):
        o, results = self.attended(t)
        s, m = self.fed(t, o)
        return {"y": s + m, **results}

    def attended(self, t):
        """The first half up to where ranks that share the heads would sum, and the cache: one buffer with
        room for the new tokens, as serving engines keep it. A rank's tensors give its number of heads."""
        from torch.nn.functional import linear, scaled_dot_product_attention
        q, k, v = (linear(norm(t["x"], t["norm1"]), t[name]) for name in ("wq", "wk", "wv"))
        q, k, v = (x.unflatten(-1, (-1, self.width)).transpose(1, 2) for x in (q, k, v))
        q, k = rotated(q, t["cos"], t["sin"]), rotated(k, t["cos"], t["sin"])
        results, past = {}, self.sizes["past"]
        if past:
            t["cachek"][:, :, past:] = k
            t["cachev"][:, :, past:] = v
            k, v = t["cachek"], t["cachev"]
            results = {"keys": k, "values": v}
        a = scaled_dot_product_attention(q, k, v, is_causal=not past, enable_gqa=True)
        return linear(a.transpose(1, 2).flatten(2), t["wo"]), results

    def fed(self, t, o):
        """The second half: the sum, and what is added to it, up to where ranks that share the columns would
        sum."""
        from torch.nn.functional import linear, silu
        s = t["x"] + o
        n = norm(s, t["norm2"])
        return s, linear(silu(linear(n, t["gate"])) * linear(n, t["up"]), t["down"])

    def shard(self, t, rank, ranks):
        """One rank's part of the tensors: rows of the first product of a pair, columns of the second, heads
        of the cache."""
        cut = dict.fromkeys(("wq", "wk", "wv", "gate", "up"),
                            0) | dict.fromkeys(("wo", "down", "pastk", "pastv"), 1)
        return {name: tensor.chunk(ranks, cut[name])[rank].contiguous() if name in cut else tensor
                for name, tensor in t.items()}

    def prepared(self, t):
        """The peers' tensors: the past in a buffer with room."""
        import torch
        if not self.sizes["past"]:
            return t
        room = torch.zeros_like(t["pastk"][:, :, :self.sizes["new"]])
        return {**t, "cachek": torch.cat([t["pastk"], room], 2), "cachev": torch.cat([t["pastv"], room], 2)}

    def exact(self, t):
        return self.eager(self.prepared({name: double(tensor) for name, tensor in t.items()}))

    def bytes(self):
        """With the cache written in place: the past is read, and only the new keys and values are written."""
        past = self.sizes["batch"] * self.kv_heads * self.sizes["past"] * self.width * 2
        return super().bytes() - 2 * past


def norm(x, w):
    import torch
    wide = torch.promote_types(x.dtype, torch.float32)
    f = x.to(wide)
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * w


def rotated(x, cos, sin):
    import torch
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
