#!/usr/bin/env python3
"""The steps of a decode loop: what each costs the host before its launch, and in all.

    benchmarks/decode.py [--fusion-run=build/bin/fusion-run] [--layers=32] [--batch=1] [--past=1024]
        [--steps=200] [--device=cuda]

Decoder layers shaped like Llama 3 8B's, one after the other, with caches that are extended in place; all
layers share their weights' bytes, which no cache of the device holds. Prints what `fusion-run --decode`
prints. --write=FOLDER only writes graph, inputs and weights.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from families.layer import Layer  # noqa: E402
from graph import BYTES, SAFETENSORS, WEIGHTS, Graph  # noqa: E402

BLOCK = 1 << 20


class Stack:
    def __init__(self, layers, batch, past, small=False):
        self.layer = Layer(batch, 1, past, **(Layer.small_config if small else {}))
        self.graph, self.inputs = Graph(), {}
        shared = {}
        row = None
        for i in range(layers):
            values = dict(shared)
            for name, spec in self.layer.tensors().items():
                if spec.weight or name.startswith("past"):
                    values[name] = self.add(f"{name}{i}", spec)
                elif name not in shared and not (name == "x" and i > 0):
                    values[name] = self.add(name, spec)
                    if name != "x":
                        shared[name] = values[name]
            if row:
                values["x"] = row
            results = self.layer.body(self.graph, values)
            row = results.pop("y")
            for name, value in results.items():
                self.graph.output(f"{name}{i}", value)
            self.weight_bytes, self.graph.weight_bytes = self.graph.weight_bytes, 0
        self.graph.output("y", row)

    def add(self, name, spec):
        if spec.weight:
            return self.graph.weight(name, spec)
        self.inputs[name] = spec
        return self.graph.input(name, spec)

    def write(self, folder):
        source = random.Random(1)
        # Numbers of 16 bits around ±0.01: a random mantissa under one of two exponents.
        pattern = bytearray(source.randbytes(BLOCK))
        pattern[1::2] = bytes(source.choice((0x3c, 0xbc)) for _ in range(BLOCK // 2))
        with open(f"{folder}/{WEIGHTS}", "wb") as file:
            for done in range(0, self.weight_bytes, BLOCK):
                file.write(pattern[:min(BLOCK, self.weight_bytes - done)])
        header, end = {}, 0
        for name, spec in self.inputs.items():
            size = spec.bytes(self.layer.sizes)
            header[name] = {"dtype": SAFETENSORS[spec.dtype], "shape": spec.shape(self.layer.sizes),
                            "data_offsets": [end, end + size]}
            assert BYTES[spec.dtype] == 2
            end += size
        text = json.dumps(header).encode()
        with open(f"{folder}/inputs.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for done in range(0, end, BLOCK):
                file.write(pattern[:min(BLOCK, end - done)])
        with open(f"{folder}/graph.mlir", "w") as file:
            file.write(self.graph.text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    for name, value in (("layers", 32), ("batch", 1), ("past", 1024), ("steps", 200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true",
                        help="a hidden size of 64: for machines without a GPU")
    parser.add_argument("--write", metavar="FOLDER")
    options = parser.parse_args()
    stack = Stack(options.layers, options.batch, options.past, options.small)
    if options.write:
        os.makedirs(options.write, exist_ok=True)
        stack.write(options.write)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        stack.write(folder)
        return subprocess.run([options.fusion_run, f"{folder}/graph.mlir",
                               f"--inputs={folder}/inputs.safetensors", "--quiet",
                               f"--device={options.device}",
                               f"--kv-capacity={options.past + options.steps + 1}",
                               f"--decode={options.steps}"]).returncode


if __name__ == "__main__":
    sys.exit(main())
