#include "runtime/AlternativePlan.h"

#include <fmt/format.h>

#include <map>

namespace fusion {
namespace {

class AlternativePlan {
public:
  AlternativePlan(const ProgramPlan &whole, const Alternative &alternative) : whole(whole) {
    plan.target = whole.target;
    for (const KernelLaunch &launch : alternative.launches)
      add(launch);
    for (size_t id = 0; id < plan.buffers.size(); ++id) {
      BufferPlan &buffer = plan.buffers[id];
      if (isMade[id] && isRead[id]) // between launches, or in place
        buffer.kind = BufferPlan::Kind::Temporary;
      else if (isMade[id])
        buffer.kind = BufferPlan::Kind::Output;
      else
        plan.inputs.push_back({buffer.name, buffer.type, buffer.shape, static_cast<BufferId>(id)});
    }
  }

  ProgramPlan plan;

private:
  void add(KernelLaunch launch) {
    auto [kernel, isNew] = kernels.try_emplace(launch.kernel, static_cast<uint32_t>(plan.kernels.size()));
    if (isNew)
      plan.kernels.push_back(whole.kernels[launch.kernel]);
    launch.kernel = kernel->second;
    launch.location.clear();
    launch.ops.clear();
    launch.fusion.clear();
    for (KernelArgument &argument : launch.arguments)
      if (BufferId *buffer = bufferOf(argument)) {
        *buffer = place(*buffer);
        (isWritten(argument) ? isMade : isRead)[*buffer] = true;
      }
    plan.add(std::move(launch));
  }

  BufferId place(BufferId id) {
    auto [found, isNew] = buffers.try_emplace(id, static_cast<BufferId>(plan.buffers.size()));
    if (isNew) {
      const BufferPlan &buffer = whole.buffers[id];
      plan.buffers.push_back(
          {BufferPlan::Kind::Input, fmt::format("b{}", found->second), buffer.type, buffer.shape, {}});
      isMade.push_back(false);
      isRead.push_back(false);
    }
    return found->second;
  }

  const ProgramPlan &whole;
  std::map<uint32_t, uint32_t> kernels;
  std::map<BufferId, BufferId> buffers;
  std::vector<bool> isMade, isRead;
};

} // namespace

ProgramPlan planOfAlternative(const ProgramPlan &whole, const Alternative &alternative) {
  return AlternativePlan(whole, alternative).plan;
}

} // namespace fusion
