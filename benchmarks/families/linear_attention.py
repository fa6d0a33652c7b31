"""The gated delta rule of Qwen3.5: 16 heads of queries and keys, 32 of values, of 128; the state in f32."""
from graph import Spec

from .case import Case, double


class LinearAttention(Case):
    # Products of many tokens are those of bf16, where results leave in f32 too.
    tolerance = {"state": 6e-3}

    def __init__(self, batch, tokens, heads=32, key_heads=16, width=128, dtype="bf16"):
        super().__init__(batch=batch, tokens=tokens)
        self.heads, self.key_heads, self.width, self.dtype = heads, key_heads, width, dtype
        kind = "decode" if tokens == 1 else "prefill"
        self.group = f"gated delta rule, {kind}"
        self.label = str(batch if tokens == 1 else tokens)
        self.name = f"{self.group} {batch}x{tokens} {key_heads}/{heads}x{width} {dtype}"
        self.compiles = tokens == 1
        if tokens > 1:
            self.eager = "token by token: too many kernels"
        self.flops = 8 * batch * tokens * heads * width * width if tokens > 1 else 0

    def shrunk(self):
        return LinearAttention(2, 1 if self.sizes["tokens"] == 1 else 70, 4, 2, 16, self.dtype)

    def tensors(self):
        rows, heads = ("batch", "tokens"), self.heads
        return {"q": Spec(self.dtype, (*rows, self.key_heads, self.width)),
                "k": Spec(self.dtype, (*rows, self.key_heads, self.width), scale=self.width ** -0.5),
                "v": Spec(self.dtype, (*rows, heads, self.width)),
                "decay": Spec("f32", (*rows, heads), scale=0.05, shift=-0.2),
                "beta": Spec(self.dtype, (*rows, heads), scale=0.1, shift=0.5),
                "past": Spec("f32", ("batch", heads, self.width, self.width))}

    def body(self, graph, v):
        def heads_first(value):
            b, t, h, *width = value.dims
            if not width:
                value = graph.op("reshape", [value], (value.dtype, (b, t, h, 1)), shape=[b, t, h, 1])
            return graph.op("transpose", [value], (value.dtype, (b, h, t, *(width or [1]))),
                            perm=(0, 2, 1, 3))
        values = heads_first(v["v"])
        y, state = graph.op("linear_attention",
                            [heads_first(v["q"]), heads_first(v["k"]), values, v["past"],
                             heads_first(v["decay"]),
                             heads_first(v["beta"])],
                            (self.dtype, values.dims), ("f32", v["past"].dims), scale=self.width ** -0.5,
                            raw="operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>")
        b, h, t, width = y.dims
        y = graph.op("transpose", [y], (self.dtype, (b, t, h, width)), perm=(0, 2, 1, 3))
        return {"y": graph.op("reshape", [y], (self.dtype, (b, t, h * width)), shape=[b, t, h * width]),
                "state": state}

    def eager(self, t):
        made = self.stepped(t, lambda tensor: tensor.float())
        return {**made, "y": made["y"].to(t["q"].dtype)}

    def exact(self, t):
        return self.stepped(t, double)

    def stepped(self, t, wide):
        """Token by token, as the rule is defined."""
        import torch
        share = self.heads // self.key_heads
        q, k = (wide(t[name]).repeat_interleave(share, 2) for name in "qk")
        v, beta, factor, state = wide(t["v"]), wide(t["beta"]), wide(t["decay"]).exp(), wide(t["past"]).clone()
        results = []
        for i in range(v.shape[1]):
            state *= factor[:, i, :, None, None]
            known = torch.einsum("bhd,bhde->bhe", k[:, i], state)
            state += torch.einsum("bhd,bhe->bhde", k[:, i], (v[:, i] - known) * beta[:, i, :, None])
            results.append(torch.einsum("bhd,bhde->bhe", q[:, i], state) * self.width ** -0.5)
        return {"y": torch.stack(results, 1), "state": state}

    def peers(self):
        try:
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
        except ImportError as missing:
            return {"fla": str(missing)}
        rule = fused_recurrent_gated_delta_rule if self.sizes["tokens"] == 1 else chunk_gated_delta_rule

        def step(t):
            y, state = rule(t["q"], t["k"], t["v"], g=t["decay"], beta=t["beta"], scale=self.width ** -0.5,
                            initial_state=t["past"], output_final_state=True)
            return {"y": y, "state": state}
        return {"fla": step}
