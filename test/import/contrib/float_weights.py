"""Node tests of weights that are floats of 4 and 8 bits, of which ONNX Runtime's CPU provider has no product:
the expected outputs are computed here, in f64."""
import zlib

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from nodes import MICROSOFT, write

F8 = ml_dtypes.float8_e4m3fn
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e2m1(codes):
    return np.where(codes & 8, -1, 1) * MAGNITUDES[codes & 7]


def pairs(codes):
    """Two of the last axis in one byte, the first in its low half."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def scaled(values, scales, block):
    """One scale for each block of the last axis."""
    return values * np.repeat(scales.astype(np.float64), block, -1)[..., :values.shape[-1]]


def f8(own, *shape):
    return own.uniform(-4, 4, shape).astype(F8)


def experts(name, kind, count=3, hidden=64, inner=32, **attributes):
    own = np.random.default_rng(zlib.crc32(name.encode()))
    inputs = {
        "x": own.standard_normal((4, hidden)).astype(np.float32),
        "r": own.standard_normal((4, count)).astype(np.float32)
    }
    weights = {}
    block = attributes.get("block_size", 0) if kind == "fp8" else 32 if kind == "fp4" else 16
    for key, rows, depth in (("1", 2 * inner, hidden), ("2", hidden, inner)):
        if kind == "fp8":
            inputs["w" + key] = f8(own, count, rows, depth)
            values = inputs["w" + key].astype(np.float64)
        else:
            codes = own.integers(0, 16, (count, rows, depth))
            by_rows = attributes.get("weights_prepacked") == 1
            inputs["w" + key] = pairs(codes if by_rows else codes.transpose(0, 2, 1)).reshape(
                count, depth, rows // 2)
            values = e2m1(codes)
        shape = (count, rows, depth // block) if block else None
        if kind == "fp4":
            inputs["s" + key] = (2.0**own.integers(-5, -2, shape)).astype(ml_dtypes.float8_e8m0fnu)
        elif kind == "nvfp4":
            inputs["s" + key] = own.uniform(0.05, 0.2, shape).astype(F8)
        elif block:
            shape = (count, -(-rows // block), -(-depth // block))
            inputs["s" + key] = own.uniform(0.02, 0.1, shape).astype(np.float32)
        if not (kind == "fp8" and block):
            inputs["g" +
                   key] = own.uniform(0.03, 0.06, count).astype(np.float32) * (1 if kind == "fp8" else 20)
        if kind == "fp8":
            scales = np.repeat(inputs["s" + key], block, 1)[:, :rows] if block else np.ones((count, rows, 1))
        else:
            scales = inputs["s" + key]
        weights[key] = scaled(values, scales, block or depth) * inputs.get("g" + key, np.ones(count))[:, None,
                                                                                                      None]
    names = ["x", "r", "w1", "s1", "", "w2", "s2"] + [""] * 8 + ["g1", "g2"]
    names = [each if each in inputs else "" for each in names]
    while not names[-1]:
        names.pop()
    node = helper.make_node("QMoE",
                            names, ["y"],
                            domain=MICROSOFT,
                            k=2,
                            activation_type="swiglu",
                            swiglu_fusion=1,
                            normalize_routing_weights=1,
                            quant_type=kind,
                            **attributes)
    y = np.zeros((4, hidden))
    for row, (x, scores) in enumerate(zip(inputs["x"].astype(np.float64), inputs["r"])):
        chosen = np.argsort(-scores)[:2]
        shares = np.exp(scores[chosen].astype(np.float64))
        for expert, share in zip(chosen, shares / shares.sum()):
            both = weights["1"][expert] @ x
            y[row] += share * (weights["2"][expert] @ (both[0::2] / (1 + np.exp(-both[0::2])) * both[1::2]))
    write(name, [node], inputs, ["y"], list(inputs)[2:], results=[y.astype(np.float32)])


def product(name, op, inputs, weight, adjust=lambda x: x, **attributes):
    """`adjust` is what becomes of the activations."""
    names = [key if value is not None else "" for key, value in inputs.items()]
    inputs = {key: value for key, value in inputs.items() if value is not None}
    y = adjust(inputs["x"]).astype(np.float64) @ weight.T + inputs.get("b", 0)
    node = helper.make_node(op, names, ["y"], domain=MICROSOFT, **attributes)
    write(name, [node], inputs, ["y"], list(inputs)[1:], results=[y.astype(np.float32)])


def products(rows=12, depth=64):
    own = np.random.default_rng(11)
    x, bias = own.standard_normal((3, depth)).astype(np.float32), own.standard_normal(rows).astype(np.float32)
    bytes_ = f8(own, rows, depth)
    scales = own.uniform(0.1, 0.2, (rows, depth // 32)).astype(np.float32)
    decoded = scaled(bytes_.astype(np.float64), scales, 32)
    inputs = {"x": x, "w": bytes_, "s": scales, "a": None, "b": bias}
    product("fp8_weight", "MatMulBlockQuantizedFp8Weight", inputs, decoded, block_size=32)
    scale = np.float32(0.03)
    product("fp8_weight_activations",
            "MatMulBlockQuantizedFp8Weight",
            inputs | {"a": scale},
            decoded,
            lambda x: (x / scale).astype(F8).astype(np.float64) * scale,
            block_size=32)
    codes = own.integers(0, 16, (rows, depth))
    scales, whole = own.uniform(0.5, 2, (rows, depth // 16)).astype(F8), np.float32(0.1)
    inputs = {"x": x, "w": pairs(codes), "s": scales.view(np.uint8), "g": whole, "a": None, "b": bias}
    product("fp4_weight", "MatMulBlockQuantizedFp4Weight", inputs, scaled(e2m1(codes), scales, 16) * whole)


def standard():
    """DequantizeLinear of ONNX itself, and all codes of the power of two."""
    own = np.random.default_rng(12)
    codes = own.integers(0, 16, (6, 64))
    inputs = {
        "x": own.standard_normal((3, 64)).astype(np.float32),
        "w": e2m1(codes).astype(ml_dtypes.float4_e2m1fn),
        "s": own.uniform(0.1, 1, (6, 4)).astype(np.float32)
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=16),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"])
    ]
    y = inputs["x"].astype(np.float64) @ scaled(e2m1(codes), inputs["s"], 16).T
    write("dequantize_e2m1", nodes, inputs, ["y"], ["w", "s"], results=[y.astype(np.float32)], opset=23)
    powers = np.arange(255, dtype=np.uint8)
    inputs = {"x": np.ones(255, np.float32), "w": powers.view(ml_dtypes.float8_e8m0fnu)}
    nodes = [
        helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "c"], ["y"])
    ]
    y = 2.0**(powers.astype(np.float64) - 127)
    write("cast_e8m0", nodes, inputs, ["y"], ["w"], results=[y.astype(np.float32)], opset=24)


def float_weights():
    experts("qmoe_fp4", "fp4")
    experts("qmoe_nvfp4", "nvfp4")
    experts("qmoe_nvfp4_rows", "nvfp4", weights_prepacked=1)
    experts("qmoe_fp8", "fp8", expert_weight_bits=8)
    experts("qmoe_fp8_blocks", "fp8", inner=40, block_size=16)
    products()
    standard()
