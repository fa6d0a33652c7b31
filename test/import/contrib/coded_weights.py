"""Node tests of weights of 4 and 8 bits: products that share their input, recurrent layers. Numbers of ONNX
Runtime."""
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from nodes import MICROSOFT
from plain import f32, op, own


def unfused(inputs, weights, nodes, outputs):
    """What ONNX Runtime makes of the same without the fusion."""
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for key, value in inputs.items() if key not in weights
    ]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=output) for output in outputs],
                              [numpy_helper.from_array(inputs[key], key) for key in weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(outputs, {key: value for key, value in inputs.items() if key not in weights})


def fused_products():
    """Products with weights of blocks that share their input, behind a norm or not."""
    depth, block = 64, 32
    weight = lambda name, rows: {
        f"{name}_w": own.integers(0, 256, (rows, depth // block, block // 2)).astype(np.uint8),
        f"{name}_s": own.uniform(0.01, 0.1, rows * depth // block).astype(np.float32),
        f"{name}_b": f32(rows)
    }
    product = lambda x, name, rows: helper.make_node(
        "MatMulNBits", [x, f"{name}_w", f"{name}_s", "", "", f"{name}_b"], [name],
        domain=MICROSOFT,
        N=rows,
        K=depth,
        bits=4,
        block_size=block)
    form = {"K": depth, "bits": 4, "block_size": block}
    x, skip, norm = {"x": f32(2, 3, depth)}, {"skip": f32(2, 3, depth)}, {"norm": f32(depth)}
    parts = weight("gate", 24) | weight("up", 24)
    nodes = [
        product("x", "gate", 24),
        product("x", "up", 24),
        helper.make_node("Sigmoid", ["gate"], ["share"]),
        helper.make_node("Mul", ["gate", "share"], ["silu"]),
        helper.make_node("Mul", ["silu", "up"], ["y"])
    ]
    op("nbits_mlp",
       "MatMulNBitsMlp",
       x | {
           "skip": None,
           "norm": None
       } | parts,
       weights=tuple(parts),
       domain=MICROSOFT,
       activation="silu",
       N=24,
       results=unfused(x | parts, tuple(parts), nodes, ["y"]),
       **form)
    parts = norm | weight("q", 32) | weight("k", 16) | weight("v", 16)
    nodes = [
        helper.make_node("SkipSimplifiedLayerNormalization", ["x", "skip", "norm"], ["n", "", "", "sum"],
                         domain=MICROSOFT,
                         epsilon=1e-6),
        product("n", "q", 32),
        product("n", "k", 16),
        product("n", "v", 16)
    ]
    op("nbits_qkv",
       "MatMulNBitsQkv",
       x | skip | parts, ("y_q", "y_k", "y_v", "sum"),
       weights=tuple(parts),
       domain=MICROSOFT,
       Nq=32,
       Nkv=16,
       results=unfused(x | skip | parts, tuple(parts), nodes, ["q", "k", "v", "sum"]),
       **form)


def quantised_lstm(name,
                   steps,
                   batch=1,
                   direction="forward",
                   kind=np.int8,
                   by_column=False,
                   size=8,
                   hidden=6):
    count = 2 if direction == "bidirectional" else 1
    low, high = np.iinfo(kind).min, np.iinfo(kind).max + 1
    codes = lambda rows: own.integers(low, high, (count, rows, 4 * hidden)).astype(kind)
    per = (count, 4 * hidden) if by_column else (count, )
    inputs = {
        "x": f32(steps, batch, size),
        "w": codes(size),
        "r": codes(hidden),
        "b": f32(count, 8 * hidden),
        "lengths": None,
        "h": f32(count, batch, hidden),
        "c": f32(count, batch, hidden),
        "p": None
    }
    for which in "wr":
        inputs[f"{which}s"] = own.uniform(0.002, 0.01, per).astype(np.float32)
        inputs[f"{which}z"] = np.full(per, 0 if kind == np.int8 else 120, kind)
    op(name,
       "DynamicQuantizeLSTM",
       inputs, ("y", "last_h", "last_c"),
       domain=MICROSOFT,
       direction=direction,
       hidden_size=hidden,
       weights=("w", "r", "b", "ws", "wz", "rs", "rz"))


def recurrences():
    quantised_lstm("quantised_lstm", 3)
    quantised_lstm("quantised_lstm_loop", 7, direction="reverse", kind=np.uint8)
    quantised_lstm("quantised_lstm_both", 5, batch=2, direction="bidirectional", by_column=True)


def coded_weights():
    fused_products()
    recurrences()
