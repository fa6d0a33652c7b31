"""What random ONNX graphs are made of: each function appends an op, with its constants, to a graph."""

import numpy as np

OPS = []


def op(function):
    OPS.append(function)
    return function


@op
def unary(g):
    names = [
        "Neg",
        "Abs",
        "Exp",
        "Erf",
        "Tanh",
        "Sigmoid",
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "HardSigmoid",
        "Softplus",
        "Softsign",
        "Sin",
        "Cos",
        "Reciprocal",
        "Sqrt",
        "Log",
        "Celu",
        "ThresholdedRelu",
        "Identity",
    ]
    names += ["HardSwish"] if g.opset >= 14 else []
    names += ["Mish"] if g.opset >= 18 else []
    names += ["Gelu"] if g.opset >= 20 else []
    name = g.random.choice(names)
    name = "Elu" if name == "Celu" and g.float == np.float16 else name  # Celu is of f32 only
    x = g.floats(exact=name == "ThresholdedRelu")
    attributes = {}
    if name in ("LeakyRelu", "Elu", "ThresholdedRelu", "Celu") and g.chance(60):
        attributes["alpha"] = g.random.choice([0.25, 0.5, 1.5])
    if name == "HardSigmoid" and g.chance(60):
        attributes |= {"alpha": 0.25, "beta": 0.5}
    if name == "Gelu" and g.chance(50):
        attributes["approximate"] = "tanh"
    if name == "Exp" and x.depth > 2:
        name = "Tanh"  # chains of it overflow at once
    exact = x.exact and name in ("Neg", "Abs", "Relu", "Identity")
    g.node(name, [x], [(x.dtype, x.shape)], exact, **attributes)


@op
def rounding(g):
    x = g.floats(exact=True)
    g.node(g.random.choice(["Floor", "Ceil", "Round", "Sign"]), [x], [(x.dtype, x.shape)], True)


def broadcast_partner(g, x):
    """Something that broadcasts with x, and the joint shape."""
    kind = g.random.randint(0, 4)
    if kind == 0:
        fitting = g.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape)
        return (fitting or g.input(x.dtype, x.shape)), x.shape
    if kind == 1:
        return g.weight(x.dtype, ()), x.shape
    dims = [d if g.chance(60) else 1 for d in x.shape]
    if kind == 2:
        return g.weight(x.dtype, dims[g.random.randint(0, len(dims)) :]), x.shape
    if kind == 3 and x.rank < 4:
        return g.weight(x.dtype, [2] + dims), (2,) + x.shape
    grown = [g.random.choice([2, 4]) if d == 1 else d for d in x.shape]
    return g.weight(x.dtype, grown), tuple(grown)


def pair(g, x, y):
    return [y, x] if g.chance(40) else [x, y]


@op
def arithmetic(g):
    x = g.floats()
    y, shape = broadcast_partner(g, x)
    name = g.random.choice(
        ["Add", "Sub", "Mul", "Div", "Add", "Mul", "Max", "Min", "Mean", "Sum", "PRelu", "Pow"]
    )
    if name == "PRelu":
        slope = g.weight(x.dtype, x.shape[-1:])
        g.node("PRelu", [x, slope], [(x.dtype, x.shape)])
        return
    if name == "Pow":
        g.node(
            "Pow", [x, g.constant(np.array(g.random.choice([2.0, 3.0, 0.5]), x.dtype))], [(x.dtype, x.shape)]
        )
        return
    operands = pair(g, x, y)
    if name in ("Max", "Min", "Mean", "Sum") and g.chance(40):
        operands.append(g.weight(x.dtype, ()))
    exact = x.exact and y.exact and x.depth < 3 and y.depth < 3 and name in ("Add", "Sub", "Max", "Min")
    g.node(name, operands, [(x.dtype, shape)], exact and x.dtype == np.float32)


@op
def integer_arithmetic(g):
    x = g.integers()
    y, shape = broadcast_partner(g, x)
    name = g.random.choice(["Add", "Sub", "Mul", "Max", "Min", "Mod", "Div"])
    operands = pair(g, x, y)
    if name in ("Mod", "Div"):
        operands = [x, g.constant(np.array(g.random.choice([-3, 2, 5, 7]), x.dtype))]
        g.node(
            name,
            operands,
            [(x.dtype, x.shape)],
            True,
            **({"fmod": 1} if name == "Mod" and g.chance(40) else {}),
        )
        return
    g.node(name, operands, [(x.dtype, shape)], True)


@op
def comparison(g):
    x = g.floats(exact=True) if g.chance(60) else g.integers()
    y = g.exact_input(x.dtype, x.shape) if g.chance(50) else g.constant(g.array(x.dtype, x.shape[-1:]))
    name = g.random.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"])
    c = g.node(name, [x, y], [(np.bool_, x.shape)], True)
    kind = g.random.randint(0, 4)
    if kind == 0:
        g.node("Not", [c], [(np.bool_, x.shape)], True)
    elif kind == 1:
        other = g.node("Less", [y, x], [(np.bool_, x.shape)], True)
        g.node(g.random.choice(["And", "Or", "Xor"]), [c, other], [(np.bool_, x.shape)], True)
    else:
        scalar = g.constant(g.array(x.dtype, ()))
        g.node("Where", [c, *pair(g, x, scalar)], [(x.dtype, x.shape)], x.exact)


@op
def clip(g):
    x = g.floats()
    low, high = g.constant(np.array(-1.25, x.dtype)), g.constant(np.array(1.5, x.dtype))
    operands = g.random.choice([[x, low, high], [x, None, high], [x, low], [x]])
    g.node("Clip", operands, [(x.dtype, x.shape)], x.exact)


@op
def cast(g):
    x = g.floats(exact=True)
    to = g.random.choice([np.int64, np.int32, np.float32, np.float16, np.bool_])
    numbers = {np.int64: 7, np.int32: 6, np.float32: 1, np.float16: 10, np.bool_: 9}
    y = g.node("Cast", [x], [(to, x.shape)], True, to=numbers[to])
    if to in (np.float16, np.float32, np.bool_) or g.chance(50):
        g.node("Cast", [y], [(g.float, x.shape)], True, to=numbers[g.float])


@op
def matmul(g):
    x = g.floats(least=1)
    k, n = x.shape[-1], g.random.choice([1, 4, 8, 7])
    kind = g.random.randint(0, 3)
    if kind == 0:
        g.node("MatMul", [x, g.weight(x.dtype, (k,))], [(x.dtype, x.shape[:-1])])
    elif kind == 1 and x.rank > 2:
        batch = [d if g.chance(50) else 1 for d in x.shape[:-2]]
        g.node("MatMul", [x, g.input(x.dtype, (*batch, k, n))], [(x.dtype, (*x.shape[:-1], n))])
    else:
        g.node("MatMul", [x, g.weight(x.dtype, (k, n))], [(x.dtype, (*x.shape[:-1], n))])


@op
def gemm(g):
    x = g.floats(least=2)
    if x.rank != 2:
        return
    transposed = g.chance(30)
    k, m = x.shape if transposed else x.shape[::-1]
    n, other = g.random.choice([4, 8, 7]), g.chance(50)
    operands = [x, g.weight(x.dtype, (n, k) if other else (k, n))]
    if g.chance(60):
        operands.append(g.weight(x.dtype, g.random.choice([(n,), (1, n), (m, 1), ()])))
    g.node(
        "Gemm",
        operands,
        [(x.dtype, (m, n))],
        transA=int(transposed),
        transB=int(other),
        alpha=g.random.choice([1.0, 0.5]),
        beta=g.random.choice([1.0, 2.0]),
    )


@op
def einsum(g):
    x = g.floats(least=3, most=3)
    a, b, c = x.shape
    equation, shape, result = g.random.choice(
        [
            ("abc,cd->abd", (c, 4), (a, b, 4)),
            ("abc,abd->acd", (a, b, 2), (a, c, 2)),
            ("abc,abc->ab", (a, b, c), (a, b)),
            ("abc,adc->abd", (a, 6, c), (a, b, 6)),
            ("abc,c->cab", (c,), (c, a, b)),
        ]
    )
    g.node("Einsum", [x, g.input(x.dtype, shape)], [(x.dtype, result)], equation=equation)


@op
def softmax(g):
    x = g.floats(least=1)
    axis = g.random.randint(-x.rank, x.rank - 1)
    g.node(g.random.choice(["Softmax", "LogSoftmax"]), [x], [(x.dtype, x.shape)], axis=axis)


def axes_operand(g, name, x, axes):
    """As an operand or an attribute, by the opset."""
    moved = 13 if name == "ReduceSum" else 18
    if g.opset >= moved:
        return [x, g.constant(np.array(axes, np.int64))], {}
    return [x], {"axes": axes}


def reduced(x, axes, keep):
    axes = {a % x.rank for a in axes}
    return tuple(1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes)


@op
def reduction(g):
    x = g.floats(least=1)
    name = g.random.choice(
        [
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceLogSumExp",
        ]
    )
    axes = g.random.sample(range(x.rank), g.random.randint(1, x.rank))
    axes = [a - x.rank if g.chance(50) else a for a in axes]
    keep = g.chance(60)
    if g.chance(12):
        g.node(name, [x], [(x.dtype, reduced(x, range(x.rank), keep))], keepdims=int(keep))
        return
    operands, attributes = axes_operand(g, name, x, axes)
    exact = x.exact and name in ("ReduceMax", "ReduceMin")
    g.node(name, operands, [(x.dtype, reduced(x, axes, keep))], exact, keepdims=int(keep), **attributes)


@op
def extreme(g):
    x = g.floats(least=1, exact=True)
    axis, keep = g.random.randint(-x.rank, x.rank - 1), g.chance(50)
    g.node(
        g.random.choice(["ArgMax", "ArgMin"]),
        [x],
        [(np.int64, reduced(x, [axis], keep))],
        True,
        axis=axis,
        keepdims=int(keep),
        select_last_index=int(g.chance(30)),
    )


@op
def top_k(g):
    x = g.exact_input(g.float, g.shape(1))
    g.data[x.name] = g.numbers.permutation(x.shape and int(np.prod(x.shape))).reshape(x.shape).astype(x.dtype)
    axis = g.random.randint(-x.rank, x.rank - 1)
    k = g.random.randint(1, x.shape[axis])
    shape = list(x.shape)
    shape[axis] = k
    g.node(
        "TopK",
        [x, g.constant(np.array([k], np.int64))],
        [(x.dtype, shape), (np.int64, shape)],
        True,
        axis=axis,
        largest=int(g.chance(70)),
    )


@op
def cumsum(g):
    x = g.floats(least=1)
    axis = g.constant(np.array(g.random.randint(-x.rank, x.rank - 1), np.int64))
    if x.dtype == np.float32:
        g.node(
            "CumSum", [x, axis], [(x.dtype, x.shape)], exclusive=int(g.chance(40)), reverse=int(g.chance(40))
        )


@op
def normalization(g):
    x = g.floats(least=2)
    width = x.shape[-1]
    scale, bias = g.weight(x.dtype, (width,)), g.weight(x.dtype, (width,))
    if g.opset >= 23 and g.chance(50):
        g.node("RMSNormalization", [x, scale], [(x.dtype, x.shape)], axis=-1, epsilon=1e-3)
    elif g.opset >= 17:
        g.node(
            "LayerNormalization",
            [x, scale, bias] if g.chance(70) else [x, scale],
            [(x.dtype, x.shape)],
            axis=-1,
            epsilon=1e-3,
        )
    elif x.rank > 2:
        channels = [g.weight(x.dtype, (x.shape[1],)) for _ in range(2)]
        g.node("InstanceNormalization", [x, *channels], [(x.dtype, x.shape)], epsilon=1e-2)


@op
def dropout(g):
    x = g.floats()
    g.node("Dropout", [x], [(x.dtype, x.shape)], x.exact)
