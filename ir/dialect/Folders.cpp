// Folds that need no arithmetic. Constant arithmetic is folded by the normalise passes through the reference.
#include "ir/dialect/Dialect.h"

using namespace mlir;

namespace fusion::nn {

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

// Pattern: cast(x : T) to T -> x
OpFoldResult CastOp::fold(FoldAdaptor) {
  return getX().getType() == getType() ? OpFoldResult(getX()) : nullptr;
}

// Pattern: reshape(x) to the static shape of x -> x
OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  auto type = llvm::cast<RankedTensorType>(getType());
  if (getX().getType() == type && type.hasStaticShape())
    return getX();
  return nullptr;
}

// Pattern: transpose(x) by the identity -> x
OpFoldResult TransposeOp::fold(FoldAdaptor) {
  for (auto [index, from] : llvm::enumerate(getPerm()))
    if (from != static_cast<int64_t>(index))
      return nullptr;
  return getX();
}

// Pattern: expand(x) to the static shape of x -> x
OpFoldResult ExpandOp::fold(FoldAdaptor) {
  auto type = llvm::cast<RankedTensorType>(getType());
  return getX().getType() == type && type.hasStaticShape() ? OpFoldResult(getX()) : nullptr;
}

// Pattern: slice(x) of everything, static -> x
OpFoldResult SliceOp::fold(FoldAdaptor) {
  auto type = llvm::cast<RankedTensorType>(getType());
  if (getX().getType() != type || !type.hasStaticShape())
    return nullptr;
  return llvm::all_of(getSteps(), [](int64_t step) { return step == 1; }) ? OpFoldResult(getX()) : nullptr;
}

// Pattern: concat(x) -> x
OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getParts().size() == 1 ? OpFoldResult(getParts().front()) : nullptr;
}

} // namespace fusion::nn
