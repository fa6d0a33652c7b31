// Arithmetic that does nothing, and one spelling for squares, roots and operand order.
#include "passes/Match.h"
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

/// Replaces a binary op by one of its operands, if that has the result's shape already.
LogicalResult keepOperand(Operation *op, Value operand, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (!shapes.same(op->getResult(0), operand))
    return failure();
  return replaceByExisting(rewriter, op, operand);
}

// Pattern: cast(cast(x : T) to U) to V -> cast(x) to V, or x if V is T, where T to U is exact
LogicalResult castOfExactCast(nn::CastOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto inner = op.getX().getDefiningOp<nn::CastOp>();
  if (!inner || !isExactCast(elementType(inner.getX()), elementType(inner)))
    return failure();
  if (elementType(inner.getX()) == elementType(op))
    return replaceByExisting(rewriter, op, inner.getX());
  replaceByChanged(rewriter, op, [&](nn::CastOp changed) { changed.getXMutable().assign(inner.getX()); });
  return success();
}

// Pattern: mul(x, 1) -> x; integers: mul(x, 1) -> x
LogicalResult mulByOne(nn::MulOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  for (auto [x, one] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
    if (isConstant(one, 1) && succeeded(keepOperand(op, x, rewriter, shapes)))
      return success();
  return failure();
}

// Pattern: div(x, 1) -> x
LogicalResult divByOne(nn::DivOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  return isConstant(op.getRhs(), 1) ? keepOperand(op, op.getLhs(), rewriter, shapes) : failure();
}

/// Adding this leaves every x as it is: 0 for integers, but -0.0 for floats, since -0.0 + 0.0 is 0.0.
bool isNeutralForAdd(Value value) {
  auto zero = constantScalar(value);
  return zero && *zero == 0 && (!isFloat(value) || std::signbit(*zero));
}

// Pattern: add(x, neutral) -> x
LogicalResult addNeutral(nn::AddOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  for (auto [x, zero] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
    if (isNeutralForAdd(zero) && succeeded(keepOperand(op, x, rewriter, shapes)))
      return success();
  return failure();
}

// Pattern: sub(x, 0) -> x, with a positive zero if a float
LogicalResult subZero(nn::SubOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto zero = constantScalar(op.getRhs());
  if (!zero || *zero != 0 || std::signbit(*zero))
    return failure();
  return keepOperand(op, op.getLhs(), rewriter, shapes);
}

/// Never below zero and never -0.0 (NaN aside), as far as a few ops tell.
bool isNonNegative(Value value, int depth = 6) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return false;
  if (auto constant = constantScalar(value))
    return *constant >= 0 && !std::signbit(*constant);
  if (llvm::isa<nn::SquareOp, nn::AbsOp, nn::ExpOp>(op))
    return true;
  if (auto reduce = llvm::dyn_cast<nn::ReduceOp>(op))
    return llvm::is_contained({"sum_square", "l1", "l2"}, reduce.getKind()) ||
           isNonNegative(reduce.getX(), depth - 1);
  if (llvm::isa<nn::AddOp, nn::MulOp>(op))
    return isNonNegative(op->getOperand(0), depth - 1) && isNonNegative(op->getOperand(1), depth - 1);
  return llvm::isa<nn::CastOp>(op) && isFloat(op->getOperand(0)) &&
         isNonNegative(op->getOperand(0), depth - 1);
}

// Pattern: pow(x, 2) -> square(x); pow(x, 1) -> x; x not negative: pow(x, 0.5) -> sqrt, pow(x, -0.5) -> rsqrt
LogicalResult namedPower(nn::PowOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  Value x = op.getLhs();
  auto exponent = constantScalar(op.getRhs());
  if (!exponent || !isFloat(x) || !shapes.same(x, op))
    return failure();
  if (*exponent == 1)
    return replaceByExisting(rewriter, op, x);
  Value named;
  if (*exponent == 2)
    named = nn::build<nn::SquareOp>(rewriter, op.getLoc(), x);
  else if (*exponent == 0.5 && isNonNegative(x))
    named = nn::build<nn::SqrtOp>(rewriter, op.getLoc(), x);
  else if (*exponent == -0.5 && isNonNegative(x))
    named = nn::build<nn::RsqrtOp>(rewriter, op.getLoc(), x);
  else
    return failure();
  replaceByNew(rewriter, op, named);
  return success();
}

// Pattern: mul(x, x) -> square(x)
LogicalResult mulBySelf(nn::MulOp op, PatternRewriter &rewriter, ShapeTable &) {
  if (op.getLhs() != op.getRhs())
    return failure();
  replaceByNew(rewriter, op, nn::build<nn::SquareOp>(rewriter, op.getLoc(), op.getLhs()));
  return success();
}

/// The mean that `op`, a sum over the last dim divided by the number of its elements, is. Narrow floats would
/// lose the rounding of the sum.
LogicalResult sumToMean(Operation *op, Value sum, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto reduce = sum.getDefiningOp<nn::ReduceOp>();
  const int64_t rank = reduce ? tensorType(reduce.getX()).getRank() : 0;
  if (!reduce || !shapes.same(op->getResult(0), sum) || elementType(sum).getIntOrFloatBitWidth() < 32 ||
      reduce.getAxes().size() != 1 || (reduce.getAxes()[0] != -1 && reduce.getAxes()[0] != rank - 1) ||
      !llvm::is_contained({"sum", "sum_square"}, reduce.getKind()))
    return failure();
  Value x = reduce.getX();
  if (reduce.getKind() == "sum_square")
    x = nn::build<nn::SquareOp>(rewriter, op->getLoc(), x);
  SmallVector<NamedAttribute> attributes(reduce->getAttrs());
  for (NamedAttribute &attribute : attributes)
    if (attribute.getName() == reduce.getKindAttrName())
      attribute.setValue(rewriter.getStringAttr("mean"));
  replaceByNew(rewriter, op, nn::build<nn::ReduceOp>(rewriter, op->getLoc(), x, attributes));
  return success();
}

/// Elements of the last dim of what `sum` reduces; 0 if that is something else or its size is not known.
double reducedSize(Value sum, ShapeTable &shapes) {
  auto reduce = sum.getDefiningOp<nn::ReduceOp>();
  const DimShape shape = reduce && isFloat(sum) ? shapes.of(reduce.getX()) : DimShape();
  return shape.empty() || !shape.back().isStatic() ? 0 : static_cast<double>(shape.back().value());
}

// Pattern: div(sum(x), n) -> mean(x), div(sum_square(x), n) -> mean(square(x)) where n elements of the last
// dim are summed
LogicalResult dividedSum(nn::DivOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  const double size = reducedSize(op.getLhs(), shapes);
  return size > 0 && isConstant(op.getRhs(), size) ? sumToMean(op, op.getLhs(), rewriter, shapes) : failure();
}

// Pattern: mul(sum(x), 1 / n) -> mean(x), mul(sum_square(x), 1 / n) -> mean(square(x)), as above
LogicalResult scaledSum(nn::MulOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  for (auto [sum, factor] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
    if (const double size = reducedSize(sum, shapes); size > 0 && isConstant(factor, 1 / size, 1e-7))
      return sumToMean(op, sum, rewriter, shapes);
  return failure();
}

/// rsqrt of what `root` roots. Narrow floats would lose the rounding of the root.
LogicalResult rootToRsqrt(Operation *op, Value root, PatternRewriter &rewriter) {
  auto sqrt = root.getDefiningOp<nn::SqrtOp>();
  if (!sqrt || elementType(root).getIntOrFloatBitWidth() < 32)
    return failure();
  replaceByNew(rewriter, op, nn::build<nn::RsqrtOp>(rewriter, op->getLoc(), sqrt.getX()));
  return success();
}

// Pattern: reciprocal(sqrt(x)) -> rsqrt(x), f32 and f64
LogicalResult reciprocalOfSqrt(nn::ReciprocalOp op, PatternRewriter &rewriter, ShapeTable &) {
  return rootToRsqrt(op, op.getX(), rewriter);
}

// Pattern: div(1, sqrt(x)) -> rsqrt(x), f32 and f64
LogicalResult oneOverSqrt(nn::DivOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (!isConstant(op.getLhs(), 1) || !shapes.same(op, op.getRhs()))
    return failure();
  return rootToRsqrt(op, op.getRhs(), rewriter);
}

// Pattern: and(m, true) -> m; or(m, false) -> m; i1 only
template <class OpTy, bool Neutral>
LogicalResult neutralLogic(OpTy op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (!elementType(op).isInteger(1))
    return failure();
  for (auto [x, neutral] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
    if (isConstant(neutral, Neutral) && succeeded(keepOperand(op, x, rewriter, shapes)))
      return success();
  return failure();
}

// Pattern: and(m, m) -> m; or(m, m) -> m
template <class OpTy>
LogicalResult sameLogic(OpTy op, PatternRewriter &rewriter, ShapeTable &) {
  return op.getLhs() == op.getRhs() ? replaceByExisting(rewriter, op, op.getLhs()) : failure();
}

// Pattern: not(not(x)) -> x; neg(neg(x)) -> x
template <class OpTy>
LogicalResult twice(OpTy op, PatternRewriter &rewriter, ShapeTable &) {
  auto inner = op.getX().template getDefiningOp<OpTy>();
  return inner ? replaceByExisting(rewriter, op, inner.getX()) : failure();
}

// Pattern: where(c, x, x) -> x; where(true, x, y) -> x; where(false, x, y) -> y
LogicalResult decidedWhere(nn::WhereOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (op.getX() == op.getY())
    return keepOperand(op, op.getX(), rewriter, shapes);
  auto condition = constantScalar(op.getCondition());
  if (!condition)
    return failure();
  return keepOperand(op, *condition != 0 ? op.getX() : op.getY(), rewriter, shapes);
}

// Pattern: where(not(c), x, y) -> where(c, y, x)
LogicalResult whereOfNot(nn::WhereOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto inverted = op.getCondition().getDefiningOp<nn::NotOp>();
  if (!inverted)
    return failure();
  Value x = op.getX(), y = op.getY();
  replaceByChanged(rewriter, op, [&](nn::WhereOp changed) { changed->setOperands({inverted.getX(), y, x}); });
  return success();
}

/// Constants rightmost, weights before them, computed values left.
int rightness(Value value) {
  if (value.getDefiningOp<nn::ConstantOp>())
    return 2;
  return isParameter(value) ? 1 : 0;
}

// Pattern: commutative(parameter, x) -> commutative(x, parameter)
LogicalResult sortOperands(Operation *op, PatternRewriter &rewriter, ShapeTable &) {
  if (!op->hasTrait<OpTrait::IsCommutative>() || op->getNumOperands() != 2 ||
      rightness(op->getOperand(0)) <= rightness(op->getOperand(1)))
    return failure();
  Value left = op->getOperand(0), right = op->getOperand(1);
  replaceByChanged(rewriter, op, [&](Operation *changed) { changed->setOperands({right, left}); });
  return success();
}

// Pattern: dim_constant of known integers -> constant
LogicalResult knownDims(nn::DimConstantOp op, PatternRewriter &rewriter, ShapeTable &) {
  SmallVector<Attribute> values;
  for (const Dim &dim : nn::dimsFromAttr(op.getValues())) {
    if (!dim.isStatic())
      return failure();
    values.push_back(rewriter.getIntegerAttr(elementType(op), dim.value()));
  }
  rewriter.replaceOpWithNewOp<nn::ConstantOp>(op, op.getType(),
                                              DenseElementsAttr::get(tensorType(op), values));
  return success();
}

} // namespace

void addArithmetic(RewritePatternSet &patterns, ShapeTable &shapes) {
  add<nn::CastOp>(patterns, shapes, castOfExactCast);
  add<nn::MulOp>(patterns, shapes, mulByOne);
  add<nn::DivOp>(patterns, shapes, divByOne);
  add<nn::AddOp>(patterns, shapes, addNeutral);
  add<nn::SubOp>(patterns, shapes, subZero);
  add<nn::PowOp>(patterns, shapes, namedPower);
  add<nn::MulOp>(patterns, shapes, mulBySelf);
  add<nn::DivOp>(patterns, shapes, dividedSum);
  add<nn::MulOp>(patterns, shapes, scaledSum);
  add<nn::ReciprocalOp>(patterns, shapes, reciprocalOfSqrt);
  add<nn::DivOp>(patterns, shapes, oneOverSqrt);
  add<nn::AndOp>(patterns, shapes, neutralLogic<nn::AndOp, true>);
  add<nn::OrOp>(patterns, shapes, neutralLogic<nn::OrOp, false>);
  add<nn::AndOp>(patterns, shapes, sameLogic<nn::AndOp>);
  add<nn::OrOp>(patterns, shapes, sameLogic<nn::OrOp>);
  add<nn::NotOp>(patterns, shapes, twice<nn::NotOp>);
  add<nn::NegOp>(patterns, shapes, twice<nn::NegOp>);
  add<nn::WhereOp>(patterns, shapes, decidedWhere);
  add<nn::WhereOp>(patterns, shapes, whereOfNot);
  add<nn::DimConstantOp>(patterns, shapes, knownDims);
  addPointwise(patterns, shapes, sortOperands);
}

} // namespace fusion::normalise
