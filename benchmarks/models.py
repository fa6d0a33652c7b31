#!/usr/bin/env python3
"""Whole models with random weights: a step of decode over cached positions, and the prefill of a prompt.

    benchmarks/models.py [--fusion-run=build/bin/fusion-run] [--models=llama-3.2-1b,…]
        [--cases=decode-1,prefill-2048]
                         [--peers] [--write=FOLDER] [--json=FILE]

Each case: microseconds of a step on the device, fused and with --no-fuse, the chosen tokens left there; with
--generate also with the host, from a prompt of as many positions. --peers measures a hand-written stack of
PyTorch beside it, over the same weights: packed QKV and gate/up, in-place caches, in a CUDA graph, compiled
by default and by max-autotune.
"""
import argparse
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from graph import WEIGHTS, Graph, Spec  # noqa: E402

BLOCK = 1 << 20


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
    gemma: bool = False  # norms after attention and feed-forward too, GELU, scaled embeddings, windows of 512 in five layers of six
    eps: float = 1e-5

    def windowed(self, layer):
        return self.gemma and layer % 6 != 5


MODELS = {
    "llama-3.2-1b": Model(16, 2048, 8192, 32, 8, 64, 128256, 5e5),
    "llama-3.1-8b": Model(32, 4096, 14336, 32, 8, 128, 128256, 5e5, tied=False),
    "qwen3-4b": Model(36, 2560, 9728, 32, 8, 128, 151936, 1e6, qk_norm=True, eps=1e-6),
    "gemma-3-1b": Model(26, 1152, 6912, 4, 1, 256, 262144, 1e6, qk_norm=True, gemma=True, eps=1e-6),
    # For machines without a GPU.
    "tiny": Model(2, 64, 96, 4, 2, 16, 96, 1e4, qk_norm=True),
}
CASES = {"decode-1": (1, 1, 1024), "decode-8": (8, 1, 1024), "decode-32": (32, 1, 1024),
         "prefill-2048": (1, 2048, 0)}


class Writer:
    """The graph of a model and its weights, by name: offset and shape in the file."""

    def __init__(self, model):
        self.m, self.g, self.places, self.d = model, Graph(), {}, "bf16"
        self.row = ("batch", "new", model.hidden)
        self.build()

    def weight(self, name, *dims):
        if name in self.places:
            return self.places[name][2]
        offset = self.g.weight_bytes
        value = self.g.weight(name, Spec(self.d, dims, weight=True))
        self.places[name] = (offset, dims, value)
        return value

    def op(self, name, operands, dims, **attributes):
        return self.g.op(name, operands, (attributes.pop("dtype", self.d), dims), **attributes)

    def norm(self, x, name):
        return self.op("rms_norm", [x, self.weight(name, x.dims[-1])], x.dims, eps=self.m.eps)

    def linear(self, x, name, columns):
        return self.op("matmul", [x, self.weight(name, columns, x.dims[-1])], (*x.dims[:-1], columns),
                       transpose_b=True)

    def angles(self, positions):
        half = self.m.width // 2
        rates = ", ".join(f"{self.m.theta ** (-i / half):.9e}" for i in range(half))
        rates = self.op("constant", [], (1, 1, 1, half), dtype="f32",
                        raw=f"value = dense<[[[[{rates}]]]]> : tensor<1x1x1x{half}xf32>")
        places = self.op("reshape", [self.op("cast", [positions], ("batch", "new"), dtype="f32")],
                         ("batch", 1, "new", 1), dtype="f32",
                         shape=["batch", 1, "new", 1])
        turned = self.op("mul", [places, rates], ("batch", 1, "new", half), dtype="f32")
        return [self.op("cast", [self.op(name, [turned], turned.dims, dtype="f32")], turned.dims)
                for name in ("cos", "sin")]

    def build(self):
        m, g = self.m, self.g
        ids = g.input("input_ids", Spec("i64", ("batch", "new")))
        positions = g.input("position_ids", Spec("i64", ("batch", "new")))
        x = self.op("gather", [self.weight("embed", m.vocabulary, m.hidden), ids], self.row, axis=0)
        if m.gemma:
            scale = self.op("constant", [], (), raw=f"value = dense<{math.sqrt(m.hidden):.9e}> : tensor<bf16>")
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
                                  ("batch", m.kv_heads, "past + new", m.width), axis=2)
            self.g.output(f"present_{kind}_{i}", heads[name])
        a = self.op("attention", [heads["q"], heads["k"], heads["v"]], heads["q"].dims, scale=m.width ** -0.5,
                    causal=True,
                    **({"window": 512} if m.windowed(i) else {}))
        a = self.op("transpose", [a], ("batch", "new", m.heads, m.width), perm=(0, 2, 1, 3))
        a = self.op("reshape", [a], ("batch", "new", m.heads * m.width),
                    shape=["batch", "new", m.heads * m.width])
        a = self.linear(a, f"{i}.o", m.hidden)
        x = self.op("add", [x, self.norm(a, f"{i}.norm1b") if m.gemma else a], self.row)
        n = self.norm(x, f"{i}.norm2")
        gate, up = (self.linear(n, f"{i}.{name}", m.ffn) for name in ("gate", "up"))
        gate = self.op("gelu", [gate], gate.dims, approximate="tanh") if m.gemma else self.op("silu", [gate],
                                                                                              gate.dims)
        f = self.linear(self.op("mul", [gate, up], gate.dims), f"{i}.down", m.hidden)
        return self.op("add", [x, self.norm(f, f"{i}.norm2b") if m.gemma else f], self.row)

    def write(self, folder):
        source = random.Random(1)
        # Numbers of 16 bits, of a deviation of about 0.02: a random mantissa under one of two exponents.
        # Norms' are 1.
        pattern = bytearray(source.randbytes(BLOCK))
        pattern[1::2] = bytes(source.choice((0x3c, 0xbc)) for _ in range(BLOCK // 2))
        with open(f"{folder}/{WEIGHTS}", "wb") as file:
            for name, (offset, dims, _) in self.places.items():
                file.seek(offset)
                size, start = 2 * math.prod(dims), source.randrange(BLOCK // 2) * 2
                block = b"\x80\x3f" * dims[0] if len(dims) == 1 else bytes(pattern[start:] + pattern[:start])
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


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def measure(options, folder, case, sizes):
    """Microseconds by name of what was measured."""
    batch, new, past = sizes
    base = [options.fusion_run, f"{folder}/graph.mlir", f"--device={options.device}", "--quiet",
            "--sample=greedy",
            f"--kv-capacity={past + new + 80}"]
    times = {}
    run([*base, f"--inputs={folder}/{case}.safetensors", f"--outputs={folder}/{case}.out"])
    for name, more in (("fused", []), ("no-fuse", ["--no-fuse"])):
        out = run([*base, *more, f"--inputs={folder}/{case}.safetensors", f"--bench={options.iterations}"])
        times[name] = float(re.search(r"median (\S+) us", out)[1])
    if options.generate:
        prompt = ",".join(str(i % 90) for i in range(max(past, new)))
        out = run([*base, "--generate=65", "--bench=1", f"--chunk={options.chunk}",
                   *[f"--prompt={prompt}"] * batch])
        first, each = re.search(r"first after (\S+) us, then one in (\S+) us", out).groups()
        times["first token"], times["a token"] = float(first), float(each)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    parser.add_argument("--models", default=",".join(name for name in MODELS if name != "tiny"))
    parser.add_argument("--cases", default=",".join(CASES),
                        help="also NAME-BATCH-PAST or prefill-LENGTH of other sizes")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--generate", action="store_true", help="also with the host, token by token")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--write", metavar="FOLDER", help="only write graph, weights and inputs")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    results = {}
    for name in options.models.split(","):
        writer = Writer(MODELS[name])
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.write or temporary
            os.makedirs(folder, exist_ok=True)
            writer.write(folder)
            for case in options.cases.split(","):
                sizes = CASES[case] if case in CASES else sizes_of(case)
                writer.write_inputs(f"{folder}/{case}.safetensors", *sizes)
                if options.write:
                    continue
                times = measure(options, folder, case, sizes)
                if options.peers:
                    from models_torch import measure_peers
                    times.update(measure_peers(writer, folder, case, sizes, options.iterations))
                results[f"{name} {case}"] = times
                print(f"{name} {case}: " + ", ".join(f"{what} {us:.1f}" for what, us in times.items()),
                      flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0


def sizes_of(case):
    kind, *numbers = case.split("-")
    if kind == "prefill" and len(numbers) == 1:
        return 1, int(numbers[0]), 0
    if kind == "decode" and len(numbers) == 2:
        return int(numbers[0]), 1, int(numbers[1])
    sys.exit(f"models.py: a case is prefill-LENGTH or decode-BATCH-PAST, not {case}")


if __name__ == "__main__":
    sys.exit(main())
