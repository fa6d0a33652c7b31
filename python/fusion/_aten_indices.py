"""What ATen's reads and writes by indices are in ONNX."""

import torch

from ._aten import Unsupported, handler, number, op_name
from ._aten_shapes import BOTH, axis_of


@handler("embedding")
def embedding(m, node, weight, indices, *rest, **options):
    return m.op("Gather", [weight, indices], axis=0)


@handler("index_select", tables=BOTH)
def index_select(m, node, x, dim, index):
    return m.op("Gather", [x, index], axis=axis_of(dim, len(m.shape(x))))


@handler("gather")
def gather(m, node, x, dim, index, sparse_grad=False):
    return m.op("GatherElements", [x, index], axis=axis_of(dim, len(m.shape(x))))


def _adjacent(indices):
    """The first dim that is indexed, and the tensors that index it and those behind it."""
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if not given or [axis for axis, _ in given] != list(range(given[0][0], given[0][0] + len(given))):
        raise Unsupported("of dims that do not follow one another")
    return given[0][0], [i for _, i in given]


def _places(m, given, shape):
    """What GatherND and ScatterND take: the indices of an element side by side."""
    size = m.sizes(shape)
    columns = [
        m.op("Unsqueeze", [m.op("Expand", [m.operand(i, "int64"), size]), m.b.ints([-1])]) for i in given
    ]
    return columns[0] if len(columns) == 1 else m.op("Concat", columns, axis=-1)


def _moved(m, value, rank, first, count):
    """With `count` dims from `first` on in front of all others."""
    order = [*range(first, first + count), *range(first), *range(first + count, rank)]
    return m.op("Transpose", [value], perm=order)


def _moved_back(m, value, rank, first, count):
    order = [*range(count, count + first), *range(count), *range(count + first, rank)]
    return m.op("Transpose", [value], perm=order)


@handler("index.Tensor", tables=BOTH)
def index(m, node, x, indices):
    if any(m.dtype(i) == "bool" for i in indices if i is not None):
        raise Unsupported("by a mask: the size of the result depends on its contents")
    first, given = _adjacent(indices)
    if len(given) == 1:
        return m.op("Gather", [x, given[0]], axis=first)
    shape = list(torch.broadcast_shapes(*[m.shape(i) for i in given]))
    places = _places(m, given, shape)
    if first == 0:
        return m.op("GatherND", [x, places])
    front = _moved(m, m.value(x), len(m.held(x)), first, len(given))
    rank = len(m.held(x)) - len(given) + len(shape)
    return _moved_back(m, m.op("GatherND", [front, places]), rank, first, len(shape))


@handler("unfold")
def unfold(m, node, x, dimension, size, step):
    """Windows side by side, of which each has its elements in a last dim."""
    rank = len(m.shape(x))
    axis, length = axis_of(dimension, rank), number(size, "how long a window is")
    stride = m.scalar(number(step, "the step"), "int64")
    count = m.operand(m.shape(node)[axis], "int64")
    first = m.op("Mul", [m.op("Range", [m.scalar(0, "int64"), count, m.scalar(1, "int64")]), stride])
    places = m.op("Add", [m.op("Unsqueeze", [first, m.b.ints([1])]), m.b.ints(range(length))])
    windows = m.op("Gather", [x, places], axis=axis)
    return m.op("Transpose", [windows], perm=[i for i in range(rank + 1) if i != axis + 1] + [axis + 1])


@handler("repeat_interleave.self_int")
def repeat_interleave(m, node, x, repeats, dim=None, *, output_size=None):
    if dim is None or not isinstance(repeats, int):
        raise Unsupported("over all dims, or a number of times that is not known")
    rank, axis = len(m.shape(x)), axis_of(dim, len(m.shape(x)))
    apart = m.op("Unsqueeze", [x, m.b.ints([axis + 1])])
    times = m.b.ints([repeats if i == axis + 1 else 1 for i in range(rank + 1)])
    return m.reshape(m.op("Tile", [apart, times]), list(m.shape(node)))


@handler("sort.default", "sort.stable", "argsort")
def sort(m, node, x, *args, **options):
    names = [argument.name for argument in node.target._schema.arguments][1:]
    given = {**dict(zip(names, args)), **options}
    axis = axis_of(given.get("dim", -1), len(m.shape(x)))
    if not m.shape(x):
        raise Unsupported("of a tensor without dims")
    length = m.size(m.shape(x)[axis])
    both = m.op(
        "TopK", [x, length], outputs=2, axis=axis, largest=int(bool(given.get("descending"))), sorted=1
    )
    return both if len(node.target._schema.returns) == 2 else both[1]


@handler("histc")
def histc(m, node, x, bins=100, min=0, max=0):
    """Of whole numbers, a bin each: how routed experts count their rows."""
    if number(max, "the end") - number(min, "the start") != bins - 1 or bins < 1:
        raise Unsupported("with bins that are not one whole number wide")
    dtype = m.dtype(node)
    values = m.tensor(torch.arange(bins).add(min).to(getattr(torch, m.dtype(x))))
    same = m.op("Equal", [m.reshape(m.value(x), [-1, 1]), m.op("Unsqueeze", [values, m.b.ints([0])])])
    return m.op("ReduceSum", [m.cast(same, "bool", dtype), m.b.ints([0])], keepdims=0)


@handler("_grouped_mm", "transformers::grouped_mm_fallback")
def grouped_mm(m, node, x, weight, offsets=None, bias=None, dtype=None):
    """Rows that lie by groups, each times its group's matrix: row r is of the group that so many ends do not
    exceed."""
    if offsets is None or len(m.shape(x)) != 2 or len(m.shape(weight)) != 3:
        raise Unsupported("that is no [rows, k] times [groups, k, n] with the groups' ends")
    kind = m.dtype(offsets)
    rows = m.op("Range", [m.scalar(0, kind), m.operand(m.shape(x)[0], kind), m.scalar(1, kind)])
    ends = m.op("LessOrEqual", [m.op("Unsqueeze", [offsets, m.b.ints([0])]), m.reshape(rows, [-1, 1])])
    group = m.op("ReduceSum", [m.cast(ends, "bool", "int64"), m.b.ints([1])], keepdims=0)
    each = m.op("MatMul", [m.op("Unsqueeze", [x, m.b.ints([1])]), m.op("Gather", [weight, group], axis=0)])
    product = m.op("Squeeze", [each, m.b.ints([1])])
    product = m.cast(product, m.dtype(x), m.dtype(node))
    return product if bias is None else m.op("Add", [product, m.op("Gather", [bias, group], axis=0)])


# Writes, whose result is a new tensor.
@handler("copy")
def copy(m, node, x, source, non_blocking=False):
    value = m.operand(source, m.dtype(node))
    return m.op("Expand", [value, m.sizes(list(m.shape(node)))])


@handler("slice_scatter")
def slice_scatter(m, node, x, part, dim=0, start=None, end=None, step=1):
    """The rows before, the part and the rows behind; a slice of it all is the part. With a step each row by
    its number among those of both."""
    axis = axis_of(dim, len(m.shape(x)))
    length = m.shape(x)[axis]
    if number(step, "the step") != 1:
        rows = list(range(number(length, "how many rows there are")))
        ends = [None if each is None else number(each, "an end of the rows") for each in (start, end)]
        for place, row in enumerate(rows[slice(*ends, step)]):
            rows[row] = length + place
        both = m.op("Concat", [m.value(x), m.operand(part, m.dtype(node))], axis=axis)
        return m.op("Gather", [both, m.b.ints(rows)], axis=axis)
    if m.shape(part)[axis] is length or m.shape(part)[axis] == length and isinstance(length, int):
        return m.value(part)
    if isinstance(start, int) and start < 0:
        raise Unsupported("from an index that counts from the end")
    first = m.size(0 if start is None else start)
    behind = m.op("Add", [first, m.size(m.shape(part)[axis])])
    axes, end = m.b.ints([axis]), m.b.ints([2**63 - 1])
    pieces = [m.op("Slice", [x, m.b.ints([0]), first, axes]), m.operand(part, m.dtype(node))]
    pieces.append(m.op("Slice", [x, behind, end, axes]))
    return m.op("Concat", pieces, axis=axis)


@handler("select_scatter")
def select_scatter(m, node, x, part, dim, index):
    axis = axis_of(dim, len(m.shape(x)))
    at = number(index, "the index")
    pieces = [m.op("Unsqueeze", [m.operand(part, m.dtype(node)), m.b.ints([axis])])]
    if at != 0:
        pieces.insert(0, m.op("Slice", [x, m.b.ints([0]), m.b.ints([at]), m.b.ints([axis])]))
    if at != -1:
        pieces.append(m.op("Slice", [x, m.b.ints([at + 1]), m.b.ints([2**63 - 1]), m.b.ints([axis])]))
    return m.op("Concat", pieces, axis=axis) if len(pieces) > 1 else pieces[0]


@handler("index_put")
def index_put(m, node, x, indices, values, accumulate=False):
    given = [i for i in indices if i is not None]
    if given and m.dtype(given[0]) == "bool" and len(given) == len(indices) == 1 and not m.shape(values):
        if len(m.shape(given[0])) == len(m.shape(x)) and not accumulate:
            return m.op("Where", [given[0], m.operand(values, m.dtype(node)), m.value(x)])
    if any(m.dtype(i) == "bool" for i in given):
        raise Unsupported("by a mask")
    first, given = _adjacent(indices)
    rank, shape = len(m.shape(x)), list(torch.broadcast_shapes(*[m.shape(i) for i in given]))
    behind = list(m.shape(x))[first + len(given) :]
    whole = m.sizes(list(m.shape(x))[:first] + shape + behind)
    updates = m.op("Expand", [m.operand(values, m.dtype(node)), whole])
    if len(given) == len(shape) == 1 and (first > 0 or accumulate):
        row = m.reshape(m.operand(given[0], "int64"), [1] * first + [-1] + [1] * len(behind))
        kind = "add" if accumulate else "none"
        return m.op("ScatterElements", [x, m.op("Expand", [row, whole]), updates], axis=first, reduction=kind)
    if accumulate:
        raise Unsupported("that adds by more than one tensor of one dim")
    places = _places(m, given, shape)
    if first == 0:
        return m.op("ScatterND", [x, places, updates])
    front = _moved(m, m.value(x), rank, first, len(given))
    updates = _moved(m, updates, rank - len(given) + len(shape), first, len(shape))
    written = m.op("ScatterND", [front, places, updates])
    return _moved_back(m, written, rank, first, len(given))


def _counts_up(index):
    """Whether each of a vector's numbers is one more than that before it."""
    if not isinstance(index, torch.fx.Node) or op_name(index) is None:
        return False
    name, args = op_name(index).split(".")[0], index.args
    if name in ("_to_copy", "alias", "clone"):
        return _counts_up(args[0])
    if name == "add":
        if index.kwargs.get("alpha", 1) != 1:
            return False
        return any(_counts_up(one) and _is_one_number(other) for one, other in (args, args[::-1]))
    if name == "prims::iota":
        return index.kwargs["step"] == 1
    return name == "arange" and (len(args) < 3 or args[2] == 1)


def _is_one_number(arg):
    value = arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg
    return not isinstance(value, torch.Tensor) or value.numel() == 1


@handler("index_copy")
def index_copy(m, node, x, dim, index, source):
    """How a static cache is written: rows that follow one another may be written where they lie."""
    rank = len(m.shape(x))
    if rank == 0 or len(m.shape(source)) != rank:
        raise Unsupported("of a number")
    axis, rows = axis_of(dim, rank), m.reshape(m.operand(index, "int64"), [-1])
    updates = m.operand(source, m.dtype(node))
    if axis > 0 and (m.shape(source)[axis] == 1 or _counts_up(index)):
        first = m.op("Slice", [rows, m.b.ints([0]), m.b.ints([1])])
        start = m.op("Expand", [first, m.size(m.shape(x)[0])])
        return m.op("TensorScatter", [x, updates, start], axis=axis)
    places = m.reshape(rows, [-1 if i == axis else 1 for i in range(rank)])
    whole = m.sizes(list(m.shape(source)))
    return m.op("ScatterElements", [x, m.op("Expand", [places, whole]), updates], axis=axis)


@handler("scatter", "scatter_add", "scatter_reduce")
def scatter(m, node, x, dim, index, source, reduce=None, include_self=True):
    name, dtype = node.target._schema.name.split("::")[-1], m.dtype(node)
    kind = "add" if name == "scatter_add" else reduce
    kinds = {
        None: "none",
        "add": "add",
        "sum": "add",
        "multiply": "mul",
        "prod": "mul",
        "amax": "max",
        "amin": "min",
    }
    if kind not in kinds or not include_self:
        raise Unsupported(f"that reduces by {kind}, or leaves the tensor itself out")
    size = m.sizes(list(m.shape(index)))
    if isinstance(source, torch.fx.Node) and isinstance(m.meta(source), torch.Tensor) and m.shape(source):
        axes = m.b.ints(range(len(m.shape(index))))
        zeros = m.b.ints([0] * len(m.shape(index)))
        updates = m.op("Slice", [source, zeros, size, axes])
    else:
        updates = m.op("Expand", [m.operand(source, dtype), size])
    return m.op(
        "ScatterElements", [x, index, updates], axis=axis_of(dim, len(m.shape(x))), reduction=kinds[kind]
    )
