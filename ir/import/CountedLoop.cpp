#include "ir/import/CountedLoop.h"

#include "ir/import/FloatSizes.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// small < limit.
struct Comparison {
  Value small;
  Dim limit;
};

/// Without casts and reshapes, which keep small integers.
Value bare(Value value) {
  while (Operation *op = value.getDefiningOp())
    if (llvm::isa<nn::CastOp, nn::ReshapeOp>(op))
      value = op->getOperand(0);
    else
      break;
  return value;
}

std::optional<Comparison> comparisonOf(Value condition) {
  Operation *op = bare(condition).getDefiningOp();
  if (!op || op->getNumOperands() != 2)
    return std::nullopt;
  const bool isLess = llvm::isa<nn::LessOp, nn::LessEqualOp>(op);
  if (!isLess && !llvm::isa<nn::GreaterOp, nn::GreaterEqualOp>(op))
    return std::nullopt;
  auto limit = sizeThroughFloats(op->getOperand(isLess ? 1 : 0));
  if (!limit)
    return std::nullopt;
  const bool isStrict = llvm::isa<nn::LessOp, nn::GreaterOp>(op);
  return Comparison{op->getOperand(isLess ? 0 : 1), isStrict ? *limit : *limit + Dim(1)};
}

/// What is added to `state` to make `next`, if that is a positive integer and nothing else is done.
std::optional<int64_t> growth(Value next, Value state) {
  auto add = bare(next).getDefiningOp<nn::AddOp>();
  if (!add)
    return std::nullopt;
  for (unsigned i = 0; i < 2; ++i)
    if (bare(add->getOperand(i)) == state)
      if (auto by = sizeThroughFloats(add->getOperand(1 - i)); by && by->isStatic() && by->value() > 0)
        return by->value();
  return std::nullopt;
}

} // namespace

std::optional<Dim> countedSteps(const CountingStep &step) {
  const auto after = comparisonOf(step.goesOn);
  if (!after)
    return std::nullopt;
  for (auto [state, next, initial] : llvm::zip(step.states, step.next, step.initial)) {
    const auto by = growth(next, state);
    const auto start = by ? sizeThroughFloats(initial) : std::nullopt;
    if (!start || growth(after->small, state) != by)
      continue;
    const Dim count = Dim::max(after->limit - *start, Dim(0)).ceilDiv(Dim(*by));
    if (!step.first)
      return Dim::max(count, Dim(1));
    const auto before = comparisonOf(step.first);
    const auto small = before ? sizeThroughFloats(before->small) : std::nullopt;
    if (small && *small == *start && before->limit == after->limit)
      return count;
  }
  return std::nullopt;
}

} // namespace fusion::onnx
