// The alternatives of a step that sizes choose from.
#include "codegen/PlanBuilder.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

PlanBuilder::Targets PlanBuilder::targetsOf(const Region &part, const Region &region,
                                            const KernelContext &context, llvm::ArrayRef<BufferId> outputs) {
  Targets targets;
  for (Value output : part.outputs) {
    auto place = llvm::find(region.outputs, output);
    if (place == region.outputs.end()) { // the same in each alternative
      auto known = buffers.find(output);
      targets.buffers.push_back(known != buffers.end() ? known->second
                                                       : addBuffer(BufferPlan::Kind::Temporary, output,
                                                                   locationName(region.anchor->getLoc())));
      targets.views.push_back(View::contiguous(output, shapes[output]));
      continue;
    }
    const auto index = static_cast<unsigned>(place - region.outputs.begin());
    targets.buffers.push_back(outputs[index]);
    targets.views.push_back(context.output(index, output));
  }
  return targets;
}

Result<Alternative> PlanBuilder::partLaunch(const PlannedKernel &part, const Region &region,
                                            const KernelContext &context, const Alternative &before,
                                            llvm::ArrayRef<BufferId> outputs) {
  llvm::SmallVector<View> inputs(context.inputs.begin(), context.inputs.end());
  for (Value value : ArrayRef(part.region.inputs).drop_front(region.inputs.size()))
    inputs.push_back(between.at(value));
  const Targets targets = targetsOf(part.region, region, context, outputs);
  llvm::SmallVector<bool> independent(context.independent.begin(), context.independent.end());
  if (!before.launches.empty())
    independent = independentInputs(inputs, before.launches);
  KernelContext own = context;
  own.inputs = inputs;
  own.outputs = targets.views;
  own.independent = independent;
  Result<Alternative> made = part.byLibrary ? launchesOfLibrary(part.region, own, targets.buffers)
                                            : oneLaunch(part.region, own, part.emit, targets.buffers);
  for (auto [value, buffer, view] : llvm::zip(part.region.outputs, targets.buffers, targets.views)) {
    buffers[value] = buffer;
    View seen = view;
    seen.base = value;
    between[value] = seen;
  }
  return made;
}

/// Whether two alternatives launch the same kernels.
static bool sameKernels(const Alternative &one, const Alternative &other) {
  return llvm::equal(one.launches, other.launches,
                     [](const KernelLaunch &a, const KernelLaunch &b) { return a.kernel == b.kernel; });
}

/// Whether two launches compute the same from the same, but for where they write it.
static bool computeAlike(const KernelLaunch &one, const KernelLaunch &other) {
  auto alike = [](const KernelArgument &a, const KernelArgument &b) {
    if (auto *number = std::get_if<ScalarArgument>(&a))
      return std::holds_alternative<ScalarArgument>(b) && number->value == std::get<ScalarArgument>(b).value;
    auto *left = std::get_if<PointerArgument>(&a), *right = std::get_if<PointerArgument>(&b);
    return left && right && left->written == right->written && left->byteOffset == right->byteOffset &&
           (left->written || left->buffer == right->buffer);
  };
  return one.kernel == other.kernel && one.gridX == other.gridX && one.gridY == other.gridY &&
         one.gridZ == other.gridZ && llvm::equal(one.arguments, other.arguments, alike);
}

/// The sizes of both predicates, if these differ in one range and that of `next` begins where the other ends.
static std::optional<Predicate> joined(const Predicate &when, const Predicate &next) {
  if (when.size() != next.size())
    return std::nullopt;
  Predicate both = when;
  size_t different = 0;
  for (auto [range, its] : llvm::zip(both, next)) {
    if (range == its)
      continue;
    if (!(range.size == its.size) || range.most == INT64_MAX || range.most + 1 != its.least)
      return std::nullopt;
    range.most = its.most;
    ++different;
  }
  return different == 1 ? std::optional(both) : std::nullopt;
}

/// Whether some sizes are provably within the range: 197 * batch is never 2 … 4, past + 8 never 1.
static bool canHold(const SizeRange &range) {
  const int64_t factor = range.size.knownFactor();
  if (factor > 1 && range.most / factor * factor < range.least)
    return false;
  return (range.most == INT64_MAX || !(range.size - Dim(range.most) - Dim(1)).knownNonNegative()) &&
         !(Dim(range.least) - Dim(1) - range.size).knownNonNegative();
}

/// Without alternatives that no sizes reach. Their ranges go to a neighbour, so that together the others are
/// still for all sizes; an alternative without such a neighbour stays.
static std::vector<PlannedAlternative> reachable(llvm::ArrayRef<PlannedAlternative> planned) {
  std::vector<PlannedAlternative> kept;
  std::optional<PlannedAlternative> unreached;
  auto together = [](const PlannedAlternative &one, const PlannedAlternative &next) {
    return StringRef(one.variant) == next.variant ? joined(one.when, next.when) : std::nullopt;
  };
  auto keepUnreached = [&] {
    if (auto when = unreached && !kept.empty() ? together(kept.back(), *unreached) : std::nullopt)
      kept.back().when = *when;
    else if (unreached)
      kept.push_back(*unreached);
    unreached.reset();
  };
  for (PlannedAlternative one : planned) {
    const bool isReached = llvm::all_of(one.when, canHold);
    if (auto when = unreached ? together(*unreached, one) : std::nullopt) {
      one.when = *when;
      unreached.reset();
    }
    keepUnreached();
    if (isReached)
      kept.push_back(std::move(one));
    else
      unreached = std::move(one);
  }
  keepUnreached();
  return kept;
}

/// The one buffer that a launch writes, if that is scratch memory.
std::optional<BufferId> PlanBuilder::writtenScratch(const KernelLaunch &launch) const {
  std::optional<BufferId> written;
  for (const KernelArgument &argument : launch.arguments)
    if (isWritten(argument)) {
      const BufferId buffer = *fusion::bufferOf(argument);
      if (written || llvm::none_of(scratch, [&](const auto &entry) { return entry.second == buffer; }))
        return std::nullopt;
      written = buffer;
    }
  return written;
}

void PlanBuilder::shareScratch(Alternative &alternative) const {
  if (alternative.launches.size() < 2)
    return;
  const std::optional<BufferId> own = writtenScratch(alternative.launches.front());
  if (!own)
    return;
  for (const Step &step : *steps) {
    if (step.choice != Step::Choice::Predicate)
      continue;
    for (const Alternative &earlier : step.alternatives) {
      if (earlier.when != alternative.when ||
          !computeAlike(earlier.launches.front(), alternative.launches.front()))
        continue;
      const std::optional<BufferId> known = writtenScratch(earlier.launches.front());
      alternative.launches.erase(alternative.launches.begin());
      for (KernelLaunch &launch : alternative.launches)
        for (KernelArgument &argument : launch.arguments)
          if (BufferId *buffer = fusion::bufferOf(argument); buffer && *buffer == *own)
            *buffer = *known;
      return;
    }
  }
}

Result<std::vector<Alternative>> PlanBuilder::alternativesOf(const Region &region,
                                                             const KernelContext &context,
                                                             llvm::ArrayRef<PlannedAlternative> planned,
                                                             llvm::ArrayRef<BufferId> outputs,
                                                             std::vector<KernelEmitter> *emitters) {
  std::vector<Alternative> alternatives;
  std::vector<bool> keepScratch;
  for (const PlannedAlternative &one : reachable(planned)) {
    Alternative made;
    for (const PlannedKernel &kernel : one.kernels) {
      Result<Alternative> part = one.kernels.size() == 1 ? oneLaunch(region, context, kernel.emit, outputs)
                                                         : partLaunch(kernel, region, context, made, outputs);
      if (!part)
        return part.error();
      llvm::move(part->launches, std::back_inserter(made.launches));
      made.collective = part->collective;
    }
    made.when = one.when;
    made.variant = one.variant;
    const bool areSame = !alternatives.empty() && alternatives.back().variant == made.variant &&
                         sameKernels(alternatives.back(), made);
    const auto when = areSame ? joined(alternatives.back().when, made.when) : std::nullopt;
    if (when) { // the same for larger sizes
      alternatives.back().when = *when;
    } else {
      alternatives.push_back(std::move(made));
      keepScratch.push_back(one.keepsScratch);
      if (emitters)
        emitters->push_back(one.kernels.size() == 1 ? one.kernels.front().emit : KernelEmitter());
    }
  }
  if (alternatives.size() == 1)
    alternatives.front().when.clear();
  for (size_t i = 0; i < alternatives.size(); ++i)
    if (keepScratch[i])
      shareScratch(alternatives[i]);
  return alternatives;
}

} // namespace fusion
