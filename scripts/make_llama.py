#!/usr/bin/env python3
"""Writes a Llama-shaped prefill graph as exporters print it, with weights of zeros in a sparse external file.

    make_llama.py OUT.onnx [--layers 32] [--hidden 4096] [--heads 32] [--kv-heads 8] [--ffn 14336] [--vocab
        128256]

The data file takes no disk space; its apparent size is that of the real model.
"""
import argparse
import os

import onnx
from onnx import TensorProto, helper

F16, F32, I64 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64


class Builder:
    def __init__(self, data_file):
        self.nodes, self.weights, self.offset, self.data_file, self.scope = [], [], 0, data_file, "model"
        self.constants = {}

    def op(self, kind, inputs, outputs=1, **attributes):
        names = [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(kind, inputs, names, name=f"node_{names[0]}", **attributes)
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.name_scopes", str(["", "model", self.scope, names[0]])
        self.nodes.append(node)
        return names[0]

    def weight(self, name, *shape):
        tensor = TensorProto(name=name, data_type=F16, dims=shape, data_location=TensorProto.EXTERNAL)
        length = 2
        for dim in shape:
            length *= dim
        for key, value in (("location", self.data_file), ("offset", self.offset), ("length", length)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        self.offset += (length + 4095) // 4096 * 4096
        self.weights.append(tensor)
        return name

    def constant(self, kind, values, shape=None):
        key = (kind, tuple(values), tuple(shape or [len(values)]))
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.weights.append(helper.make_tensor(name, kind, key[2] if shape is not None else [len(values)],
                                                   values))
            self.constants[key] = name
        return self.constants[key]

    def scalar(self, kind, value):
        return self.constant(kind, [value], [])


def norm(b, x, name, hidden):
    f = b.op("Cast", [x], to=F32)
    square = b.op("Pow", [f, b.scalar(F32, 2.0)])
    mean = b.op("ReduceMean", [square, b.constant(I64, [-1])], keepdims=1)
    root = b.op("Sqrt", [b.op("Add", [mean, b.scalar(F32, 1e-5)])])
    scaled = b.op("Cast", [b.op("Mul", [f, b.op("Reciprocal", [root])])], to=F16)
    return b.op("Mul", [b.weight(name, hidden), scaled])


def rope(b, x, cos, sin, half):
    low = b.op("Slice", [x, b.constant(I64, [0]), b.constant(I64, [half]), b.constant(I64, [3]),
                         b.constant(I64, [1])])
    high = b.op("Slice", [x, b.constant(I64, [half]), b.constant(I64, [2**63 - 1]), b.constant(I64, [3]),
                          b.constant(I64, [1])])
    turned = b.op("Concat", [b.op("Neg", [high]), low], axis=-1)
    return b.op("Add", [b.op("Mul", [x, cos]), b.op("Mul", [turned, sin])])


def layer(b, x, index, o, tables, mask, shape):
    scope = f"model.layers.{index}"
    size = o.hidden // o.heads
    b.scope = f"{scope}.input_layernorm"
    n = norm(b, x, f"{scope}.input_layernorm.weight", o.hidden)
    b.scope = f"{scope}.self_attn"
    batch, seq = shape
    heads = {}
    for name, count in (("q", o.heads), ("k", o.kv_heads), ("v", o.kv_heads)):
        y = b.op("MatMul", [n, b.weight(f"{scope}.self_attn.{name}_proj", o.hidden, count * size)])
        split = b.op("Concat", [batch, seq, b.constant(I64, [count]), b.constant(I64, [size])], axis=0)
        heads[name] = b.op("Transpose", [b.op("Reshape", [y, split], allowzero=1)], perm=[0, 2, 1, 3])
    q = rope(b, heads["q"], *tables, size // 2)
    k = rope(b, heads["k"], *tables, size // 2)
    v = heads["v"]
    groups = o.heads // o.kv_heads
    if groups > 1:
        wide = b.op("Concat", [batch, b.constant(I64, [o.kv_heads]), b.constant(I64, [groups]), seq,
                               b.constant(I64, [size])], axis=0)
        flat = b.op("Concat", [batch, b.constant(I64, [o.heads]), seq, b.constant(I64, [size])], axis=0)
        k, v = (b.op("Reshape", [b.op("Expand", [b.op("Unsqueeze", [t, b.constant(I64, [2])]), wide]), flat],
                     allowzero=1) for t in (k, v))
    scores = b.op("MatMul", [q, b.op("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = b.op("Add", [b.op("Mul", [scores, b.scalar(F16, size**-0.5)]), mask])
    y = b.op("MatMul", [b.op("Softmax", [scores], axis=-1), v])
    merged = b.op("Concat", [batch, seq, b.constant(I64, [-1])], axis=0)
    y = b.op("Reshape", [b.op("Transpose", [y], perm=[0, 2, 1, 3]), merged], allowzero=1)
    y = b.op("MatMul", [y, b.weight(f"{scope}.self_attn.o_proj", o.hidden, o.hidden)])
    b.scope = scope
    x = b.op("Add", [x, y])
    b.scope = f"{scope}.post_attention_layernorm"
    n = norm(b, x, f"{scope}.post_attention_layernorm.weight", o.hidden)
    b.scope = f"{scope}.mlp"
    gate = b.op("MatMul", [n, b.weight(f"{scope}.mlp.gate_proj", o.hidden, o.ffn)])
    up = b.op("MatMul", [n, b.weight(f"{scope}.mlp.up_proj", o.hidden, o.ffn)])
    y = b.op("Mul", [b.op("Mul", [gate, b.op("Sigmoid", [gate])]), up])
    y = b.op("MatMul", [y, b.weight(f"{scope}.mlp.down_proj", o.ffn, o.hidden)])
    b.scope = scope
    return b.op("Add", [x, y])


def build(o):
    data_file = os.path.basename(o.output) + ".data"
    b = Builder(data_file)
    size = o.hidden // o.heads
    batch = b.op("Shape", ["input_ids"], start=0, end=1)
    seq = b.op("Shape", ["input_ids"], start=1, end=2)
    x = b.op("Gather", [b.weight("model.embed_tokens.weight", o.vocab, o.hidden), "input_ids"], axis=0)
    positions = b.op("Range", [b.scalar(I64, 0), b.op("Squeeze", [seq]), b.scalar(I64, 1)])
    rows = b.op("Unsqueeze", [positions, b.constant(I64, [0, 1, 3])])
    columns = b.op("Unsqueeze", [positions, b.constant(I64, [0, 1, 2])])
    mask = b.op("Where", [b.op("LessOrEqual", [columns, rows]), b.scalar(F16, 0.0), b.scalar(F16, -65504.0)])
    frequencies = b.constant(F32, [500000.0 ** (-2 * i / size) for i in range(size // 2)], [1, size // 2, 1])
    angles = b.op("MatMul", [frequencies, b.op("Cast", [b.op("Unsqueeze", [positions, b.constant(I64, [0, 1])])], to=F32)])
    angles = b.op("Transpose", [angles], perm=[0, 2, 1])
    angles = b.op("Concat", [angles, angles], axis=-1)
    tables = [b.op("Unsqueeze", [b.op("Cast", [b.op(f, [angles])], to=F16), b.constant(I64, [1])])
              for f in ("Cos", "Sin")]
    for index in range(o.layers):
        x = layer(b, x, index, o, tables, mask, (batch, seq))
    b.scope = "model.norm"
    x = norm(b, x, "model.norm.weight", o.hidden)
    b.scope = "lm_head"
    y = b.op("MatMul", [x, b.weight("lm_head.weight", o.hidden, o.vocab)])
    b.nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        b.nodes, "main", [helper.make_tensor_value_info("input_ids", I64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("logits", F16, ["batch", "sequence", o.vocab])], b.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with open(o.output, "wb") as file:
        file.write(model.SerializeToString())
    with open(os.path.join(os.path.dirname(os.path.abspath(o.output)), data_file), "wb") as file:
        file.truncate(b.offset)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    for name, default in (("layers", 32), ("hidden", 4096), ("heads", 32), ("kv-heads", 8), ("ffn", 14336),
                          ("vocab", 128256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    build(parser.parse_args())
