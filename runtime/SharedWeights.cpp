#include "runtime/SharedWeights.h"

#include "ir/base/Hash.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

/// Steps that write to one of `wanted` or to what such a step reads, in their order.
static std::vector<Step> stepsFor(const std::vector<Step> &steps, std::set<BufferId> wanted) {
  std::vector<Step> needed;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    std::set<BufferId> touched;
    bool isNeeded = false;
    for (const Alternative &alternative : step->alternatives)
      for (const KernelLaunch &launch : alternative.launches)
        for (const KernelArgument &argument : launch.arguments)
          if (const BufferId *buffer = bufferOf(argument)) {
            touched.insert(*buffer);
            isNeeded |= isWritten(argument) && wanted.contains(*buffer);
          }
    if (!isNeeded)
      continue;
    wanted.merge(touched);
    needed.push_back(*step);
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

void keepResults(ProgramPlan &preparation, const std::set<BufferId> &wanted) {
  preparation.steps = stepsFor(preparation.steps, wanted);
  std::erase_if(preparation.outputs, [&](const PortPlan &port) {
    const bool goes = !wanted.contains(port.buffer);
    if (goes)
      preparation.buffers[port.buffer].kind = BufferPlan::Kind::Temporary;
    return goes;
  });
}

/// The buffer and what prepares it as a program whose text is the same in every plan that has it: numbers in
/// the order of their first use, no names.
static ProgramPlan originOf(const ProgramPlan &plan, BufferId buffer) {
  ProgramPlan origin;
  origin.target = plan.target;
  std::map<BufferId, BufferId> buffers;
  auto numberOf = [&](BufferId id) {
    auto [place, isNew] = buffers.try_emplace(id, static_cast<BufferId>(origin.buffers.size()));
    if (isNew)
      origin.buffers.emplace_back(plan.buffers[id]).name.clear();
    return place->second;
  };
  std::map<uint32_t, uint32_t> kernels;
  numberOf(buffer);
  if (plan.buffers[buffer].kind == BufferPlan::Kind::Prepared)
    origin.steps = stepsFor(plan.preparation, {buffer});
  for (KernelLaunch *launch : origin.launches()) {
    auto [place, isNew] = kernels.try_emplace(launch->kernel, static_cast<uint32_t>(origin.kernels.size()));
    if (isNew)
      origin.kernels.push_back(plan.kernels[launch->kernel]);
    launch->kernel = place->second;
    launch->location.clear();
    launch->fusion.clear();
    launch->ops.clear();
    for (KernelArgument &argument : launch->arguments)
      if (BufferId *id = bufferOf(argument))
        *id = numberOf(*id);
  }
  return origin;
}

/// What names the contents of a buffer; empty for one that is no weight.
static std::string contentsOf(const ProgramPlan &plan, BufferId id, int rank) {
  const BufferPlan::Kind kind = plan.buffers[id].kind;
  if (kind != BufferPlan::Kind::Weight && kind != BufferPlan::Kind::Prepared)
    return {};
  return fmt::format("{} {}", rank, contentHash(toJson(originOf(plan, id))));
}

std::vector<SharedWeights::Place> SharedWeights::find(const ProgramPlan &plan, int rank) const {
  std::vector<Place> places(plan.buffers.size());
  std::lock_guard lock(mutex);
  if (!known.empty())
    for (BufferId id = 0; id < plan.buffers.size(); ++id)
      if (auto found = known.find(contentsOf(plan, id, rank)); found != known.end())
        if (auto owner = found->second.owner.lock())
          places[id] = {found->second.address, std::move(owner)};
  return places;
}

void SharedWeights::add(const ProgramPlan &plan, int rank, const std::vector<Place> &places) {
  std::lock_guard lock(mutex);
  for (BufferId id = 0; id < plan.buffers.size(); ++id)
    if (std::string contents = places[id].address ? contentsOf(plan, id, rank) : ""; !contents.empty())
      known[contents] = {places[id].address, places[id].owner};
}

} // namespace fusion
