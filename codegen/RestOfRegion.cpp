#include "codegen/RestOfRegion.h"

using namespace mlir;

namespace fusion {

/// The ops that something which leaves needs, and the inputs that they read.
static void collect(const Region &whole, const KernelContext &context, ArrayRef<Value> made, Rest &rest) {
  llvm::DenseSet<Value> needed(rest.region.outputs.begin(), rest.region.outputs.end());
  for (Operation *op : llvm::reverse(whole.ops)) {
    auto isNeeded = [&](Value result) { return needed.contains(result) && !llvm::is_contained(made, result); };
    if (llvm::none_of(op->getResults(), isNeeded))
      continue;
    rest.region.ops.insert(rest.region.ops.begin(), op);
    needed.insert(op->operand_begin(), op->operand_end());
  }
  for (auto [input, view] : llvm::zip(whole.inputs, context.inputs))
    if (needed.contains(input)) {
      rest.region.inputs.push_back(input);
      rest.inputs.push_back(view);
    }
  for (Value value : made)
    if (needed.contains(value)) {
      rest.region.inputs.push_back(value);
      rest.inputs.push_back(View::contiguous(value, context.shape(value)));
    }
}

std::variant<Rest, std::string> restOf(const Region &region, const KernelContext &context, ArrayRef<Value> made,
                                       ArrayRef<unsigned> results) {
  Rest rest;
  rest.region.anchor = region.anchor;
  rest.region.pattern = region.pattern;
  rest.results.assign(results.begin(), results.end());
  for (unsigned index : results) {
    rest.region.outputs.push_back(region.outputs[index]);
    rest.outputs.push_back(context.output(index, region.outputs[index]));
  }
  collect(region, context, made, rest);
  KernelContext behind = context;
  behind.inputs = rest.inputs;
  behind.outputs = rest.outputs;
  behind.settled = {};
  std::string reasons;
  for (const Schedule *schedule : schedulesFor(rest.region)) {
    auto reason = schedule->refuses(rest.region, behind);
    if (!reason) {
      rest.schedule = schedule;
      return std::move(rest);
    }
    reasons += (reasons.empty() ? "" : "; ") + schedule->name().str() + ": " + *reason;
  }
  return std::move(reasons);
}

} // namespace fusion
