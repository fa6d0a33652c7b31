// Gathers of one known index: views instead of copies. Gathers of whole rows: one spelling.
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

/// x[.., index, ..] along the leading or given dims, as a slice in the shape of `op`. Fails where an index
/// could be out of range.
LogicalResult replaceBySlice(PatternRewriter &rewriter, Operation *op, Value x,
                             ArrayRef<std::pair<int64_t, int64_t>> axesAndIndices, ShapeTable &shapes) {
  DimShape starts(shapes.of(x).size(), Dim(0)), sizes = shapes.of(x);
  for (auto [axis, index] : axesAndIndices) {
    const auto at = static_cast<size_t>(axis);
    Dim start = index < 0 ? sizes[at] + Dim(index) : Dim(index);
    if (!start.knownNonNegative() || !(sizes[at] - start - Dim(1)).knownNonNegative())
      return failure();
    starts[at] = start;
    sizes[at] = Dim(1);
  }
  MLIRContext *context = rewriter.getContext();
  Value slice = nn::build<nn::SliceOp>(
      rewriter, op->getLoc(), x,
      {rewriter.getNamedAttr("starts", nn::dimsToAttr(context, starts)),
       rewriter.getNamedAttr("sizes", nn::dimsToAttr(context, sizes)),
       rewriter.getNamedAttr("steps", rewriter.getDenseI64ArrayAttr(SmallVector<int64_t>(sizes.size(), 1)))});
  replaceByNew(rewriter, op, nn::buildReshape(rewriter, op->getLoc(), slice, shapes.of(op->getResult(0))));
  return success();
}

// Pattern: gather(x, one constant index) -> reshape(slice(x))
LogicalResult gatherOfOne(nn::GatherOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (tensorType(op.getIndices()).hasStaticShape() && tensorType(op.getIndices()).getNumElements() == 1)
    if (auto index = constantInteger(op.getIndices())) {
      const auto axis = static_cast<int64_t>(op.getAxis());
      const int64_t rank = tensorType(op.getX()).getRank();
      return replaceBySlice(rewriter, op, op.getX(), {{axis < 0 ? axis + rank : axis, *index}}, shapes);
    }
  return failure();
}

// Pattern: gather_nd(x, one constant index of the first dim) -> reshape(slice(x))
LogicalResult gatherNdOfOne(nn::GatherNdOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (op.getBatchDims() == 0 && tensorType(op.getIndices()).hasStaticShape() &&
      tensorType(op.getIndices()).getNumElements() == 1)
    if (auto index = constantInteger(op.getIndices()))
      return replaceBySlice(rewriter, op, op.getX(), {{0, *index}}, shapes);
  return failure();
}

// Pattern: gather_nd(x, i : [.., 1]) without batch dims -> gather(x, reshape(i)) along dim 0
LogicalResult gatherNdOfRows(nn::GatherNdOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  DimShape shape = shapes.of(op.getIndices());
  if (op.getBatchDims() != 0 || shape.empty() || !(shape.back() == Dim(1)))
    return failure();
  shape.pop_back();
  Value indices = nn::buildReshape(rewriter, op.getLoc(), op.getIndices(), shape);
  replaceByNew(rewriter, op,
               nn::build<nn::GatherOp>(rewriter, op.getLoc(), {op.getX(), indices},
                                       rewriter.getNamedAttr("axis", rewriter.getI64IntegerAttr(0))));
  return success();
}

/// Whether it takes part of the last dim and all of the others.
bool takesColumns(nn::SliceOp slice, ShapeTable &shapes) {
  const DimShape whole = shapes.of(slice.getX()), part = shapes.of(slice.getY()),
                 starts = nn::dimsFromAttr(slice.getStarts());
  for (size_t i = 0; i + 1 < whole.size(); ++i)
    if (!(starts[i] == Dim(0)) || !(part[i] == whole[i]) || slice.getSteps()[i] != 1)
      return false;
  return !whole.empty() && starts.back().isStatic() && part.back().isStatic();
}

// Pattern: slice(experts + gather(bias, index)) -> slice(experts) + gather(slice(bias), index), where all
// that reads the sum takes columns: gate and up then have a bias each.
LogicalResult sliceOfBiasedExperts(nn::SliceOp slice, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto sum = slice.getX().getDefiningOp<nn::AddOp>();
  if (!sum)
    return failure();
  auto product = sum.getLhs().getDefiningOp<nn::ExpertMatmulOp>();
  auto bias = (product ? sum.getRhs() : sum.getLhs()).getDefiningOp<nn::GatherOp>();
  if (!product)
    product = sum.getRhs().getDefiningOp<nn::ExpertMatmulOp>();
  if (!product || !bias || bias.getAxis() != 0 || tensorType(bias.getX()).getRank() != 2 ||
      !(shapes.of(bias) == shapes.of(product.getY())) ||
      !llvm::all_of(sum->getUsers(), [&](Operation *user) {
        auto other = llvm::dyn_cast<nn::SliceOp>(user);
        return other && takesColumns(other, shapes);
      }))
    return failure();
  auto dims = [&](StringRef name, const DimShape &values) {
    return rewriter.getNamedAttr(name, nn::dimsToAttr(rewriter.getContext(), values));
  };
  const Dim start = nn::dimsFromAttr(slice.getStarts()).back(), size = shapes.of(slice.getY()).back();
  Value table = nn::build<nn::SliceOp>(
      rewriter, bias.getLoc(), bias.getX(),
      {dims("starts", {Dim(0), start}), dims("sizes", {shapes.of(bias.getX())[0], size}),
       rewriter.getNamedAttr("steps", rewriter.getDenseI64ArrayAttr({1, slice.getSteps().back()}))});
  Value rows = nn::build<nn::GatherOp>(rewriter, bias.getLoc(), {table, bias.getIndices()}, bias->getAttrs());
  Value part = nn::build<nn::SliceOp>(rewriter, slice.getLoc(), product.getY(), slice->getAttrs());
  replaceByNew(rewriter, slice, nn::build<nn::AddOp>(rewriter, sum.getLoc(), {part, rows}));
  return success();
}

} // namespace

void addGathers(RewritePatternSet &patterns, ShapeTable &shapes) {
  add<nn::GatherOp>(patterns, shapes, gatherOfOne);
  add<nn::GatherNdOp>(patterns, shapes, gatherNdOfOne);
  add<nn::GatherNdOp>(patterns, shapes, gatherNdOfRows);
  add<nn::SliceOp>(patterns, shapes, sliceOfBiasedExperts);
}

} // namespace fusion::normalise
