"""What each ATen op is in ONNX."""
import torch

from ._aten import Unsupported, dtype_name, handler, number
from ._onnx import TYPES

_UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "neg": "Neg", "abs": "Abs", "sqrt": "Sqrt",
          "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "floor": "Floor", "ceil": "Ceil", "round": "Round",
          "reciprocal": "Reciprocal", "sign": "Sign", "logical_not": "Not", "isnan": "IsNaN", "isinf": "IsInf", "hardswish": "HardSwish",
          "mish": "Mish", "softplus": "Softplus"}
_SAME = ("clone", "alias", "contiguous", "detach", "lift_fresh_copy", "lift_fresh", "detach_", "dropout", "native_dropout_off")


def _unary(op):
    def convert(m, node, x, *rest, **options):
        if rest and op in ("Softplus", "Round"):
            raise Unsupported("with more than one argument")
        dtype = m.dtype(node)
        if op in ("Not", "IsNaN", "IsInf"):
            return m.op(op, [m.operand(x, "bool") if op == "Not" else x])
        return m.op(op, [m.operand(x, dtype)])
    return convert


for _name, _op in _UNARY.items():
    handler(_name)(_unary(_op))


@handler(*_SAME)
def same(m, node, x, *rest, **options):
    return m.value(x)


@handler("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "type_as")
def to_copy(m, node, x, *rest, **options):
    return m.cast(m.value(x), m.dtype(x), m.dtype(node))


@handler("rsqrt")
def rsqrt(m, node, x):
    return m.op("Reciprocal", [m.op("Sqrt", [m.operand(x, m.dtype(node))])])


@handler("silu")
def silu(m, node, x):
    return m.op("Mul", [x, m.op("Sigmoid", [x])])


@handler("gelu")
def gelu(m, node, x, approximate="none"):
    return m.op("Gelu", [x], approximate=approximate)


@handler("leaky_relu")
def leaky_relu(m, node, x, slope=0.01):
    return m.op("LeakyRelu", [x], alpha=float(slope))


@handler("elu")
def elu(m, node, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if scale != 1 or input_scale != 1:
        raise Unsupported("with scales")
    return m.op("Elu", [x], alpha=float(alpha))


@handler("bitwise_not")
def bitwise_not(m, node, x):
    return m.op("Not" if m.dtype(x) == "bool" else "BitwiseNot", [x])


@handler("square")
def square(m, node, x):
    return m.op("Mul", [x, x])


@handler("clamp", "clamp_min", "clamp_max", "hardtanh")
def clamp(m, node, x, low=None, high=None, min=None, max=None):
    name = node.target._schema.name
    if name.endswith("clamp_max"):
        low, high = None, low
    if name.endswith("hardtanh"):
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    low, high = min if low is None else low, max if high is None else high
    dtype, result = m.dtype(node), m.operand(x, m.dtype(node))
    for bound, op in ((low, "Max"), (high, "Min")):
        if bound is not None:
            result = m.op(op, [result, m.operand(bound, dtype)])
    return result


def _common(m, node, *args):
    """The type in which operands meet."""
    values = [arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in args]
    values = [1 if isinstance(v, torch.SymInt) else v for v in values]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    if len(tensors) == 2 or len(values) == 1:
        return dtype_name(torch.result_type(*tensors) if len(tensors) == 2 else tensors[0].dtype)
    return dtype_name(torch.result_type(*values) if tensors else m.meta(node).dtype)


def _binary(op, compares=False):
    def convert(m, node, a, b, *rest, alpha=1, **options):
        dtype = _common(m, node, a, b) if compares else m.dtype(node)
        right = m.operand(b, dtype)
        if alpha != 1 or rest:
            right = m.op("Mul", [right, m.operand(rest[0] if rest else alpha, dtype)])
        return m.op(op, [m.operand(a, dtype), right])
    return convert


for _name, _op in {"add": "Add", "sub": "Sub", "mul": "Mul", "maximum": "Max", "minimum": "Min"}.items():
    handler(_name)(_binary(_op))
for _name, _op in {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}.items():
    handler(_name)(_binary(_op, compares=True))


@handler("ne")
def ne(m, node, a, b):
    return m.op("Not", [_binary("Equal", compares=True)(m, node, a, b)])


@handler("rsub")
def rsub(m, node, a, b, alpha=1):
    return _binary("Sub")(m, node, b, a) if alpha == 1 else m.op(
        "Sub", [m.operand(b, m.dtype(node)), m.op("Mul", [m.operand(a, m.dtype(node)), m.operand(alpha, m.dtype(node))])])


@handler("pow")
def power(m, node, a, b):
    if isinstance(b, (int, float)) and b == 2:
        return m.op("Mul", [m.operand(a, m.dtype(node))] * 2)
    return m.op("Pow", [m.operand(a, m.dtype(node)), m.operand(b, m.dtype(node))])


@handler("div", "true_divide", "floor_divide")
def div(m, node, a, b, rounding_mode=None):
    dtype = m.dtype(node)
    if node.target._schema.name.endswith("floor_divide"):
        rounding_mode = "floor"
    result = m.op("Div", [m.operand(a, dtype), m.operand(b, dtype)])
    if rounding_mode is None:
        return result
    if rounding_mode == "floor" and dtype.startswith("float"):
        return m.op("Floor", [result])
    if rounding_mode == "trunc" and not dtype.startswith("float"):
        return result
    if rounding_mode == "floor" and not isinstance(b, torch.fx.Node) and b > 0:  # the remainder has the divisor's sign
        divisor = m.operand(b, dtype)
        whole = m.op("Sub", [m.operand(a, dtype), m.op("Mod", [m.operand(a, dtype), divisor])])
        return m.op("Div", [whole, divisor])
    raise Unsupported(f"rounding mode {rounding_mode} of {dtype}")


@handler("remainder")
def remainder(m, node, a, b):
    if m.dtype(node).startswith(("float", "bfloat")):
        raise Unsupported("of floats")
    return m.op("Mod", [m.operand(a, m.dtype(node)), m.operand(b, m.dtype(node))])


for _name in ("and", "or", "xor"):
    def _logic(m, node, a, b, _name=_name):
        dtype = m.dtype(node)
        if dtype == "bool":
            return m.op(_name.capitalize(), [m.operand(a, "bool"), m.operand(b, "bool")])
        return m.op("Bitwise" + _name.capitalize(), [m.operand(a, dtype), m.operand(b, dtype)])
    handler("bitwise_" + _name, "logical_" + _name, f"__{_name}__")(_logic)


@handler("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(m, node, condition, a, b):
    dtype = m.dtype(node)
    return m.op("Where", [condition, m.operand(a, dtype), m.operand(b, dtype)])


@handler("masked_fill")
def masked_fill(m, node, x, mask, value):
    dtype = m.dtype(node)
    return m.op("Where", [mask, m.operand(value, dtype), m.operand(x, dtype)])


# Matmuls.
@handler("mm", "bmm", "matmul", "dot", "mv")
def matmul(m, node, a, b):
    return m.op("MatMul", [a, b])


def _scaled(m, value, factor, dtype):
    return value if factor == 1 else m.op("Mul", [value, m.operand(factor, dtype)])


@handler("addmm", "baddbmm")
def addmm(m, node, bias, a, b, beta=1, alpha=1):
    dtype = m.dtype(node)
    product = _scaled(m, m.op("MatMul", [a, b]), alpha, dtype)
    return m.op("Add", [product, _scaled(m, m.value(bias), beta, dtype)])


@handler("linear")
def linear(m, node, x, weight, bias=None):
    rank = len(m.shape(weight))
    turned = m.op("Transpose", [weight], perm=[1, 0]) if rank == 2 else m.value(weight)
    product = m.op("MatMul", [x, turned])
    return product if bias is None else m.op("Add", [product, bias])


@handler("einsum")
def einsum(m, node, equation, operands, path=None):
    return m.op("Einsum", list(operands), equation=equation)


# Shapes.
def _axis(axis, rank):
    return axis + rank if axis < 0 else axis


@handler("t", "numpy_T")
def transposed(m, node, x):
    rank = len(m.shape(x))
    return m.op("Transpose", [x], perm=list(range(rank))[::-1])


@handler("transpose.int", "swapaxes")
def transpose(m, node, x, a, b):
    perm = list(range(len(m.shape(x))))
    perm[a], perm[b] = perm[b], perm[a]
    return m.op("Transpose", [x], perm=perm)


@handler("permute")
def permute(m, node, x, dims):
    rank = len(m.shape(x))
    return m.op("Transpose", [x], perm=[_axis(d, rank) for d in dims])


@handler("view.default", "_unsafe_view", "reshape", "view_copy.default", "flatten", "unflatten", "_reshape_alias", "squeeze", "unsqueeze")
def view(m, node, x, *rest, **options):
    return m.reshape(m.value(x), list(m.shape(node)))


@handler("expand")
def expand(m, node, x, size, implicit=False):
    return m.op("Expand", [x, m.sizes(list(m.shape(node)))])


@handler("repeat")
def repeat(m, node, x, repeats):
    lead = len(repeats) - len(m.shape(x))
    value = m.reshape(m.value(x), [1] * lead + list(m.shape(x))) if lead else m.value(x)
    return m.op("Tile", [value, m.sizes(repeats)])


@handler("slice.Tensor")
def slice_tensor(m, node, x, dim=0, start=None, end=None, step=1):
    axis = _axis(dim, len(m.shape(x)))
    if start in (None, 0) and step == 1 and m.shape(node)[axis] is m.shape(x)[axis]:
        return m.value(x)
    end = 2**63 - 1 if end is None else end
    return m.op("Slice", [x, m.size(start or 0), m.size(end), m.b.ints([axis]), m.b.ints([number(step, "the step")])])


@handler("narrow")
def narrow(m, node, x, dim, start, length):
    first = m.size(start)
    return m.op("Slice", [x, first, m.op("Add", [first, m.size(length)]), m.b.ints([dim])])


@handler("select.int")
def select(m, node, x, dim, index):
    return m.op("Gather", [x, m.op("Squeeze", [m.size(index), m.b.ints([0])])], axis=_axis(dim, len(m.shape(x))))


@handler("cat", "concat")
def cat(m, node, tensors, dim=0):
    dtype = m.dtype(node)
    kept = [t for t in tensors if not (len(m.shape(t)) == 1 and m.shape(t)[0] == 0 and len(m.shape(node)) > 1)]
    return m.op("Concat", [m.operand(t, dtype) for t in kept], axis=_axis(dim, len(m.shape(node))))


@handler("stack")
def stack(m, node, tensors, dim=0):
    rank = len(m.shape(node))
    axis = m.b.ints([_axis(dim, rank)])
    return m.op("Concat", [m.op("Unsqueeze", [m.operand(t, m.dtype(node)), axis]) for t in tensors], axis=_axis(dim, rank))


@handler("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
def split(m, node, x, sizes, dim=0):
    parts = node.meta["val"]
    axis = _axis(dim, len(m.shape(x)))
    if len(parts) == 1:
        return [m.value(x)]
    return m.op("Split", [x, m.sizes([part.shape[axis] for part in parts])], outputs=len(parts), axis=axis)


@handler("unbind")
def unbind(m, node, x, dim=0):
    axis = _axis(dim, len(m.shape(x)))
    return [m.op("Gather", [x, m.scalar(i, "int64")], axis=axis) for i in range(len(node.meta["val"]))]


@handler("flip")
def flip(m, node, x, dims):
    rank, many = len(m.shape(x)), len(dims)
    return m.op("Slice", [x, m.b.ints([-1] * many), m.b.ints([-2**63 + 1] * many), m.b.ints([_axis(d, rank) for d in dims]),
                          m.b.ints([-1] * many)])


@handler("constant_pad_nd")
def constant_pad(m, node, x, pad, value=0):
    rank, sides = len(m.shape(x)), [number(p, "a pad") for p in pad]
    before, after = [0] * rank, [0] * rank
    for i in range(len(sides) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = sides[2 * i], sides[2 * i + 1]
    return m.op("Pad", [x, m.b.ints(before + after), m.scalar(value, m.dtype(x))])


# Indices.
@handler("embedding")
def embedding(m, node, weight, indices, *rest, **options):
    return m.op("Gather", [weight, indices], axis=0)


@handler("index_select")
def index_select(m, node, x, dim, index):
    return m.op("Gather", [x, index], axis=_axis(dim, len(m.shape(x))))


@handler("gather")
def gather(m, node, x, dim, index, sparse_grad=False):
    return m.op("GatherElements", [x, index], axis=_axis(dim, len(m.shape(x))))


@handler("index.Tensor")
def index(m, node, x, indices):
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if any(m.dtype(i) == "bool" for _, i in given):
        raise Unsupported("by a mask: the size of the result depends on its contents")
    if len(given) == 1:
        return m.op("Gather", [x, given[0][1]], axis=given[0][0])
    if [axis for axis, _ in given] != list(range(len(given))):
        raise Unsupported("by tensors that do not start at the first dim, one after the other")
    shape = list(m.shape(node))[:len(m.shape(node)) - (len(m.shape(x)) - len(given))]
    size = m.sizes(shape)
    columns = [m.op("Unsqueeze", [m.op("Expand", [m.operand(i, "int64"), size]), m.b.ints([-1])]) for _, i in given]
    return m.op("GatherND", [x, m.op("Concat", columns, axis=-1)])


@handler("slice_scatter", "select_scatter", "index_put", "scatter.src", "scatter.value")
def scatter(m, node, x, *rest, **options):
    name = node.target._schema.name.split("::")[-1]
    if name == "scatter" and isinstance(rest[2], torch.fx.Node):
        return m.op("ScatterElements", [x, rest[1], rest[2]], axis=_axis(rest[0], len(m.shape(x))))
    raise Unsupported("writes into a tensor")


@handler("tril", "triu")
def triangle(m, node, x, diagonal=0):
    upper = node.target._schema.name.endswith("triu")
    return m.op("Trilu", [x, m.scalar(number(diagonal, "the diagonal"), "int64")], upper=int(upper))


@handler("arange")
def arange(m, node, *args, **options):
    positional = [a for a in args if a is not None]
    start, end, step = (0, positional[0], 1) if len(positional) == 1 else (positional + [1])[:3]
    step = options.get("step", step)
    dtype = m.dtype(node)
    return m.op("Range", [m.operand(each, dtype) for each in (start, end, step)])


@handler("full", "full_like", "zeros", "ones", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "scalar_tensor", "empty",
         "empty_like", "new_empty")
def full(m, node, *args, **options):
    name = node.target._schema.name.split("::")[-1]
    value = args[1] if name in ("full", "full_like") else args[2] if name == "new_full" else args[0] if name == "scalar_tensor" else \
        1 if "ones" in name else 0
    dtype, shape = m.dtype(node), list(m.shape(node))
    scalar = m.operand(value, dtype)
    return scalar if not shape else m.op("Expand", [scalar, m.sizes(shape)])


# Reductions.
def _reduce(op):
    def convert(m, node, x, dims=None, keepdim=False, **options):
        rank = len(m.shape(x))
        dims = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        value = m.operand(x, m.dtype(node)) if op != "Any" else m.value(x)
        return m.op(op, [value, m.b.ints([_axis(d, rank) for d in dims])], keepdims=int(keepdim))
    return convert


for _name, _op in {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd",
                   "logsumexp": "ReduceLogSumExp"}.items():
    handler(_name)(_reduce(_op))


@handler("any", "all")
def any_all(m, node, x, dims=None, keepdim=False):
    largest = node.target._schema.name.endswith("any")
    ints = m.cast(m.op("Cast", [x], to=TYPES["bool"]) if m.dtype(x) != "bool" else m.value(x), "bool", "int32")
    rank = len(m.shape(x))
    dims = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    axes = m.b.ints([_axis(d, rank) for d in dims])
    return m.cast(m.op("ReduceMax" if largest else "ReduceMin", [ints, axes], keepdims=int(keepdim)), "int32", "bool")


@handler("argmax", "argmin")
def argmax(m, node, x, dim=None, keepdim=False):
    if dim is None:
        raise Unsupported("over all dims")
    op = "ArgMax" if node.target._schema.name.endswith("argmax") else "ArgMin"
    return m.op(op, [x], axis=_axis(dim, len(m.shape(x))), keepdims=int(keepdim))


@handler("max.dim", "min.dim")
def max_dim(m, node, x, dim, keepdim=False):
    largest = node.target._schema.name.endswith("max")
    axis = _axis(dim, len(m.shape(x)))
    value = m.op("ReduceMax" if largest else "ReduceMin", [x, m.b.ints([axis])], keepdims=int(keepdim))
    return [value, m.op("ArgMax" if largest else "ArgMin", [x], axis=axis, keepdims=int(keepdim))]


@handler("cumsum")
def cumsum(m, node, x, dim, dtype=None):
    return m.op("CumSum", [m.operand(x, m.dtype(node)), m.scalar(_axis(dim, len(m.shape(x))), "int64")])


@handler("topk")
def topk(m, node, x, k, dim=-1, largest=True, sorted=True):
    return m.op("TopK", [x, m.size(k)], outputs=2, axis=_axis(dim, len(m.shape(x))), largest=int(largest), sorted=int(sorted))


@handler("softmax.int", "_softmax", "log_softmax.int", "_log_softmax", "_safe_softmax")
def softmax(m, node, x, dim, *rest, **options):
    op = "LogSoftmax" if "log_softmax" in node.target._schema.name else "Softmax"
    return m.op(op, [m.operand(x, m.dtype(node))], axis=_axis(dim, len(m.shape(x))))


# Norms.
@handler("layer_norm", "native_layer_norm")
def layer_norm(m, node, x, dims, weight=None, bias=None, eps=1e-5, *rest):
    dtype, axis = m.dtype(x), -len(dims)
    if weight is None:
        weight = m.op("Expand", [m.scalar(1, dtype), m.sizes(dims)])
    value = m.op("LayerNormalization", [x, weight] + ([] if bias is None else [bias]), axis=axis, epsilon=float(eps))
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
        groups, weight, bias, eps = (list(args) + [None, None, None, 1e-5][len(args):])[:4]
    if weight is None or bias is None:
        raise Unsupported("without weights")
    value = m.op("GroupNormalization", [x, weight, bias], num_groups=groups, epsilon=float(eps))
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
    return m.op("Conv", [x, weight] + ([] if bias is None else [bias]), strides=each(stride), pads=each(padding) * 2,
                dilations=each(dilation), group=groups)


# Attention.
def _attention(m, q, k, v, mask, causal, scale):
    if causal and mask is not None:
        raise Unsupported("causal with a mask")
    return m.op("Attention", [q, k, v] + ([] if mask is None else [mask]), is_causal=int(causal),
                scale=None if scale is None else float(number(scale, "the scale")))


@handler("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_efficient_attention")
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
