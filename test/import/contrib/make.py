#!/usr/bin/env python3
"""Writes the folders test_* beside this file: node tests of contrib ops in ONNX's own format.

The expected outputs are those of ONNX Runtime's CPU provider. Needs the packages onnx, onnxruntime and numpy;
only whoever changes the cases runs it.
"""
import math
import zlib

import numpy as np
import onnx
from onnx import helper

from coded_caches import coded_caches
from coded_weights import coded_weights
from data_rows import data_rows
from float_weights import float_weights
from gated import gated_activations
from hyper import hyper
from more_ops import more_ops
from nodes import MICROSOFT, case, f16, f32, i32, random, write
from opset28 import opset28
from paged_attention import paged_attention
from pictures import pictures
from prepacked import prepacked_weights
from ragged import ragged
from routers import routers
from sequences import sequences
from sparse import sparse
from static_cache import static_caches


def group_query(name, batch, new, past, lengths, heads=4, groups=2, size=16, packed=False, rotary=True, bias=False,
                dynamic=False, total=None, **attributes):
    """`total`: of the longest entry, where the past is a buffer with room for more."""
    inputs = {"q": f32(batch, new, (heads + 2 * groups if packed else heads) * size),
              "k": None if packed else f32(batch, new, groups * size),
              "v": None if packed else f32(batch, new, groups * size),
              "past_key": f32(batch, groups, past, size), "past_value": f32(batch, groups, past, size),
              "seqlens_k": i32(lengths), "total": i32(total or past + new),
              "cos": f32(32, size // 2) if rotary else None, "sin": f32(32, size // 2) if rotary else None,
              "positions": None, "bias": f32(batch, 1, new, past + new) if bias else None}
    node = helper.make_node("GroupQueryAttention", [key if value is not None else "" for key, value in inputs.items()],
                            ["y", "present_key", "present_value"], domain=MICROSOFT, num_heads=heads,
                            kv_num_heads=groups, do_rotary=int(rotary), **attributes)
    nodes, weights, dims = [node], {"total", "cos", "sin"}, None
    if dynamic:  # sizes from the shape of a mask, as exporters do it
        del inputs["total"]
        inputs |= {"mask": np.ones((batch, past + new), np.int64), "one": np.array(1, np.int64)}
        nodes = [helper.make_node("Shape", ["mask"], ["mask_shape"]),
                 helper.make_node("Gather", ["mask_shape", "one"], ["length"], axis=0),
                 helper.make_node("Cast", ["length"], ["total"], to=onnx.TensorProto.INT32), node]
        weights = {"one", "cos", "sin"}
        cache = ["batch", groups, "past", size]
        dims = {"q": ["batch", "new", heads * size], "k": ["batch", "new", groups * size],
                "v": ["batch", "new", groups * size], "past_key": cache, "past_value": cache, "seqlens_k": ["batch"],
                "mask": ["batch", "total_length"]}
    inputs = {key: value for key, value in inputs.items() if value is not None}

    def keep_past(results):
        """What follows the new tokens in a cache is not specified: ONNX Runtime clears it, ours keeps the past's rows."""
        for cache, source in ((results[1], inputs["past_key"]), (results[2], inputs["past_value"])):
            for entry, length in enumerate(lengths):
                cache[entry, :, length + 1:past] = source[entry, :, length + 1:past]
        return results

    def keep_unused(results):
        """The same of caches that hold a window only."""
        more = past - attributes["local_window_size"] + 1
        for cache, source in ((results[1], inputs["past_key"]), (results[2], inputs["past_value"])):
            for entry, length in enumerate(lengths):
                used = length + 1 - more * -(-max(length + 1 - past, 0) // more)
                cache[entry, :, used:] = source[entry, :, used:]
        return results

    write(name, nodes, inputs, ["y", "present_key", "present_value"], [key for key in inputs if key in weights], dims,
          adjust=keep_unused if "sliding_window_cache" in attributes else keep_past)


def bits(name, count, columns, depth, zero_points=False, bias=False, block=32):
    blocks = (depth + block - 1) // block
    inputs = {"x": f32(2, 3, depth),
              "packed": random.integers(0, 256, (columns, blocks, block * count // 8)).astype(np.uint8),
              "scales": f32(columns * blocks),
              "zero": random.integers(0, 256, columns * ((blocks * count + 7) // 8)).astype(np.uint8)
              if zero_points else None,
              "order": None, "bias": f32(columns) if bias else None}
    case(name, "MatMulNBits", inputs, weights=[key for key in ("packed", "scales", "zero", "bias")
                                               if inputs[key] is not None],
         N=columns, K=depth, bits=count, block_size=block)


def norms():
    rows, row = (2, 3, 32), (32,)
    for make in (f32, f16):
        kind = make.__name__
        case(f"skip_simplified_{kind}", "SkipSimplifiedLayerNormalization",
             {"x": make(*rows), "skip": make(*rows), "w": make(*row), "b": make(*row)}, ("y", "", "", "sum"),
             epsilon=1e-6)
        case(f"skip_layer_norm_{kind}", "SkipLayerNormalization",
             {"x": make(*rows), "skip": make(*rows), "w": make(*row), "beta": make(*row), "b": make(*row)},
             ("y", "", "", "sum"), epsilon=1e-5)
        case(f"simplified_{kind}", "SimplifiedLayerNormalization", {"x": make(*rows), "w": make(*row)}, domain="",
             epsilon=1e-6, axis=-1, stash_type=1)


def activations_and_products():
    case("fast_gelu", "FastGelu", {"x": f32(2, 32), "b": f32(32)})
    case("bias_gelu", "BiasGelu", {"x": f32(2, 32), "b": f32(32)})
    case("quick_gelu", "QuickGelu", {"x": f32(2, 32)})
    case("quick_gelu_alpha", "QuickGelu", {"x": f32(2, 32)}, alpha=1.5)
    case("fused_matmul", "FusedMatMul", {"a": f32(2, 3, 8), "b": f32(2, 5, 8)}, alpha=0.125, transB=1)
    case("fused_matmul_f16", "FusedMatMul", {"a": f16(2, 8, 3), "b": f16(2, 5, 8)}, alpha=0.5, transA=1, transB=1)
    case("fused_gemm", "FusedGemm", {"a": f32(4, 8), "b": f32(6, 8), "c": f32(6)}, alpha=0.5, beta=2.0, transB=1,
         activation="Relu")
    bits("nbits4", 4, 8, 64)
    bits("nbits4_zero_points", 4, 6, 80, zero_points=True)
    bits("nbits4_bias", 4, 6, 96, bias=True)
    bits("nbits8_zero_points", 8, 6, 80, zero_points=True)


def rotary():
    positions, tables = np.array([[0, 1, 2], [5, 6, 7]], np.int64), lambda width: {"cos": f32(16, width), "sin": f32(16, width)}
    for interleaved in (0, 1):
        case(f"rotary_3d_{interleaved}", "RotaryEmbedding", {"x": f32(2, 3, 32), "p": positions, **tables(4)},
             interleaved=interleaved)
        case(f"rotary_4d_{interleaved}", "RotaryEmbedding", {"x": f32(2, 4, 3, 8), "p": positions, **tables(4)},
             interleaved=interleaved)
        case(f"rotary_offset_{interleaved}", "RotaryEmbedding",
             {"x": f32(2, 3, 32), "p": np.array([4], np.int64), **tables(4)}, interleaved=interleaved)
        case(f"rotary_partial_{interleaved}", "RotaryEmbedding", {"x": f32(2, 3, 32), "p": positions, **tables(2)},
             interleaved=interleaved, num_heads=4, rotary_embedding_dim=4)


def attention():
    group_query("gqa_prompt", 2, 5, 0, [4, 4])
    group_query("gqa_prompt_bias_window", 1, 6, 0, [5], bias=True, local_window_size=3)
    group_query("gqa_decode_one", 1, 1, 6, [6], local_window_size=3)
    group_query("gqa_decode_padded", 2, 1, 6, [6, 3])
    group_query("gqa_decode_packed", 2, 1, 6, [6, 3], packed=True, rotary_interleaved=1)
    group_query("gqa_decode_window", 2, 1, 6, [6, 3], local_window_size=3, softcap=5.0)
    group_query("gqa_decode_bias", 2, 1, 6, [6, 4], rotary=False, bias=True, scale=0.2)
    group_query("gqa_chunk", 1, 3, 4, [6])
    group_query("gqa_buffer", 2, 1, 8, [5, 2], total=6)
    group_query("gqa_buffer_one", 1, 3, 8, [6], total=7, local_window_size=3)
    group_query("gqa_dynamic_prompt", 2, 5, 0, [4, 4], dynamic=True)
    group_query("gqa_dynamic_decode", 2, 1, 6, [6, 2], dynamic=True)
    qkv = lambda keys: {"q": f32(2, 3, 32), "k": f32(2, keys, 32), "v": f32(2, keys, 32)}
    case("mha", "MultiHeadAttention", qkv(5), num_heads=4)
    case("mha_bias", "MultiHeadAttention", qkv(5) | {"b": f32(96)}, num_heads=4)
    case("mha_padding", "MultiHeadAttention",
         qkv(5) | {"b": None, "mask": i32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), "scores": f32(1, 4, 3, 5)}, num_heads=4)
    case("mha_past", "MultiHeadAttention",
         qkv(3) | {"b": None, "mask": None, "scores": None, "past_key": f32(2, 4, 4, 8),
                   "past_value": f32(2, 4, 4, 8)},
         ("y", "present_key", "present_value"), num_heads=4, unidirectional=1)


def routed(name, op, rows, kind=np.float32, bits=None, block=0, zero_points=False, router_weights=False, experts=4, hidden=16,
           inner=32, bias=True, **attributes):
    """One MoE or QMoE node; attributes say what its experts compute."""
    fused = 2 if "swiglu_fusion" in attributes else 1
    make = lambda *shape: own.standard_normal(shape).astype(kind)
    own = np.random.default_rng(zlib.crc32(name.encode()))
    tensors = {"x": make(*rows, hidden), "r": make(int(np.prod(rows)), experts)}
    weights, points = [], []

    def add(key, value):
        tensors[key] = value
        weights.append(key)
        return key

    names = ["x", "r"]
    for number, outer, depth in ((1, fused * inner, hidden), (2, hidden, inner)):
        if bits is None:
            names.append(add(f"w{number}", make(experts, outer, depth) / np.sqrt(depth).astype(kind)))
        else:
            blocks = depth // block if block else 1
            names.append(add(f"w{number}", own.integers(0, 256, (experts, outer, depth * bits // 8), dtype=np.uint8)))
            scales = own.uniform(0.5, 1, (experts, outer, blocks) if block else (experts, outer)) * 0.8 / 2**bits
            names.append(add(f"s{number}", scales.astype(kind)))
            shape = (experts, outer, -(-blocks * bits // 8)) if block else (experts, -(-outer * bits // 8))
            points.append(add(f"z{number}", own.integers(0, 256, shape, dtype=np.uint8)) if zero_points else "")
        names.append(add(f"b{number}", make(experts, outer)) if bias else "")
    if bits is not None:
        names += ["", "", ""] + points + [""]
        attributes |= {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
        if router_weights:
            tensors["rw"] = own.uniform(0, 1, tensors["r"].shape).astype(kind)
            names.append("rw")
        while not names[-1]:
            names.pop()
    write(name, [helper.make_node(op, names, ["y"], domain=MICROSOFT, **attributes)], tensors, ["y"], weights)


def experts():
    routed("moe_relu", "MoE", (3,), k=1, activation_type="relu")
    routed("moe_gelu_batch", "MoE", (2, 3), k=2, activation_type="gelu", bias=False)
    routed("moe_silu_f16", "MoE", (3,), np.float16, k=2, activation_type="silu", normalize_routing_weights=1)
    clamped = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.0, "normalize_routing_weights": 1}
    swiglu = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}
    routed("moe_swiglu", "MoE", (3,), **swiglu, **clamped)
    routed("qmoe4", "QMoE", (3,), bits=4, **swiglu, **clamped)
    routed("qmoe4_rows_zero_points", "QMoE", (3,), bits=4, zero_points=True, **swiglu, **clamped)
    routed("qmoe4_blocks_zero_points", "QMoE", (3,), bits=4, block=16, zero_points=True, **swiglu, **clamped)
    routed("qmoe4_router_weights", "QMoE", (2, 2), bits=4, block=16, router_weights=True, **swiglu)
    routed("qmoe8_zero_points", "QMoE", (3,), bits=8, zero_points=True, k=2, activation_type="silu",
           normalize_routing_weights=1)


def i8(*shape):
    return random.integers(-127, 128, shape).astype(np.int8)


def u8(*shape):
    return random.integers(0, 256, shape).astype(np.uint8)


def scale(*values):
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def zero(value, kind=np.uint8):
    return np.array(value, kind)


def projected_attention():
    """Attention: every form of its mask, the past, what is left out."""
    base = lambda **more: {"x": f32(2, 3, 16), "w": f32(16, 48) * 0.3, "b": f32(48)} | more
    weights = ("w", "b")
    case("attention", "Attention", base(), weights=weights, num_heads=4)
    case("attention_no_bias", "Attention", base() | {"b": None}, weights=("w",), num_heads=2, unidirectional=1, scale=0.3)
    case("attention_ends", "Attention", base(mask=i32([2, 3])), weights=weights, num_heads=4)
    case("attention_ends_starts", "Attention", base(mask=i32([3, 2, 1, 0])), weights=weights, num_heads=4)
    case("attention_raw_2d", "Attention", base(mask=i32([[1, 1, 0], [1, 1, 1]])), weights=weights, num_heads=4,
         mask_filter_value=-3e4)
    case("attention_raw_3d", "Attention", base(mask=random.integers(0, 2, (2, 3, 3)).astype(np.int32)),
         weights=weights, num_heads=4)
    case("attention_scores", "Attention", base(mask=None, past=None, scores=f32(1, 4, 3, 3)), weights=weights, num_heads=4)
    case("attention_past", "Attention", base(mask=i32([[0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]]), past=f32(2, 2, 4, 4, 4)),
         ("y", "present"), weights=weights, num_heads=4, unidirectional=1)
    case("attention_sizes", "Attention", {"x": f32(2, 3, 16), "w": f32(16, 24), "b": f32(24)}, weights=weights,
         num_heads=2, qkv_hidden_sizes=[8, 8, 8])
    case("qattention", "QAttention", {"x": u8(2, 3, 16), "w": i8(16, 48), "b": f32(48), "xs": scale(0.01), "ws": scale(0.01),
                                      "mask": i32([2, 3]), "xz": zero(120), "wz": zero(3, np.int8)},
         weights=("w", "b"), num_heads=4)


def packed_heads():
    q, k, v = f32(2, 3, 4, 8), f32(2, 3, 4, 8), f32(2, 3, 4, 8)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(8)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("bhqk,bkhd->bqhd", shares / shares.sum(-1, keepdims=True), v).reshape(2, 3, 32).astype(np.float32)
    for name, inputs in (("qkv", {"q": np.stack([q, k, v], 3)}),
                         ("kv", {"q": q.reshape(2, 3, 32), "k": np.stack([k, v], 3)})):
        node = helper.make_node("MultiHeadAttention", list(inputs), ["y"], domain=MICROSOFT, num_heads=4)
        write(f"mha_packed_{name}", [node], inputs, ["y"], results=[y])
    case("mha_cross", "MultiHeadAttention", {"q": f32(2, 3, 32), "k": f32(2, 4, 5, 8), "v": f32(2, 4, 5, 8)}, num_heads=4)
    case("mha_ends", "MultiHeadAttention", {"q": f32(2, 3, 32), "k": f32(2, 5, 32), "v": f32(2, 5, 32), "b": None, "ends": i32([3, 5])},
         num_heads=4)
    case("mha_mask_3d", "MultiHeadAttention", {"q": f32(2, 3, 32), "k": f32(2, 3, 32), "v": f32(2, 3, 32), "b": f32(96),
                                               "mask": random.integers(0, 2, (2, 3, 3)).astype(np.int32)}, num_heads=4)
    group_query("gqa_not_causal", 2, 5, 0, [4, 4], causal=0)
    sinks = {"q": f32(2, 3, 32), "k": f32(2, 3, 16), "v": f32(2, 3, 16), "pk": None, "pv": None, "lengths": i32([2, 2]),
             "total": i32(3), "cos": None, "sin": None, "positions": None, "bias": None, "sink": f32(4)}
    case("gqa_sink", "GroupQueryAttention", sinks, weights=("total",), num_heads=4, kv_num_heads=2)
    case("gqa_sink_window", "GroupQueryAttention", sinks, weights=("total",), num_heads=4, kv_num_heads=2, local_window_size=2)
    case("gqa_smooth", "GroupQueryAttention", sinks | {"sink": None}, weights=("total",), num_heads=4, kv_num_heads=2,
         smooth_softmax=1)


def embeddings():
    ids = random.integers(0, 9, (2, 3)).astype(np.int32)
    tables = {"words": f32(9, 16), "places": f32(8, 16), "segments": f32(2, 16), "gamma": f32(16), "beta": f32(16)}
    case("embed", "EmbedLayerNormalization", {"ids": ids, "kinds": ids % 2} | tables | {"mask": i32([[1, 1, 0], [1, 1, 1]])},
         ("y", "ends", "sum"), weights=tuple(tables), epsilon=1e-5)
    case("embed_positions", "EmbedLayerNormalization",
         {"ids": ids, "kinds": None} | tables | {"segments": None, "mask": None, "positions": ids % 8}, ("y", "ends"),
         weights=("words", "places", "gamma", "beta"))
    table = {"data": u8(9, 32), "ids": ids, "scales": f32(9, 2), "zeros": u8(9, 1)}
    case("gather_nbits4", "GatherBlockQuantized", table, weights=("data", "scales", "zeros"), bits=4, block_size=32,
         gather_axis=0, quantize_axis=1)
    case("gather_nbits8", "GatherBlockQuantized", table | {"zeros": None}, weights=("data", "scales"), bits=8, block_size=16,
         gather_axis=0, quantize_axis=1)


def bytes_in_between():
    x, y = {"a": u8(2, 3, 8), "as": scale(0.02), "az": zero(100)}, {"b": u8(2, 3, 8), "bs": scale(0.03), "bz": zero(7)}
    out = {"ys": scale(0.05), "yz": zero(128)}
    case("qlinear_add", "QLinearAdd", x | y | out)
    case("qlinear_mul", "QLinearMul", x | y | out)
    case("qlinear_sigmoid", "QLinearSigmoid", x | {"ys": scale(1 / 256), "yz": zero(0)})
    case("qlinear_softmax", "QLinearSoftmax", x | {"ys": scale(1 / 256), "yz": zero(0)}, axis=-1, opset=13)
    case("qlinear_concat", "QLinearConcat", out | x | y, axis=1)
    case("qgemm", "QGemm", {"a": u8(4, 8), "as": scale(0.02), "az": zero(100), "b": i8(6, 8), "bs": scale(*[0.01] * 6),
                            "bz": np.zeros(6, np.int8), "c": i32(random.integers(-99, 99, 6)), "ys": scale(0.05), "yz": zero(128)},
         weights=("b", "bs", "bz", "c"), transB=1)
    case("matmul_integer_to_float", "MatMulIntegerToFloat",
         {"a": u8(3, 8), "b": i8(8, 6), "as": scale(0.02), "bs": scale(0.03), "az": zero(100), "bz": zero(3, np.int8), "bias": f32(6)},
         weights=("b", "bias"))
    case("dynamic_quantize_matmul", "DynamicQuantizeMatMul",
         {"a": f32(3, 8), "b": i8(8, 6), "bs": scale(*[0.02] * 6), "bz": np.zeros(6, np.int8), "bias": f32(6)},
         weights=("b", "bs", "bz", "bias"))
    case("fused_matmul_batch", "FusedMatMul", {"a": f32(3, 2, 8), "b": f32(8, 2, 5)}, transBatchA=1, transBatchB=1)
    case("fused_conv", "FusedConv", {"x": f32(1, 4, 5, 5), "w": f32(6, 4, 3, 3), "b": f32(6), "z": f32(1, 6, 3, 3)},
         weights=("w", "b"), kernel_shape=[3, 3], activation="Relu")


def windowed_caches():
    """The cache is as long as the window, longer, or shorter than what is new; entries of different lengths."""
    def windowed(name, *sizes, window, **attributes):
        group_query(f"gqa_cache_of_{name}", *sizes, sliding_window_cache=1, local_window_size=window, **attributes)

    windowed("window", 1, 3, 4, [8], window=4, total=9)
    windowed("window_decode", 2, 1, 4, [9, 2], window=4, total=10)
    windowed("more", 1, 3, 7, [11], window=4, total=12, packed=True)
    windowed("more_decode", 2, 1, 7, [9, 4], window=4, total=10, softcap=5.0)
    windowed("prompt", 2, 9, 6, [8, 8], window=3, total=9)


def formula(name, op, inputs, result, weights=(), **attributes):
    """Where only a GPU has the op: what its definition says, by numpy."""
    node = helper.make_node(op, list(inputs), ["y"], domain=MICROSOFT, **attributes)
    write(name, [node], inputs, ["y"], weights, results=[result])


def erf(x):
    return np.vectorize(math.erf)(x)


def buckets_of_distances(heads, buckets, length, both_ways, largest):
    """The table lies column by column: a head's numbers for all buckets are neighbours."""
    table, result = f32(buckets, heads), np.zeros((1, heads, length, length), np.float32)
    for query in range(length):
        for key in range(length):
            offset, count, bucket = key - query, buckets // 2 if both_ways else buckets, 0
            if both_ways and offset > 0:
                bucket = count
            distance, exact = abs(offset) if both_ways else max(-offset, 0), count // 2
            if distance >= exact:
                far = math.log(distance / exact) / math.log(largest / exact)
                distance = min(exact + int(far * (count - exact)), count - 1)
            result[0, :, query, key] = table.ravel()[np.arange(heads) * buckets + bucket + distance]
    inputs = {"table": table, "queries": np.array(length, np.int64), "keys": np.array(length, np.int64)}
    formula(f"relative_bias_{'both' if both_ways else 'one'}_way", "RelativePositionBias", inputs, result,
            ("queries", "keys"), is_bidirectional=int(both_ways), max_distance=largest)


def gates():
    x, bias, weight, shift = f32(2, 5, 32), f32(32), f32(8, 6), f32(6)
    positions, eco = f32(1, 4, 5, 5), f32(1, 4, 1, 1)
    heads = (x + bias).reshape(2, 5, 4, 8).transpose(0, 2, 1, 3)
    gate = 1 / (1 + np.exp(-(heads @ weight + shift).reshape(2, 4, 5, 2, 3).sum(-1)))
    update = gate[..., :1] * (gate[..., 1:] * eco - 1) + 2
    formula("gated_relative_bias", "GatedRelativePositionBias",
            {"x": x, "bias": bias, "positions": positions, "weight": weight, "shift": shift, "eco": eco},
            update * positions, num_heads=4)


def definitions():
    x, bias, skip = f32(2, 6, 8), f32(8), f32(2, 6, 8)
    formula("bias_add", "BiasAdd", {"x": x, "b": bias, "skip": skip}, x + bias + skip)
    left, right = np.split(x + bias, 2, -1)
    formula("bias_split_gelu", "BiasSplitGelu", {"x": x, "b": bias},
            (left * right * 0.5 * (1 + erf(right / math.sqrt(2)))).astype(np.float32))
    w = f32(8, 5)
    y = x @ w + bias[:5]
    formula("gemm_fast_gelu", "GemmFastGelu", {"x": x, "w": w, "b": bias[:5]},
            0.5 * y * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (y + np.float32(0.044715) * y ** 3))))
    buckets_of_distances(4, 8, 13, True, 16)
    buckets_of_distances(3, 8, 13, False, 16)
    gates()
    data = u8(3, 4, 8)
    mean = ((data.astype(np.float32) - 100) * np.float32(0.02)).mean(1, keepdims=True) / np.float32(0.05) + 128
    formula("qlinear_reduce_mean", "QLinearReduceMean",
            {"x": data, "xs": scale(0.02), "xz": zero(100), "ys": scale(0.05), "yz": zero(128)},
            np.clip(np.rint(mean), 0, 255).astype(np.uint8), axes=[1], keepdims=1)


def more_of_onnxruntime():
    tables = {"words": u8(9, 16), "places": u8(8, 16), "segments": u8(2, 16), "gamma": u8(16), "beta": u8(16)}
    ids = random.integers(0, 9, (2, 3)).astype(np.int32)
    scales = {f"{key}_scale": scale(0.02) for key in tables}
    zeros = {f"{key}_zero": zero(100 + place) for place, key in enumerate(tables)}
    inputs = {"ids": ids, "kinds": ids % 2} | tables | {"mask": i32([[1, 1, 0], [1, 1, 1]])} | scales | zeros
    case("quantised_embed", "QEmbedLayerNormalization", inputs, ("y", "ends"),
         weights=(*tables, *scales, *zeros), epsilon=1e-5)


for cases in (norms, activations_and_products, rotary, attention, experts, projected_attention,
              packed_heads, embeddings, bytes_in_between, windowed_caches, definitions,
              more_of_onnxruntime, coded_caches, paged_attention, prepacked_weights, float_weights,
              gated_activations, opset28, ragged, pictures, more_ops, sparse, coded_weights,
              hyper, sequences, routers, static_caches, data_rows):
    cases()
