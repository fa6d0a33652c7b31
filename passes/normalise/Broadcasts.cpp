// Expands that broadcasting makes unnecessary, and reshapes that move after the ops that read them.
#include "passes/Match.h"
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

// Pattern: pointwise(expand(x), y) -> pointwise(x, y) where y gives the shape
LogicalResult unneededExpand(Operation *op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (op->getNumOperands() < 2)
    return failure();
  DimShape result = shapes.of(op->getResult(0));
  SmallVector<DimShape> operands;
  for (Value operand : op->getOperands())
    operands.push_back(shapes.of(operand));
  for (OpOperand &operand : op->getOpOperands()) {
    auto expand = operand.get().getDefiningOp<nn::ExpandOp>();
    if (!expand)
      continue;
    DimShape &own = operands[operand.getOperandNumber()], before = own;
    own = shapes.of(expand.getX());
    auto joint = provenBroadcast(operands);
    if (joint && *joint == result) {
      const unsigned number = operand.getOperandNumber();
      replaceByChanged(rewriter, op, [&](Operation *changed) { changed->setOperand(number, expand.getX()); });
      return success();
    }
    own = before;
  }
  return failure();
}

// Pattern: pointwise(expand(x), y) -> expand(pointwise(x, y)) where y is no larger than x or expanded alike
LogicalResult sinkExpand(Operation *op, PatternRewriter &rewriter, ShapeTable &shapes) {
  SmallVector<Value> operands;
  SmallVector<DimShape> operandShapes;
  bool expanded = false;
  for (Value operand : op->getOperands()) {
    auto expand = operand.getDefiningOp<nn::ExpandOp>();
    expanded |= bool(expand);
    operands.push_back(expand ? Value(expand.getX()) : operand);
    operandShapes.push_back(shapes.of(operands.back()));
  }
  DimShape result = shapes.of(op->getResult(0));
  auto joint = expanded ? provenBroadcast(operandShapes) : std::nullopt;
  if (!joint || *joint == result)
    return failure();
  Value small = rebuild(rewriter, op, operands);
  replaceByNew(
      rewriter, op,
      nn::build<nn::ExpandOp>(rewriter, op->getLoc(), small,
                              rewriter.getNamedAttr("shape", nn::dimsToAttr(op->getContext(), result))));
  return success();
}

// Pattern: matmul(expand(a), b) -> matmul(a, b) where b gives the leading dims
LogicalResult unneededMatmulExpand(nn::MatmulOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  DimShape result = shapes.of(op);
  for (OpOperand &operand : op->getOpOperands()) {
    auto expand = operand.get().getDefiningOp<nn::ExpandOp>();
    Value other = op->getOperand(1 - operand.getOperandNumber());
    if (!expand || tensorType(expand.getX()).getRank() < 2 || tensorType(other).getRank() < 2)
      continue;
    DimShape from = shapes.of(expand.getX()), to = shapes.of(expand), beside = shapes.of(other);
    if (!std::equal(from.end() - 2, from.end(), to.end() - 2))
      continue;
    auto leading = [](const DimShape &shape) { return DimShape(shape.begin(), shape.end() - 2); };
    auto joint = provenBroadcast({leading(from), leading(beside)});
    if (!joint || *joint != leading(result))
      continue;
    const unsigned number = operand.getOperandNumber();
    replaceByChanged(rewriter, op, [&](nn::MatmulOp changed) { changed->setOperand(number, expand.getX()); });
    return success();
  }
  return failure();
}

/// A reshape that merges leading dims and keeps the last one: [.., a, b, n] to [a * b, n].
nn::ReshapeOp leadingMerge(Value value, ShapeTable &shapes) {
  auto reshape = value.getDefiningOp<nn::ReshapeOp>();
  if (!reshape)
    return {};
  DimShape from = shapes.of(reshape.getX()), to = shapes.of(reshape);
  return to.size() >= 2 && to.size() < from.size() && from.back() == to.back() ? reshape : nn::ReshapeOp();
}

/// Puts the reshape, to the shape of the result of `op`, after `moved`, which replaces it.
void reshapeAfter(Operation *op, Value moved, PatternRewriter &rewriter, ShapeTable &shapes) {
  DimShape shape = shapes.of(op->getResult(0));
  replaceByNew(
      rewriter, op,
      nn::build<nn::ReshapeOp>(rewriter, op->getLoc(), moved,
                               rewriter.getNamedAttr("shape", nn::dimsToAttr(op->getContext(), shape))));
}

/// Whether the largest of the value are chosen. Everything from the matmul of a router to its choice has
/// merged rows: a reshape in between would keep them apart.
bool isChosenFrom(Value value, int steps = 6) {
  return steps > 0 && llvm::any_of(value.getUsers(), [&](Operation *user) {
           if (llvm::isa<nn::TopKOp>(user))
             return true;
           const bool keepsRows =
               llvm::isa<nn::SoftmaxOp, nn::LimitGroupsOp>(user) || user->hasTrait<nn::Pointwise>();
           return keepsRows && isChosenFrom(user->getResult(0), steps - 1);
         });
}

// Pattern: matmul(reshape(x), w : [n, m]) -> reshape(matmul(x, w)) where the reshape merges leading dims
LogicalResult reshapeAfterMatmul(nn::MatmulOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto reshape = leadingMerge(op.getA(), shapes);
  if (!reshape || isChosenFrom(op.getY()) || op.getTransposeA() || tensorType(op.getB()).getRank() != 2)
    return failure();
  reshapeAfter(op, rebuild(rewriter, op, {reshape.getX(), op.getB()}), rewriter, shapes);
  return success();
}

/// Broadcasts along the last dim at most: a scalar, [1] or [n].
bool isRow(Value value) { return tensorType(value).getRank() <= 1; }

// Pattern: pointwise(reshape(x), row) -> reshape(pointwise(x, row)); also of two reshapes from one shape
LogicalResult reshapeAfterPointwise(Operation *op, PatternRewriter &rewriter, ShapeTable &shapes) {
  SmallVector<Value> operands;
  std::optional<DimShape> source;
  if (isChosenFrom(op->getResult(0)))
    return failure();
  for (Value operand : op->getOperands()) {
    auto reshape = leadingMerge(operand, shapes);
    if (!reshape && !isRow(operand))
      return failure();
    operands.push_back(reshape ? Value(reshape.getX()) : operand);
    if (!reshape)
      continue;
    if (!shapes.same(op->getResult(0), operand) || (source && *source != shapes.of(reshape.getX())))
      return failure();
    source = shapes.of(reshape.getX());
  }
  if (!source)
    return failure();
  reshapeAfter(op, rebuild(rewriter, op, operands), rewriter, shapes);
  return success();
}

// Pattern: norm(reshape(x), ..) -> reshape(norm(x, ..)) where the reshape merges leading dims
template <class OpTy>
LogicalResult reshapeAfterNorm(OpTy op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto reshape = leadingMerge(op.getX(), shapes);
  if (!reshape)
    return failure();
  SmallVector<Value> operands(op->getOperands());
  operands[0] = reshape.getX();
  reshapeAfter(op, rebuild(rewriter, op, operands), rewriter, shapes);
  return success();
}

// Pattern: limit_groups(reshape(x)) -> reshape(limit_groups(x)) where the reshape merges leading dims
LogicalResult reshapeAfterLimit(nn::LimitGroupsOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto reshape = leadingMerge(op.getX(), shapes);
  if (!reshape || isChosenFrom(op.getY()))
    return failure();
  reshapeAfter(op, rebuild(rewriter, op, {reshape.getX()}), rewriter, shapes);
  return success();
}

// Pattern: slice(reshape(x)) of the last dim -> reshape(slice(x)) where the reshape merges leading dims. Not
// where x is a slice and its reshape is read as a whole too, as one of q, k and v in a dim of their own: as
// slices of what x is of, its halves would no longer be halves of one value.
LogicalResult reshapeAfterSlice(nn::SliceOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto reshape = leadingMerge(op.getX(), shapes);
  if (!reshape || (reshape.getX().getDefiningOp<nn::SliceOp>() && !reshape->hasOneUse()))
    return failure();
  DimShape starts = nn::dimsFromAttr(op.getStarts()), sizes = nn::dimsFromAttr(op.getSizes());
  DimShape merged = shapes.of(reshape), from = shapes.of(reshape.getX());
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    if (!(starts[i] == Dim(0)) || !(sizes[i] == merged[i]) || op.getSteps()[i] != 1)
      return failure();
  DimShape newStarts(from.size(), Dim(0)), newSizes = from;
  SmallVector<int64_t> steps(from.size(), 1);
  newStarts.back() = starts.back();
  newSizes.back() = sizes.back();
  steps.back() = op.getSteps().back();
  auto *context = op->getContext();
  Value moved =
      nn::build<nn::SliceOp>(rewriter, op.getLoc(), reshape.getX(),
                             {rewriter.getNamedAttr("starts", nn::dimsToAttr(context, newStarts)),
                              rewriter.getNamedAttr("sizes", nn::dimsToAttr(context, newSizes)),
                              rewriter.getNamedAttr("steps", rewriter.getDenseI64ArrayAttr(steps))});
  reshapeAfter(op, moved, rewriter, shapes);
  return success();
}

/// Whether it divides leading dims of the only reader's operand.
bool isLeadingSplit(nn::ReshapeOp reshape, ShapeTable &shapes) {
  DimShape from = shapes.of(reshape.getX()), to = shapes.of(reshape);
  return from.size() >= 2 && from.size() < to.size() && from.back() == to.back() &&
         reshape.getX().hasOneUse();
}

Value split(nn::ReshapeOp reshape, Value x, PatternRewriter &rewriter, ShapeTable &shapes) {
  DimShape shape = shapes.of(reshape);
  shape.back() = shapes.of(x).back();
  return nn::build<nn::ReshapeOp>(
      rewriter, reshape.getLoc(), x,
      rewriter.getNamedAttr("shape", nn::dimsToAttr(reshape.getContext(), shape)));
}

// Pattern: reshape(matmul(reshape(x), w : [n, m])) -> matmul(reshape(x), w) where the former reshape divides
// leading dims: what follows has the shape of the residual that it meets
LogicalResult splitBeforeMatmul(nn::ReshapeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto matmul = op.getX().getDefiningOp<nn::MatmulOp>();
  if (!matmul || !isLeadingSplit(op, shapes) || !matmul.getA().getDefiningOp<nn::ReshapeOp>() ||
      matmul.getTransposeA() || tensorType(matmul.getA()).getRank() != 2 ||
      tensorType(matmul.getB()).getRank() != 2)
    return failure();
  Value rows = split(op, matmul.getA(), rewriter, shapes);
  replaceByNew(rewriter, op, rebuild(rewriter, matmul, {rows, matmul.getB()}));
  return success();
}

/// Whether `value` is a matmul of reshaped rows with scalar ops behind it, each the only reader of the one
/// before: a bias, an activation.
bool comesFromReshapedRows(Value value) {
  while (Operation *producer = value.hasOneUse() ? value.getDefiningOp() : nullptr) {
    if (auto matmul = llvm::dyn_cast<nn::MatmulOp>(producer))
      return bool(matmul.getA().getDefiningOp<nn::ReshapeOp>());
    if (!producer->hasTrait<nn::Pointwise>())
      return false;
    auto whole = llvm::find_if_not(producer->getOperands(), isRow);
    if (whole == producer->operand_end())
      return false;
    value = *whole;
  }
  return false;
}

// Pattern: reshape(pointwise(x, row)) -> pointwise(reshape(x), row) where the reshape divides leading dims
// and x is made of a matmul of reshaped rows
LogicalResult splitBeforePointwise(nn::ReshapeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  Operation *pointwise = op.getX().getDefiningOp();
  if (!pointwise || !pointwise->hasTrait<nn::Pointwise>() || !isLeadingSplit(op, shapes))
    return failure();
  SmallVector<Value> operands(pointwise->getOperands());
  Value *whole = nullptr;
  for (Value &operand : operands)
    if (!isRow(operand)) {
      if (whole || !shapes.same(operand, op.getX()) || !comesFromReshapedRows(operand))
        return failure();
      whole = &operand;
    }
  if (!whole)
    return failure();
  *whole = split(op, *whole, rewriter, shapes);
  replaceByNew(rewriter, op, rebuild(rewriter, pointwise, operands));
  return success();
}

} // namespace

void addBroadcasts(RewritePatternSet &patterns, ShapeTable &shapes) {
  addPointwise(patterns, shapes, unneededExpand);
  addPointwise(patterns, shapes, sinkExpand);
  add<nn::MatmulOp>(patterns, shapes, unneededMatmulExpand);
  add<nn::MatmulOp>(patterns, shapes, reshapeAfterMatmul);
  add<nn::ReshapeOp>(patterns, shapes, splitBeforeMatmul);
  add<nn::ReshapeOp>(patterns, shapes, splitBeforePointwise);
  addPointwise(patterns, shapes, reshapeAfterPointwise);
  add<nn::RmsNormOp>(patterns, shapes, reshapeAfterNorm<nn::RmsNormOp>);
  add<nn::LayerNormOp>(patterns, shapes, reshapeAfterNorm<nn::LayerNormOp>);
  add<nn::LimitGroupsOp>(patterns, shapes, reshapeAfterLimit);
  add<nn::SliceOp>(patterns, shapes, reshapeAfterSlice);
}

} // namespace fusion::normalise
