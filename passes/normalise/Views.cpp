// Reshapes, transposes, slices: composed, or gone where they change nothing.
#include "passes/Match.h"
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

NamedAttribute dims(PatternRewriter &rewriter, StringRef name, ArrayRef<Dim> values) {
  return rewriter.getNamedAttr(name, nn::dimsToAttr(rewriter.getContext(), values));
}

// Pattern: reshape(x) to the shape of x -> x
LogicalResult idleReshape(nn::ReshapeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  return shapes.same(op, op.getX()) ? replaceByExisting(rewriter, op, op.getX()) : failure();
}

// Pattern: reshape(reshape(x)) -> reshape(x)
LogicalResult reshapeOfReshape(nn::ReshapeOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto inner = op.getX().getDefiningOp<nn::ReshapeOp>();
  if (!inner)
    return failure();
  replaceByChanged(rewriter, op, [&](nn::ReshapeOp changed) { changed.getXMutable().assign(inner.getX()); });
  return success();
}

// Pattern: reshape(reduce(x) {keepdims = false}) to the shape with the dims kept -> reduce(x) {keepdims =
// true}
LogicalResult keptDims(nn::ReshapeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto reduce = op.getX().getDefiningOp<nn::ReduceOp>();
  if (!reduce || reduce.getKeepdims())
    return failure();
  DimShape kept = shapes.of(reduce.getX());
  for (int64_t axis : reduce.getAxes())
    kept[axis < 0 ? axis + static_cast<int64_t>(kept.size()) : axis] = Dim(1);
  if (kept != shapes.of(op))
    return failure();
  replaceByNew(rewriter, op,
               nn::build<nn::ReduceOp>(rewriter, op.getLoc(), reduce.getX(),
                                       {rewriter.getNamedAttr("kind", reduce.getKindAttr()),
                                        rewriter.getNamedAttr("axes", reduce.getAxesAttr()),
                                        rewriter.getNamedAttr("keepdims", rewriter.getBoolAttr(true))},
                                       elementType(op)));
  return success();
}

// Pattern: expand(x) to the shape of x -> x
LogicalResult idleExpand(nn::ExpandOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  return shapes.same(op, op.getX()) ? replaceByExisting(rewriter, op, op.getX()) : failure();
}

// Pattern: expand(expand(x)) -> expand(x)
LogicalResult expandOfExpand(nn::ExpandOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto inner = op.getX().getDefiningOp<nn::ExpandOp>();
  if (!inner)
    return failure();
  replaceByChanged(rewriter, op, [&](nn::ExpandOp changed) { changed.getXMutable().assign(inner.getX()); });
  return success();
}

// Pattern: transpose(transpose(x, p), q) -> transpose(x, p[q])
LogicalResult transposeOfTranspose(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto inner = op.getX().getDefiningOp<nn::TransposeOp>();
  if (!inner)
    return failure();
  SmallVector<int64_t> perm;
  for (int64_t from : op.getPerm())
    perm.push_back(inner.getPerm()[from]);
  replaceByChanged(rewriter, op, [&](nn::TransposeOp changed) {
    changed.setPerm(perm);
    changed.getXMutable().assign(inner.getX());
  });
  return success();
}

// Pattern: reshape(transpose(x)) -> transpose(reshape(x)), where both transposes swap the last two dims and
// the reshape keeps them: Kᵀ that exporters make in rank 3
LogicalResult reshapeBeforeSwap(nn::ReshapeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto transpose = op.getX().getDefiningOp<nn::TransposeOp>();
  if (!transpose || !swapsLastTwo(transpose.getPerm()))
    return failure();
  DimShape from = shapes.of(transpose), to = shapes.of(op);
  size_t rank = to.size();
  if (rank < 2 || !std::equal(from.end() - 2, from.end(), to.end() - 2))
    return failure();
  std::swap(to[rank - 2], to[rank - 1]);
  Value reshaped =
      nn::build<nn::ReshapeOp>(rewriter, op.getLoc(), transpose.getX(), dims(rewriter, "shape", to));
  const SmallVector<int64_t> perm = lastTwoSwapped(static_cast<int64_t>(rank));
  replaceByNew(rewriter, op, nn::buildTranspose(rewriter, op.getLoc(), reshaped, perm));
  return success();
}

// Pattern: slice(x) of everything -> x
LogicalResult idleSlice(nn::SliceOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (!shapes.same(op, op.getX()) || llvm::any_of(op.getSteps(), [](int64_t step) { return step != 1; }))
    return failure();
  return replaceByExisting(rewriter, op, op.getX());
}

// Pattern: slice(slice(x)) -> slice(x)
LogicalResult sliceOfSlice(nn::SliceOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto inner = op.getX().getDefiningOp<nn::SliceOp>();
  if (!inner)
    return failure();
  DimShape starts = nn::dimsFromAttr(op.getStarts()), innerStarts = nn::dimsFromAttr(inner.getStarts());
  SmallVector<int64_t> steps;
  for (size_t i = 0; i < starts.size(); ++i) {
    starts[i] = innerStarts[i] + starts[i] * Dim(inner.getSteps()[i]);
    steps.push_back(op.getSteps()[i] * inner.getSteps()[i]);
  }
  replaceByChanged(rewriter, op, [&](nn::SliceOp changed) {
    changed.setStartsAttr(nn::dimsToAttr(rewriter.getContext(), starts));
    changed.setSteps(steps);
    changed.getXMutable().assign(inner.getX());
  });
  return success();
}

// Pattern: slice(concat(.., x, ..)) within x -> slice(x)
LogicalResult sliceOfConcat(nn::SliceOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto concat = op.getX().getDefiningOp<nn::ConcatOp>();
  if (!concat)
    return failure();
  DimShape starts = nn::dimsFromAttr(op.getStarts()), sizes = nn::dimsFromAttr(op.getSizes());
  int64_t axis = static_cast<int64_t>(concat.getAxis());
  axis += axis < 0 ? static_cast<int64_t>(starts.size()) : 0;
  if (op.getSteps()[axis] != 1)
    return failure();
  Dim offset(0);
  for (Value part : concat.getParts()) {
    Dim size = shapes.of(part)[axis], start = starts[axis] - offset;
    if (start.knownNonNegative() && (size - start - sizes[axis]).knownNonNegative() &&
        !(sizes[axis] == Dim(0))) {
      starts[axis] = start;
      replaceByNew(rewriter, op,
                   nn::build<nn::SliceOp>(rewriter, op.getLoc(), part,
                                          {dims(rewriter, "starts", starts), dims(rewriter, "sizes", sizes),
                                           rewriter.getNamedAttr("steps", op.getStepsAttr())}));
      return success();
    }
    offset = offset + size;
  }
  return failure();
}

// Pattern: slice(concat(x, y, ..)) across parts -> concat(slice(x), y, ..) where nothing else reads the whole
LogicalResult sliceAcrossParts(nn::SliceOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto concat = op.getX().getDefiningOp<nn::ConcatOp>();
  DimShape starts = nn::dimsFromAttr(op.getStarts()), sizes = nn::dimsFromAttr(op.getSizes());
  if (!concat || !concat->hasOneUse() || llvm::any_of(op.getSteps(), [](int64_t step) { return step != 1; }))
    return failure();
  int64_t axis = static_cast<int64_t>(concat.getAxis());
  axis += axis < 0 ? static_cast<int64_t>(starts.size()) : 0;
  const Dim end = starts[axis] + sizes[axis];
  auto isAtMost = [](const Dim &a, const Dim &b) { return (b - a).knownNonNegative(); };
  SmallVector<std::tuple<Value, Dim, Dim>> pieces; // a part, where the slice of it begins and ends
  Dim offset(0);
  for (Value part : concat.getParts()) {
    const Dim size = shapes.of(part)[axis], next = offset + size;
    const bool isOutside = isAtMost(next, starts[axis]) || isAtMost(end, offset);
    if (!isOutside) {
      const bool isFromItsStart = isAtMost(starts[axis], offset), isToItsEnd = isAtMost(next, end);
      if ((!isFromItsStart && !isAtMost(offset, starts[axis])) || (!isToItsEnd && !isAtMost(end, next)))
        return failure();
      pieces.push_back(
          {part, isFromItsStart ? Dim(0) : starts[axis] - offset, isToItsEnd ? size : end - offset});
    }
    offset = next;
  }
  if (pieces.size() < 2)
    return failure();
  SmallVector<Value> parts;
  for (auto &[part, first, last] : pieces) {
    starts[axis] = first;
    sizes[axis] = last - first;
    parts.push_back(nn::build<nn::SliceOp>(rewriter, op.getLoc(), part,
                                           {dims(rewriter, "starts", starts), dims(rewriter, "sizes", sizes),
                                            rewriter.getNamedAttr("steps", op.getStepsAttr())}));
  }
  replaceByNew(rewriter, op, nn::build<nn::ConcatOp>(rewriter, op.getLoc(), parts, concat->getAttrs()));
  return success();
}

// Pattern: transpose(concat(slice(transpose(x)), y)) -> concat(transpose(slice(transpose(x))), transpose(y))
// where nothing else reads the whole: the state of a convolution leaves as it came
LogicalResult transposeOfParts(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto concat = op.getX().getDefiningOp<nn::ConcatOp>();
  auto isTransposed = [](Value part) {
    if (auto slice = part.getDefiningOp<nn::SliceOp>())
      part = slice.getX();
    return bool(part.getDefiningOp<nn::TransposeOp>());
  };
  if (!concat || !concat->hasOneUse() || llvm::none_of(concat.getParts(), isTransposed))
    return failure();
  int64_t axis = static_cast<int64_t>(concat.getAxis());
  axis += axis < 0 ? tensorType(concat).getRank() : 0;
  axis = llvm::find(op.getPerm(), axis) - op.getPerm().begin();
  SmallVector<Value> parts;
  for (Value part : concat.getParts())
    parts.push_back(nn::buildTranspose(rewriter, op.getLoc(), part, op.getPerm()));
  replaceByNew(rewriter, op,
               nn::build<nn::ConcatOp>(rewriter, op.getLoc(), parts,
                                       rewriter.getNamedAttr("axis", rewriter.getI64IntegerAttr(axis))));
  return success();
}

// Pattern: concat(.., x of no elements, ..) -> concat(.., ..)
LogicalResult emptyPart(nn::ConcatOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  int64_t axis = static_cast<int64_t>(op.getAxis());
  axis += axis < 0 ? tensorType(op).getRank() : 0;
  SmallVector<Value> parts(op.getParts());
  llvm::erase_if(parts, [&](Value part) { return shapes.of(part)[axis] == Dim(0); });
  if (parts.empty() || parts.size() == op.getParts().size())
    return failure();
  replaceByChanged(rewriter, op, [&](nn::ConcatOp changed) { changed.getPartsMutable().assign(parts); });
  return success();
}

} // namespace

void addViews(RewritePatternSet &patterns, ShapeTable &shapes) {
  add<nn::ReshapeOp>(patterns, shapes, idleReshape);
  add<nn::ReshapeOp>(patterns, shapes, reshapeOfReshape);
  add<nn::ReshapeOp>(patterns, shapes, reshapeBeforeSwap);
  add<nn::ReshapeOp>(patterns, shapes, keptDims);
  add<nn::ExpandOp>(patterns, shapes, idleExpand);
  add<nn::ExpandOp>(patterns, shapes, expandOfExpand);
  add<nn::TransposeOp>(patterns, shapes, transposeOfTranspose);
  add<nn::SliceOp>(patterns, shapes, idleSlice);
  add<nn::SliceOp>(patterns, shapes, sliceOfSlice);
  add<nn::SliceOp>(patterns, shapes, sliceOfConcat);
  add<nn::SliceOp>(patterns, shapes, sliceAcrossParts);
  add<nn::TransposeOp>(patterns, shapes, transposeOfParts);
  add<nn::ConcatOp>(patterns, shapes, emptyPart);
}

} // namespace fusion::normalise
