#include "ir/dialect/Scatter.h"

#define GET_OP_CLASSES
#include "ir/dialect/NNScatter.cpp.inc"

using namespace mlir;

namespace fusion::nn {

LogicalResult ScatterReduceOp::inferShapes(ShapeContext &context) {
  if (!llvm::is_contained({"add", "mul", "min", "max"}, getKind()))
    return context.fail("kind is none of add, mul, min and max");
  const DimShape &x = context.shape(0), &indices = context.shape(1), &updates = context.shape(2);
  if (indices.empty() || !indices.back().isStatic() || indices.back().value() > context.rank(0))
    return context.fail("the last dim of the indices must be static and at most the rank of x");
  if (updates.size() != indices.size() - 1 + x.size() - static_cast<size_t>(indices.back().value()))
    return context.fail("the updates are not one slice of x for each index");
  context.set(0, x);
  return success();
}

} // namespace fusion::nn
