#include "runtime/CompileKernels.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/Comments.h"
#include "ir/base/Hash.h"
#include "ir/base/Progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace fusion {

std::string fullSource(const KernelPlan &kernel) {
  return expandSource(kernel.source, Flavour::Cuda, kernel.name + ".cu");
}

namespace {
/// A distinct source and everywhere it is wanted.
struct Job {
  const KernelPlan *kernel; ///< one of them
  KernelText text;          ///< of the source without comments
  std::string key;
  std::vector<size_t> kernels;
};

/// What is compiled as one program: the same device files are included once, and NVRTC has less to parse.
using Batch = std::vector<Job *>;
constexpr size_t mostInBatch = 4; ///< more gain nothing
/// At once: a process of NVRTC takes 30 to 60 MB.
constexpr size_t mostThreads = 32;

/// Cubins on disk. Modules are entries of their own; a kernel's entry says in which it is.
class CubinCache {
public:
  explicit CubinCache(KernelCache *cache) : cache(cache) {}

  std::optional<Cubin> get(const Job &job) {
    const std::optional<std::string> entry = cache ? cache->get(job.key) : std::nullopt;
    if (!entry)
      return std::nullopt;
    Cubin cubin;
    char module[64];
    const size_t newline = entry->find('\n');
    if (newline == std::string::npos ||
        std::sscanf(entry->c_str(), "%d %d %63s", &cubin.registers, &cubin.spillBytes, module) != 3)
      return std::nullopt;
    auto [place, isNew] = modules.try_emplace(module);
    if (isNew)
      place->second = cache->get(moduleKey(module));
    if (!place->second)
      return std::nullopt;
    cubin.log = entry->substr(newline + 1);
    cubin.bytes = *place->second;
    return cubin;
  }

  void put(const Job &job, const Cubin &cubin) {
    if (!cache)
      return;
    const std::string module = contentHash(cubin.bytes);
    {
      std::lock_guard lock(mutex);
      // Also one that a kernel's entry named and that was gone.
      if (std::optional<std::string> &known = modules[module]; !known) {
        known = cubin.bytes;
        cache->put(moduleKey(module), cubin.bytes);
      }
    }
    cache->put(job.key, fmt::format("{} {} {}\n{}", cubin.registers, cubin.spillBytes, module, cubin.log));
  }

private:
  static std::string moduleKey(std::string_view module) { return fmt::format("module\n{}", module); }

  KernelCache *cache; ///< may be null
  std::map<std::string, std::optional<std::string>, std::less<>> modules;
  std::mutex mutex;
};
} // namespace

/// Jobs with the same includes, as many in each batch as leave work for every thread; never two of one name.
static std::vector<Batch> batches(const std::vector<Job *> &jobs, size_t threads) {
  const size_t most = std::clamp<size_t>(jobs.size() / (2 * threads), 1, mostInBatch);
  std::map<std::vector<std::string>, std::vector<Batch>> groups;
  for (Job *job : jobs) {
    std::vector<Batch> &group = groups[job->text.includes];
    const bool isAlone = standsAlone(job->text);
    auto place = std::find_if(group.begin(), group.end(), [&](const Batch &batch) {
      return !isAlone && batch.size() < most &&
             std::none_of(batch.begin(), batch.end(), [&](const Job *other) {
               return other->kernel->name == job->kernel->name || standsAlone(other->text);
             });
    });
    if (place == group.end())
      place = group.emplace(group.end());
    place->push_back(job);
  }
  std::vector<Batch> result;
  for (auto &[includes, group] : groups)
    std::move(group.begin(), group.end(), std::back_inserter(result));
  // The longest first, so that no thread ends long after the others: most of the time goes into what the
  // templates become, of which the device files say more than the kernel's own lines.
  std::map<std::vector<std::string>, size_t> sizes;
  for (const auto &[includes, group] : groups)
    sizes[includes] = expandIncludes(includes, Flavour::Cuda).size();
  auto length = [&](const Batch &batch) { return batch.size() * sizes.at(batch.front()->text.includes); };
  std::sort(result.begin(), result.end(),
            [&](const Batch &a, const Batch &b) { return length(a) > length(b); });
  return result;
}

/// Runs `compile` on each batch from several threads, of which all but this one have a process of NVRTC; the
/// first error wins.
static Status compileAll(const std::vector<Batch> &batches, size_t threads, const std::string &library,
                         const std::function<Status(const Batch &, NvrtcProcess *)> &compile) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::optional<Error> error;
  auto work = [&](NvrtcProcess *process) {
    for (size_t i = next++; i < batches.size() && !failed; i = next++)
      if (Status status = compile(batches[i], process); !status) {
        std::lock_guard lock(mutex);
        if (!error)
          error = status.error();
        failed = true;
      }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(threads, batches.size()); ++i)
    others.emplace_back([&] {
      std::unique_ptr<NvrtcProcess> process = NvrtcProcesses::take(library);
      work(process.get());
      NvrtcProcesses::giveBack(std::move(process));
    });
  work(nullptr);
  for (std::thread &thread : others)
    thread.join();
  if (error)
    return *error;
  return {};
}

std::string programOf(const std::vector<std::string> &includes, std::span<const std::string> kernels) {
  std::string program = expandIncludes(includes, Flavour::Cuda);
  for (size_t i = 0; i < kernels.size(); ++i)
    program += fmt::format("namespace kernel_{} {{\n{}\n}}\n", i, kernels[i]);
  return program;
}

/// Compiles the jobs of a batch and hands each cubin to `finish`. What does not compile in company or spills
/// is compiled by itself.
static Status compileBatch(const Nvrtc &nvrtc, NvrtcProcess *process, const Batch &batch,
                           const std::string &arch,
                           const std::function<void(const Job &, const Cubin &)> &finish) {
  std::optional<CubinModule> module;
  if (batch.size() > 1) {
    std::vector<std::string> texts;
    for (const Job *job : batch)
      texts.push_back(job->text.rest);
    const std::string program = programOf(batch.front()->text.includes, texts);
    if (auto compiled = nvrtc.compileModule(program, batch.front()->kernel->name, arch, process))
      module = std::move(*compiled);
  }
  for (const Job *job : batch) {
    const std::string &name = job->kernel->name;
    if (module)
      if (auto found = module->kernels.find(name);
          found != module->kernels.end() && found->second.spillBytes == 0) {
        finish(*job, Cubin{found->second, module->bytes});
        continue;
      }
    Result<Cubin> cubin = nvrtc.compile(fullSource(*job->kernel), name, arch, process);
    if (!cubin)
      return cubin.error();
    finish(*job, *cubin);
  }
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

Result<std::vector<CompiledKernel>> compileKernels(std::span<const KernelPlan> kernels,
                                                   const TargetInfo &target, KernelCache *cache) {
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

  const std::string fingerprint = (*nvrtc)->fingerprint(arch);
  std::map<std::string, Job> jobs;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].isLibraryCall)
      continue;
    std::string code = withoutComments(kernels[i].source);
    Job &job = jobs[code];
    if (job.kernels.empty()) {
      job.kernel = &kernels[i];
      job.text = splitIncludes(code);
      job.key = fmt::format("kernel\n{}\n{}\n{}", fingerprint,
                            expandIncludes(job.text.includes, Flavour::Cuda), code);
    }
    job.kernels.push_back(i);
  }
  CubinCache cubins(cache);
  auto keep = [&](const Job &job, const Cubin &cubin, bool fromCache) {
    for (size_t kernel : job.kernels)
      results[kernel] = {cubin, fromCache};
  };
  std::vector<Job *> missing;
  for (auto &[source, job] : jobs)
    if (std::optional<Cubin> cubin = cubins.get(job))
      keep(job, *cubin, true);
    else
      missing.push_back(&job);
  if (missing.empty())
    return results;
  Progress progress(fmt::format("compile kernels for {}", arch), static_cast<int64_t>(missing.size()));
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, mostThreads);
  auto finish = [&](const Job &job, const Cubin &cubin) {
    cubins.put(job, cubin);
    keep(job, cubin, false);
    progress.step(job.kernel->name);
  };
  Status status = compileAll(batches(missing, threads), threads, (*nvrtc)->path(),
                             [&](const Batch &batch, NvrtcProcess *process) {
                               return compileBatch(**nvrtc, process, batch, arch, finish);
                             });
  if (!status)
    return status.error();
  return results;
}

} // namespace fusion
