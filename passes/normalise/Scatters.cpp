// Assignments to slices, which exporters write as scatters of rows: concatenations where sizes tell the rows.
#include "passes/Positions.h"
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

/// Rows start, start + step, … of the first dim.
struct Rows {
  Dim start;
  int64_t step;
  Dim count;
};

std::optional<Rows> constantRows(Value indices, const DimShape &shape) {
  auto constant = indices.getDefiningOp<nn::ConstantOp>();
  if (!constant || !shape[0].isStatic() || shape[0].value() < 1)
    return std::nullopt;
  const auto places = llvm::to_vector(llvm::map_range(llvm::cast<DenseIntElementsAttr>(constant.getValue()),
                                                      [](const APInt &x) { return x.getSExtValue(); }));
  const int64_t step = places.size() > 1 ? places[1] - places[0] : 1;
  for (size_t i = 1; i < places.size(); ++i)
    if (places[i] - places[i - 1] != step)
      return std::nullopt;
  return Rows{Dim(places[0]), step, shape[0]};
}

/// What `indices` of shape [count, 1] address of a dim of `size`, if all of it is in range and none counts
/// from the end.
std::optional<Rows> rowsOf(Value indices, const Dim &size, ShapeTable &shapes) {
  const DimShape shape = shapes.of(indices);
  if (shape.size() != 2 || !(shape[1] == Dim(1)))
    return std::nullopt;
  auto rows = constantRows(indices, shape);
  if (!rows)
    if (auto affine = Positions(shapes).affine(indices))
      rows = Rows{affine->base, affine->steps[0], shape[0]};
  if (!rows || rows->step < 1 || !rows->start.knownNonNegative() ||
      !(size - rows->start - Dim(rows->step) * (rows->count - Dim(1)) - Dim(1)).knownNonNegative())
    return std::nullopt;
  return rows;
}

/// The updates before a transpose, and which of their dims becomes the first by it.
struct Updates {
  Value value;
  int64_t axis = 0;
  SmallVector<int64_t> perm; ///< empty without a transpose
};
Updates beforeTranspose(Value updates) {
  auto transpose = updates.getDefiningOp<nn::TransposeOp>();
  if (!transpose)
    return {updates};
  return {transpose.getX(), transpose.getPerm()[0], llvm::to_vector(transpose.getPerm())};
}

SmallVector<int64_t> inverse(ArrayRef<int64_t> perm) {
  SmallVector<int64_t> order(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    order[perm[i]] = static_cast<int64_t>(i);
  return order;
}

Value transposed(OpBuilder &b, Value x, ArrayRef<int64_t> perm) {
  if (perm.empty())
    return x;
  return nn::buildTranspose(b, x.getLoc(), x, perm);
}

Value concatenated(OpBuilder &b, Location location, ArrayRef<Value> parts, int64_t axis) {
  if (parts.size() == 1)
    return parts[0];
  return nn::build<nn::ConcatOp>(b, location, parts, b.getNamedAttr("axis", b.getI64IntegerAttr(axis)));
}

/// Whether `x` is an input or a state, in other views: a cache, which is written in place.
bool isKept(Value x) {
  while (Operation *op = x.getDefiningOp()) {
    if (!llvm::isa<nn::ReshapeOp, nn::TransposeOp>(op))
      return false;
    x = op->getOperand(0);
  }
  return true;
}

// Pattern: scatter_nd(x, rows that follow each other, u) -> concat(slice(x), u, slice(x))
LogicalResult scatterOfRange(nn::ScatterNdOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  const Dim size = shapes.of(op)[0];
  auto rows = rowsOf(op.getIndices(), size, shapes);
  if (!rows || rows->step != 1 || isKept(op.getX()))
    return failure();
  const Updates updates = beforeTranspose(op.getUpdates());
  const Value x = transposed(rewriter, op.getX(), inverse(updates.perm));
  MLIRContext *context = rewriter.getContext();
  const Dim end = rows->start + rows->count;
  SmallVector<Value> parts;
  const auto addPart = [&](const Dim &start, const Dim &count) {
    if (count == Dim(0))
      return;
    DimShape sizes = shapes.of(updates.value), starts(sizes.size(), Dim(0));
    starts[updates.axis] = start;
    sizes[updates.axis] = count;
    parts.push_back(nn::build<nn::SliceOp>(
        rewriter, op.getLoc(), x,
        {rewriter.getNamedAttr("starts", nn::dimsToAttr(context, starts)),
         rewriter.getNamedAttr("sizes", nn::dimsToAttr(context, sizes)),
         rewriter.getNamedAttr("steps",
                               rewriter.getDenseI64ArrayAttr(SmallVector<int64_t>(sizes.size(), 1)))}));
  };
  addPart(Dim(0), rows->start);
  parts.push_back(updates.value);
  addPart(end, size - end);
  replaceByNew(rewriter, op,
               transposed(rewriter, concatenated(rewriter, op.getLoc(), parts, updates.axis), updates.perm));
  return success();
}

// Pattern: scatter_nd(scatter_nd(.., rows 0 2 4 .., u), rows 1 3 5 .., v) -> reshape(concat(u, v)), in either
// order: all rows are there
LogicalResult scatterOfAlternate(nn::ScatterNdOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto inner = op.getX().getDefiningOp<nn::ScatterNdOp>();
  if (!inner)
    return failure();
  const Dim size = shapes.of(op)[0];
  auto last = rowsOf(op.getIndices(), size, shapes), first = rowsOf(inner.getIndices(), size, shapes);
  if (!last || !first || last->step != 2 || first->step != 2 || !(last->count == first->count) ||
      !(first->count * Dim(2) == size))
    return failure();
  Updates odd = beforeTranspose(op.getUpdates()), even = beforeTranspose(inner.getUpdates());
  if (last->start == Dim(0) && first->start == Dim(1))
    std::swap(odd, even);
  else if (!(last->start == Dim(1)) || !(first->start == Dim(0)))
    return failure();
  if (odd.perm != even.perm)
    return failure();
  DimShape whole = shapes.of(odd.value), paired = whole;
  paired.insert(paired.begin() + odd.axis + 1, Dim(1));
  whole[odd.axis] = size;
  const Location location = op.getLoc();
  const Value parts[] = {nn::buildReshape(rewriter, location, even.value, paired),
                         nn::buildReshape(rewriter, location, odd.value, paired)};
  const Value all =
      nn::buildReshape(rewriter, location, concatenated(rewriter, location, parts, odd.axis + 1), whole);
  replaceByNew(rewriter, op, transposed(rewriter, all, odd.perm));
  return success();
}

} // namespace

void addScatters(RewritePatternSet &patterns, ShapeTable &shapes) {
  add<nn::ScatterNdOp>(patterns, shapes, scatterOfRange);
  add<nn::ScatterNdOp>(patterns, shapes, scatterOfAlternate);
}

} // namespace fusion::normalise
