"""Ops of random ONNX graphs that move data, and those of 8 bits."""

import numpy as np

from onnx_ops import op


def anything(g, least=0):
    x = g.pick(lambda v: v.rank >= least and v.rank <= 4)
    return x or g.input(g.float, g.shape(max(least, 1)))


def same(g, name, x, shape, operands=(), **attributes):
    g.node(name, [x, *operands], [(x.dtype, tuple(shape))], x.exact, **attributes)


def indices(g, array):
    return g.constant(np.array(array, np.int64))


@op
def transpose(g):
    x = anything(g, 1)
    perm = g.random.sample(range(x.rank), x.rank)
    same(g, "Transpose", x, [x.shape[i] for i in perm], perm=perm)


@op
def reshape(g):
    x = anything(g, 1)
    shape = list(x.shape)
    if 0 in shape:
        return
    kind = g.random.randint(0, 3)
    if kind == 0 and x.rank > 1:  # the last two together
        target, shape = [0] * (x.rank - 2) + [-1], shape[:-2] + [shape[-2] * shape[-1]]
    elif kind == 1 and shape[-1] % 2 == 0 and x.rank < 4:  # the last one apart
        target, shape = [0] * (x.rank - 1) + [2, shape[-1] // 2], shape[:-1] + [2, shape[-1] // 2]
    elif kind == 2:
        target, shape = [-1, shape[-1]], [int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]]
    else:
        g.node("Flatten", [x], [(x.dtype, (shape[0], int(np.prod(shape[1:], dtype=np.int64))))], x.exact)
        return
    same(g, "Reshape", x, shape, [indices(g, target)])


@op
def reshape_by_shape(g):
    x = anything(g, 2)
    if x.rank != 3:
        return
    start = g.node("Shape", [x], [(np.int64, (3,))], True)
    first = g.node("Gather", [start, indices(g, 0)], [(np.int64, ())], True)
    one = g.node("Unsqueeze", [first, indices(g, [0])], [(np.int64, (1,))], True)
    target = g.node("Concat", [one, indices(g, [-1])], [(np.int64, (2,))], True, axis=0)
    del g.values[-4:]  # sizes: other ops would make of them what depends on them
    same(g, "Reshape", x, (x.shape[0], x.shape[1] * x.shape[2]), [target])


@op
def squeeze(g):
    x = anything(g, 0)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones and g.chance(60):
        same(g, "Squeeze", x, x.shape[: ones[0]] + x.shape[ones[0] + 1 :], [indices(g, [ones[0] - x.rank])])
    elif x.rank < 4:
        axis = g.random.randint(0, x.rank)
        same(g, "Unsqueeze", x, x.shape[:axis] + (1,) + x.shape[axis:], [indices(g, [axis])])


@op
def concat(g):
    x = anything(g, 1)
    axis = g.random.randint(-x.rank, x.rank - 1)
    other = list(x.shape)
    other[axis] = g.random.choice([1, 2, x.shape[axis]])
    y = g.constant(g.array(x.dtype, tuple(other)))
    shape = list(x.shape)
    shape[axis] += other[axis]
    g.node("Concat", g.random.choice([[x, y], [y, x]]), [(x.dtype, shape)], x.exact, axis=axis)


@op
def split(g):
    x = anything(g, 1)
    axis = g.random.randint(-x.rank, x.rank - 1)
    size = x.shape[axis]
    if size < 2 or (g.symbolic and size in (3, 5)):
        return
    first = g.random.randint(1, size - 1)
    shapes = []
    for part in (first, size - first):
        shape = list(x.shape)
        shape[axis] = part
        shapes.append((x.dtype, tuple(shape)))
    g.node("Split", [x, indices(g, [first, size - first])], shapes, x.exact, axis=axis)


@op
def slice_(g):
    x = anything(g, 1)
    axis = g.random.randint(-x.rank, x.rank - 1)
    size = x.shape[axis]
    if size == 0:
        return
    start, end, step = g.random.choice(
        [
            (0, 2**31, 2),
            (1, 2**62, 1),
            (-1, -(2**62), -1),
            (0, -1, 1),
            (-2, size, 1),
            (size - 1, 0, -2),
            (-size, size - 1, 1),
        ]
    )
    count = len(range(*slice(start, end, step).indices(size)))
    shape = list(x.shape)
    shape[axis] = count
    if count == 0 and not g.chance(20):
        return
    same(
        g, "Slice", x, shape, [indices(g, [start]), indices(g, [end]), indices(g, [axis]), indices(g, [step])]
    )


@op
def pad(g):
    x = g.floats(least=1)
    mode = g.random.choice(["constant", "reflect", "edge", "wrap" if g.opset >= 19 else "edge"])
    most = min(x.shape) - 1 if mode in ("reflect", "wrap") else 2
    if min(x.shape) == 0 or most < 0:
        return
    pads = [g.random.randint(0, min(most, 2)) for _ in range(2 * x.rank)]
    shape = [d + pads[i] + pads[i + x.rank] for i, d in enumerate(x.shape)]
    operands = [indices(g, pads)]
    if mode == "constant" and g.chance(60):
        operands.append(g.constant(np.array(0.5, x.dtype)))
    same(g, "Pad", x, shape, operands, mode=mode)


@op
def expand(g):
    x = anything(g, 1)
    if g.chance(40):
        repeats = [g.random.choice([1, 1, 2]) for _ in x.shape]
        same(g, "Tile", x, [d * r for d, r in zip(x.shape, repeats)], [indices(g, repeats)])
        return
    shape = [g.random.choice([2, 4]) if d == 1 else d for d in x.shape]
    target = [1 if g.chance(40) and d == shape[i] else shape[i] for i, d in enumerate(x.shape)]
    if x.rank < 4 and g.chance(40):
        target, shape = [2] + target, [2] + shape
    same(g, "Expand", x, shape, [indices(g, target)])


@op
def gather(g):
    x = anything(g, 1)
    axis = g.random.randint(-x.rank, x.rank - 1)
    size = x.shape[axis]
    if size == 0:
        return
    which = g.numbers.integers(-size, size, g.random.choice([(), (2,), (4,), (2, 2)]))
    axis %= x.rank
    shape = x.shape[:axis] + which.shape + x.shape[axis + 1 :]
    if len(shape) <= 4:
        same(g, "Gather", x, shape, [indices(g, which)], axis=axis - x.rank if g.chance(40) else axis)


@op
def gather_elements(g):
    x = g.floats(least=1)
    axis = g.random.randint(-x.rank, x.rank - 1)
    size = x.shape[axis]
    if size == 0:
        return
    shape = list(x.shape)
    shape[axis] = g.random.choice([1, 2, size])
    which = g.numbers.integers(-size, size, shape)
    same(g, "GatherElements", x, shape, [indices(g, which)], axis=axis)


@op
def scatter(g):
    x = g.floats(least=2)
    if 0 in x.shape or (g.symbolic and g.chance(70)):
        return
    rows = g.numbers.permutation(x.shape[0])[: g.random.randint(1, x.shape[0])].reshape(-1, 1)
    updates = g.weight(x.dtype, (len(rows), *x.shape[1:]))
    g.node("ScatterND", [x, indices(g, rows), updates], [(x.dtype, x.shape)], x.exact)


@op
def triangle(g):
    x = g.floats(least=2)
    if g.opset >= 14:
        operands = [indices(g, g.random.randint(-2, 2))] if g.chance(60) else []
        same(g, "Trilu", x, x.shape, operands, upper=int(g.chance(50)))


@op
def depth_to_space(g):
    x = g.floats(least=4)
    n, c, h, w = x.shape
    if c % 4 == 0 and g.chance(60):
        same(
            g, "DepthToSpace", x, (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=g.random.choice(["DCR", "CRD"])
        )
    elif h % 2 == 0 and w % 2 == 0:
        same(g, "SpaceToDepth", x, (n, 4 * c, h // 2, w // 2), blocksize=2)


@op
def one_hot(g):
    x = g.input(np.int64, g.shape(1, 2))
    g.data[x.name] = g.numbers.integers(-6, 6, x.shape)
    depth = g.constant(np.array(6, np.int64))
    g.values.remove(x)
    g.node(
        "OneHot", [x, depth, g.constant(np.array([0, 1], g.float))], [(g.float, (*x.shape, 6))], True, axis=-1
    )


@op
def convolution(g):
    x = g.floats(least=3, most=4)
    spatial = x.rank - 2
    if min(x.shape) == 0:
        return
    kernel = [g.random.choice([1, 2, 3]) for _ in range(spatial)]
    if any(d + 2 < k for d, k in zip(x.shape[2:], kernel)) or (g.symbolic and x.shape[1] == 5):
        return
    out = g.random.choice([2, 4])
    shape = [x.shape[0], out] + [d + 2 - k + 1 for d, k in zip(x.shape[2:], kernel)]
    operands = [x, g.weight(x.dtype, (out, x.shape[1], *kernel))]
    if g.chance(60):
        operands.append(g.weight(x.dtype, (out,)))
    g.node("Conv", operands, [(x.dtype, shape)], pads=[1] * (2 * spatial), kernel_shape=kernel)


@op
def pooling(g):
    x = g.floats(least=3, most=4)
    spatial = x.rank - 2
    if min(x.shape) < 1 or min(x.shape[2:]) < 2:
        return
    stride = g.random.choice([1, 2])
    shape = list(x.shape[:2]) + [(d - 2) // stride + 1 for d in x.shape[2:]]
    name = g.random.choice(["MaxPool", "AveragePool"])
    g.node(
        name,
        [x],
        [(x.dtype, shape)],
        x.exact and name == "MaxPool",
        kernel_shape=[2] * spatial,
        strides=[stride] * spatial,
    )


@op
def quantize(g):
    x = g.floats(exact=True)
    if x.dtype != np.float32:
        return
    to = g.random.choice([np.int8, np.uint8])
    scale = g.constant(np.array(g.random.choice([0.25, 0.5, 0.125]), np.float32))
    zero = [g.constant(np.array(g.random.choice([0, 3, 100]), to))] if to == np.int8 or g.chance(60) else []
    q = g.node("QuantizeLinear", [x, scale, *zero], [(to, x.shape)], True)
    g.node("DequantizeLinear", [q, scale, *zero], [(np.float32, x.shape)], True)


@op
def integer_matmul(g):
    a = g.input(g.random.choice([np.uint8, np.int8]), (g.random.choice([2, 3]), 8))
    b = g.weight(np.int8, (8, 4))
    zeros = [g.constant(np.array(3, a.dtype))] if g.chance(60) else []
    y = g.node("MatMulInteger", [a, b, *zeros], [(np.int32, (a.shape[0], 4))], True)
    g.node("Cast", [y], [(np.float32, y.shape)], True, to=1)
