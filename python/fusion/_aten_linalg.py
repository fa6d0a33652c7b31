"""What ATen's linear algebra is in ONNX."""

from ._aten import handler


@handler("linalg_solve_triangular")
def solve_triangular(m, node, a, b, *, upper, left=True, unitriangular=False):
    """By the inverse of the matrix, whose other triangle is not read."""
    dtype = m.dtype(node)
    matrix, right = m.operand(a, dtype), m.operand(b, dtype)
    lead, rows = list(m.shape(a))[:-2], m.fixed(m.shape(a)[-1], "how many rows the matrix has")
    matrix = m.reshape(matrix, [*lead, rows, rows])
    swapped = [*range(len(lead)), len(lead) + 1, len(lead)]
    if upper:
        matrix = m.op("Transpose", [matrix], perm=swapped)
    if not unitriangular:
        diagonal = m.op("Trilu", [m.op("Trilu", [matrix], upper=0)], upper=1)
        diagonal = m.op("ReduceSum", [diagonal, m.b.ints([-1])], keepdims=1)
        matrix = m.op("Div", [matrix, diagonal])
    inverse = _inverse(m, matrix, lead, rows, dtype)
    if not unitriangular:
        inverse = m.op("Div", [inverse, m.op("Transpose", [diagonal], perm=swapped)])
    if upper:
        inverse = m.op("Transpose", [inverse], perm=swapped)
    return m.op("MatMul", [inverse, right] if left else [right, inverse])


def _inverse(m, matrix, lead, rows, dtype):
    """Of a lower triangle whose diagonal is taken for ones: from the inverses of blocks along it, each twice
    as large as the ones before, since [[A, 0], [C, D]]^-1 is [[A^-1, 0], [-D^-1 C A^-1, D^-1]]."""
    size = 1 << (rows - 1).bit_length()
    if size > rows:  # with rows of the identity
        matrix = m.op("Pad", [matrix, m.b.ints([0] * (2 * len(lead) + 2) + [size - rows] * 2)])
    blocks = m.op("Expand", [m.scalar(1, dtype), m.sizes([*lead, size, 1, 1])])
    side = 1
    while side < size:
        pairs = size // (2 * side)
        blocks = m.reshape(blocks, [*lead, pairs, 2 * side, side])
        above, below = m.op("Split", [blocks], outputs=2, axis=-2, num_outputs=2)
        corner = m.op("MatMul", [m.op("MatMul", [below, _corners(m, matrix, lead, pairs, side)]), above])
        zeros = m.op("Expand", [m.scalar(0, dtype), m.sizes([*lead, pairs, side, side])])
        above = m.op("Concat", [above, zeros], axis=-1)
        below = m.op("Concat", [m.op("Neg", [corner]), below], axis=-1)
        blocks = m.op("Concat", [above, below], axis=-2)
        side *= 2
    whole = m.reshape(blocks, [*lead, size, size])
    for axis in (-2, -1) if size > rows else ():
        whole = m.op("Slice", [whole, m.b.ints([0]), m.b.ints([rows]), m.b.ints([axis])])
    return whole


def _corners(m, matrix, lead, pairs, side):
    """[..., pairs, side, side]: of each block of 2 * side along the diagonal the lower left quarter."""
    rank = len(lead)
    tiles = m.reshape(matrix, [*lead, pairs, 2 * side, pairs, 2 * side])
    tiles = m.op("Transpose", [tiles], perm=[*range(rank), rank, rank + 2, rank + 1, rank + 3])
    tiles = m.reshape(tiles, [*lead, pairs * pairs, 2 * side, 2 * side])
    tiles = m.op("Gather", [tiles, m.b.ints([i * (pairs + 1) for i in range(pairs)])], axis=rank)
    for axis, first in ((-2, side), (-1, 0)):
        ends = [m.b.ints([each]) for each in (first, first + side, axis)]
        tiles = m.op("Slice", [tiles, *ends])
    return tiles
