"""What ATen's ops on complex numbers are in ONNX. A complex tensor is a real one whose last dim, of size 2,
holds the real and the imaginary part."""

from ._aten import COMPLEX, Unsupported, handler, is_complex, real_type


def complex_handler(*names):
    """As handler(), of ops that take complex tensors or make them."""
    return handler(*names, tables=(COMPLEX,))


def _parts(m, x):
    """The real and the imaginary part, each with a last dim of size 1."""
    return m.op("Split", [x], outputs=2, axis=-1, num_outputs=2)


def _joined(m, real, imaginary):
    """Of parts without that dim."""
    last = m.b.ints([-1])
    return m.op("Concat", [m.op("Unsqueeze", [each, last]) for each in (real, imaginary)], axis=-1)


@complex_handler("complex")
def complex_of(m, node, real, imaginary):
    size = m.sizes(list(m.shape(node)))
    return _joined(m, *(m.op("Expand", [each, size]) for each in (real, imaginary)))


@complex_handler("polar")
def polar(m, node, length, angle):
    return _joined(m, *(m.op("Mul", [length, m.op(each, [angle])]) for each in ("Cos", "Sin")))


@complex_handler("view_as_complex", "view_as_real", "clone", "alias", "detach", "resolve_conj")
def same(m, node, x, **options):
    return m.value(x)


@complex_handler("_to_copy", "prims::convert_element_type", "to")
def converted(m, node, x, *args, **options):
    value = m.cast(m.value(x), real_type(m.meta(x).dtype), real_type(m.meta(node).dtype))
    if is_complex(m.meta(x)) == is_complex(m.meta(node)):
        return value
    if is_complex(m.meta(x)):
        return m.op("Squeeze", [_parts(m, value)[0], m.b.ints([-1])])
    zeros = m.op("Expand", [m.scalar(0, real_type(m.meta(node).dtype)), m.sizes(list(m.shape(node)))])
    return _joined(m, value, zeros)


@complex_handler("real", "imag")
def part(m, node, x):
    which = 0 if node.target._schema.name.endswith("real") else 1
    return m.op("Squeeze", [_parts(m, x)[which], m.b.ints([-1])])


@complex_handler("conj", "_conj", "_conj_physical", "conj_physical")
def conjugate(m, node, x):
    real, imaginary = _parts(m, x)
    return m.op("Concat", [real, m.op("Neg", [imaginary])], axis=-1)


def _factor(m, arg, dtype):
    """A real number or tensor, to meet both parts of a complex one."""
    value = m.operand(arg, dtype)
    return m.op("Unsqueeze", [value, m.b.ints([-1])]) if hasattr(arg, "meta") and m.shape(arg) else value


@complex_handler("mul.Tensor", "mul.Scalar")
def product(m, node, a, b):
    dtype = real_type(m.meta(node).dtype)
    if isinstance(a, complex) or isinstance(b, complex):
        raise Unsupported("by a complex number")
    if not (_is(m, a) and _is(m, b)):
        a, b = (a, b) if _is(m, a) else (b, a)
        return m.op("Mul", [m.value(a), _factor(m, b, dtype)])
    (ar, ai), (br, bi) = _parts(m, a), _parts(m, b)

    def terms(op, *pairs):
        return m.op(op, [m.op("Mul", pair) for pair in pairs])

    return m.op("Concat", [terms("Sub", (ar, br), (ai, bi)), terms("Add", (ar, bi), (ai, br))], axis=-1)


def _is(m, arg):
    return hasattr(arg, "meta") and is_complex(m.meta(arg))


@complex_handler("add.Tensor", "sub.Tensor")
def sum_of(m, node, a, b, alpha=1):
    if not (_is(m, a) and _is(m, b)) or alpha != 1:
        raise Unsupported("of complex and real numbers, or with a factor")
    return m.op("Add" if "add" in node.target._schema.name else "Sub", [a, b])


@complex_handler("neg")
def negative(m, node, x):
    return m.op("Neg", [x])
