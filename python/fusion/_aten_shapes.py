"""What ATen's shapes, indices and new tensors are in ONNX."""

import torch

from ._aten import COMPLEX, HANDLERS, Unsupported, handler, number


BOTH = HANDLERS, COMPLEX  # of ops that move elements, whatever these are


def axis_of(axis, rank):
    return axis + rank if axis < 0 else axis


@handler("t", "numpy_T")
def transposed(m, node, x):
    rank = len(m.shape(x))
    return m.op("Transpose", [x], perm=list(range(rank))[::-1])


@handler("transpose.int", "swapaxes", tables=BOTH)
def transpose(m, node, x, a, b):
    perm = list(range(len(m.held(x))))
    a, b = (axis_of(each, len(m.shape(x))) for each in (a, b))
    perm[a], perm[b] = perm[b], perm[a]
    return m.op("Transpose", [x], perm=perm)


@handler("permute", tables=BOTH)
def permute(m, node, x, dims):
    rank = len(m.shape(x))
    return m.op("Transpose", [x], perm=[*(axis_of(d, rank) for d in dims), *range(rank, len(m.held(x)))])


@handler(
    "view.default",
    "_unsafe_view",
    "reshape",
    "view_copy.default",
    "flatten",
    "unflatten",
    "_reshape_alias",
    "squeeze",
    "unsqueeze",
    tables=BOTH,
)
def view(m, node, x, *rest, **options):
    return m.reshape(m.value(x), m.held(node))


@handler("expand", tables=BOTH)
def expand(m, node, x, size, implicit=False):
    return m.op("Expand", [x, m.sizes(m.held(node))])


@handler("repeat")
def repeat(m, node, x, repeats):
    lead = len(repeats) - len(m.shape(x))
    value = m.reshape(m.value(x), [1] * lead + list(m.shape(x))) if lead else m.value(x)
    return m.op("Tile", [value, m.sizes(repeats)])


@handler("slice.Tensor", tables=BOTH)
def slice_tensor(m, node, x, dim=0, start=None, end=None, step=1):
    axis = axis_of(dim, len(m.shape(x)))
    if start in (None, 0) and step == 1 and m.shape(node)[axis] is m.shape(x)[axis]:
        return m.value(x)
    end = 2**63 - 1 if end is None else end
    return m.op(
        "Slice", [x, m.size(start or 0), m.size(end), m.b.ints([axis]), m.b.ints([number(step, "the step")])]
    )


@handler("narrow", tables=BOTH)
def narrow(m, node, x, dim, start, length):
    first = m.size(start)
    return m.op("Slice", [x, first, m.op("Add", [first, m.size(length)]), m.b.ints([dim])])


@handler("select.int", tables=BOTH)
def select(m, node, x, dim, index):
    return m.op(
        "Gather", [x, m.op("Squeeze", [m.size(index), m.b.ints([0])])], axis=axis_of(dim, len(m.shape(x)))
    )


@handler("cat", "concat", tables=BOTH)
def cat(m, node, tensors, dim=0):
    dtype = m.dtype(node)
    kept = [
        t for t in tensors if not (len(m.shape(t)) == 1 and m.shape(t)[0] == 0 and len(m.shape(node)) > 1)
    ]
    return m.op("Concat", [m.operand(t, dtype) for t in kept], axis=axis_of(dim, len(m.shape(node))))


@handler("stack")
def stack(m, node, tensors, dim=0):
    rank = len(m.shape(node))
    axis = m.b.ints([axis_of(dim, rank)])
    return m.op(
        "Concat",
        [m.op("Unsqueeze", [m.operand(t, m.dtype(node)), axis]) for t in tensors],
        axis=axis_of(dim, rank),
    )


@handler("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
def split(m, node, x, sizes, dim=0):
    parts = node.meta["val"]
    axis = axis_of(dim, len(m.shape(x)))
    if len(parts) == 1:
        return [m.value(x)]
    return m.op("Split", [x, m.sizes([part.shape[axis] for part in parts])], outputs=len(parts), axis=axis)


@handler("unbind")
def unbind(m, node, x, dim=0):
    axis = axis_of(dim, len(m.shape(x)))
    return [m.op("Gather", [x, m.scalar(i, "int64")], axis=axis) for i in range(len(node.meta["val"]))]


@handler("flip")
def flip(m, node, x, dims):
    rank, many = len(m.shape(x)), len(dims)
    return m.op(
        "Slice",
        [
            x,
            m.b.ints([-1] * many),
            m.b.ints([-(2**63) + 1] * many),
            m.b.ints([axis_of(d, rank) for d in dims]),
            m.b.ints([-1] * many),
        ],
    )


@handler("constant_pad_nd")
def constant_pad(m, node, x, pad, value=0):
    rank = len(m.shape(x))
    before, after = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return m.op("Pad", [x, m.sizes(before + after), m.scalar(value, m.dtype(x))])


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


@handler(
    "full",
    "full_like",
    "zeros",
    "ones",
    "zeros_like",
    "ones_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "scalar_tensor",
    "empty",
    "empty_like",
    "new_empty",
)
def full(m, node, *args, **options):
    name = node.target._schema.name.split("::")[-1]
    value = (
        args[1]
        if name in ("full", "full_like")
        else (
            args[2]
            if name == "new_full"
            else args[0] if name == "scalar_tensor" else 1 if "ones" in name else 0
        )
    )
    dtype, shape = m.dtype(node), list(m.shape(node))
    scalar = m.operand(value, dtype)
    return scalar if not shape else m.op("Expand", [scalar, m.sizes(shape)])
