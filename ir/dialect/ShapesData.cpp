// Shape functions of constants and data movement.
#include "ir/dialect/Dialect.h"
#include "ir/dialect/PossibleShape.h"

using namespace mlir;

namespace fusion::nn {

namespace {
DimShape staticShape(RankedTensorType type) {
  return DimShape(type.getShape().begin(), type.getShape().end());
}
} // namespace

LogicalResult ConstantOp::inferShapes(ShapeContext &context) {
  auto type = llvm::dyn_cast<RankedTensorType>(getValue().getType());
  if (!type || type.getElementType() != llvm::cast<RankedTensorType>(getType()).getElementType())
    return context.fail("value and result have different types");
  context.set(0, staticShape(type));
  return success();
}

LogicalResult WeightOp::inferShapes(ShapeContext &context) {
  auto type = llvm::cast<RankedTensorType>(getType());
  if (!type.hasStaticShape())
    return context.fail("a weight has a static shape");
  unsigned bits = type.getElementType().getIntOrFloatBitWidth();
  if (getRankPaths().has_value() != getRankOffsets().has_value() ||
      (getRankPaths() && getRankPaths()->size() != getRankOffsets()->size()))
    return context.fail("rank_paths and rank_offsets have an entry for each rank");
  if (getPartPaths().has_value() != getPartOffsets().has_value() ||
      (getPartPaths() &&
       (getPartPaths()->empty() || getPartPaths()->size() != getPartOffsets()->size() ||
        static_cast<int64_t>(getLength()) % static_cast<int64_t>(getPartPaths()->size()) != 0)))
    return context.fail("part_paths and part_offsets have an entry for each of some equal parts");
  if (getPartPaths() && getRankPaths())
    return context.fail("a weight is in parts or in a file for each rank, not both");
  if (getWhole().has_value() != getStarts().has_value())
    return context.fail("a part of a weight has both whole and starts");
  if (getWhole()) {
    DimShape starts = dimsFromAttr(*getStarts());
    const auto rank = static_cast<size_t>(type.getRank());
    bool fits = getWhole()->size() == rank && starts.size() == rank;
    for (size_t i = 0; fits && i < rank; ++i)
      fits = type.getShape()[i] + starts[i].constant().value_or(0) <= (*getWhole())[i];
    if (!fits)
      return context.fail("the part does not lie in the whole");
  }
  int64_t elements = 1;
  for (int64_t dim : shapeInFile())
    elements *= dim;
  int64_t bytes = (elements * (bits == 1 ? 8 : bits) + 7) / 8;
  if (static_cast<int64_t>(getLength()) != bytes)
    return context.fail("length is " + Twine(getLength()) + " bytes but the type needs " + Twine(bytes));
  context.set(0, staticShape(type));
  return success();
}

LogicalResult DimConstantOp::inferShapes(ShapeContext &context) {
  auto type = llvm::cast<RankedTensorType>(getType());
  if (!type.hasStaticShape() || type.getNumElements() != static_cast<int64_t>(getValues().size()))
    return context.fail("the number of values does not fit the result type");
  context.set(0, staticShape(type));
  return success();
}

/// Records `size <= limit` where it is not provable; false where it is known to be wrong.
static bool requireAtMost(ShapeContext &context, const Dim &size, const Dim &limit) {
  return (limit - size).knownNonNegative() || succeeded(context.requireEqual(Dim::min(size, limit), size));
}

/// Reading `count` elements by index needs a dim that has any.
static LogicalResult requireSomething(ShapeContext &context, const Dim &count, const Dim &dim) {
  if (!requireAtMost(context, Dim::min(count, Dim(1)), dim))
    return context.fail("reads an empty dim");
  return success();
}

LogicalResult IotaOp::inferShapes(ShapeContext &context) {
  DimShape size = dimsFromAttr(getSize());
  if (size.size() != 1 || context.rank(0) != 0 || context.rank(1) != 0)
    return context.fail("start and step are scalars and size is one dim");
  context.set(0, size);
  return success();
}

LogicalResult ReshapeOp::inferShapes(ShapeContext &context) {
  DimShape shape = dimsFromAttr(getShape());
  Dim before = product(context.shape(0)), after = product(shape);
  // Only a contradiction between constants is an error: inside the verifier dims are anonymous.
  if (before.isStatic() && after.isStatic() && !(before == after))
    return context.fail("reshape of " + Twine(before.value()) + " elements to " + Twine(after.value()));
  if (!(before == after) && failed(context.requireEqual(before, after)))
    return failure();
  context.set(0, shape);
  return success();
}

LogicalResult TransposeOp::inferShapes(ShapeContext &context) {
  ArrayRef<int64_t> perm = getPerm();
  int64_t rank = context.rank(0);
  SmallVector<bool> seen(rank, false);
  DimShape shape;
  if (static_cast<int64_t>(perm.size()) != rank)
    return context.fail("perm has " + Twine(perm.size()) + " entries for rank " + Twine(rank));
  for (int64_t from : perm) {
    if (from < 0 || from >= rank || seen[from])
      return context.fail("perm is not a permutation");
    seen[from] = true;
    shape.push_back(context.shape(0)[from]);
  }
  context.set(0, shape);
  return success();
}

LogicalResult ExpandOp::inferShapes(ShapeContext &context) {
  DimShape shape = dimsFromAttr(getShape());
  const DimShape &from = context.shape(0);
  if (from.size() > shape.size())
    return context.fail("expand to fewer dims");
  for (size_t i = 0; i < from.size(); ++i) {
    const Dim &dim = from[i];
    if (failed(context.requireBroadcast(dim, shape[shape.size() - from.size() + i])))
      return failure();
  }
  context.set(0, shape);
  return success();
}

LogicalResult SliceOp::inferShapes(ShapeContext &context) {
  DimShape starts = dimsFromAttr(getStarts()), sizes = dimsFromAttr(getSizes());
  size_t rank = context.shape(0).size();
  if (starts.size() != rank || sizes.size() != rank || getSteps().size() != rank)
    return context.fail("starts, sizes and steps need one entry for each of the " + Twine(rank) + " dims");
  for (size_t i = 0; i < rank; ++i) {
    const Dim &dim = context.shape(0)[i];
    int64_t step = getSteps()[i];
    if (step == 0)
      return context.fail("step 0");
    if (!dim.isStatic() || !starts[i].isStatic() || !sizes[i].isStatic() || sizes[i].value() == 0) {
      const Dim last = starts[i] + (sizes[i] - Dim(1)) * Dim(step);
      if (!requireAtMost(context, (step > 0 ? last : starts[i]) + Dim(1), dim) ||
          !requireAtMost(context, Dim(0), step > 0 ? starts[i] : last))
        return context.fail("dim " + Twine(i) + " sliced out of range");
      continue;
    }
    int64_t start = starts[i].value(), size = sizes[i].value(), last = 0;
    bool overflows = size < 0 || __builtin_mul_overflow(size - 1, step, &last) ||
                     __builtin_add_overflow(start, last, &last);
    if (overflows || start < 0 || start >= dim.value() || last < 0 || last >= dim.value())
      return context.fail("dim " + Twine(i) + " of size " + Twine(dim.value()) + " sliced out of range");
  }
  context.set(0, sizes);
  return success();
}

LogicalResult CacheWriteOp::inferShapes(ShapeContext &context) {
  const DimShape &past = context.shape(0), &fresh = context.shape(1), &rows = context.shape(2);
  if (fresh.size() != past.size() || rows.size() != past.size())
    return context.fail("operands have different ranks");
  if (llvm::cast<RankedTensorType>(getPast().getType()).getElementType() !=
      llvm::cast<RankedTensorType>(getFresh().getType()).getElementType())
    return context.fail("past and fresh have different element types");
  auto axis = context.axis(static_cast<int64_t>(getAxis()), context.rank(0));
  if (failed(axis))
    return failure();
  DimShape shape = past;
  for (int64_t d = 0; d < context.rank(0); ++d) {
    if (d != *axis && failed(context.requireEqual(past[d], fresh[d])))
      return failure();
    const bool mayBeOne = d != *axis && rows[d] == Dim(1);
    if (!mayBeOne && (d > *axis || failed(context.requireEqual(rows[d], fresh[d]))))
      return context.fail("rows is not one entry a row");
  }
  if (getGrows())
    shape[*axis] = past[*axis] + fresh[*axis];
  context.set(0, shape);
  return success();
}

LogicalResult ConcatOp::inferShapes(ShapeContext &context) {
  if (context.operandCount() == 0)
    return context.fail("nothing to concatenate");
  auto axis = context.axis(static_cast<int64_t>(getAxis()), context.rank(0));
  if (failed(axis))
    return failure();
  DimShape shape = context.shape(0);
  for (unsigned i = 1; i < context.operandCount(); ++i) {
    if (context.rank(i) != context.rank(0))
      return context.fail("operands have different ranks");
    if (llvm::cast<RankedTensorType>(getOperand(i).getType()).getElementType() !=
        llvm::cast<RankedTensorType>(getOperand(0).getType()).getElementType())
      return context.fail("operands have different element types");
    for (int64_t d = 0; d < context.rank(0); ++d) {
      if (d == *axis)
        shape[d] = shape[d] + context.shape(i)[d];
      else if (failed(context.requireEqual(shape[d], context.shape(i)[d])))
        return failure();
    }
  }
  context.set(0, shape);
  return success();
}

/// What is cut off counts as what is added.
static DimShape magnitudes(DimShape dims) {
  for (Dim &dim : dims)
    if (dim.isStatic() && dim.value() < 0)
      dim = Dim(0) - dim;
  return dims;
}

LogicalResult PadOp::inferShapes(ShapeContext &context) {
  DimShape low = dimsFromAttr(getLow()), high = dimsFromAttr(getHigh()), shape = context.shape(0);
  if (low.size() != shape.size() || high.size() != shape.size() || context.rank(1) != 0)
    return context.fail("low and high need one entry for each dim, and value is a scalar");
  if (!isPossibleShape(magnitudes(low)) || !isPossibleShape(magnitudes(high)))
    return context.fail("low or high is out of range");
  for (size_t i = 0; i < shape.size(); ++i)
    shape[i] = shape[i] + low[i] + high[i];
  context.set(0, shape);
  return success();
}

LogicalResult TriluOp::inferShapes(ShapeContext &context) {
  if (context.rank(0) < 2)
    return context.fail("needs at least two dims");
  context.set(0, context.shape(0));
  return success();
}

LogicalResult GatherOp::inferShapes(ShapeContext &context) {
  auto axis = context.axis(static_cast<int64_t>(getAxis()), context.rank(0));
  if (failed(axis))
    return failure();
  const DimShape &x = context.shape(0), &indices = context.shape(1);
  DimShape shape(x.begin(), x.begin() + *axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), x.begin() + *axis + 1, x.end());
  context.set(0, shape);
  return requireSomething(context, product(shape), x[static_cast<size_t>(*axis)]);
}

LogicalResult GatherElementsOp::inferShapes(ShapeContext &context) {
  auto axis = context.axis(static_cast<int64_t>(getAxis()), context.rank(0));
  if (failed(axis))
    return failure();
  if (context.rank(0) != context.rank(1))
    return context.fail("x and indices have different ranks");
  const DimShape &x = context.shape(0), &indices = context.shape(1);
  for (size_t i = 0; i < x.size(); ++i)
    if (static_cast<int64_t>(i) != *axis && !requireAtMost(context, indices[i], x[i]))
      return context.fail("dim " + Twine(i) + " of the indices is longer than that of x");
  context.set(0, indices);
  return requireSomething(context, product(indices), x[static_cast<size_t>(*axis)]);
}

LogicalResult GatherNdOp::inferShapes(ShapeContext &context) {
  const DimShape &x = context.shape(0), &indices = context.shape(1);
  int64_t batch = static_cast<int64_t>(getBatchDims());
  if (indices.empty() || !indices.back().isStatic())
    return context.fail("the last dim of the indices must be static");
  int64_t depth = indices.back().value();
  if (batch < 0 || batch >= context.rank(1) || batch + depth > context.rank(0))
    return context.fail("indices address more dims than x has");
  DimShape shape(indices.begin(), indices.end() - 1);
  shape.insert(shape.end(), x.begin() + batch + depth, x.end());
  for (int64_t d = 0; d < depth; ++d)
    if (failed(requireSomething(context, product(shape), x[static_cast<size_t>(batch + d)])))
      return failure();
  context.set(0, shape);
  return success();
}

LogicalResult ScatterNdOp::inferShapes(ShapeContext &context) {
  if (context.shape(1).empty() || !context.shape(1).back().isStatic() ||
      context.shape(1).back().value() > context.rank(0))
    return context.fail("the last dim of the indices must be static and at most the rank of x");
  context.set(0, context.shape(0));
  return success();
}

} // namespace fusion::nn
