#include "codegen/schedule/PlannedParts.h"

using namespace mlir;

namespace fusion {

KernelContext PlannedPart::contextIn(const KernelContext &context) const {
  KernelContext own = context;
  own.inputs = inputs;
  own.outputs = outputs;
  own.independent = {};
  return own;
}

std::optional<std::string> PlannedPart::make(const Region &part, const Region &whole,
                                             const Schedule &schedule, const KernelContext &context) {
  if (part.ops.empty())
    return std::nullopt;
  auto viewOf = [&](Value value) {
    auto place = llvm::find(whole.outputs, value);
    const auto index = static_cast<unsigned>(place - whole.outputs.begin());
    return place == whole.outputs.end() ? View::contiguous(value, context.shape(value))
                                        : context.output(index, value);
  };
  region = &part;
  inputs.assign(context.inputs.begin(), context.inputs.end());
  for (Value value : ArrayRef(part.inputs).drop_front(whole.inputs.size()))
    inputs.push_back(viewOf(value));
  for (Value value : part.outputs)
    outputs.push_back(viewOf(value));
  auto made = schedule.plan(part, contextIn(context));
  if (!made)
    return schedule.name().str() + ": " + made.error().message;
  if (made->updatedInput)
    return std::string("a part that updates an input");
  plan = std::move(*made);
  return std::nullopt;
}

std::vector<PlannedAlternative> PlannedPart::alternatives() const {
  if (!plan)
    return {PlannedAlternative{}};
  return plan->alternatives(*region);
}

std::optional<Predicate> both(const Predicate &one, const Predicate &other) {
  Predicate when = one;
  for (const SizeRange &range : other) {
    auto same = llvm::find_if(when, [&](const SizeRange &its) { return its.size == range.size; });
    if (same == when.end()) {
      when.push_back(range);
      continue;
    }
    same->least = std::max(same->least, range.least);
    same->most = std::min(same->most, range.most);
    if (same->least > same->most)
      return std::nullopt;
  }
  return when;
}

std::vector<PlannedAlternative> oneAfterTheOther(llvm::ArrayRef<PlannedAlternative> first,
                                                 llvm::ArrayRef<PlannedAlternative> second) {
  std::vector<PlannedAlternative> all;
  for (const PlannedAlternative &one : first)
    for (const PlannedAlternative &next : second)
      if (auto when = both(one.when, next.when)) {
        PlannedAlternative &made = all.emplace_back(one);
        made.when = *when;
        if (llvm::StringRef(made.variant).empty())
          made.variant = next.variant;
        llvm::append_range(made.kernels, next.kernels);
      }
  return all;
}

} // namespace fusion
