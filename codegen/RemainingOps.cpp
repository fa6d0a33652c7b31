#include "codegen/RemainingOps.h"

using namespace mlir;

namespace fusion {

/// The ops that something which leaves needs, and the inputs that they read.
static void collect(const Region &whole, const KernelContext &context, ArrayRef<Value> made,
                    RemainingOps &remaining) {
  remaining.region.ops = whole.opsFor(remaining.region.outputs, made);
  llvm::DenseSet<Value> needed(remaining.region.outputs.begin(), remaining.region.outputs.end());
  for (Operation *op : remaining.region.ops)
    needed.insert(op->operand_begin(), op->operand_end());
  for (auto [input, view] : llvm::zip(whole.inputs, context.inputs))
    if (needed.contains(input)) {
      remaining.region.inputs.push_back(input);
      remaining.inputs.push_back(view);
    }
  for (Value value : made)
    if (needed.contains(value)) {
      remaining.region.inputs.push_back(value);
      remaining.inputs.push_back(View::contiguous(value, context.shape(value)));
    }
}

std::variant<RemainingOps, std::string> remainingOpsOf(const Region &region, const KernelContext &context,
                                                       ArrayRef<Value> made, ArrayRef<unsigned> results) {
  RemainingOps remaining;
  remaining.region.anchor = region.anchor;
  remaining.region.pattern = region.pattern;
  remaining.results.assign(results.begin(), results.end());
  for (unsigned index : results) {
    remaining.region.outputs.push_back(region.outputs[index]);
    remaining.outputs.push_back(context.output(index, region.outputs[index]));
  }
  collect(region, context, made, remaining);
  KernelContext after = context;
  after.inputs = remaining.inputs;
  after.outputs = remaining.outputs;
  after.independent = {};
  after.scattered = {};
  std::string reasons;
  for (const Schedule *schedule : context.schedules.inOrderFor(remaining.region)) {
    auto plan = schedule->plan(remaining.region, after);
    if (plan) {
      remaining.schedule = schedule;
      return std::move(remaining);
    }
    reasons += (reasons.empty() ? "" : "; ") + schedule->name().str() + ": " + plan.error().message;
  }
  return std::move(reasons);
}

} // namespace fusion
