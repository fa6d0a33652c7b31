#include "codegen/LibrarySum.h"

using namespace mlir;

namespace fusion {

/// The view of a value that the region only looks at, not computes.
static std::optional<View> viewWithin(const Region &region, const KernelContext &context, Value value) {
  if (auto input = llvm::find(region.inputs, value); input != region.inputs.end())
    return context.inputs[static_cast<size_t>(input - region.inputs.begin())];
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumOperands() == 0)
    return std::nullopt;
  auto source = viewWithin(region, context, op->getOperand(0));
  return source ? viewThrough(op, *source, context.shapes) : std::nullopt;
}

std::variant<LibrarySum, std::string> splitSum(const Region &region, const KernelContext &context) {
  LibrarySum split;
  for (Operation *op : region.ops)
    if (auto sum = dyn_cast<nn::AllReduceOp>(op))
      split.sum = sum;
  Value total = split.sum.getY();
  std::optional<View> addend = viewWithin(region, context, split.sum.getX());
  if (!addend)
    return std::string("nn.all_reduce of what the same kernel computes");
  split.addend = std::move(*addend);
  SmallVector<unsigned> others;
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    const unsigned number = static_cast<unsigned>(index);
    const View target = context.output(number, output);
    if (output == total && !split.output && target == View::contiguous(target.base, context.shape(output)))
      split.output = number;
    else
      others.push_back(number);
  }
  if (others.empty())
    return std::move(split);
  auto remaining = remainingOpsOf(region, context, total, others);
  if (auto *reason = std::get_if<std::string>(&remaining))
    return "after the sum, " + *reason;
  split.remaining = std::get<RemainingOps>(std::move(remaining));
  return std::move(split);
}

} // namespace fusion
