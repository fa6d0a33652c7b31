"""What ATen's reductions, norms and layers are in ONNX."""

import torch

from ._aten import Unsupported, handler, number, widened
from ._aten_shapes import axis_of
from ._onnx import TYPES


# Reductions.
def _reduce(op):
    def convert(m, node, x, dims=None, keepdim=False, **options):
        rank = len(m.shape(x))
        dims = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        value = m.operand(x, m.dtype(node)) if op != "Any" else m.value(x)
        return m.op(op, [value, m.b.ints([axis_of(d, rank) for d in dims])], keepdims=int(keepdim))

    return convert


for _name, _op in {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
}.items():
    handler(_name)(_reduce(_op))


@handler("max.default", "min.default")
def largest_of_all(m, node, x):
    largest = node.target._schema.name.endswith("max")
    axes = m.b.ints(range(len(m.shape(x))))
    return m.op("ReduceMax" if largest else "ReduceMin", [x, axes], keepdims=0)


@handler("any", "all")
def any_all(m, node, x, dims=None, keepdim=False):
    largest = node.target._schema.name.endswith("any")
    ints = m.cast(
        m.op("Cast", [x], to=TYPES["bool"]) if m.dtype(x) != "bool" else m.value(x), "bool", "int32"
    )
    rank = len(m.shape(x))
    dims = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    axes = m.b.ints([axis_of(d, rank) for d in dims])
    return m.cast(
        m.op("ReduceMax" if largest else "ReduceMin", [ints, axes], keepdims=int(keepdim)), "int32", "bool"
    )


@handler("argmax", "argmin")
def argmax(m, node, x, dim=None, keepdim=False):
    op = "ArgMax" if node.target._schema.name.endswith("argmax") else "ArgMin"
    if dim is None:
        return m.reshape(m.op(op, [m.reshape(m.value(x), [-1])], axis=0), list(m.shape(node)))
    return m.op(op, [x], axis=axis_of(dim, len(m.shape(x))), keepdims=int(keepdim))


@handler("var", "std", "var_mean", "std_mean")
def variance(m, node, x, *args, **options):
    names = [argument.name for argument in node.target._schema.arguments][1:]
    given = {**dict(zip(names, args)), **options}
    rank, dtype = len(m.shape(x)), m.dtype(x)
    dims = given.get("dim")
    dims = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    dims = [axis_of(d, rank) for d in dims]
    correction = given.get("correction", int(given.get("unbiased", True)))
    correction = 1 if correction is None else number(correction, "the correction")
    wide, axes = widened(dtype), m.b.ints(dims)
    value = m.operand(x, wide)
    mean = m.op("ReduceMean", [value, axes], keepdims=1)
    apart = m.op("Sub", [value, mean])
    square, keeps = m.op("Mul", [apart, apart]), int(given.get("keepdim", False))
    if correction == 0:
        result = m.op("ReduceMean", [square, axes], keepdims=keeps)
    else:
        count = m.scalar(1, wide)
        for d in dims:
            count = m.op("Mul", [count, m.operand(m.shape(x)[d], wide)])
        count = m.op("Max", [m.op("Sub", [count, m.scalar(correction, wide)]), m.scalar(0, wide)])
        result = m.op("Div", [m.op("ReduceSum", [square, axes], keepdims=keeps), count])
    name = node.target._schema.name.split("::")[-1]
    result = m.cast(m.op("Sqrt", [result]) if name.startswith("std") else result, wide, dtype)
    if not name.endswith("mean"):
        return result
    mean = mean if keeps else m.reshape(mean, list(m.meta(node)[1].shape))
    return [result, m.cast(mean, wide, dtype)]


@handler("max.dim", "min.dim")
def max_dim(m, node, x, dim, keepdim=False):
    largest = node.target._schema.name.endswith("max")
    axis = axis_of(dim, len(m.shape(x)))
    value = m.op("ReduceMax" if largest else "ReduceMin", [x, m.b.ints([axis])], keepdims=int(keepdim))
    return [value, m.op("ArgMax" if largest else "ArgMin", [x], axis=axis, keepdims=int(keepdim))]


@handler("cumsum")
def cumsum(m, node, x, dim, dtype=None):
    return m.op("CumSum", [m.operand(x, m.dtype(node)), m.scalar(axis_of(dim, len(m.shape(x))), "int64")])


@handler("topk")
def topk(m, node, x, k, dim=-1, largest=True, sorted=True):
    return m.op(
        "TopK",
        [x, m.size(k)],
        outputs=2,
        axis=axis_of(dim, len(m.shape(x))),
        largest=int(largest),
        sorted=int(sorted),
    )


@handler("softmax.int", "_softmax", "log_softmax.int", "_log_softmax", "_safe_softmax")
def softmax(m, node, x, dim, *rest, **options):
    op = "LogSoftmax" if "log_softmax" in node.target._schema.name else "Softmax"
    return m.op(op, [m.operand(x, m.dtype(node))], axis=axis_of(dim, len(m.shape(x))))


# Norms.
@handler("layer_norm", "native_layer_norm")
def layer_norm(m, node, x, dims, weight=None, bias=None, eps=1e-5, *rest):
    dtype = m.dtype(x)
    wide = widened(dtype)  # scale and shift meet what is not rounded yet
    weight = m.op("Expand", [m.scalar(1, wide), m.sizes(dims)]) if weight is None else m.operand(weight, wide)
    given = [m.operand(x, wide), weight] + ([] if bias is None else [m.operand(bias, wide)])
    value = m.cast(m.op("LayerNormalization", given, axis=-len(dims), epsilon=float(eps)), wide, dtype)
    return value if node.target._schema.name.endswith("::layer_norm") else [value, None, None]


@handler("rms_norm", "_fused_rms_norm")
def rms_norm(m, node, x, dims, weight=None, eps=None):
    dtype = m.dtype(x)
    if weight is None:
        weight = m.op("Expand", [m.scalar(1, dtype), m.sizes(dims)])
    eps = torch.finfo(getattr(torch, dtype)).eps if eps is None else eps
    value = m.op("RMSNormalization", [x, weight], axis=-len(dims), epsilon=float(eps))
    return [value, None] if node.target._schema.name.endswith("_fused_rms_norm") else value


@handler("group_norm", "native_group_norm")
def group_norm(m, node, x, *args):
    if node.target._schema.name.endswith("native_group_norm"):
        weight, bias, _, _, _, groups, eps = args
    else:
        groups, weight, bias, eps = (list(args) + [None, None, None, 1e-5][len(args) :])[:4]
    dtype, channels = m.dtype(x), m.shape(x)[1]
    wide = widened(dtype)
    given = [m.operand(x, wide)]
    for each, absent in ((weight, 1), (bias, 0)):
        empty = each is None and m.op("Expand", [m.scalar(absent, wide), m.size(channels)])
        given.append(empty or m.operand(each, wide))
    value = m.op("GroupNormalization", given, num_groups=groups, epsilon=float(eps))
    value = m.cast(value, wide, dtype)
    return [value, None, None] if node.target._schema.name.endswith("native_group_norm") else value


@handler("convolution", "conv1d", "conv2d", "conv3d")
def convolution(m, node, x, weight, bias=None, stride=1, padding=0, dilation=1, *rest):
    spatial = len(m.shape(weight)) - 2
    transposed, _, groups = rest if len(rest) == 3 else (False, None, rest[0] if rest else 1)
    if transposed or isinstance(padding, str):
        raise Unsupported("transposed, or padded by a name")

    def each(value):
        values = [value] if isinstance(value, int) else list(value)
        return values * spatial if len(values) == 1 else values

    return m.op(
        "Conv",
        [x, weight] + ([] if bias is None else [bias]),
        strides=each(stride),
        pads=each(padding) * 2,
        dilations=each(dilation),
        group=groups,
    )


# Attention.
def _attention(m, q, k, v, mask, causal, scale):
    if causal and mask is not None:
        raise Unsupported("causal with a mask")
    return m.op(
        "Attention",
        [q, k, v] + ([] if mask is None else [mask]),
        is_causal=int(causal),
        scale=None if scale is None else float(number(scale, "the scale")),
    )


@handler(
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
)
def attention(m, node, q, k, v, *args, **options):
    schema = node.target._schema
    names = [argument.name for argument in schema.arguments][3:]
    given = {**dict(zip(names, args)), **options}
    if given.get("dropout_p"):
        raise Unsupported("with dropout")
    if any(len(m.shape(each)) != 4 for each in (q, k, v)):
        raise Unsupported("of tensors that have not 4 dims")
    mask = given.get("attn_mask", given.get("attn_bias"))
    value = _attention(m, q, k, v, mask, bool(given.get("is_causal", False)), given.get("scale"))
    many = len(schema.returns)
    return value if many == 1 else [value] + [None] * (many - 1)
