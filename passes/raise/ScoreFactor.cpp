#include "passes/raise/ScoreFactor.h"

using namespace mlir;

namespace fusion::raise {

/// `factor` has one number for each row of scores of shape `rows`, at most.
static bool isPerRow(const DimShape &factor, const DimShape &rows) {
  if (factor.empty())
    return true;
  if (factor.size() > rows.size() || !(factor.back() == Dim(1)) || rows.back() == Dim(1))
    return false;
  const size_t ahead = rows.size() - factor.size();
  for (size_t i = 0; i + 1 < factor.size(); ++i)
    if (!(factor[i] == Dim(1)) && !(factor[i] == rows[ahead + i]))
      return false;
  return true;
}

std::optional<ScoreFactor> matchScoreFactor(Value value, ShapeTable &shapes) {
  Operation *op = value.getDefiningOp();
  if (!llvm::isa_and_nonnull<nn::MulOp, nn::DivOp>(op))
    return std::nullopt;
  const Value left = op->getOperand(0), right = op->getOperand(1);
  if (isPerRow(shapes.of(right), shapes.of(left)))
    return ScoreFactor{left, right, llvm::isa<nn::DivOp>(op)};
  if (llvm::isa<nn::MulOp>(op) && isPerRow(shapes.of(left), shapes.of(right)))
    return ScoreFactor{right, left};
  return std::nullopt;
}

Value withScoreFactor(Value query, const ScoreFactor &factor, Raiser &raiser) {
  auto &b = raiser.rewriter;
  const Location location = query.getLoc();
  const Type type = elementType(query), wide = elementType(factor.factor);
  auto cast = [&](Value x, Type to) {
    return elementType(x) == to ? x : Value(nn::build<nn::CastOp>(b, location, x, {}, to));
  };
  const SmallVector<Value, 2> operands{cast(query, wide), factor.factor};
  const Value scaled = factor.divides ? Value(nn::build<nn::DivOp>(b, location, operands))
                                      : Value(nn::build<nn::MulOp>(b, location, operands));
  return cast(scaled, type);
}

} // namespace fusion::raise
