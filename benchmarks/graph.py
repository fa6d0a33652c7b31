"""Writes graphs in the compiler's text form: one graph of several equal calls, each over tensors of its own.

A case (families/case.py) says what one call reads and computes; this module repeats it, gives weights their
place in one file, and writes tensors as safetensors. No PyTorch here.
"""
import json
import random
import struct
from dataclasses import dataclass

BYTES = {"bf16": 2, "f16": 2, "f32": 4, "f8E4M3FN": 1, "i8": 1, "ui4": 0.5, "i64": 8, "i1": 1}
SAFETENSORS = {"bf16": "BF16", "f16": "F16", "f32": "F32", "f8E4M3FN": "F8_E4M3", "i8": "I8", "i64": "I64",
               "i1": "BOOL"}
WEIGHTS = "weights.bin"


@dataclass(frozen=True)
class Spec:
    """A tensor that a call reads. `dims` are numbers or the names of sizes; values are normal, times `scale`,
    plus `shift`. A weight lies in a file, an input comes with each run."""
    dtype: str
    dims: tuple
    weight: bool = False
    scale: float = 1.0
    shift: float = 0.0

    def shape(self, sizes):
        return [sizes[dim] if isinstance(dim, str) else dim for dim in self.dims]

    def bytes(self, sizes):
        count = BYTES[self.dtype]
        for dim in self.shape(sizes):
            count *= dim
        return int(count)


@dataclass(frozen=True)
class Value:
    name: str
    dtype: str
    dims: tuple

    @property
    def type(self):
        return "tensor<" + "".join(f"{'?' if isinstance(dim, str) else dim}x"
                                   for dim in self.dims) + self.dtype + ">"


class Graph:
    def __init__(self):
        self.arguments, self.lines, self.results = [], [], []
        self.weight_bytes, self.count = 0, 0

    def input(self, name, spec):
        value = Value(f"%{name}", spec.dtype, spec.dims)
        self.arguments.append(f'{value.name}: {value.type} {{nn.name = "{name}", nn.dims = {json.dumps(list(spec.dims))}}}')
        return value

    def weight(self, name, spec):
        length = spec.bytes({})
        value = self.op("weight", [], (spec.dtype, spec.dims), name=name, path=WEIGHTS,
                        offset=self.weight_bytes,
                        length=length)
        self.weight_bytes += -(-length // 256) * 256
        return value

    def op(self, mnemonic, operands, *results, raw="", **attributes):
        """One op; `results` are (dtype, dims). Attributes are Python values, or text in `raw`."""
        values = [Value(f"%_{self.count + i}", *result) for i, result in enumerate(results)]
        self.count += len(values)
        texts = [f"{key} = {attribute(value)}" for key, value in attributes.items()] + ([raw] if raw else [])
        types = ", ".join(value.type for value in values)
        self.lines.append(f"{', '.join(value.name for value in values)} = nn.{mnemonic} "
                          f"{', '.join(value.name for value in operands)}"
                          + (f" {{{', '.join(texts)}}}" if texts else "")
                          + f" : ({', '.join(value.type for value in operands)}) -> "
                          + (types if len(values) == 1 else f"({types})"))
        return values[0] if len(values) == 1 else values

    def output(self, name, value):
        self.results.append((name, value))

    def text(self):
        types = ", ".join(f'{value.type} {{nn.name = "{name}"}}' for name, value in self.results)
        body = "\n  ".join(self.lines)
        values = ", ".join(value.name for _, value in self.results)
        plain = ", ".join(value.type for _, value in self.results)
        return f"func.func @main({', '.join(self.arguments)}) -> ({types}) {{\n  {body}\n  return {values} : {plain}\n}}\n"


def attribute(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return f"{value:.9e} : f32"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):  # dims
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"array<i64: {', '.join(str(item) for item in value)}>"
    raise TypeError(f"no attribute for {value!r}")


def written(case, calls):
    """The graph of `calls` calls of the case; tensor NAME of call i is called NAMEi. Also its weights'
    offsets."""
    graph, offsets = Graph(), {}
    for i in range(calls):
        values = {}
        for name, spec in case.tensors().items():
            if spec.weight:
                offsets[f"{name}{i}"] = graph.weight_bytes
            values[name] = (graph.weight if spec.weight else graph.input)(f"{name}{i}", spec)
        for name, value in case.body(graph, values).items():
            graph.output(f"{name}{i}", value)
    return graph, offsets


def random_bytes(spec, sizes, source):
    """Random values of a tensor without NumPy or PyTorch: for small tensors."""
    if spec.dtype in ("i8", "ui4"):
        return source.randbytes(spec.bytes(sizes))
    if spec.dtype == "f8E4M3FN":  # all but NaN
        return bytes(code & 0xf7 for code in source.randbytes(spec.bytes(sizes)))
    count = spec.bytes(sizes) // BYTES[spec.dtype]
    values = [source.gauss(0, 1) * spec.scale + spec.shift for _ in range(count)]
    if spec.dtype == "f32":
        return struct.pack(f"<{count}f", *values)
    if spec.dtype == "f16":
        return struct.pack(f"<{count}e", *values)
    if spec.dtype == "bf16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    if spec.dtype == "i64":
        return struct.pack(f"<{count}q", *(int(spec.shift) for _ in values))
    raise TypeError(f"no random values of type {spec.dtype}")


def write_small(case, calls, folder, seed=0):
    """graph.mlir, inputs.safetensors and the weights of a case in `folder`, with random values."""
    graph, offsets = written(case, calls)
    source, header, body = random.Random(seed), {}, b""
    with open(f"{folder}/{WEIGHTS}", "wb") as weights:
        for i in range(calls):
            for name, spec in case.tensors().items():
                data = random_bytes(spec, case.sizes, source)
                if spec.weight:
                    weights.seek(offsets[f"{name}{i}"])
                    weights.write(data)
                    continue
                header[f"{name}{i}"] = {"dtype": SAFETENSORS[spec.dtype], "shape": spec.shape(case.sizes),
                                        "data_offsets": [len(body), len(body) + len(data)]}
                body += data
    text = json.dumps(header).encode()
    with open(f"{folder}/inputs.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
    with open(f"{folder}/graph.mlir", "w") as file:
        file.write(graph.text())
    return graph
