// Questions to the launches of a plan.
#include "codegen/plan/ProgramPlan.h"

#include <algorithm>

namespace fusion {

const BufferId *bufferOf(const KernelArgument &argument) {
  if (auto *pointer = std::get_if<PointerArgument>(&argument))
    return &pointer->buffer;
  if (auto *map = std::get_if<TensorMapArgument>(&argument))
    return &map->buffer;
  return nullptr;
}

BufferId *bufferOf(KernelArgument &argument) {
  return const_cast<BufferId *>(bufferOf(static_cast<const KernelArgument &>(argument)));
}

bool isWritten(const KernelArgument &argument) {
  if (auto *pointer = std::get_if<PointerArgument>(&argument))
    return pointer->written;
  auto *map = std::get_if<TensorMapArgument>(&argument);
  return map && map->written;
}

std::string_view variantName(const Alternative &alternative) {
  static constexpr std::string_view algorithms[] = {"one-shot", "two-shot", "library"};
  return alternative.collective ? algorithms[static_cast<size_t>(alternative.collective->algorithm)]
                                : std::string_view(alternative.variant);
}

std::vector<const KernelLaunch *> ProgramPlan::launches() const {
  std::vector<const KernelLaunch *> all;
  for (const Step &step : steps)
    for (const Alternative &alternative : step.alternatives) {
      for (const KernelLaunch &launch : alternative.launches)
        all.push_back(&launch);
      if (alternative.linked)
        all.push_back(&*alternative.linked);
    }
  return all;
}

std::vector<Dim> sizesOf(const Step &step) {
  std::vector<Dim> sizes;
  for (const Alternative &alternative : step.alternatives)
    for (const SizeRange &range : alternative.when)
      if (std::find(sizes.begin(), sizes.end(), range.size) == sizes.end())
        sizes.push_back(range.size);
  return sizes;
}

std::vector<KernelLaunch *> ProgramPlan::launches() {
  std::vector<KernelLaunch *> all;
  for (const KernelLaunch *launch : std::as_const(*this).launches())
    all.push_back(const_cast<KernelLaunch *>(launch));
  return all;
}

std::vector<uint32_t> kernelsAt(const ProgramPlan &plan, const SymbolValues &symbols) {
  std::vector<uint32_t> kernels;
  for (const Step &step : plan.steps) {
    auto holds = [&](uint32_t alternative) {
      const Predicate &when = step.alternatives[alternative].when;
      return std::all_of(when.begin(), when.end(), [&](const SizeRange &range) {
        const Result<int64_t> size = range.size.evaluate(symbols);
        return size && range.holds(*size);
      });
    };
    for (const uint32_t candidate : candidates(step, holds)) {
      const Alternative &alternative = step.alternatives[candidate];
      for (const KernelLaunch &launch : alternative.launches)
        kernels.push_back(launch.kernel);
      if (alternative.linked)
        kernels.push_back(alternative.linked->kernel);
    }
  }
  return kernels;
}

ProgramPlan preparationOf(const ProgramPlan &plan) {
  ProgramPlan made = plan;
  made.steps = std::move(made.preparation);
  made.preparation.clear();
  made.repetitions.clear();
  made.inputs.clear();
  made.outputs.clear();
  made.equalities.clear();
  for (BufferId id = 0; id < made.buffers.size(); ++id) {
    BufferPlan &buffer = made.buffers[id];
    if (buffer.kind == BufferPlan::Kind::Prepared) {
      buffer.kind = BufferPlan::Kind::Output;
      made.outputs.push_back({std::to_string(id), buffer.type, buffer.shape, id});
    } else if (buffer.kind != BufferPlan::Kind::Weight) {
      buffer.kind = BufferPlan::Kind::Temporary;
      if (!std::ranges::all_of(buffer.shape, &Dim::isStatic))
        buffer.shape = {0}; // of a run
    }
  }
  return made;
}

void ProgramPlan::add(KernelLaunch launch) {
  Alternative &only = steps.emplace_back().alternatives.emplace_back();
  only.launches.push_back(std::move(launch));
}

int64_t ProgramPlan::launchesOfRun() const {
  int64_t count = 0;
  for (const Step &step : steps)
    count += static_cast<int64_t>(step.alternatives.front().launches.size());
  return count;
}

} // namespace fusion
