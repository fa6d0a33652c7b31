#include "api/Program.h"

#include "api/ExecutionBackend.h"
#include "api/KernelFiles.h"

namespace fusion {

Result<NamedTensors> Program::run(const NamedTensors &inputs, Results where) {
  auto chosen = shared->variants->choose(inputs);
  if (!chosen)
    return chosen.error();
  auto outputs = (*chosen)->run(chosen->inputs(), where);
  if (where == Results::Queued)
    chosen->isQueued();
  return outputs;
}

Result<NamedTensors> Program::enqueue(const NamedTensors &inputs, void *stream) {
  auto chosen = shared->variants->choose(inputs, stream);
  if (!chosen)
    return chosen.error();
  auto outputs = (*chosen)->enqueue(chosen->inputs(), stream);
  chosen->isQueued();
  return outputs;
}

Result<NamedTensors> Program::fetch(const NamedTensors &tensors) { return shared->variants->fetch(tensors); }
Result<NamedTensors> Program::place(const NamedTensors &tensors) { return shared->variants->place(tensors); }

Result<std::vector<double>> Program::bench(const NamedTensors &inputs, int iterations, bool cold) {
  auto chosen = shared->variants->choose(inputs);
  return chosen ? (*chosen)->bench(chosen->inputs(), iterations, cold) : chosen.error();
}

Result<Profile> Program::profile(const NamedTensors &inputs) {
  auto chosen = shared->variants->choose(inputs);
  return chosen ? (*chosen)->profile(chosen->inputs()) : chosen.error();
}

RunStatistics Program::statistics() const { return shared->variants->statistics(); }

std::vector<Program::Cache> Program::caches() const {
  std::vector<Cache> caches;
  const ProgramPlan *plan = shared->variants->first().plan();
  if (!plan)
    return caches;
  for (const PortPlan &input : plan->inputs)
    for (const PortPlan &output : plan->outputs)
      if (!input.strides.empty() && !output.strides.empty() && input.buffer == output.buffer)
        caches.push_back({input.name, output.name});
  return caches;
}

const Report &Program::report() const { return shared->variants->report(); }
const std::vector<Port> &Program::inputs() const { return shared->inputs; }
const std::vector<Port> &Program::outputs() const { return shared->outputs; }
std::string Program::device() const { return shared->variants->first().device(); }
int Program::rank() const { return shared->variants->first().rank(); }

std::string Program::cudaSource() const {
  const ProgramPlan *plan = shared->variants->first().plan();
  return plan ? compilableSource(*plan) : std::string();
}

} // namespace fusion
