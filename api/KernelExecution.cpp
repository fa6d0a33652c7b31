// Runs a plan's kernels: emulated on the host, on one GPU, or on several ranks of either kind.
#include "api/Compilation.h"
#include "api/ExecutionBackend.h"
#include "runtime/Executor.h"
#include "runtime/RankGroup.h"
#include "runtime/RankProcess.h"
#include "runtime/collective/Bootstrap.h"
#include "runtime/cuda/Driver.h"

#include <fmt/format.h>

namespace fusion {

namespace {
/// What those have in common that run kernels: `Runner` is an Executor, or stands for those of several ranks.
template <class Runner> class KernelExecution : public ExecutionBackend {
public:
  explicit KernelExecution(ExecutorOptions settings) : settings(std::move(settings)) {}

  Result<std::vector<DimEquality>> equalities(Compilation &compilation) const override {
    auto plan = compilation.plan();
    if (!plan)
      return plan.error();
    std::vector<DimEquality> equalities;
    for (const ProgramPlan::Equality &equality : plan->equalities)
      equalities.push_back({equality.left, equality.right, equality.reason});
    return equalities;
  }

  Status load(Compilation &compilation) override {
    auto plan = compilation.plan();
    if (!plan)
      return plan.error();
    if (Status status = start(std::move(*plan)); !status)
      return status;
    compilation.keepPlan();
    return {};
  }

  Status open(const std::string &, Bundle bundle) override {
    settings.cubins = std::move(bundle.cubins);
    settings.cubinArch = std::move(bundle.arch);
    return start(std::move(bundle.plan));
  }

  void shareWeights() override { settings.sharedWeights = std::make_shared<SharedWeights>(); }

  Result<NamedTensors> fetch(const NamedTensors &tensors) override { return runner->fetch(tensors); }
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold) override {
    return runner->bench(inputs, iterations, cold);
  }

  Result<Profile> profile(const NamedTensors &inputs) override {
    auto timings = runner->profile(inputs);
    if (!timings)
      return timings.error();
    const DevicePeaks peaks = runner->peaks();
    const std::string algorithms = runner->algorithms();
    Profile profile{{}, profileTable(*timings, peaks), chromeTrace(*timings, peaks)};
    if (!algorithms.empty())
      profile.table = algorithms + "\n" + profile.table;
    for (const LaunchTiming &launch : *timings)
      profile.launches.push_back({launch.kernel, launch.schedule, launch.fusion, launch.location,
                                  launch.microseconds, launch.bytes, launch.flops,
                                  leastMicroseconds(launch.bytes, launch.flops, peaks)});
    return profile;
  }

  RunStatistics statistics() const override { return runner->statistics(); }
  std::string device() const override { return runner->device(); }
  const ProgramPlan *plan() const override { return &runner->plan(); }
  std::vector<PortShard> inputs() const override { return shards(plan()->inputs); }
  std::vector<PortShard> outputs() const override { return shards(plan()->outputs); }

protected:
  virtual Result<std::unique_ptr<Runner>> makeRunner(ProgramPlan plan, ExecutorOptions settings) = 0;

  bool emulates() const { return settings.target == ExecutorOptions::Target::Emulate; }
  static Error onlyGpusMeasure() {
    return environment("fusions cannot be measured: the program does not run on a GPU");
  }

  /// For a variant.
  ExecutorOptions settingsOfAnother() const {
    ExecutorOptions own = settings;
    own.largestRun.clear(); // it runs here
    return own;
  }

  std::unique_ptr<Runner> runner;

private:
  Status start(ProgramPlan plan) {
    auto made = makeRunner(std::move(plan), settings);
    settings.cubins.clear();
    if (!made)
      return made.error();
    runner = std::move(*made);
    return {};
  }

  static std::vector<PortShard> shards(const std::vector<PortPlan> &ports) {
    std::vector<PortShard> all;
    for (const PortPlan &port : ports)
      all.push_back({port.name, port.shard});
    return all;
  }

  ExecutorOptions settings;
};

/// One executor.
class SingleExecution : public KernelExecution<Executor> {
public:
  using KernelExecution::KernelExecution;
  Result<NamedTensors> run(const NamedTensors &inputs, Results where) override {
    return runner->run(inputs, where);
  }
  Result<NamedTensors> enqueue(const NamedTensors &inputs, void *stream) override {
    return runner->enqueue(inputs, stream);
  }
  Result<NamedTensors> place(const NamedTensors &tensors) override { return runner->place(tensors); }
  Status synchronize() override { return runner->synchronize(); }

protected:
  Result<std::unique_ptr<Executor>> makeRunner(ProgramPlan plan, ExecutorOptions settings) override {
    return Executor::create(std::move(plan), std::move(settings));
  }
};

class EmulatedExecution : public SingleExecution {
public:
  using SingleExecution::SingleExecution;
  std::unique_ptr<ExecutionBackend> another() const override {
    return std::make_unique<EmulatedExecution>(settingsOfAnother());
  }
  std::optional<Error> whyNotMeasured() const override { return onlyGpusMeasure(); }
};

class GpuExecution : public SingleExecution {
public:
  using SingleExecution::SingleExecution;
  std::unique_ptr<ExecutionBackend> another() const override {
    return std::make_unique<GpuExecution>(settingsOfAnother());
  }
  std::optional<Error> whyNotMeasured() const override { return std::nullopt; }
};

/// Several ranks.
template <class Group> class RanksExecution : public KernelExecution<Group> {
public:
  using KernelExecution<Group>::KernelExecution;
  Result<NamedTensors> run(const NamedTensors &inputs, Results) override { return this->runner->run(inputs); }
  Result<NamedTensors> enqueue(const NamedTensors &, void *) override {
    return badInput("a stream belongs to one GPU: a program for several runs with run()");
  }
};

/// Each in a thread of this process.
class ThreadRanksExecution : public RanksExecution<RankGroup> {
public:
  using RanksExecution::RanksExecution;
  std::optional<Error> whyNotMeasured() const override {
    return emulates() ? std::optional(onlyGpusMeasure()) : std::nullopt;
  }

protected:
  Result<std::unique_ptr<RankGroup>> makeRunner(ProgramPlan plan, ExecutorOptions settings) override {
    return RankGroup::create(std::move(plan), std::move(settings));
  }
};

/// Each a process, of which this is one.
class ProcessRanksExecution : public RanksExecution<RankProcess> {
public:
  ProcessRanksExecution(ExecutorOptions settings, LaunchedRank place)
      : RanksExecution(std::move(settings)), place(std::move(place)) {}
  /// Each process plans for itself, and two measurements may decide differently.
  std::optional<Error> whyNotMeasured() const override {
    return badInput(
        "fusions cannot be measured while ranks are processes: leave --profit out, or take one process");
  }
  int rank() const override { return place.rank; }

protected:
  Result<std::unique_ptr<RankProcess>> makeRunner(ProgramPlan plan, ExecutorOptions settings) override {
    return RankProcess::join(std::move(plan), std::move(settings), place);
  }

private:
  const LaunchedRank place;
};
} // namespace

/// Where this process stands among the ranks; nothing if the ranks are threads of it.
static Result<std::optional<LaunchedRank>> placeOf(const CompileOptions &options, int ranks) {
  if (!options.processRank)
    return options.launcher ? launchedRank()
                            : Result<std::optional<LaunchedRank>>(std::optional<LaunchedRank>());
  const ProcessRank &own = *options.processRank;
  if (own.ranks != ranks)
    return badInput(
        fmt::format("processRank is one of {} ranks, but the program is for {}", own.ranks, ranks));
  if (own.rank < 0 || own.rank >= own.ranks || own.gpu < 0)
    return badInput(fmt::format("processRank is rank {} of {} on GPU {}: they count from 0", own.rank,
                                own.ranks, own.gpu));
  if (!own.allGather)
    return badInput("processRank has no allGather: the ranks cannot find each other");
  auto place = bootstrapRank(own.rank, own.ranks, own.host, own.allGather);
  if (!place)
    return place.error();
  place->localRank = own.gpu;
  return std::optional(std::move(*place));
}

Result<std::unique_ptr<ExecutionBackend>> ExecutionBackend::create(const CompileOptions &options, int ranks) {
  using Made = std::unique_ptr<ExecutionBackend>;
  RunOn device = options.device;
  if (device == RunOn::Auto)
    device = cuda::deviceCount() > 0 ? RunOn::Cuda : RunOn::Cpu;
  if (device == RunOn::Cpu)
    return makeReferenceExecution(ranks);
  ExecutorOptions settings;
  settings.target = device == RunOn::Cuda ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
  if (!options.cacheFolder.empty())
    settings.cacheFolder = options.cacheFolder;
  settings.memoryLimit = options.memoryLimit;
  settings.donateCaches = options.donateCaches;
  settings.largestRun = options.largestRun;
  if (ranks > 1) {
    auto place = placeOf(options, ranks);
    if (!place)
      return place.error();
    if (*place && (*place)->ranks > 1)
      return Made(std::make_unique<ProcessRanksExecution>(std::move(settings), **place));
    return Made(std::make_unique<ThreadRanksExecution>(std::move(settings)));
  }
  if (device == RunOn::Cuda)
    return Made(std::make_unique<GpuExecution>(std::move(settings)));
  return Made(std::make_unique<EmulatedExecution>(std::move(settings)));
}

} // namespace fusion
