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

/// The ops behind the sum that something which leaves needs, and the inputs that they read.
static void collectRest(const Region &region, const KernelContext &context, LibrarySum &split) {
  Region &rest = split.rest;
  rest.anchor = region.anchor;
  rest.pattern = region.pattern;
  llvm::DenseSet<Value> needed(rest.outputs.begin(), rest.outputs.end());
  for (Operation *op : llvm::reverse(region.ops))
    if (op != split.sum && llvm::any_of(op->getResults(), [&](Value result) { return needed.contains(result); })) {
      rest.ops.insert(rest.ops.begin(), op);
      needed.insert(op->operand_begin(), op->operand_end());
    }
  for (auto [input, view] : llvm::zip(region.inputs, context.inputs))
    if (needed.contains(input)) {
      rest.inputs.push_back(input);
      split.inputs.push_back(view);
    }
  if (needed.contains(split.sum.getY())) {
    rest.inputs.push_back(split.sum.getY());
    split.inputs.push_back(View::contiguous(split.sum.getY(), context.shape(split.sum.getY())));
  }
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
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    const unsigned number = static_cast<unsigned>(index);
    View target = context.output(number, output);
    if (output == total && !split.output && target == View::contiguous(target.base, context.shape(output))) {
      split.output = number;
      continue;
    }
    split.rest.outputs.push_back(output);
    split.outputs.push_back(std::move(target));
    split.restOutputs.push_back(number);
  }
  if (split.rest.outputs.empty())
    return std::move(split);
  collectRest(region, context, split);
  KernelContext behind = context;
  behind.inputs = split.inputs;
  behind.outputs = split.outputs;
  behind.settled = {};
  std::string reasons;
  for (const Schedule *schedule : schedulesFor(split.rest)) {
    auto reason = schedule->refuses(split.rest, behind);
    if (!reason) {
      split.schedule = schedule;
      return std::move(split);
    }
    reasons += (reasons.empty() ? "" : "; ") + schedule->name().str() + ": " + *reason;
  }
  return "behind the sum, " + reasons;
}

} // namespace fusion
