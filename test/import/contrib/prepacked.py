"""Node tests of weights in the order of ONNX Runtime's mixed GEMM for CUDA, which its CPU provider
lacks: what it expects is what it gives for the same weights in the plain order."""
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from nodes import MICROSOFT, write


def to_bytes(codes, bits):
    """The last axis, low half first."""
    codes = codes.astype(np.uint8)
    return codes if bits == 8 else codes[..., 0::2] | codes[..., 1::2] << 4


def prepacked(codes, bits, arch):
    """[rows, depth] in the steps of ONNX Runtime's `preprocess_weights_for_mixed_gemm`."""
    rows, depth = codes.shape
    fragment = 128 // bits  # along k, in the order in which the tensor cores take it
    order = [
        2 * pair + 8 * group + low for pair in range(4) for group in range(fragment // 8) for low in (0, 1)
    ]
    codes = codes[:, [k // fragment * fragment + order[k % fragment] for k in range(depth)]]
    if arch == 80:  # tiles of 64 along k of some rows lie together
        together = 16 // bits
        codes = codes.reshape(rows // together, together, depth // 64, 64).transpose(0, 2, 1, 3)
    word = 32 // bits
    codes = codes.reshape(-1, word)[:, [*range(0, word, 2), *range(1, word, 2)]]
    return to_bytes(codes.reshape(-1), bits)


def expected(nodes, inputs, weights, attribute):
    """The outputs with the weights as they are, without the attribute."""
    plain = onnx.NodeProto()
    plain.CopyFrom(nodes[0])
    kept = [each for each in plain.attribute if each.name != attribute]
    del plain.attribute[:]
    plain.attribute.extend(kept)
    feeds = {key: value for key, value in inputs.items() if key not in weights}
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for key, value in feeds.items()
    ]
    graph = helper.make_graph([plain], "plain", infos, [onnx.ValueInfoProto(name="y")],
                              [numpy_helper.from_array(inputs[key], key) for key in weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(),
                                        providers=["CPUExecutionProvider"]).run(None, feeds)


def product(name, bits, arch, rows=16, depth=128, block=64):
    own = np.random.default_rng(zlib.crc32(name.encode()))
    codes = own.integers(0, 1 << bits, (rows, depth))
    inputs = {
        "x": own.standard_normal((3, depth)).astype(np.float32),
        "w": to_bytes(codes, bits).reshape(rows, depth // block, -1),
        "s": (own.uniform(0.5, 1, (rows, depth // block)) / 2**bits).astype(np.float32)
    }
    node = helper.make_node("MatMulNBits",
                            list(inputs), ["y"],
                            domain=MICROSOFT,
                            N=rows,
                            K=depth,
                            bits=bits,
                            block_size=block,
                            weight_prepacked=1 if arch == 80 else 2)
    results = expected([node], inputs, ("w", "s"), "weight_prepacked")
    inputs["w"] = prepacked(codes, bits, arch).reshape(inputs["w"].shape)
    write(name, [node], inputs, ["y"], ("w", "s"), results=results)


def experts(name, bits, block=0, count=3, hidden=64, inner=128, **attributes):
    own = np.random.default_rng(zlib.crc32(name.encode()))
    inputs = {
        "x": own.standard_normal((4, hidden)).astype(np.float32),
        "r": own.standard_normal((4, count)).astype(np.float32)
    }
    codes = {}
    for key, rows, depth in (("1", 2 * inner, hidden), ("2", hidden, inner)):
        codes["w" + key] = own.integers(0, 1 << bits, (count, rows, depth))
        inputs["w" + key] = to_bytes(codes["w" + key], bits)
        scales = (count, rows, depth // block) if block else (count, rows)
        inputs["s" + key] = (own.uniform(0.5, 1, scales) / 2**bits).astype(np.float32)
    attributes |= {"block_size": block} if block else {}
    names = ["x", "r", "w1", "s1", "", "w2", "s2"]
    node = helper.make_node("QMoE",
                            names, ["y"],
                            domain=MICROSOFT,
                            k=2,
                            activation_type="swiglu",
                            swiglu_fusion=1,
                            normalize_routing_weights=1,
                            expert_weight_bits=bits,
                            **attributes)
    weights = ("w1", "s1", "w2", "s2")
    results = expected([node], inputs, weights, "weights_prepacked")
    for key, values in codes.items():
        packed = [prepacked(each, bits, 80) for each in values]
        inputs[key] = np.stack(packed).reshape(count, values.shape[2], -1)
    write(name, [node], inputs, ["y"], weights, results=results)


def prepacked_weights():
    product("nbits4_prepacked", 4, 80)
    product("nbits4_prepacked_sm90", 4, 90)
    product("nbits8_prepacked", 8, 80)
    product("nbits8_prepacked_sm90", 8, 90)
    experts("qmoe4_prepacked", 4, block=32)
    experts("qmoe8_prepacked", 8, weights_prepacked=1)
