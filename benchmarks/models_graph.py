"""The graphs of models.py: a whole model, its random weights and inputs, in the compiler's text form."""
import json
import math
import random
import struct
from dataclasses import dataclass

from graph import BYTES, WEIGHTS, Graph, Spec

BLOCK = 1 << 20
WINDOW = 512


@dataclass(frozen=True)
class Model:
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    width: int
    vocabulary: int
    theta: float
    qk_norm: bool = False
    tied: bool = True
    # Norms after attention and feed-forward too, GELU, scaled embeddings, windows in five layers of six.
    gemma: bool = False
    eps: float = 1e-5
    experts: int = 0  # of which `slots` compute a token; `ffn` is then the width of one
    slots: int = 0
    # Of so many weights along k that share a scale: those of matmuls are codes of 4 bits less 8, as
    # onnxruntime-genai's builder writes them; the embedding is not. 0: 16 bits.
    block: int = 0

    def weight_bytes(self, count):
        return count * (0.5 + 2 / self.block) if self.block else 2 * count

    def windowed(self, layer):
        return self.gemma and layer % 6 != 5

    def step_bytes(self, batch, new, past):
        """What a step must move: the weights once (of experts those that random choices hit), rows of the
        embedding, the caches' past read and the new positions written, logits of the last position."""
        inner, kv = self.heads * self.width, self.kv_heads * self.width
        layer = self.hidden * (2 * inner + 2 * kv)
        hit = self.experts * (1 - (1 - self.slots / self.experts) ** (batch * new)) if self.experts else 1
        layer += 3 * self.hidden * self.ffn * hit + self.experts * self.hidden
        read = sum(min(past, WINDOW) if self.windowed(i) else past for i in range(self.layers))
        caches = batch * 2 * kv * (read + self.layers * new)
        rows = caches + batch * new * self.hidden + batch * self.vocabulary
        return self.weight_bytes(self.layers * layer + self.vocabulary * self.hidden) + 2 * rows

    def step_flops(self, batch, new, past):
        inner, kv = self.heads * self.width, self.kv_heads * self.width
        layer = 2 * batch * new * self.hidden * (2 * inner + 2 * kv + 3 * self.ffn * max(1, self.slots))
        pairs = sum(min(past + at + 1, WINDOW) if self.windowed(i) else past + at + 1
                    for i in range(self.layers) for at in range(new))
        return self.layers * layer + 4 * batch * inner * pairs + 2 * batch * self.hidden * self.vocabulary


MODELS = {
    "llama-3.2-1b":
    Model(16, 2048, 8192, 32, 8, 64, 128256, 5e5),
    "llama-3.1-8b":
    Model(32, 4096, 14336, 32, 8, 128, 128256, 5e5, tied=False),
    "qwen3-4b":
    Model(36, 2560, 9728, 32, 8, 128, 151936, 1e6, qk_norm=True, eps=1e-6),
    "gemma-3-1b":
    Model(26, 1152, 6912, 4, 1, 256, 262144, 1e6, qk_norm=True, gemma=True, eps=1e-6),
    # A quarter of the layers of Qwen3-30B-A3B: the whole one has 61 GB of weights.
    "qwen3-30b-a3b-12-layers":
    Model(12, 2048, 768, 32, 4, 128, 151936, 1e6, qk_norm=True, tied=False, eps=1e-6, experts=128, slots=8),
    "llama-3.2-1b-int4":
    Model(16, 2048, 8192, 32, 8, 64, 128256, 5e5, tied=False, block=32),
    "llama-3.1-8b-int4":
    Model(32, 4096, 14336, 32, 8, 128, 128256, 5e5, tied=False, block=32),
    # For machines without a GPU.
    "tiny":
    Model(2, 64, 96, 4, 2, 16, 96, 1e4, qk_norm=True),
    "tiny-experts":
    Model(2, 64, 40, 4, 2, 16, 96, 1e4, qk_norm=True, experts=6, slots=2),
    "tiny-int4":
    Model(2, 128, 192, 4, 2, 32, 96, 1e4, tied=False, block=32),
    "tiny-gemma":
    Model(6, 64, 96, 4, 1, 16, 96, 1e4, qk_norm=True, gemma=True),
}
CASES = {
    "decode-1": (1, 1, 1024), "decode-8": (8, 1, 1024), "decode-32": (32, 1, 1024), "prefill-2048":
    (1, 2048, 0)
}


class Writer:
    """The graph of a model and its weights, by name: offset and shape in the file."""

    def __init__(self, name):
        self.name, self.m, self.g, self.places, self.d = name, MODELS[name], Graph(), {}, "bf16"
        self.row = ("batch", "new", self.m.hidden)
        self.build()

    def weight(self, name, *dims, dtype=None):
        if name in self.places:
            return self.places[name][2]
        offset = self.g.weight_bytes
        value = self.g.weight(name, Spec(dtype or self.d, dims, weight=True))
        self.places[name] = (offset, dims, value)
        return value

    def op(self, name, operands, dims, **attributes):
        return self.g.op(name, operands, (attributes.pop("dtype", self.d), dims), **attributes)

    def norm(self, x, name):
        return self.op("rms_norm", [x, self.weight(name, x.dims[-1])], x.dims, eps=self.m.eps)

    def linear(self, x, name, columns):
        return self.op("matmul", [x, self.matrix(name, columns, x.dims[-1])], (*x.dims[:-1], columns),
                       transpose_b=True)

    def matrix(self, name, columns, rows):
        block = self.m.block
        if not block:
            return self.weight(name, columns, rows)
        scales = self.weight(f"{name}.scales", columns, rows // block)
        eight = self.op("constant", [], (), dtype="ui4", raw="value = dense<8> : tensor<ui4>")
        eights = self.op("expand", [eight], scales.dims, dtype="ui4", shape=list(scales.dims))
        return self.op("dequantize", [self.weight(f"{name}.codes", columns, rows, dtype="ui4"), scales, eights],
                       (columns, rows),
                       axis=1,
                       block_size=block,
                       unrounded=True)

    def angles(self, positions):
        half = self.m.width // 2
        rates = ", ".join(f"{self.m.theta ** (-i / half):.9e}" for i in range(half))
        rates = self.op("constant", [], (1, 1, 1, half),
                        dtype="f32",
                        raw=f"value = dense<[[[[{rates}]]]]> : tensor<1x1x1x{half}xf32>")
        places = self.op("reshape", [self.op("cast", [positions], ("batch", "new"), dtype="f32")],
                         ("batch", 1, "new", 1),
                         dtype="f32",
                         shape=["batch", 1, "new", 1])
        turned = self.op("mul", [places, rates], ("batch", 1, "new", half), dtype="f32")
        return [
            self.op("cast", [self.op(name, [turned], turned.dims, dtype="f32")], turned.dims)
            for name in ("cos", "sin")
        ]

    def build(self):
        m, g = self.m, self.g
        ids = g.input("input_ids", Spec("i64", ("batch", "new")))
        positions = g.input("position_ids", Spec("i64", ("batch", "new")))
        x = self.op("gather", [self.weight("embed", m.vocabulary, m.hidden), ids], self.row, axis=0)
        if m.gemma:
            scale = self.op("constant", [], (),
                            raw=f"value = dense<{math.sqrt(m.hidden):.9e}> : tensor<bf16>")
            x = self.op("mul", [x, scale], self.row)
        cos, sin = self.angles(positions)
        pasts = {}
        for i in range(m.layers):
            for kind in ("key", "value"):
                pasts[kind, i] = g.input(f"past_{kind}_{i}",
                                         Spec(self.d, ("batch", m.kv_heads, "past", m.width)))
        for i in range(m.layers):
            x = self.layer(i, x, cos, sin, pasts)
        x = self.norm(x, "norm")
        g.results.insert(0, ("logits", self.linear(x, "embed" if m.tied else "head", m.vocabulary)))

    def layer(self, i, x, cos, sin, pasts):
        m = self.m
        n = self.norm(x, f"{i}.norm1")
        heads = {}
        for name, count in (("q", m.heads), ("k", m.kv_heads), ("v", m.kv_heads)):
            h = self.linear(n, f"{i}.{name}", count * m.width)
            h = self.op("reshape", [h], ("batch", "new", count, m.width),
                        shape=["batch", "new", count, m.width])
            if m.qk_norm and name != "v":
                h = self.norm(h, f"{i}.{name}_norm")
            h = self.op("transpose", [h], ("batch", count, "new", m.width), perm=(0, 2, 1, 3))
            if name != "v":
                h = self.op("rope", [h, cos, sin], h.dims, interleaved=False, rotary_dim=m.width)
            heads[name] = h
        for name, kind in (("k", "key"), ("v", "value")):
            heads[name] = self.op("concat", [pasts[kind, i], heads[name]],
                                  ("batch", m.kv_heads, "past + new", m.width),
                                  axis=2)
            self.g.output(f"present_{kind}_{i}", heads[name])
        a = self.op("attention", [heads["q"], heads["k"], heads["v"]],
                    heads["q"].dims,
                    scale=m.width ** -0.5,
                    causal=True,
                    **({"window": WINDOW} if m.windowed(i) else {}))
        a = self.op("transpose", [a], ("batch", "new", m.heads, m.width), perm=(0, 2, 1, 3))
        a = self.op("reshape", [a], ("batch", "new", m.heads * m.width),
                    shape=["batch", "new", m.heads * m.width])
        a = self.linear(a, f"{i}.o", m.hidden)
        x = self.op("add", [x, self.norm(a, f"{i}.norm1b") if m.gemma else a], self.row)
        n = self.norm(x, f"{i}.norm2")
        f = self.experts(i, n) if m.experts else self.feed_forward(i, n)
        return self.op("add", [x, self.norm(f, f"{i}.norm2b") if m.gemma else f], self.row)

    def feed_forward(self, i, n):
        m = self.m
        gate, up = (self.linear(n, f"{i}.{name}", m.ffn) for name in ("gate", "up"))
        gate = self.op("gelu", [gate], gate.dims, approximate="tanh") if m.gemma else self.op(
            "silu", [gate], gate.dims)
        return self.linear(self.op("mul", [gate, up], gate.dims), f"{i}.down", m.hidden)

    def experts(self, i, n):
        """Qwen3's block: softmax over all experts, the largest divided by their sum."""
        m, at = self.m, ("batch", "new")
        scores = self.op("cast", [self.linear(n, f"{i}.router", m.experts)], (*at, m.experts), dtype="f32")
        scores = self.op("softmax", [scores], scores.dims, dtype="f32", axis=2)
        chosen = self.op("top_k", [scores], (*at, m.slots), dtype="i64", axis=2, k=[m.slots])
        top = self.op("gather_elements", [scores, chosen], chosen.dims, dtype="f32", axis=2)
        total = self.op("reduce", [top], (*at, 1), dtype="f32", kind="sum", axes=(2,), keepdims=True)
        weights = self.op("cast", [self.op("div", [top, total], chosen.dims, dtype="f32")], chosen.dims)
        weights = self.op("reshape", [weights], (*at, m.slots, 1), shape=[*at, m.slots, 1])
        rows = self.op("reshape", [n], (*at, 1, m.hidden), shape=[*at, 1, m.hidden])
        wide = (*at, m.slots, m.ffn)
        gate, up = (self.op("expert_matmul",
                            [rows, self.weight(f"{i}.{name}", m.experts, m.ffn, m.hidden), chosen],
                            wide,
                            transpose_w=True) for name in ("gate", "up"))
        inner = self.op("mul", [self.op("silu", [gate], wide), up], wide)
        out = self.op("expert_matmul", [inner, self.weight(f"{i}.down", m.experts, m.hidden, m.ffn), chosen],
                      (*at, m.slots, m.hidden), transpose_w=True)
        return self.op("reduce", [self.op("mul", [out, weights], out.dims)],
                       n.dims,
                       kind="sum",
                       axes=(2, ),
                       keepdims=False)

    def write(self, folder):
        source = random.Random(1)
        # Numbers of 16 bits, of a deviation of about 0.02: a random mantissa under one of two exponents.
        # Norms' are 1. Scales of codes are from 2^-8 to 2^-7.
        pattern = bytearray(source.randbytes(BLOCK))
        pattern[1::2] = bytes(source.choice((0x3c, 0xbc)) for _ in range(BLOCK // 2))
        with open(f"{folder}/{WEIGHTS}", "wb") as file:
            codes, scales = source.randbytes(BLOCK), bytearray(source.randbytes(BLOCK))
            scales[0::2] = bytes(byte | 0x80 for byte in scales[0::2])
            scales[1::2] = b"\x3b" * (BLOCK // 2)
            for name, (offset, dims, value) in self.places.items():
                file.seek(offset)
                size, start = int(BYTES[value.dtype] * math.prod(dims)), source.randrange(BLOCK // 2) * 2
                block = codes if value.dtype == "ui4" else scales if name.endswith(".scales") else pattern
                block = b"\x80\x3f" * dims[0] if len(dims) == 1 else bytes(block[start:] + block[:start])
                while size > 0:
                    file.write(block[:min(len(block), size)])
                    size -= len(block)
        with open(f"{folder}/graph.mlir", "w") as file:
            file.write(self.g.text())

    def write_inputs(self, path, batch, new, past):
        source, header, data = random.Random(2), {}, []

        def add(name, kind, shape, blocks, size):
            end = sum(part[1] for part in data)
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
            data.append((blocks, size))

        ids = b"".join(struct.pack("<q", source.randrange(self.m.vocabulary)) for _ in range(batch * new))
        add("input_ids", "I64", [batch, new], ids, len(ids))
        places = b"".join(struct.pack("<q", past + i % new) for i in range(batch * new))
        add("position_ids", "I64", [batch, new], places, len(places))
        noise = bytearray(source.randbytes(BLOCK))
        noise[1::2] = bytes(source.choice((0x3e, 0xbe)) for _ in range(BLOCK // 2))
        for i in range(self.m.layers):
            for kind in ("key", "value"):
                shape = [batch, self.m.kv_heads, past, self.m.width]
                add(f"past_{kind}_{i}", "BF16", shape, bytes(noise), 2 * math.prod(shape))
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for block, size in data:
                while size > 0:
                    file.write(block[:min(len(block), size)])
                    size -= len(block)
