// Shape functions of elementwise ops, reductions, norms, products, attention and quantisation.
#include "ir/dialect/Dialect.h"

using namespace mlir;

namespace fusion::nn {

namespace {
LogicalResult sameAsFirst(ShapeContext &context) {
  context.set(0, context.shape(0));
  return success();
}

LogicalResult broadcastAll(ShapeContext &context) {
  SmallVector<DimShape> shapes;
  for (unsigned i = 0; i < context.operandCount(); ++i)
    shapes.push_back(context.shape(i));
  auto shape = context.broadcast(shapes);
  if (failed(shape))
    return failure();
  context.set(0, *shape);
  return success();
}

Type operandElement(Operation *op, unsigned index) {
  return llvm::cast<RankedTensorType>(op->getOperand(index).getType()).getElementType();
}

LogicalResult lastDimVector(ShapeContext &context, unsigned operand, const char *what) {
  if (context.rank(0) < 1)
    return context.fail("needs at least one dim");
  if (context.rank(operand) != 1)
    return context.fail(Twine(what) + " must have rank 1");
  return context.requireEqual(context.shape(operand)[0], context.shape(0).back());
}

LogicalResult quantised(ShapeContext &context, int64_t axis, int64_t blockSize) {
  const DimShape &shape = context.shape(0), &scale = context.shape(1);
  context.set(0, shape);
  if (context.operandCount() == 3 && context.shape(2).size() != scale.size())
    return context.fail("zero point and scale have different ranks");
  if (product(scale) == Dim(1))
    return success();
  auto at = context.axis(axis, static_cast<int64_t>(shape.size()));
  if (failed(at))
    return failure();
  if (blockSize == 0) {
    if (scale.size() != 1)
      return context.fail("a scale per axis has rank 1");
    return context.requireEqual(scale[0], shape[*at]);
  }
  if (scale.size() != shape.size())
    return context.fail("a blocked scale has the rank of the tensor");
  for (size_t i = 0; i < shape.size(); ++i) {
    Dim expected = static_cast<int64_t>(i) == *at ? shape[i].ceilDiv(blockSize) : shape[i];
    if (failed(context.requireEqual(scale[i], expected)))
      return failure();
  }
  return success();
}
} // namespace

LogicalResult inferElementwise(Operation *op, ShapeContext &context) {
  const unsigned first = llvm::isa<WhereOp>(op) ? 1 : 0;
  if (op->getNumOperands() == first + 2 && operandElement(op, first) != operandElement(op, first + 1))
    return context.fail(first ? "the two choices have different element types"
                              : "operands have different element types");
  return broadcastAll(context);
}

LogicalResult AllReduceOp::inferShapes(ShapeContext &context) { return sameAsFirst(context); }

LogicalResult ReduceOp::inferShapes(ShapeContext &context) {
  StringRef kind = getKind();
  if (!llvm::is_contained({"mean", "sum", "max", "min", "prod", "sum_square", "l1", "l2"}, kind))
    return context.fail("unknown kind " + kind);
  int64_t rank = context.rank(0);
  SmallVector<bool> reduced(rank, false);
  for (int64_t axis : getAxes()) {
    auto at = context.axis(axis, rank);
    if (failed(at))
      return failure();
    reduced[*at] = true;
  }
  DimShape shape;
  for (int64_t i = 0; i < rank; ++i) {
    if (!reduced[i])
      shape.push_back(context.shape(0)[i]);
    else if (getKeepdims())
      shape.push_back(1);
  }
  context.set(0, shape);
  return success();
}

LogicalResult ArgMaxOp::inferShapes(ShapeContext &context) {
  auto at = context.axis(getAxis(), context.rank(0));
  if (failed(at))
    return failure();
  DimShape shape = context.shape(0);
  if (getKeepdims())
    shape[*at] = 1;
  else
    shape.erase(shape.begin() + *at);
  context.set(0, shape);
  // Rows that have no element have no largest one.
  const Dim length = context.shape(0)[static_cast<size_t>(*at)], any = Dim::min(product(shape), Dim(1));
  if (!(length - any).knownNonNegative() && failed(context.requireEqual(Dim::min(any, length), any)))
    return context.fail("the largest element of an empty dim");
  return success();
}

LogicalResult TopKOp::inferShapes(ShapeContext &context) {
  auto at = context.axis(getAxis(), context.rank(0));
  if (failed(at))
    return failure();
  const DimShape k = dimsFromAttr(getK());
  if (k.size() != 1)
    return context.fail("k is one dim");
  DimShape shape = context.shape(0);
  if (k[0].isStatic() && shape[*at].isStatic() && k[0].value() > shape[*at].value())
    return context.fail("k is " + k[0].str() + " of " + shape[*at].str());
  shape[*at] = k[0];
  context.set(0, shape);
  return success();
}

LogicalResult LimitGroupsOp::inferShapes(ShapeContext &context) {
  if (failed(context.axis(-1, context.rank(0))))
    return failure();
  const Dim last = context.shape(0).back();
  const auto groups = static_cast<int64_t>(getGroups()), kept = static_cast<int64_t>(getKept()),
             summed = static_cast<int64_t>(getSummed());
  if (!last.isStatic() || groups < 1 || last.value() % groups != 0)
    return context.fail(Twine(groups) + " groups of equal size in " + last.str());
  if (kept < 1 || kept > groups)
    return context.fail(Twine(kept) + " groups of " + Twine(groups) + " are kept");
  if (summed < 1 || summed > last.value() / groups)
    return context.fail("the largest " + Twine(summed) + " elements of a group of " +
                        Twine(last.value() / groups));
  return sameAsFirst(context);
}

LogicalResult CumSumOp::inferShapes(ShapeContext &context) {
  if (failed(context.axis(getAxis(), context.rank(0))))
    return failure();
  return sameAsFirst(context);
}

LogicalResult SoftmaxOp::inferShapes(ShapeContext &context) {
  if (failed(context.axis(getAxis(), context.rank(0))))
    return failure();
  return sameAsFirst(context);
}

LogicalResult RmsNormOp::inferShapes(ShapeContext &context) {
  if (failed(lastDimVector(context, 1, "weight")))
    return failure();
  return sameAsFirst(context);
}

LogicalResult LayerNormOp::inferShapes(ShapeContext &context) {
  if (failed(lastDimVector(context, 1, "weight")) ||
      (context.operandCount() == 3 && failed(lastDimVector(context, 2, "bias"))))
    return failure();
  return sameAsFirst(context);
}

LogicalResult MatmulOp::inferShapes(ShapeContext &context) {
  DimShape a = context.shape(0), b = context.shape(1);
  if (a.empty() || b.empty())
    return context.fail("operands need at least one dim");
  bool vectorA = a.size() == 1, vectorB = b.size() == 1;
  if (vectorA)
    a.insert(a.begin(), Dim(1));
  else if (getTransposeA())
    std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (vectorB)
    b.push_back(Dim(1));
  else if (getTransposeB())
    std::swap(b[b.size() - 1], b[b.size() - 2]);
  if (failed(context.requireEqual(a[a.size() - 1], b[b.size() - 2])))
    return context.fail("inner sizes " + a[a.size() - 1].str() + " and " + b[b.size() - 2].str() + " differ");
  auto batch = context.broadcast({DimShape(a.begin(), a.end() - 2), DimShape(b.begin(), b.end() - 2)});
  if (failed(batch))
    return failure();
  if (!vectorA)
    batch->push_back(a[a.size() - 2]);
  if (!vectorB)
    batch->push_back(b[b.size() - 1]);
  context.set(0, *batch);
  return success();
}

LogicalResult RopeOp::inferShapes(ShapeContext &context) {
  int64_t rotary = getRotaryDim();
  if (context.rank(0) < 1 || rotary <= 0 || rotary % 2)
    return context.fail("rotary_dim must be positive and even, and x have a last dim");
  const Dim &last = context.shape(0).back();
  if (last.isStatic() && last.value() < rotary)
    return context.fail("rotary_dim " + Twine(rotary) + " is larger than the last dim " +
                        Twine(last.value()));
  for (unsigned table : {1u, 2u}) {
    DimShape leading = context.shape(table);
    if (leading.empty() || !(leading.back() == Dim(rotary) || leading.back() == Dim(rotary / 2)))
      return context.fail("the last dim of cos and sin must be rotary_dim or half of it");
    leading.pop_back();
    DimShape rows(context.shape(0).begin(), context.shape(0).end() - 1);
    auto joint = context.broadcast({rows, leading});
    if (failed(joint))
      return failure();
    if (joint->size() != rows.size())
      return context.fail("cos and sin have more dims than x");
  }
  return sameAsFirst(context);
}

LogicalResult AttentionOp::inferShapes(ShapeContext &context) {
  for (unsigned i : {0u, 1u, 2u})
    if (context.rank(i) != 4)
      return context.fail("q, k and v have rank 4");
  const DimShape &q = context.shape(0), &k = context.shape(1), &v = context.shape(2);
  if (failed(context.requireEqual(q[0], k[0])) || failed(context.requireEqual(q[0], v[0])) ||
      failed(context.requireEqual(k[1], v[1])) || failed(context.requireEqual(k[2], v[2])) ||
      failed(context.requireEqual(q[3], k[3])))
    return context.fail("q, k and v do not fit together");
  if (q[1].isStatic() && k[1].isStatic() && (k[1].value() == 0 || q[1].value() % k[1].value()))
    return context.fail("the number of heads is not a multiple of the number of key/value heads");
  if (context.operandCount() == 4) {
    DimShape scores = {q[0], q[1], q[2], k[2]};
    auto joint = context.broadcast({scores, context.shape(3)});
    if (failed(joint))
      return failure();
    if (joint->size() != 4)
      return context.fail("the mask has more than four dims");
  }
  context.set(0, {q[0], q[1], q[2], v[3]});
  return success();
}

LogicalResult ExpertMatmulOp::inferShapes(ShapeContext &context) {
  const DimShape &x = context.shape(0), &index = context.shape(2);
  DimShape w = context.shape(1);
  if (w.size() != 3 || index.empty() || x.size() != index.size() + 1)
    return context.fail("x is [rows..., slots or 1, k], w [experts, k, n] and index [rows..., slots]");
  if (getTransposeW())
    std::swap(w[1], w[2]);
  for (size_t i = 0; i + 1 < index.size(); ++i)
    if (failed(context.requireEqual(x[i], index[i])))
      return context.fail("x and index have different rows");
  const Dim &slots = x[x.size() - 2];
  if (!(slots == Dim(1)) && failed(context.requireEqual(slots, index.back())))
    return context.fail("x has neither one slot nor those of index");
  if (failed(context.requireEqual(x.back(), w[1])))
    return context.fail("inner sizes " + x.back().str() + " and " + w[1].str() + " differ");
  DimShape shape = index;
  shape.push_back(w[2]);
  context.set(0, shape);
  return success();
}

namespace {
/// Whether one number of heads is known to be a multiple of the other; names count as if they were.
bool sharesHeads(const Dim &many, const Dim &few) {
  return !many.isStatic() || !few.isStatic() || (few.value() > 0 && many.value() % few.value() == 0);
}
} // namespace

LogicalResult LinearAttentionOp::inferShapes(ShapeContext &context) {
  for (unsigned i = 0; i < context.operandCount(); ++i)
    if (context.rank(i) != 4)
      return context.fail("all operands have rank 4");
  const DimShape &q = context.shape(0), &k = context.shape(1), &v = context.shape(2),
                 &state = context.shape(3);
  for (unsigned i : {1u, 2u})
    if (failed(context.requireEqual(q[0], context.shape(i)[0])) ||
        failed(context.requireEqual(q[2], context.shape(i)[2])))
      return context.fail("q, k and v differ in batch or tokens");
  if (failed(context.requireEqual(q[3], k[3])) || failed(context.requireEqual(state[0], q[0])) ||
      failed(context.requireEqual(state[1], v[1])) || failed(context.requireEqual(state[2], k[3])) ||
      failed(context.requireEqual(state[3], v[3])))
    return context.fail("the state is not [batch, heads of v, width of k, width of v]");
  if (!sharesHeads(v[1], k[1]) || !(sharesHeads(q[1], v[1]) || sharesHeads(v[1], q[1])))
    return context.fail("heads are no multiples of each other");
  unsigned next = 4;
  for (Value operand : {getDecay(), getBeta()}) {
    if (!operand)
      continue;
    const bool isDecay = operand == getDecay() && next == 4;
    const DimShape &shape = context.shape(next++);
    const bool sharedHeads = !isDecay && shape[1] == Dim(1);
    if (failed(context.requireEqual(shape[0], q[0])) ||
        (!sharedHeads && failed(context.requireEqual(shape[1], v[1]))) ||
        failed(context.requireEqual(shape[2], q[2])))
      return context.fail(isDecay ? "decay is not [batch, heads, tokens, 1 or d]"
                                  : "beta is not [batch, heads, tokens, 1]");
    if (!(shape[3] == Dim(1)) && (!isDecay || failed(context.requireEqual(shape[3], q[3]))))
      return context.fail(isDecay ? "decay has neither one entry a head nor d"
                                  : "beta has more than one entry a head");
  }
  const bool moreQueries = q[1].isStatic() && v[1].isStatic() ? q[1].value() > v[1].value() : !(q[1] == v[1]);
  context.set(0, {q[0], moreQueries ? q[1] : v[1], q[2], v[3]});
  context.set(1, state);
  return success();
}

LogicalResult QuantizeOp::inferShapes(ShapeContext &context) {
  return quantised(context, getAxis(), getBlockSize());
}
LogicalResult DequantizeOp::inferShapes(ShapeContext &context) {
  return quantised(context, getAxis(), getBlockSize());
}

LogicalResult DynamicQuantizeOp::inferShapes(ShapeContext &context) {
  if (context.rank(0) < 1)
    return context.fail("needs at least one dim");
  context.set(0, context.shape(0));
  DimShape scale = context.shape(0);
  scale.back() = getGroupSize() > 0 ? scale.back().ceilDiv(static_cast<int64_t>(getGroupSize())) : Dim(1);
  context.set(1, scale);
  return success();
}

Type RmsNormOp::scaleType() {
  return getScaleIn().value_or(llvm::cast<RankedTensorType>(getWeight().getType()).getElementType());
}
Type LayerNormOp::scaleType() {
  return getScaleIn().value_or(llvm::cast<RankedTensorType>(getWeight().getType()).getElementType());
}
Type RopeOp::computeType() {
  return getCompute().value_or(llvm::cast<RankedTensorType>(getX().getType()).getElementType());
}

} // namespace fusion::nn
