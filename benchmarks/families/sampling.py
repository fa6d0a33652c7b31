"""The end of a decode step: a token drawn from logits (what FlashInfer has kernels for), and the head's product
with the largest of each row."""
from graph import Spec

from .case import Case, double

SLACK = 1e-4  # of a probability: those beside the last one that is kept differ by roundings


class Sampling(Case):
    KINDS = {"plain": (0, 1.0), "top-p": (0, 0.9), "top-k top-p": (50, 0.9)}
    pattern, kernels = None, 7

    def __init__(self, kind, rows, vocabulary=128256, dtype="f32"):
        super().__init__(rows=rows)
        self.kind, self.vocabulary, self.dtype = kind, vocabulary, dtype
        self.top_k, self.top_p = self.KINDS[kind]
        self.group = f"sampling {kind}"
        self.label = f"{rows}x{vocabulary}" + ("" if dtype == "f32" else f" {dtype}")
        self.name = f"{self.group} {rows}x{vocabulary} {dtype}"

    def shrunk(self):
        return Sampling(self.kind, 3, 301, self.dtype)

    def tensors(self):
        return {"x": Spec(self.dtype, ("rows", self.vocabulary), scale=2.0),
                "seed": Spec("i64", (2,), scale=1e6, shift=1e7)}

    def body(self, graph, v):
        return {"y": graph.op("sample", [v["x"], v["seed"]], ("i64", ("rows",)), temperature=1.0,
                              top_k=self.top_k, raw=f"top_p = {self.top_p:.9e} : f64")}

    def eager(self, t):
        """As gpt-fast draws: noise and the largest quotient instead of a multinomial that the host waits for."""
        import torch
        p = torch.softmax(t["x"].float(), -1)
        if self.top_k or self.top_p < 1:
            p, places = p.topk(self.top_k, -1) if self.top_k else p.sort(-1, descending=True)
            p = p / p.sum(-1, keepdim=True)
            p = p * (p.cumsum(-1) - p < self.top_p)
        drawn = (p / torch.empty_like(p).exponential_(1)).argmax(-1, keepdim=True)
        return {"y": (places.gather(-1, drawn) if self.top_k or self.top_p < 1 else drawn).squeeze(-1)}

    def exact(self, t):
        """Any token that may be drawn."""
        import torch
        p = torch.softmax(double(t["x"]), -1)

        def wanted(got):
            y = got["y"].long()
            larger = p > p.gather(-1, y.unsqueeze(-1))
            kept = p.topk(self.top_k, -1).values.sum(-1) if self.top_k else 1.0
            right = (p * larger).sum(-1) < (self.top_p + SLACK) * kept
            if self.top_k:
                right &= larger.sum(-1) < self.top_k
            return {"y": torch.where(right, y, -1).double()}
        return wanted

    def peers(self):
        try:
            from flashinfer import sampling
        except ImportError:
            return {"flashinfer": "flashinfer is not installed"}

        def step(t):
            import torch
            seed, offset = (torch.tensor([value], dtype=torch.int64, device=t["x"].device) for value in (7, 0))
            by = {"seed": seed, "offset": offset}

            def call():
                x = t["x"].float()
                if self.top_k:
                    return {"y": sampling.top_k_top_p_sampling_from_logits(x, self.top_k, self.top_p, **by)}
                if self.top_p < 1:
                    return {"y": sampling.top_p_sampling_from_probs(sampling.softmax(x), self.top_p, **by)}
                return {"y": sampling.sampling_from_logits(x, **by)}
            return call, lambda: None
        step.prepares = True
        return {"flashinfer": step}


class Head(Case):
    """Logits of a vocabulary and the largest of each row; the logits leave, as `--generate` returns them."""
    pattern, kernels, autotune = "matmul_arg_max", 2, True

    def __init__(self, rows, vocabulary=128256, hidden=2048, dtype="bf16"):
        super().__init__(rows=rows)
        self.vocabulary, self.hidden, self.dtype = vocabulary, hidden, dtype
        self.group = "head + arg max"
        self.label = f"{rows}x{vocabulary}x{hidden}" + ("" if dtype == "bf16" else f" {dtype}")
        self.name = f"{self.group} {rows}x{vocabulary}x{hidden} {dtype}"
        self.flops = 2 * rows * vocabulary * hidden

    def shrunk(self):
        return Head(3, 320, 128, self.dtype)

    def tensors(self):
        return {"x": Spec(self.dtype, ("rows", self.hidden)),
                "w": Spec(self.dtype, (self.vocabulary, self.hidden), weight=True, scale=self.hidden ** -0.5)}

    def body(self, graph, v):
        logits = graph.op("matmul", [v["x"], v["w"]], (self.dtype, ("rows", self.vocabulary)), transpose_b=True)
        return {"logits": logits,
                "y": graph.op("arg_max", [logits], ("i64", ("rows",)), axis=1, keepdims=False)}

    def eager(self, t):
        import torch
        logits = torch.nn.functional.linear(t["x"], t["w"])
        return {"logits": logits, "y": logits.argmax(-1)}

    def exact(self, t):
        import torch
        logits = double(t["x"]) @ double(t["w"]).t()

        def wanted(got):
            # Of those that round to the same, any that rounds to the largest.
            y = got["y"].long()
            found = got["logits"].double().gather(-1, y.unsqueeze(-1)).squeeze(-1)
            return {"logits": logits,
                    "y": torch.where(found == got["logits"].double().amax(-1), y, -1).double()}
        return wanted
