#include "codegen/device/tensor_map_abi.h"
#include "ir/base/Progress.h"
#include "runtime/Backend.h"
#include "runtime/MemoryPlan.h"
#include "runtime/CublasLtRunner.h"
#include "runtime/emulate/EmulatedKernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <optional>
#include <unistd.h>

namespace fusion {
namespace {

/// What a graph is on a GPU: launches and calls, done in order at each replay.
class LaunchList : public Backend::Recording {
public:
  explicit LaunchList(Backend &backend) : backend(backend) {}

  void add(const Backend::Launch &launch) {
    launches.push_back(steps.size());
    steps.emplace_back();
    keep(steps.back(), launch);
  }
  void add(std::function<Status()> call) { steps.push_back({{}, {}, std::move(call)}); }

  Status replay() override {
    for (Step &step : steps)
      if (Status status = step.call ? step.call() : backend.launch(step.launch); !status)
        return status;
    return {};
  }
  Status change(size_t index, const Backend::Launch &launch) override {
    Step &step = steps[launches[index]];
    if (launch.kernel != step.launch.kernel || launch.overlapsPrevious != step.launch.overlapsPrevious)
      return badInput("a recorded launch cannot become one of another kernel");
    keep(step, launch);
    return {};
  }
  bool canChange() const override { return true; }

private:
  struct Step {
    Backend::Launch launch;
    std::vector<uint64_t> arguments;
    std::function<Status()> call; ///< instead of a launch
  };
  static void keep(Step &step, const Backend::Launch &launch) {
    step.launch = launch;
    step.arguments.assign(launch.arguments.begin(), launch.arguments.end());
    step.launch.arguments = step.arguments;
  }
  Backend &backend;
  std::deque<Step> steps; ///< their arguments stay where they are
  std::vector<size_t> launches; ///< which steps are launches
};

/// Device memory is host memory, and every call is done when it returns.
class EmulatedBackend : public Backend {
public:
  EmulatedBackend(std::span<const KernelPlan> plans, std::string folder)
      : plans(plans), folder(std::move(folder)), kernels(plans.size()) {}

  Device device() const override { return {}; }
  std::string description() const override { return "emulation on the host"; }
  DevicePeaks peaks() const override {
    return {0, 0, "times of the host, which emulates the kernels: no limits"};
  }
  bool sharesHostMemory() const override { return true; }

  Result<std::shared_ptr<void>> allocate(size_t bytes) override {
    size_t size = std::max(alignedSize(bytes), bufferAlignment);
    void *memory = size < bytes ? nullptr : std::aligned_alloc(bufferAlignment, size);
    if (!memory)
      return environment(fmt::format("allocating {} MiB of host memory failed", (bytes >> 20) + 1));
    allocated->add(size);
    return std::shared_ptr<void>(memory, [size, counter = allocated](void *memory) {
      counter->now -= size;
      std::free(memory);
    });
  }
  Status upload(void *target, const void *source, size_t bytes) override {
    return copy(target, source, bytes);
  }
  Status download(void *target, const void *source, size_t bytes) override {
    return copy(target, source, bytes);
  }
  Status copy(void *target, const void *source, size_t bytes) override {
    if (bytes > 0)
      std::memmove(target, source, bytes);
    return {};
  }
  Status fill(void *target, uint8_t value, size_t bytes) override {
    if (bytes > 0)
      std::memset(target, value, bytes);
    return {};
  }
  /// Compiles those that are not compiled yet.
  Status prepare(std::span<const uint32_t> wanted) override;
  Status encodeTensorMap(const TensorMapArgument &map, std::span<const int64_t> extents, void *address,
                         std::span<uint64_t, tensorMapWords> words) override;
  Status launch(const Launch &launch) override {
    const KernelPlan &plan = plans[launch.kernel];
    if (const std::optional<LibraryMatmul> &wanted = plan.matmul)
      return call([this, &wanted,
                   arguments = std::vector<uint64_t>(launch.arguments.begin(), launch.arguments.end())] {
        return matmul(*wanted, arguments);
      });
    if (recorded) {
      recorded->add(launch);
      return {};
    }
    std::vector<void *> arguments;
    auto *word = const_cast<uint64_t *>(launch.arguments.data());
    for (const KernelPlan::Parameter &parameter : plan.parameters) {
      arguments.push_back(word);
      word += parameter.kind == KernelPlan::Parameter::Kind::TensorMap ? tensorMapWords : 1;
    }
    return kernels[launch.kernel]->launch(launch.grid[0], launch.grid[1], launch.grid[2], arguments.data());
  }
  Status call(std::function<Status()> work) override {
    if (!recorded)
      return work();
    recorded->add(std::move(work));
    return {};
  }
  Status synchronize() override { return {}; }
  Status enter(std::optional<void *>) override { return {}; }
  Status leave() override { return {}; }
  Result<bool> capturing() const override { return false; }
  Result<std::unique_ptr<Recording>> record(const std::function<Status()> &work) override {
    auto list = std::make_unique<LaunchList>(*this);
    recorded = list.get();
    Status status = work();
    recorded = nullptr;
    if (!status)
      return status.error();
    return std::unique_ptr<Recording>(std::move(list));
  }
  Status emptyCache() override { return {}; }
  Result<double> time(const std::function<Status()> &work) override {
    auto begin = std::chrono::steady_clock::now();
    if (Status status = work(); !status)
      return status.error();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  Result<std::vector<double>> timeEach(std::span<const std::function<Status()>> works,
                                       const std::function<Status()> &ready) override {
    if (Status status = ready(); !status)
      return status.error();
    std::vector<double> microseconds;
    for (const std::function<Status()> &work : works) {
      Result<double> elapsed = time(work);
      if (!elapsed)
        return elapsed.error();
      microseconds.push_back(*elapsed);
    }
    return microseconds;
  }

private:
  /// By what stands in for cuBLASLt.
  Status matmul(const LibraryMatmul &wanted, std::span<const uint64_t> arguments) {
    if (!runner) {
      Result<std::unique_ptr<CublasLtRunner>> made = CublasLtRunner::make(*this, {}, /*mayTry=*/false);
      if (!made)
        return made.error();
      runner = std::move(*made);
    }
    return runner->matmul(wanted, arguments);
  }

  std::span<const KernelPlan> plans;
  std::unique_ptr<CublasLtRunner> runner; ///< null until it is needed
  std::string folder; ///< where libraries of kernels are kept
  std::vector<std::shared_ptr<EmulatedKernel>> kernels; ///< null: not compiled yet
  LaunchList *recorded = nullptr; ///< within record()
};

Status EmulatedBackend::prepare(std::span<const uint32_t> wanted) {
  std::vector<uint32_t> missing;
  for (uint32_t kernel : wanted)
    if (!plans[kernel].isLibraryCall && !kernels[kernel] &&
        std::find(missing.begin(), missing.end(), kernel) == missing.end())
      missing.push_back(kernel);
  if (missing.empty())
    return {};
  std::vector<KernelPlan> sources;
  for (uint32_t kernel : missing)
    sources.push_back(plans[kernel]);
  std::optional<Progress> progress;
  const auto begin = std::chrono::steady_clock::now();
  auto compiled = EmulatedKernel::compileAll(sources, folder, [&](std::string_view name, int64_t total) {
    if (!progress)
      progress.emplace("compile kernels for emulation", total, begin + std::chrono::milliseconds(300));
    progress->step(name);
  });
  if (!compiled)
    return compiled.error();
  for (size_t i = 0; i < missing.size(); ++i)
    kernels[missing[i]] = std::move((*compiled)[i]);
  return {};
}

Status EmulatedBackend::encodeTensorMap(const TensorMapArgument &map, std::span<const int64_t> extents,
                                        void *address, std::span<uint64_t, tensorMapWords> words) {
  fusion_emulation::TensorMap encoded = {};
  static_assert(sizeof encoded <= tensorMapWords * sizeof(uint64_t));
  const size_t rank = map.box.size();
  encoded.base = static_cast<unsigned char *>(address);
  encoded.rank = static_cast<unsigned char>(rank);
  encoded.elementBytes = static_cast<unsigned char>(byteSize(map.type));
  encoded.swizzle = static_cast<unsigned char>(map.swizzle);
  if (map.outOfBounds == TensorMapArgument::OutOfBounds::NaN) {
    if (map.type != DType::F16 && map.type != DType::BF16 && map.type != DType::F32 && map.type != DType::F64)
      return badInput(fmt::format("a tensor map of {} with NaNs outside", name(map.type)));
    encoded.nanExponentBits = map.type == DType::F16 ? 5 : map.type == DType::F64 ? 11 : 8;
  }
  for (size_t i = 0; i < rank; ++i) {
    const size_t dim = rank - 1 - i;
    encoded.shape[i] = static_cast<uint64_t>(extents[dim]);
    encoded.strides[i] = static_cast<uint64_t>(extents[rank + dim]) * encoded.elementBytes;
    encoded.box[i] = static_cast<unsigned short>(map.box[dim]);
    encoded.elementStrides[i] =
        static_cast<unsigned char>(map.elementStrides.empty() ? 1 : map.elementStrides[dim]);
  }
  std::memcpy(words.data(), &encoded, sizeof encoded);
  return {};
}

/// Where libraries of kernels are kept; empty if nothing can be kept, of which the cache warns.
std::string libraryFolder(KernelCache *cache) {
  const std::shared_ptr<const PrivateFolder> folder = cache ? cache->privateFolder() : nullptr;
  return folder ? folder->path() + "/emulated" : std::string();
}

} // namespace

Result<std::unique_ptr<Backend>> makeEmulatedBackend(const BackendKernels &kernels) {
  if (kernels.plans.empty())
    return std::unique_ptr<Backend>(std::make_unique<EmulatedBackend>(kernels.plans, std::string()));
  for (const KernelPlan &plan : kernels.plans)
    if (Status status = plan.isLibraryCall ? Status() : EmulatedKernel::check(plan); !status)
      return status.error();
  auto backend = std::make_unique<EmulatedBackend>(kernels.plans, libraryFolder(kernels.cache));
  std::vector<uint32_t> always;
  for (uint32_t i = 0; i < kernels.plans.size(); ++i)
    if (kernels.onDemand.empty() || !kernels.onDemand[i])
      always.push_back(i);
  if (Status status = backend->prepare(always); !status)
    return status.error();
  return std::unique_ptr<Backend>(std::move(backend));
}

} // namespace fusion
