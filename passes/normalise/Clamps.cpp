// Clamps and wraps of indices that are in range already, as those of nn.top_k are.
#include "passes/Match.h"
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

/// Bounds of all elements, both included.
struct Range {
  int64_t least, most;
};

std::optional<Range> rangeOf(Value value, int depth = 8) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0 || isFloat(value))
    return std::nullopt;
  if (auto number = constantInteger(value))
    return Range{*number, *number};
  if (auto topK = llvm::dyn_cast<nn::TopKOp>(op)) {
    const auto type = tensorType(topK.getX());
    const auto axis = static_cast<int64_t>(topK.getAxis());
    const int64_t size = type.getDimSize(static_cast<unsigned>(axis < 0 ? axis + type.getRank() : axis));
    return ShapedType::isDynamic(size) ? std::nullopt : std::optional(Range{0, size - 1});
  }
  if (op->hasTrait<nn::View>())
    return rangeOf(op->getOperand(0), depth - 1);
  if (auto cast = llvm::dyn_cast<nn::CastOp>(op);
      cast && isExactCast(elementType(cast.getX()), elementType(cast)))
    return rangeOf(cast.getX(), depth - 1);
  if (!llvm::isa<nn::MaxOp, nn::MinOp>(op))
    return std::nullopt;
  auto left = rangeOf(op->getOperand(0), depth - 1), right = rangeOf(op->getOperand(1), depth - 1);
  if (!left || !right)
    return std::nullopt;
  if (llvm::isa<nn::MaxOp>(op))
    return Range{std::max(left->least, right->least), std::max(left->most, right->most)};
  return Range{std::min(left->least, right->least), std::min(left->most, right->most)};
}

LogicalResult keep(Operation *op, Value value, PatternRewriter &rewriter, ShapeTable &shapes) {
  return shapes.same(op->getResult(0), value) ? replaceByExisting(rewriter, op, value) : failure();
}

// Pattern: max(x, y) -> x where no element of x is below one of y; min(x, y) likewise
template <class OpTy>
LogicalResult idleClamp(OpTy op, PatternRewriter &rewriter, ShapeTable &shapes) {
  constexpr bool isMax = std::is_same_v<OpTy, nn::MaxOp>;
  auto left = rangeOf(op.getLhs()), right = rangeOf(op.getRhs());
  if (!left || !right)
    return failure();
  if (isMax ? left->least >= right->most : left->most <= right->least)
    return keep(op, op.getLhs(), rewriter, shapes);
  if (isMax ? right->least >= left->most : right->most <= left->least)
    return keep(op, op.getRhs(), rewriter, shapes);
  return failure();
}

// Pattern: where(x < y, a, b) -> b where no element of x is below one of y, a where all are
LogicalResult decidedWrap(nn::WhereOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto less = op.getOperand(0).getDefiningOp<nn::LessOp>();
  auto left = less ? rangeOf(less.getLhs()) : std::nullopt,
       right = less ? rangeOf(less.getRhs()) : std::nullopt;
  if (!left || !right)
    return failure();
  if (left->least >= right->most)
    return keep(op, op.getOperand(2), rewriter, shapes);
  return left->most < right->least ? keep(op, op.getOperand(1), rewriter, shapes) : failure();
}

} // namespace

void addClamps(RewritePatternSet &patterns, ShapeTable &shapes) {
  add<nn::MaxOp>(patterns, shapes, idleClamp<nn::MaxOp>);
  add<nn::MinOp>(patterns, shapes, idleClamp<nn::MinOp>);
  add<nn::WhereOp>(patterns, shapes, decidedWrap);
}

} // namespace fusion::normalise
