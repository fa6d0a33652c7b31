"""What ATen's elementwise ops and matmuls are in ONNX. Those that f32 is between are in _aten_wide.py."""

import torch

from ._aten import Unsupported, dtype_name, handler, widened

_UNARY = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "exp": "Exp",
    "log": "Log",
    "neg": "Neg",
    "abs": "Abs",
    "sqrt": "Sqrt",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "atanh": "Atanh",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "reciprocal": "Reciprocal",
    "sign": "Sign",
    "logical_not": "Not",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "softplus": "Softplus",
}
_SAME = (
    "clone",
    "alias",
    "contiguous",
    "detach",
    "lift_fresh_copy",
    "lift_fresh",
    "detach_",
    "dropout",
    "native_dropout_off",
)


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


@handler("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "type_as", "prims::convert_element_type")
def to_copy(m, node, x, *rest, **options):
    return m.cast(m.value(x), m.dtype(x), m.dtype(node))


@handler("trunc", "fix")
def trunc(m, node, x):
    if not m.dtype(x).startswith(("float", "bfloat")):
        return m.value(x)
    return m.op("Mul", [m.op("Sign", [x]), m.op("Floor", [m.op("Abs", [x])])])


@handler("exp2")
def exp2(m, node, x):
    dtype = m.dtype(node)
    return m.op("Pow", [m.scalar(2, dtype), m.operand(x, dtype)])


@handler("isfinite")
def isfinite(m, node, x):
    return m.op("Not", [m.op("Or", [m.op("IsInf", [x]), m.op("IsNaN", [x])])])


@handler("silu")
def silu(m, node, x):
    return m.op("Mul", [x, m.op("Sigmoid", [x])])


@handler("gelu")
def gelu(m, node, x, approximate="none"):
    return m.op("Gelu", [x], approximate=approximate)


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
    def convert(m, node, a, b):
        dtype = _common(m, node, a, b) if compares else m.dtype(node)
        return m.op(op, [m.operand(a, dtype), m.operand(b, dtype)])

    return convert


for _name, _op in {"maximum": "Max", "minimum": "Min"}.items():
    handler(_name)(_binary(_op))
for _name, _op in {
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}.items():
    handler(_name)(_binary(_op, compares=True))


@handler("ne")
def ne(m, node, a, b):
    return m.op("Not", [_binary("Equal", compares=True)(m, node, a, b)])


@handler("pow")
def power(m, node, a, b):
    if isinstance(b, (int, float)) and b == 2:
        return m.op("Mul", [m.operand(a, m.dtype(node))] * 2)
    return m.op("Pow", [m.operand(a, m.dtype(node)), m.operand(b, m.dtype(node))])


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


def _added_in_f32(m, dtype, a, b, bias, alpha=1, beta=1):
    """alpha a b + beta bias of values of that type. PyTorch adds to the sums of the product before it rounds
    them, which for 16 bits are f32."""
    wide = widened(dtype)
    product = m.op("MatMul", [m.cast(a, dtype, wide), m.cast(b, dtype, wide)])
    added = m.op("Add", [_scaled(m, product, alpha, wide),
                         _scaled(m, m.cast(bias, dtype, wide), beta, wide)])
    return m.cast(added, wide, dtype)


@handler("addmm", "baddbmm")
def addmm(m, node, bias, a, b, beta=1, alpha=1):
    return _added_in_f32(m, m.dtype(node), m.value(a), m.value(b), m.value(bias), alpha, beta)


@handler("linear")
def linear(m, node, x, weight, bias=None):
    rank = len(m.shape(weight))
    turned = m.op("Transpose", [weight], perm=[1, 0]) if rank == 2 else m.value(weight)
    if bias is None:
        return m.op("MatMul", [x, turned])
    return _added_in_f32(m, m.dtype(node), m.value(x), turned, m.value(bias))


@handler("einsum")
def einsum(m, node, equation, operands, path=None):
    return m.op("Einsum", list(operands), equation=equation)
