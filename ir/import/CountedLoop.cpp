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
using Comparisons = llvm::SmallVector<Comparison>;

/// A number from `start` on that grows by `by` in each step, and is compared with `limit`.
struct Count {
  Dim start, limit;
  int64_t by = 1;
  bool isBehind = false; ///< it is compared as it was before it grew
  Dim steps() const { return Dim::max(limit - start, Dim(0)).ceilDiv(Dim(by)) + Dim(isBehind ? 1 : 0); }
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

class Counting {
public:
  explicit Counting(const CountingStep &step) : step(step) {}

  /// Those that hold where `condition` does, or nothing.
  std::optional<Comparisons> comparisonsOf(Value condition) const {
    Operation *op = bare(condition).getDefiningOp();
    if (!op || op->getNumOperands() != 2)
      return std::nullopt;
    if (llvm::isa<nn::AndOp>(op)) {
      auto some = comparisonsOf(op->getOperand(0)), others = comparisonsOf(op->getOperand(1));
      if (!some || !others)
        return std::nullopt;
      some->append(*others);
      return some;
    }
    const bool isLess = llvm::isa<nn::LessOp, nn::LessEqualOp>(op);
    if (!isLess && !llvm::isa<nn::GreaterOp, nn::GreaterEqualOp>(op))
      return std::nullopt;
    auto limit = sizeOf(op->getOperand(isLess ? 1 : 0));
    if (!limit)
      return std::nullopt;
    const bool isStrict = llvm::isa<nn::LessOp, nn::GreaterOp>(op);
    return Comparisons{{op->getOperand(isLess ? 0 : 1), isStrict ? *limit : *limit + Dim(1)}};
  }

  std::optional<Count> countOf(const Comparison &comparison) const {
    const Value small = bare(comparison.small);
    if (small == step.index)
      return Count{Dim(0), comparison.limit, 1, true};
    for (const CountingStep::State &state : step.states) {
      const auto by = growth(state.next, state.inside);
      const auto start = by ? sizeThroughFloats(state.initial) : std::nullopt;
      if (start && small == state.inside)
        return Count{*start, comparison.limit, *by, true};
      if (start && growth(small, state.inside) == by)
        return Count{*start, comparison.limit, *by};
    }
    return std::nullopt;
  }

private:
  /// Also of a state that stays what it is.
  std::optional<Dim> sizeOf(Value value) const {
    for (const CountingStep::State &state : step.states)
      if (bare(value) == state.inside && bare(state.next) == state.inside)
        return sizeThroughFloats(state.initial);
    return sizeThroughFloats(value);
  }

  /// What is added to `state` to make `next`, if that is a positive integer and nothing else is done.
  static std::optional<int64_t> growth(Value next, Value state) {
    auto add = bare(next).getDefiningOp<nn::AddOp>();
    if (!add)
      return std::nullopt;
    for (unsigned i = 0; i < 2; ++i)
      if (bare(add->getOperand(i)) == state)
        if (auto by = sizeThroughFloats(add->getOperand(1 - i)); by && by->isStatic() && by->value() > 0)
          return by->value();
    return std::nullopt;
  }

  const CountingStep &step;
};

} // namespace

std::optional<Dim> countedSteps(const CountingStep &step) {
  const Counting counting(step);
  const auto comparisons = counting.comparisonsOf(step.goesOn);
  if (!comparisons)
    return std::nullopt;
  std::optional<Dim> steps;
  llvm::SmallVector<Count> fromStart; // which say of the first step, too, whether there is one
  for (const Comparison &comparison : *comparisons) {
    const auto count = counting.countOf(comparison);
    if (!count)
      return std::nullopt;
    steps = steps ? Dim::min(*steps, count->steps()) : count->steps();
    if (!count->isBehind)
      fromStart.push_back(*count);
  }
  if (!step.first)
    return Dim::max(*steps, Dim(1));
  const auto before = counting.comparisonsOf(step.first);
  auto isAsked = [&](const Count &count) {
    return llvm::any_of(*before, [&](const Comparison &asked) {
      const auto small = sizeThroughFloats(asked.small);
      return small && *small == count.start && asked.limit == count.limit;
    });
  };
  auto isCounted = [&](const Comparison &asked) {
    const auto small = sizeThroughFloats(asked.small);
    return small && llvm::any_of(fromStart, [&](const Count &count) {
             return *small == count.start && asked.limit == count.limit;
           });
  };
  return before && llvm::all_of(fromStart, isAsked) && llvm::all_of(*before, isCounted) ? steps
                                                                                        : std::nullopt;
}

} // namespace fusion::onnx
