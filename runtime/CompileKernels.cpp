#include "runtime/CompileKernels.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/Comments.h"
#include "ir/base/Progress.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>

namespace fusion {

std::string fullSource(const KernelPlan &kernel) {
  return expandSource(kernel.source, Flavour::Cuda, kernel.name + ".cu");
}

/// A cache entry: registers, spill bytes, the log's length, the log, the cubin.
static std::string serialize(const Cubin &cubin) {
  return fmt::format("{} {} {}\n{}{}", cubin.registers, cubin.spillBytes, cubin.log.size(), cubin.log,
                     cubin.bytes);
}

static std::optional<Cubin> deserialize(const std::string &entry) {
  Cubin cubin;
  size_t logLength = 0;
  size_t newline = entry.find('\n');
  if (newline == std::string::npos ||
      std::sscanf(entry.c_str(), "%d %d %zu", &cubin.registers, &cubin.spillBytes, &logLength) != 3 ||
      logLength > entry.size() - newline - 1)
    return std::nullopt;
  cubin.log = entry.substr(newline + 1, logLength);
  cubin.bytes = entry.substr(newline + 1 + logLength);
  return cubin;
}

namespace {
/// A distinct source and everywhere it is wanted.
struct Job {
  std::string source, key;
  std::vector<size_t> kernels;
};
} // namespace

/// Runs `compile` on each job from several threads; the first error wins.
static Status compileAll(const std::vector<Job *> &jobs, const std::function<Status(Job &)> &compile) {
  // NVRTC has its own lock around some phases; threads still overlap in ptxas, where most of the time goes.
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::optional<Error> error;
  auto work = [&] {
    for (size_t i = next++; i < jobs.size() && !failed; i = next++)
      if (Status status = compile(*jobs[i]); !status) {
        std::lock_guard lock(mutex);
        if (!error)
          error = status.error();
        failed = true;
      }
  };
  size_t count = std::min<size_t>(jobs.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  if (error)
    return *error;
  return {};
}

Result<std::vector<CompiledKernel>> compileKernels(std::span<const KernelPlan> kernels,
                                                   const std::string &target, KernelCache *cache) {
  Result<TargetInfo> info = TargetInfo::find(target);
  if (!info)
    return info.error();
  return compileKernels(kernels, *info, cache);
}

/// What the kernel needs and the target lacks, by name; empty when there is nothing.
static std::string_view lackingFeature(const KernelPlan &kernel, const TargetInfo &target) {
  for (uint32_t bit = 1; bit != 0; bit <<= 1)
    if (kernel.features & ~target.features & bit)
      return featureName(static_cast<Feature>(bit));
  return "";
}

Result<std::vector<CompiledKernel>> compileKernels(std::span<const KernelPlan> kernels, const TargetInfo &target,
                                                   KernelCache *cache) {
  std::vector<CompiledKernel> results(kernels.size());
  if (kernels.empty())
    return results;
  const std::string &arch = target.name;
  for (const KernelPlan &kernel : kernels)
    if (std::string_view feature = lackingFeature(kernel, target); !feature.empty())
      return badInput(fmt::format("kernel {} needs {}, which {} lacks", kernel.name, feature, arch));
  Result<Nvrtc *> nvrtc = Nvrtc::instance();
  if (!nvrtc)
    return nvrtc.error();

  std::string fingerprint = (*nvrtc)->fingerprint(arch);
  std::map<std::string, Job> jobs;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].isLibraryCall)
      continue;
    std::string code = withoutComments(kernels[i].source);
    Job &job = jobs[code];
    if (job.kernels.empty()) {
      job.source = fullSource(kernels[i]);
      job.key = fmt::format("cubin\n{}\n{}\n{}", fingerprint,
                            expandIncludes(splitIncludes(code).includes, Flavour::Cuda), code);
    }
    job.kernels.push_back(i);
  }
  auto finish = [&](const Job &job, const Cubin &cubin, bool fromCache) {
    for (size_t kernel : job.kernels)
      results[kernel] = {cubin, fromCache};
  };
  std::vector<Job *> missing;
  for (auto &[source, job] : jobs) {
    std::optional<std::string> entry = cache ? cache->get(job.key) : std::nullopt;
    std::optional<Cubin> cubin = entry ? deserialize(*entry) : std::nullopt;
    if (cubin)
      finish(job, *cubin, true);
    else
      missing.push_back(&job);
  }
  if (missing.empty())
    return results;
  Progress progress(fmt::format("compile kernels for {}", arch), static_cast<int64_t>(missing.size()));
  Status status = compileAll(missing, [&](Job &job) -> Status {
    const std::string &name = kernels[job.kernels.front()].name;
    Result<Cubin> cubin = (*nvrtc)->compile(job.source, name, arch);
    if (!cubin)
      return cubin.error();
    if (cache)
      cache->put(job.key, serialize(*cubin));
    finish(job, *cubin, false);
    progress.step(name);
    return {};
  });
  if (!status)
    return status.error();
  return results;
}

} // namespace fusion
