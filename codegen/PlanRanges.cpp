// The launches of one op or group where a run's sizes decide which of them are made.
#include "codegen/PlanBuilder.h"

#include "ir/dialect/Types.h"

#include <utility>

using namespace mlir;

namespace fusion {

PlanBuilder::Targets PlanBuilder::targetsOf(const Region &step, const Region &region, const KernelContext &context,
                                            llvm::ArrayRef<BufferId> outputs) {
  Targets targets;
  for (Value output : step.outputs) {
    auto place = llvm::find(region.outputs, output);
    if (place == region.outputs.end()) {
      targets.buffers.push_back(
          addBuffer(BufferPlan::Kind::Temporary, output, locationName(region.anchor->getLoc())));
      targets.views.push_back(View::contiguous(output, shapes[output]));
      continue;
    }
    const auto index = static_cast<unsigned>(place - region.outputs.begin());
    targets.buffers.push_back(outputs[index]);
    targets.views.push_back(context.output(index, output));
  }
  return targets;
}

Status PlanBuilder::emitRanges(const Region &region, const KernelContext &context, const Schedule &schedule,
                               llvm::ArrayRef<SizeRange> ranges, llvm::ArrayRef<BufferId> outputs) {
  auto within = [](KernelContext context, const SizeRange &range) {
    context.range = &range;
    return context;
  };
  std::optional<Steps> steps;
  auto split = llvm::find_if(ranges, [&](const SizeRange &range) {
    steps = schedule.steps(region, within(context, range));
    return steps.has_value();
  });
  KernelContext behind = context; // the first step
  llvm::SmallVector<View> inputs(context.inputs.begin(), context.inputs.end());
  Targets targets;
  llvm::SmallVector<bool> settled;
  if (steps) {
    Targets made = targetsOf(steps->first, region, context, outputs);
    const SizeRange larger{split->size, split->least, INT64_MAX};
    KernelContext first = within(context, larger);
    first.outputs = made.views;
    if (Status status = emitOne(steps->first, first, *steps->firstBy, made.buffers); !status)
      return status;
    plan.launches.back().when = larger;
    plan.launches.back().ahead = true;
    for (Value value : ArrayRef(steps->second.inputs).drop_front(inputs.size())) {
      const auto place = llvm::find(steps->first.outputs, value) - steps->first.outputs.begin();
      buffers[value] = made.buffers[static_cast<size_t>(place)];
      inputs.push_back(made.views[static_cast<size_t>(place)]);
      inputs.back().base = value;
    }
    targets = targetsOf(steps->second, region, context, outputs);
    const size_t planned = std::exchange(lastPlanned, plan.launches.size() - 1);
    settled = settledInputs(inputs);
    lastPlanned = planned;
    behind.inputs = inputs;
    behind.outputs = targets.views;
    behind.settled = settled;
  }
  for (const SizeRange &range : ranges) {
    const bool isSecond = steps && range.least >= split->least;
    Status status = isSecond ? emitOne(steps->second, within(behind, range), schedule, targets.buffers)
                             : emitOne(region, within(context, range), schedule, outputs);
    if (!status)
      return status;
    // Ranges whose kernels turned out the same are one.
    KernelLaunch &made = plan.launches.back();
    if (range.least > ranges.front().least && made.kernel == plan.launches.end()[-2].kernel) {
      plan.launches.end()[-2].when->most = range.most;
      plan.launches.pop_back();
    } else {
      made.when = range;
    }
  }
  if (std::optional<SizeRange> &when = plan.launches.back().when; when->least == ranges.front().least)
    when.reset(); // one for all
  return {};
}

} // namespace fusion
