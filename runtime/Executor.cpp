#include "runtime/Executor.h"

#include "ir/base/Progress.h"
#include "runtime/MemoryNeed.h"
#include "runtime/Runner.h"
#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

Executor::Executor(ProgramPlan plan, ExecutorOptions options)
    : program(std::move(plan)), options(std::move(options)),
      cache(this->options.cacheFolder, this->options.warn) {}
Executor::~Executor() = default;

/// Input and Output buffers need a port: without it they have no address, and no reader.
static Status checkInputBuffers(const ProgramPlan &plan) {
  std::vector<bool> hasPort(plan.buffers.size(), false);
  for (const PortPlan &port : plan.inputs)
    hasPort[port.buffer] = true;
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    if (plan.buffers[i].kind == BufferPlan::Kind::Input && !hasPort[i])
      return badInput(fmt::format("buffer {} is an input that no port fills", plan.buffers[i].name));
  return {};
}

static Status checkRanks(const ProgramPlan &plan, const ExecutorOptions &options) {
  const bool waits = std::any_of(plan.steps.begin(), plan.steps.end(),
                                 [](const Step &step) { return step.choice == Step::Choice::Ranks; });
  const Communicator *group = options.communicator.get();
  if (!group)
    return plan.ranks == 1 && !waits
               ? Status()
               : badInput(fmt::format("the program is for {} ranks, and has no communicator", plan.ranks));
  if (group->ranks() != plan.ranks || group->rank() != options.rank)
    return badInput(fmt::format("rank {} of a program for {}, but rank {} of {} in the communicator",
                                options.rank, plan.ranks, group->rank(), group->ranks()));
  return {};
}

/// Kernels that are launched for some shapes only, and not for those of the run that comes.
static std::vector<bool> neededByOtherRuns(const ProgramPlan &plan, const ExecutorOptions &options) {
  std::vector<bool> others(plan.kernels.size(), true);
  for (const Step &step : plan.steps)
    if (step.alternatives.size() == 1)
      for (const KernelLaunch &launch : step.alternatives.front().launches)
        others[launch.kernel] = false;
  if (options.target != ExecutorOptions::Target::Cuda || options.largestRun.empty())
    return others;
  if (Result<SymbolValues> symbols = bindInputs(plan, options.largestRun))
    for (const uint32_t kernel : kernelsAt(plan, *symbols))
      others[kernel] = false;
  return others;
}

Result<std::unique_ptr<Executor>> Executor::create(ProgramPlan plan, ExecutorOptions options) {
  if (Status status = verify(plan); !status)
    return status.error();
  if (Status status = checkInputBuffers(plan); !status)
    return status.error();
  if (!options.cubins.empty() && options.cubins.size() != plan.kernels.size())
    return badInput(
        fmt::format("{} compiled kernels for {} in the plan", options.cubins.size(), plan.kernels.size()));
  if (std::string poison = environmentVariable("FUSION_POISON"); !poison.empty() && poison != "0")
    options.poison = true;
  if (Status status = checkRanks(plan, options); !status)
    return status.error();
  bool emulate = options.target == ExecutorOptions::Target::Emulate;
  options.keepOutputsOnDevice = options.keepOutputsOnDevice && !emulate;

  std::unique_ptr<Executor> executor(new Executor(std::move(plan), std::move(options)));
  const ExecutorOptions &chosen = executor->options;
  BackendKernels kernels{executor->program.kernels, neededByOtherRuns(executor->program, chosen),
                         chosen.cubins, chosen.cubinArch, &executor->cache};
  Result<std::unique_ptr<Backend>> backend =
      emulate ? makeEmulatedBackend(kernels) : makeCudaBackend(chosen.ordinal, kernels);
  if (!backend)
    return backend.error();
  std::shared_ptr<Backend> device = std::move(*backend);
  const Places elsewhere = chosen.sharedWeights ? chosen.sharedWeights->find(executor->program, chosen.rank)
                                                : Places(executor->program.buffers.size());
  Result<size_t> weightNeed = checkMemory(executor->program, chosen, *device, elsewhere);
  if (!weightNeed)
    return weightNeed.error();
  Result<NamedTensors> prepared = prepareWeights(executor->program, chosen, device, elsewhere);
  if (!prepared)
    return Error{prepared.error().kind, "weights: " + prepared.error().message};
  Result<WeightStore> weights =
      WeightStore::load(executor->program, *device, chosen.rank, *prepared, elsewhere);
  if (!weights)
    return weights.error();
  if (chosen.sharedWeights)
    chosen.sharedWeights->add(executor->program, chosen.rank, weights->places());
  executor->runner = std::make_unique<Runner>(executor->program, chosen, std::move(device),
                                              std::move(*weights), *weightNeed);
  return executor;
}

/// Runs the preparation. What it reads goes with its runner, before the weights of the program are loaded.
Result<NamedTensors> Executor::prepareWeights(const ProgramPlan &plan, const ExecutorOptions &options,
                                              const std::shared_ptr<Backend> &device,
                                              const Places &elsewhere) {
  if (plan.preparation.empty())
    return NamedTensors();
  ProgramPlan preparation = preparationOf(plan);
  std::set<BufferId> wanted;
  for (const PortPlan &result : preparation.outputs)
    if (!elsewhere[result.buffer].address)
      wanted.insert(result.buffer);
  if (wanted.empty())
    return NamedTensors();
  keepResults(preparation, wanted);
  ExecutorOptions alone = options;
  alone.communicator = nullptr; // each rank prepares its own
  alone.keepOutputsOnDevice = options.target == ExecutorOptions::Target::Cuda;
  alone.recordGraphs = false;
  Result<WeightStore> sources = WeightStore::load(preparation, *device, options.rank);
  if (!sources)
    return sources.error();
  return Runner(preparation, alone, device, std::move(*sources), 0).run({}, Results::Host);
}

Result<size_t> Executor::checkMemory(const ProgramPlan &plan, const ExecutorOptions &options,
                                     const Backend &device, const Places &elsewhere) {
  MemoryNeed need;
  if (!options.largestRun.empty() && !options.communicator) {
    Result<SymbolValues> symbols = bindInputs(plan, options.largestRun);
    if (!symbols)
      return symbols.error();
    Result<ShapePlan> shapes = planShapes(plan, *symbols);
    if (!shapes)
      return shapes.error();
    need = memoryOf(plan, *shapes);
  }
  Result<size_t> weights = weightBytesOf(plan, options.rank, device.device(), elsewhere);
  if (!weights)
    return weights.error();
  need.weights = device.sharesHostMemory() ? 0 : *weights; // there they are read where the files are mapped
  const size_t available = availableBytes(device, options.memoryLimit);
  if (!options.largestRun.empty() && options.rank == 0)
    note(fmt::format("memory: {}{}", describe(need),
                     available < SIZE_MAX ? "; " + bytesText(available) + " there are" : ""));
  if (Status status = checkFits(need, available, device.description()); !status)
    return status.error();
  return need.weights;
}

Result<NamedTensors> Executor::run(const NamedTensors &inputs, Results where) {
  return runner->run(inputs, where);
}

Result<NamedTensors> Executor::enqueue(const NamedTensors &inputs, void *stream) {
  return runner->enqueue(inputs, stream);
}

Result<NamedTensors> Executor::fetch(const NamedTensors &tensors) { return runner->fetch(tensors); }
Result<NamedTensors> Executor::place(const NamedTensors &tensors) { return runner->place(tensors); }

Status Executor::synchronize() { return runner->synchronize(); }

Result<std::vector<double>> Executor::bench(const NamedTensors &inputs, int iterations, bool cold) {
  return runner->bench(inputs, iterations, cold);
}

Result<std::vector<LaunchTiming>> Executor::profile(const NamedTensors &inputs, int iterations) {
  return runner->profile(inputs, iterations);
}

std::string Executor::device() const { return runner->device().description(); }
DevicePeaks Executor::peaks() const { return runner->device().peaks(); }
std::string Executor::algorithms() const { return runner->algorithmsText(); }
size_t Executor::weightBytes() const { return runner->weightBytes(); }
size_t Executor::arenaBytes() const { return runner->arenaBytes(); }
RunStatistics Executor::statistics() const { return runner->statistics(); }

} // namespace fusion
