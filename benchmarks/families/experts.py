"""A block of routed experts as Hugging Face's mixtures have it: router, gate and up, down, the weighted
sum."""
from graph import BYTES, Spec

from .case import Case, double


class Experts(Case):
    pattern, kernels, compiles = "expert_matmul", 9, False
    tolerance = {"y": 1e-2}  # five roundings after the other

    def __init__(self, model, tokens, hidden, inner, experts, slots, f32_weights=False, dtype="bf16"):
        super().__init__(tokens=tokens)
        self.model, self.hidden, self.inner, self.experts, self.slots = model, hidden, inner, experts, slots
        self.f32_weights, self.dtype = f32_weights, dtype
        self.group = f"experts {model}"
        self.label = f"{tokens} tokens"
        self.name = f"experts {model} {tokens} {dtype}"
        self.flops = 2 * tokens * slots * 3 * hidden * inner
        # As many as have 8 GB of weights, at most six as layers; of two a graph's start is a part of each.
        self.most_calls = max(2, min(6, int(8e9 / (6 * experts * hidden * inner))))

    @classmethod
    def qwen3(cls, tokens):
        return cls("Qwen3-30B-A3B", tokens, 2048, 768, 128, 8)

    @classmethod
    def mixtral(cls, tokens):
        return cls("Mixtral-8x7B", tokens, 4096, 14336, 8, 2, f32_weights=True)

    def shrunk(self):
        return Experts(self.model, 5, 64, 40, 6, 2, self.f32_weights, self.dtype)

    def tensors(self):
        h, i, e = self.hidden, self.inner, self.experts
        return {"x": Spec(self.dtype, ("tokens", h)),
                "router": Spec(self.dtype, (e, h), weight=True, scale=h ** -0.5),
                "gate_up": Spec(self.dtype, (e, 2 * i, h), weight=True, scale=h ** -0.5),
                "down": Spec(self.dtype, (e, h, i), weight=True, scale=i ** -0.5)}

    def body(self, graph, v):
        t, h, i, s, d = "tokens", self.hidden, self.inner, self.slots, self.dtype
        probabilities = ("f32", (t, self.experts))
        logits = graph.op("matmul", [v["x"], v["router"]], (d, (t, self.experts)), transpose_b=True)
        p = graph.op("softmax", [graph.op("cast", [logits], probabilities)], probabilities, axis=1)
        index = graph.op("top_k", [p], ("i64", (t, s)), axis=1, k=[s])
        top = graph.op("gather_elements", [p, index], ("f32", (t, s)), axis=1)
        total = graph.op("reduce", [top], ("f32", (t, 1)), kind="sum", axes=(1,), keepdims=True)
        weights = graph.op("div", [top, total], ("f32", (t, s)))
        w = "f32" if self.f32_weights else d
        if w != "f32":
            weights = graph.op("cast", [weights], (w, (t, s)))
        weights = graph.op("reshape", [weights], (w, (t, s, 1)), shape=[t, s, 1])
        rows = graph.op("reshape", [v["x"]], (d, (t, 1, h)), shape=[t, 1, h])
        both = graph.op("expert_matmul", [rows, v["gate_up"], index], (d, (t, s, 2 * i)), transpose_w=True)
        gate, up = (graph.op("slice", [both], (d, (t, s, i)), starts=[0, 0, at], sizes=[t, s, i],
                             steps=(1, 1, 1))
                    for at in (0, i))
        inner = graph.op("mul", [graph.op("silu", [gate], (d, (t, s, i))), up], (d, (t, s, i)))
        out = graph.op("expert_matmul", [inner, v["down"], index], (d, (t, s, h)), transpose_w=True)
        if w != d:
            out = graph.op("cast", [out], (w, (t, s, h)))
        y = graph.op("mul", [out, weights], (w, (t, s, h)))
        y = graph.op("reduce", [y], (w, (t, h)), kind="sum", axes=(1,), keepdims=False)
        return {"y": graph.op("cast", [y], (d, (t, h))) if w != d else y, "i": index}

    def module(self, t, implementation):
        """Hugging Face's block."""
        import torch
        if self.f32_weights:
            from transformers.models.mixtral.configuration_mixtral import MixtralConfig as Config
            from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock as Block
            config = Config(hidden_size=self.hidden, intermediate_size=self.inner,
                            num_local_experts=self.experts,
                            num_experts_per_tok=self.slots)
        else:
            from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig as Config
            from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock as Block
            config = Config(hidden_size=self.hidden, moe_intermediate_size=self.inner,
                            num_experts=self.experts,
                            num_experts_per_tok=self.slots, norm_topk_prob=True)
        config._experts_implementation = implementation
        with torch.device("meta"):
            block = Block(config)
        for owner, name, value in ((block.gate, "weight", t["router"]),
                                   (block.experts, "gate_up_proj", t["gate_up"]),
                                   (block.experts, "down_proj", t["down"])):
            setattr(owner, name, torch.nn.Parameter(value, requires_grad=False))
        return block.eval()

    def step(self, implementation, compiled=False):
        def prepare(t):
            import torch
            block, x = self.module(t, implementation), t["x"].unsqueeze(0)
            run = torch.compile(block, dynamic=False) if compiled else block

            with torch.no_grad():
                index = block.gate(t["x"])[2]  # the choice is checked, too; not timed

            def call():
                with torch.no_grad():
                    return {"y": run(x)[0], "i": index}
            return call, lambda: None
        prepare.prepares = True
        return prepare

    @property
    def eager(self):
        return self.step("grouped_mm")

    def peers(self):
        found = {"grouped_mm compile": self.step("grouped_mm", compiled=True)}
        if self.sizes["tokens"] <= 64:  # it copies a matrix for each token and slot
            found.update({"batched_mm": self.step("batched_mm"),
                          "batched_mm compile": self.step("batched_mm", compiled=True)})
        return found

    def exact(self, t):
        """By the experts that a result chose, if these are the largest, up to the rounding of the router."""
        import torch
        from torch.nn.functional import silu
        x = double(t["x"])
        logits = x @ double(t["router"]).T

        def of(result):
            index = result["i"].to(x.device)
            chosen = logits.gather(1, index)
            least = logits.topk(self.slots, dim=1).values[:, -1]
            wrong = (chosen.amin(dim=1) < least - 0.02 * least.abs() - 1e-3).sum().item()
            if wrong or (index.sort(dim=1).values.diff(dim=1) == 0).any():
                raise ValueError(f"other experts than the largest in {wrong} rows")
            weights = chosen.softmax(dim=1)
            y = torch.zeros_like(x)
            for expert in index.unique().tolist():
                rows, slots = (index == expert).nonzero(as_tuple=True)
                gate, up = (x[rows] @ double(t["gate_up"][expert]).T).chunk(2, dim=1)
                made = (silu(gate) * up) @ double(t["down"][expert]).T
                y.index_add_(0, rows, made * weights[rows, slots, None])
            return {"y": y}
        return of

    def bytes(self):
        """What must move: x and y, the router, and the matrices of the experts that random choices hit."""
        tokens, count = self.sizes["tokens"], BYTES[self.dtype]
        hit = self.experts * (1 - (1 - self.slots / self.experts) ** tokens)
        return int(count * (2 * tokens * self.hidden + self.experts * self.hidden + hit * 3 * self.hidden * self.inner))
