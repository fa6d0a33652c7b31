#include "ir/base/Progress.h"
#include "runtime/Backend.h"
#include "runtime/MemoryPlan.h"
#include "runtime/emulate/EmulatedKernel.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unistd.h>

namespace fusion {
namespace {

/// Device memory is host memory, and every call is done when it returns.
class EmulatedBackend : public Backend {
public:
  explicit EmulatedBackend(std::vector<std::shared_ptr<EmulatedKernel>> kernels)
      : kernels(std::move(kernels)) {}

  Device device() const override { return {}; }
  std::string description() const override { return "emulation on the host"; }
  bool sharesHostMemory() const override { return true; }

  Result<std::shared_ptr<void>> allocate(size_t bytes) override {
    size_t size = std::max(alignedSize(bytes), bufferAlignment);
    void *memory = size < bytes ? nullptr : std::aligned_alloc(bufferAlignment, size);
    if (!memory)
      return environment(fmt::format("allocating {} MiB of host memory failed", (bytes >> 20) + 1));
    return std::shared_ptr<void>(memory, std::free);
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
  Status launch(const Launch &launch) override {
    std::vector<void *> arguments;
    for (const uint64_t &argument : launch.arguments)
      arguments.push_back(const_cast<uint64_t *>(&argument));
    return kernels[launch.kernel]->launch(launch.grid[0], launch.grid[1], launch.grid[2], arguments.data());
  }
  Status synchronize() override { return {}; }
  Result<std::unique_ptr<Recording>> record(const std::function<Status()> &work) override {
    return std::unique_ptr<Recording>();
  }
  Result<double> time(const std::function<Status()> &work) override {
    auto begin = std::chrono::steady_clock::now();
    if (Status status = work(); !status)
      return status.error();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  Result<std::vector<double>> timeEach(std::span<const std::function<Status()>> works) override {
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
  std::vector<std::shared_ptr<EmulatedKernel>> kernels;
};

/// Where libraries of kernels are kept; empty if nothing can be kept, of which the cache warns.
std::string libraryFolder(KernelCache *cache) {
  if (!cache || cache->folder().empty())
    return {};
  std::string folder = cache->folder() + "/emulated";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (!error)
    return folder;
  cache->reportUnwritable(error.message());
  return {};
}

} // namespace

Result<std::unique_ptr<Backend>> makeEmulatedBackend(const BackendKernels &kernels) {
  std::vector<std::shared_ptr<EmulatedKernel>> compiled;
  if (!kernels.plans.empty()) {
    std::string folder = libraryFolder(kernels.cache);
    // Kernels found in the cache come at once: progress is shown only when compilers have to run.
    const std::string title = "compile kernels for emulation";
    const auto total = static_cast<int64_t>(kernels.plans.size());
    const auto begin = std::chrono::steady_clock::now();
    std::optional<Progress> progress;
    auto result = EmulatedKernel::compileAll(
        kernels.plans, folder, [&](std::string_view name) {
          if (!progress && std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300))
            progress.emplace(title, total);
          if (progress)
            progress->step(name);
        });
    if (!result)
      return result.error();
    compiled = std::move(*result);
  }
  return std::unique_ptr<Backend>(std::make_unique<EmulatedBackend>(std::move(compiled)));
}

} // namespace fusion
