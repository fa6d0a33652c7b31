#include "runtime/api/Program.h"

#include "codegen/plan/Print.h"

#include <nlohmann/json.hpp>

#include <chrono>

namespace fusion {

Result<NamedTensors> Program::run(const NamedTensors &inputs) {
  if (shared->group)
    return shared->group->run(inputs);
  if (shared->process)
    return shared->process->run(inputs);
  return shared->executor ? shared->executor->run(inputs) : shared->reference(inputs);
}

Result<NamedTensors> Program::enqueue(const NamedTensors &inputs, void *stream) {
  if (shared->group || shared->process)
    return badInput("a stream belongs to one GPU: a program for several runs with run()");
  return shared->executor ? shared->executor->enqueue(inputs, stream) : shared->reference(inputs);
}

Result<NamedTensors> Program::fetch(const NamedTensors &tensors) {
  if (shared->group)
    return shared->group->fetch(tensors);
  if (shared->process)
    return shared->process->fetch(tensors);
  if (shared->executor)
    return shared->executor->fetch(tensors);
  NamedTensors copies;
  for (const auto &[name, tensor] : tensors)
    copies[name] = tensor.device().kind == Device::Kind::Host ? tensor.dense() : tensor;
  return copies;
}

Result<std::vector<double>> Program::bench(const NamedTensors &inputs, int iterations, bool cold) {
  if (shared->group)
    return shared->group->bench(inputs, iterations, cold);
  if (shared->process)
    return shared->process->bench(inputs, iterations, cold);
  if (shared->executor)
    return shared->executor->bench(inputs, iterations, cold);
  std::vector<double> times;
  for (int i = -3; i < iterations; ++i) {
    auto start = std::chrono::steady_clock::now();
    if (auto outputs = run(inputs); !outputs)
      return outputs.error();
    std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    if (i >= 0)
      times.push_back(taken.count());
  }
  return times;
}

Result<Profile> Program::profile(const NamedTensors &inputs) {
  if (shared->reference)
    return badInput("the CPU reference has no kernels to profile; use a GPU or emulation");
  auto timings = shared->group     ? shared->group->profile(inputs)
                 : shared->process ? shared->process->profile(inputs)
                                   : shared->executor->profile(inputs);
  if (!timings)
    return timings.error();
  DevicePeaks peaks = shared->group     ? shared->group->peaks()
                      : shared->process ? shared->process->peaks()
                                        : shared->executor->peaks();
  const std::string products = shared->group     ? shared->group->products()
                               : shared->process ? shared->process->products()
                                                 : shared->executor->products();
  Profile profile{{}, profileTable(*timings, peaks), fusion::chromeTrace(*timings, peaks)};
  if (!products.empty())
    profile.table = products + "\n" + profile.table;
  for (const LaunchTiming &launch : *timings)
    profile.launches.push_back({launch.kernel, launch.schedule, launch.fusion, launch.location,
                                launch.microseconds, launch.bytes, launch.flops,
                                leastMicroseconds(launch.bytes, launch.flops, peaks)});
  return profile;
}

RunStatistics Program::statistics() const {
  return shared->group      ? shared->group->statistics()
         : shared->process  ? shared->process->statistics()
         : shared->executor ? shared->executor->statistics()
                            : RunStatistics();
}

std::vector<Program::Cache> Program::caches() const {
  std::vector<Cache> caches;
  if (shared->reference)
    return caches;
  const ProgramPlan &plan = shared->group     ? shared->group->plan()
                            : shared->process ? shared->process->plan()
                                              : shared->executor->plan();
  for (const PortPlan &input : plan.inputs)
    for (const PortPlan &output : plan.outputs)
      if (!input.strides.empty() && !output.strides.empty() && input.buffer == output.buffer)
        caches.push_back({input.name, output.name});
  return caches;
}

const Report &Program::report() const { return shared->report; }
const std::vector<Port> &Program::inputs() const { return shared->inputs; }
const std::vector<Port> &Program::outputs() const { return shared->outputs; }
std::string Program::device() const {
  if (shared->group)
    return shared->group->device();
  if (shared->process)
    return shared->process->device();
  return shared->executor ? shared->executor->device() : "cpu reference";
}
int Program::rank() const { return shared->process ? shared->process->rank() : 0; }
std::string Program::cudaSource() const {
  if (shared->group)
    return fusion::cudaSource(shared->group->plan());
  if (shared->process)
    return fusion::cudaSource(shared->process->plan());
  return shared->executor ? fusion::cudaSource(shared->executor->plan()) : std::string();
}

} // namespace fusion
