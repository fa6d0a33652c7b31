"""Attention with grouped heads, 32 of 128 over 8 of keys and values: causal prefill, and decode of one
query."""
from graph import Spec

from .case import Case, double


class Attention(Case):
    compiles = False

    def __init__(self, batch, queries, keys, heads=32, kv_heads=8, width=128, dtype="bf16"):
        super().__init__(batch=batch, queries=queries, keys=keys)
        self.heads, self.kv_heads, self.width, self.dtype = heads, kv_heads, width, dtype
        self.causal = queries > 1
        self.group = "attention, causal prefill" if self.causal else "attention, decode"
        self.label = str(queries) if self.causal and batch == 1 else f"{batch}x{keys}"
        self.name = f"{self.group} {batch}x{keys} {heads}/{kv_heads}x{width} {dtype}"
        pairs = queries * (keys + 1) // 2 if self.causal else keys
        self.flops = 4 * batch * heads * width * pairs

    def shrunk(self):
        return Attention(2, 5 if self.causal else 1, 5 if self.causal else 37, 4, 2, 32, self.dtype)

    def tensors(self):
        key = Spec(self.dtype, ("batch", self.kv_heads, "queries" if self.causal else "keys", self.width))
        return {"q": Spec(self.dtype, ("batch", self.heads, "queries" if self.causal else 1, self.width)),
                "k": key,
                "v": key}

    def body(self, graph, v):
        return {"y": graph.op("attention", [v["q"], v["k"], v["v"]], (self.dtype, v["q"].dims),
                              scale=self.width ** -0.5, causal=self.causal)}

    def eager(self, t):
        from torch.nn.functional import scaled_dot_product_attention
        return {"y": scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=self.causal,
                                                  enable_gqa=True)}

    def exact(self, t):
        import torch
        groups, results = self.heads // self.kv_heads, []
        mask = torch.ones(t["q"].shape[2], t["k"].shape[2], dtype=torch.bool, device=t["q"].device).tril()
        for head in range(self.heads):  # one at a time: the scores of all would not fit
            q, k, v = double(t["q"][:, head]), double(t["k"][:, head // groups]), double(t["v"][:, head // groups])
            s = q @ k.transpose(-1, -2) * self.width ** -0.5
            s = s.masked_fill(~mask, float("-inf")) if self.causal else s
            results.append(torch.softmax(s, -1) @ v)
        return {"y": torch.stack(results, 1)}

    def peers(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def through(backend):
            def step(t):
                with sdpa_kernel(backend):
                    return self.eager(t)
            return step
        return {"cudnn": through(SDPBackend.CUDNN_ATTENTION), "flash": through(SDPBackend.FLASH_ATTENTION)}
