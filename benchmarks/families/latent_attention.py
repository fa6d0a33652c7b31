"""Latent attention (MLA) over its compressed cache, absorbed: the sizes of DeepSeek-V3 (128 heads, or 16 of
them on each of 8 GPUs), one query a sequence. Keys are 512 columns, which are the values too, and 64 rotated
ones in a cache of their own."""
from graph import Spec

from .case import Case, double


class LatentAttention(Case):
    group = "latent attention, decode"
    pattern, kernels = "latent_attention", 2  # of few sequences several clusters share the keys of one

    def __init__(self, batch, keys, heads, width=512, rotated=64, dtype="bf16"):
        super().__init__(batch=batch, keys=keys)
        self.heads, self.width, self.rotated, self.dtype = heads, width, rotated, dtype
        self.label = f"{batch}x{keys}, {heads} heads"
        self.name = f"{self.group} {batch}x{keys} {heads}x{width}+{rotated} {dtype}"
        self.scale = (192 if width == 512 else width) ** -0.5  # of the heads before the absorption
        self.flops = 2 * batch * heads * keys * (2 * width + rotated)

    def shrunk(self):
        return LatentAttention(2, 37, 4, 256, 32, self.dtype)

    def tensors(self):
        def of(heads, rows, width):
            return Spec(self.dtype, ("batch", heads, rows, width))
        return {"q": of(self.heads, 1, self.width),
                "q_rotated": of(self.heads, 1, self.rotated),
                "kv": of(1, "keys", self.width),
                "k_rotated": of(1, "keys", self.rotated)}

    def body(self, graph, v):
        wide = self.width + self.rotated
        q = graph.op("concat", [v["q"], v["q_rotated"]], (self.dtype, ("batch", self.heads, 1, wide)), axis=3)
        k = graph.op("concat", [v["kv"], v["k_rotated"]], (self.dtype, ("batch", 1, "keys", wide)), axis=3)
        return {"y": graph.op("attention", [q, k, v["kv"]], (self.dtype, v["q"].dims), scale=self.scale,
                              causal=False)}

    def eager(self, t):
        """As DeepSeek's own code has it."""
        import torch
        q, r, kv, k = t["q"][:, :, 0], t["q_rotated"][:, :, 0], t["kv"][:, 0], t["k_rotated"][:, 0]
        scores = (q @ kv.transpose(1, 2) + r @ k.transpose(1, 2)) * self.scale
        return {"y": (torch.softmax(scores.float(), -1).to(kv.dtype) @ kv)[:, :, None]}

    def exact(self, t):
        import torch
        results = []
        for b in range(self.sizes["batch"]):
            q, r, kv, k = (double(t[name][b]) for name in ("q", "q_rotated", "kv", "k_rotated"))
            scores = (q[:, 0] @ kv[0].T + r[:, 0] @ k[0].T) * self.scale
            results.append((torch.softmax(scores, -1) @ kv[0])[:, None])
        return {"y": torch.stack(results)}

    def peers(self):
        try:
            import flashinfer.mla
        except ImportError:
            return {"flashinfer": "flashinfer is not installed"}
        return {f"flashinfer {backend}": self.paged(flashinfer.mla, backend) for backend in ("fa2", "fa3")}

    def paged(self, mla, backend):
        """Pages of 64 that lie in order. What plan() computes on the host is not timed."""
        import torch
        batch, keys, page = self.sizes["batch"], self.sizes["keys"], 64
        pages = (keys + page - 1) // page

        def count(last, step=1):
            return torch.arange(0, last * step + 1, step, dtype=torch.int32, device="cuda")
        wrapper = mla.BatchMLAPagedAttentionWrapper(torch.empty(128 << 20, dtype=torch.int8, device="cuda"),
                                                    backend=backend)
        wrapper.plan(count(batch), count(batch, pages), count(batch * pages - 1),
                     torch.full((batch,), keys, dtype=torch.int32, device="cuda"), self.heads, self.width,
                     self.rotated, page, False, self.scale, torch.bfloat16, torch.bfloat16)

        def step(t):
            kv, k = t["kv"].view(-1, page, self.width), t["k_rotated"].view(-1, page, self.rotated)
            return {"y": wrapper.run(t["q"][:, :, 0], t["q_rotated"][:, :, 0], kv, k)[:, :, None]}
        return step
