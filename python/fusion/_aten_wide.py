"""Elementwise ops that PyTorch computes in f32 where their tensors are of 16 bits, and rounds once."""

import math

import torch

from ._aten import Unsupported, dtype_name, handler, widened


def is_number(m, arg):
    """What PyTorch's kernels hold in f32 beside tensors of 16 bits: a number, or a tensor on the host without
    dims."""
    if not isinstance(arg, torch.fx.Node):
        return True
    value = m.meta(arg)
    return not isinstance(value, torch.Tensor) or (value.dim() == 0 and value.device.type == "cpu")


def is_exact(m, arg, dtype):
    """Whether a type is known to hold a number."""
    value = m.meta(arg) if isinstance(arg, torch.fx.Node) else None
    if isinstance(value, torch.Tensor) and dtype_name(value.dtype) == dtype:
        return True
    known = m.known(arg)
    if known is None:
        return False
    held = float(torch.tensor(known, dtype=torch.float64).to(getattr(torch, dtype)))
    return held == known or known != known


class Wide:
    """The f32 between the operands of a node and its result: of 16-bit floats, else the node's own type."""

    def __init__(self, m, node):
        self.m, self.narrow = m, m.dtype(node)
        self.type = widened(self.narrow)
        # Sums and differences of tensors on the CPU are those of numbers that are rounded first.
        self.rounds_terms = m.meta(node).device.type == "cpu"

    def __call__(self, arg):
        """An operand. Tensors are of the node's type first."""
        if is_number(self.m, arg):
            return self.m.operand(arg, self.type)
        return self.m.cast(self.m.operand(arg, self.narrow), self.narrow, self.type)

    def term(self, arg):
        """A number of a sum."""
        if self.rounds_terms:
            return self.m.cast(self.m.operand(arg, self.narrow), self.narrow, self.type)
        return self(arg)

    def op(self, name, *values, **attributes):
        return self.m.op(name, list(values), **attributes)

    def number(self, value):
        return self.m.scalar(value, self.type)

    def where(self, condition, a, b):
        return self.op("Where", condition, a, b)

    def result(self, value):
        return self.m.cast(value, self.type, self.narrow)


def _plain(m, node, *args):
    """Whether one rounding is all that there is: of an op on values of the result's own type."""
    dtype = m.dtype(node)
    numbers = [arg for arg in args if is_number(m, arg)]
    return widened(dtype) == dtype or all(is_exact(m, arg, dtype) for arg in numbers)


def _factor(op):
    def convert(m, node, a, b, rounding_mode=None):
        if _plain(m, node, a, b):
            return m.op(op, [m.operand(a, m.dtype(node)), m.operand(b, m.dtype(node))])
        wide = Wide(m, node)
        return wide.result(wide.op(op, wide(a), wide(b)))

    return convert


multiply = handler("mul")(_factor("Mul"))
quotient = _factor("Div")


def _sum(op, turned=False):
    def convert(m, node, a, b, *rest, alpha=1):
        alpha = rest[0] if rest else alpha
        left, right = (b, a) if turned else (a, b)
        wide = Wide(m, node)
        if alpha == 1 and (wide.rounds_terms or _plain(m, node, a, b)):
            return m.op(op, [m.operand(left, wide.narrow), m.operand(right, wide.narrow)])
        right = wide.op("Mul", wide.term(right), wide.term(alpha)) if alpha != 1 else wide.term(right)
        return wide.result(wide.op(op, wide.term(left), right))

    return convert


handler("add")(_sum("Add"))
handler("sub")(_sum("Sub"))
handler("rsub")(_sum("Sub", turned=True))


def _sum_of(op):
    def convert(m, node, x, a, b, value=1):
        wide = Wide(m, node)
        scaled = wide(a) if value == 1 else wide.op("Mul", wide(a), wide(value))
        return wide.result(wide.op("Add", wide(x), wide.op(op, scaled, wide(b))))

    return convert


handler("addcmul")(_sum_of("Mul"))
handler("addcdiv")(_sum_of("Div"))


def _activation(op, **attributes):
    def convert(m, node, x):
        wide = Wide(m, node)
        return wide.result(wide.op(op, wide(x), **attributes))

    return convert


handler("hardsigmoid")(_activation("HardSigmoid", alpha=1 / 6, beta=0.5))
handler("hardswish")(_activation("HardSwish"))
handler("mish")(_activation("Mish"))


@handler("rsqrt")
def rsqrt(m, node, x):
    wide = Wide(m, node)
    return wide.result(wide.op("Reciprocal", wide.op("Sqrt", wide(x))))


@handler("leaky_relu")
def leaky_relu(m, node, x, slope=0.01):
    wide = Wide(m, node)
    return wide.result(wide.op("LeakyRelu", wide(x), alpha=float(slope)))


@handler("elu")
def elu(m, node, x, alpha=1.0, scale=1.0, input_scale=1.0):
    wide = Wide(m, node)
    given = wide(x)
    inner = given if input_scale == 1 else wide.op("Mul", given, wide.number(input_scale))
    below = wide.op("Mul", _exp_less_one(wide, inner), wide.number(alpha * scale))
    above = given if scale == 1 else wide.op("Mul", given, wide.number(scale))
    return wide.result(wide.where(wide.op("Less", given, wide.number(0)), below, above))


# What ONNX has no op for.
def _exp_less_one(wide, a):
    """e^a - 1: near 0 the rounding of e^a cancels."""
    one = wide.number(1)
    power = wide.op("Exp", a)
    less = wide.op("Sub", power, one)
    is_one = wide.op("Equal", less, wide.number(0))
    near = wide.op("Mul", less, wide.op("Div", a, wide.where(is_one, one, wide.op("Log", power))))
    is_near = wide.op("Less", wide.op("Abs", a), wide.number(0.5))
    return wide.where(is_near, wide.where(is_one, a, near), less)


def _log_of_one_plus(wide, a):
    """log(1 + a): near 0 the rounding of 1 + a cancels."""
    one = wide.number(1)
    more = wide.op("Add", a, one)
    less = wide.op("Sub", more, one)
    is_small = wide.op("Equal", less, wide.number(0))
    ratio = wide.op("Div", wide.op("Log", more), wide.where(is_small, one, less))
    inner = wide.where(wide.op("IsInf", more, detect_negative=0), more, wide.op("Mul", a, ratio))
    return wide.where(is_small, a, inner)


def _arc_tangent(wide, y, x):
    """Of the smaller by the larger, in whose quadrant it lies. 1 / -0 tells the sign of -0."""
    zero, one = wide.number(0), wide.number(1)
    height, width = wide.op("Abs", y), wide.op("Abs", x)
    steep = wide.op("Greater", height, width)
    small, large = wide.where(steep, width, height), wide.where(steep, height, width)
    ratio = wide.op("Div", small, wide.where(wide.op("Equal", large, zero), one, large))
    ratio = wide.where(wide.op("And", wide.op("IsInf", x), wide.op("IsInf", y)), one, ratio)
    angle = wide.op("Atan", ratio)
    angle = wide.where(steep, wide.op("Sub", wide.number(math.pi / 2), angle), angle)

    def is_negative(value):
        below_zero = wide.op("Less", wide.op("Div", one, value), zero)
        return wide.where(wide.op("Equal", value, zero), below_zero, wide.op("Less", value, zero))

    angle = wide.where(is_negative(x), wide.op("Sub", wide.number(math.pi), angle), angle)
    return wide.where(is_negative(y), wide.op("Neg", angle), angle)


def _function(compute):
    def convert(m, node, *args):
        wide = Wide(m, node)
        return wide.result(compute(wide, *[wide(arg) for arg in args]))

    return convert


handler("expm1")(_function(_exp_less_one))
handler("log1p")(_function(_log_of_one_plus))
handler("atan2")(_function(_arc_tangent))


def _logarithm(base):
    """Of an f32 in f64: that of a power of the base is a whole number."""

    def convert(m, node, x):
        wide = Wide(m, node)
        if wide.narrow == "float32":
            wide.type = "float64"
            value = m.cast(wide.m.operand(x, "float32"), "float32", "float64")
        else:
            value = wide(x)
        return wide.result(wide.op("Mul", wide.op("Log", value), wide.number(1 / math.log(base))))

    return convert


handler("log2")(_logarithm(2))
handler("log10")(_logarithm(10))


# Quotients and remainders.
def _has_other_sign(wide, a, b):
    """Whether a is not 0 and b has the other sign."""
    zero = wide.number(0)
    differ = wide.op("Xor", wide.op("Less", a, zero), wide.op("Less", b, zero))
    return wide.op("And", wide.op("Not", wide.op("Equal", a, zero)), differ)


def _floor_of_quotient(wide, a, b):
    """Of the exact one: a / b may round up to a whole number."""
    rest = wide.op("Mod", a, b, fmod=1)
    whole = wide.op("Round", wide.op("Div", wide.op("Sub", a, rest), b))
    whole = wide.where(_has_other_sign(wide, rest, b), wide.op("Sub", whole, wide.number(1)), whole)
    return wide.where(wide.op("Equal", b, wide.number(0)), wide.op("Div", a, b), whole)


@handler("div", "true_divide", "floor_divide")
def div(m, node, a, b, rounding_mode=None):
    dtype = m.dtype(node)
    if node.target._schema.name.endswith("floor_divide"):
        rounding_mode = "floor"
    if rounding_mode is None:
        return quotient(m, node, a, b)
    if dtype.startswith(("float", "bfloat")):
        wide = Wide(m, node)
        if rounding_mode == "floor":
            return wide.result(_floor_of_quotient(wide, wide(a), wide(b)))
        value = quotient(m, node, a, b)
        return m.op("Mul", [m.op("Sign", [value]), m.op("Floor", [m.op("Abs", [value])])])
    first, divisor = m.operand(a, dtype), m.operand(b, dtype)
    if rounding_mode == "trunc":
        return m.op("Div", [first, divisor])
    if not isinstance(b, torch.fx.Node) and b > 0:  # the remainder has the divisor's sign
        return m.op("Div", [m.op("Sub", [first, m.op("Mod", [first, divisor])]), divisor])
    raise Unsupported(f"rounding mode {rounding_mode} of {dtype}")


@handler("fmod")
def fmod(m, node, a, b):
    return m.op("Mod", [m.operand(a, m.dtype(node)), m.operand(b, m.dtype(node))], fmod=1)


@handler("remainder")
def remainder(m, node, a, b):
    dtype = m.dtype(node)
    if not dtype.startswith(("float", "bfloat")):
        return m.op("Mod", [m.operand(a, dtype), m.operand(b, dtype)])
    wide = Wide(m, node)
    first, divisor = (m.cast(m.operand(arg, dtype), dtype, wide.type) for arg in (a, b))
    rest = wide.op("Mod", first, divisor, fmod=1)
    added = wide.op("Add", rest, divisor)
    return wide.result(wide.where(_has_other_sign(wide, rest, divisor), added, rest))
