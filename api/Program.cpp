#include "api/Program.h"

#include "api/KernelFiles.h"

namespace fusion {

Result<NamedTensors> Program::run(const NamedTensors &inputs, Results where) {
  if (Status status = checkIndices(shared->indexLimits, shared->indexPorts, inputs); !status)
    return status.error();
  return shared->backend->run(inputs, where);
}

Result<NamedTensors> Program::enqueue(const NamedTensors &inputs, void *stream) {
  if (Status status = checkIndices(shared->indexLimits, shared->indexPorts, inputs); !status)
    return status.error();
  return shared->backend->enqueue(inputs, stream);
}

Result<NamedTensors> Program::fetch(const NamedTensors &tensors) { return shared->backend->fetch(tensors); }

Result<std::vector<double>> Program::bench(const NamedTensors &inputs, int iterations, bool cold) {
  return shared->backend->bench(inputs, iterations, cold);
}

Result<Profile> Program::profile(const NamedTensors &inputs) { return shared->backend->profile(inputs); }

RunStatistics Program::statistics() const { return shared->backend->statistics(); }

std::vector<Program::Cache> Program::caches() const {
  std::vector<Cache> caches;
  const ProgramPlan *plan = shared->backend->plan();
  if (!plan)
    return caches;
  for (const PortPlan &input : plan->inputs)
    for (const PortPlan &output : plan->outputs)
      if (!input.strides.empty() && !output.strides.empty() && input.buffer == output.buffer)
        caches.push_back({input.name, output.name});
  return caches;
}

const Report &Program::report() const { return shared->report; }
const std::vector<Port> &Program::inputs() const { return shared->inputs; }
const std::vector<Port> &Program::outputs() const { return shared->outputs; }
std::string Program::device() const { return shared->backend->device(); }
int Program::rank() const { return shared->backend->rank(); }

std::string Program::cudaSource() const {
  const ProgramPlan *plan = shared->backend->plan();
  return plan ? compilableSource(*plan) : std::string();
}

} // namespace fusion
