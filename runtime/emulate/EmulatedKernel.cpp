#include "runtime/emulate/EmulatedKernel.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/Comments.h"
#include "ir/base/Parallel.h"
#include "runtime/emulate/BlockRunner.h"
#include "runtime/emulate/KernelLibrary.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <numeric>

namespace fusion {

using namespace emulate;

struct EmulatedKernel::Code {
  std::string name;
  std::shared_ptr<KernelLibrary> library;
  Launch launch; ///< all that does not change from launch to launch
};

/// Whether the text uses anything through which threads of a block see each other. What has no such word runs
/// as a loop over the threads; the emulator refuses to let a thread of it wait.
static bool isCooperative(const std::string &source) {
  const std::string code = withoutComments(source);
  for (std::string_view word :
       {"barrier",   "shuffle_",         "warp_any",   "warp_all",       "warp_ballot",  "warp_sum",
        "warp_max",  "warp_min",         "lanes_",     "block_moments",  "block_sum",    "block_max",
        "block_min", "share_warps",      "SHARED",     "dynamic_shared", "cp_async",     "ldmatrix",
        "mma_",      "transpose_matrix", "column_max", "column_sum",     "cluster_wait", "mbarrier",
        "tma_",      "Exchange"})
    if (code.find(word) != std::string::npos)
      return true;
  return false;
}

EmulatedKernel::EmulatedKernel(std::unique_ptr<Code> code) : code(std::move(code)) {}
EmulatedKernel::~EmulatedKernel() = default;

std::shared_ptr<EmulatedKernel>
EmulatedKernel::make(const KernelPlan &plan, std::shared_ptr<KernelLibrary> library, const std::string &key) {
  auto code = std::make_unique<Code>();
  code->name = plan.name;
  code->launch.kernel = library->entry(key);
  code->launch.library = library.get();
  code->launch.block[0] = plan.blockX;
  code->launch.block[1] = plan.blockY;
  code->launch.block[2] = plan.blockZ;
  code->launch.dynamicSharedBytes = plan.dynamicSharedBytes;
  code->launch.cooperative =
      isCooperative(plan.source) || isCooperative(templateText(splitIncludes(plan.source).includes));
  code->launch.waitsForRanks = usesExchange(plan.source);
  code->library = std::move(library);
  return std::shared_ptr<EmulatedKernel>(new EmulatedKernel(std::move(code)));
}

Status EmulatedKernel::check(const KernelPlan &plan) {
  if (!plan.emulatable)
    return environment(fmt::format("kernel {} cannot be emulated: {}", plan.name, plan.whyNotEmulatable));
  const uint64_t threads = uint64_t(plan.blockX) * plan.blockY * plan.blockZ;
  if (threads == 0 || threads > 1024 || plan.blockX > 1024 || plan.blockY > 1024 || plan.blockZ > 64)
    return badInput(fmt::format("kernel {}: a block of {} x {} x {} threads", plan.name, plan.blockX,
                                plan.blockY, plan.blockZ));
  if (plan.dynamicSharedBytes > maxSharedBytes)
    return badInput(fmt::format("kernel {}: {} bytes of shared memory, a device has at most {}", plan.name,
                                plan.dynamicSharedBytes, maxSharedBytes));
  return {};
}

Result<std::shared_ptr<EmulatedKernel>> EmulatedKernel::compile(const KernelPlan &plan,
                                                                const std::string &cacheFolder) {
  auto kernels = compileAll(std::span(&plan, 1), cacheFolder);
  if (!kernels)
    return kernels.error();
  return std::move((*kernels)[0]);
}

/// The units of one compiler run each.
static std::vector<std::vector<LibraryFolder::Unit>> batches(std::vector<LibraryFolder::Unit> units) {
  // Those of one run include the same device files, which are precompiled together.
  std::map<std::vector<std::string>, std::vector<LibraryFolder::Unit>> groups;
  std::vector<std::vector<LibraryFolder::Unit>> result;
  size_t shareable = 0;
  for (LibraryFolder::Unit &unit : units)
    if (const KernelText text = splitIncludes(unit.plan->source); standsAlone(text)) {
      result.push_back({unit});
    } else {
      groups[text.includes].push_back(unit);
      ++shareable;
    }
  constexpr size_t most = 16; // starting the compiler and the linker no longer counts
  const size_t size = std::clamp<size_t>((shareable + threadCount() - 1) / threadCount(), 1, most);
  for (const auto &[includes, group] : groups)
    for (size_t begin = 0; begin < group.size(); begin += size)
      result.emplace_back(group.begin() + begin, group.begin() + std::min(begin + size, group.size()));
  return result;
}

Result<std::vector<std::shared_ptr<EmulatedKernel>>>
EmulatedKernel::compileAll(std::span<const KernelPlan> plans, const std::string &cacheFolder,
                           const std::function<void(std::string_view, int64_t)> &onCompiled) {
  for (const KernelPlan &plan : plans)
    if (Status status = check(plan); !status)
      return status.error();
  auto compiler = HostCompiler::find();
  if (!compiler)
    return compiler.error();
  auto folder = LibraryFolder::open(cacheFolder);
  if (!folder)
    return folder.error();

  std::vector<std::string> keys;
  std::map<std::string, std::shared_ptr<KernelLibrary>> ready;
  std::vector<LibraryFolder::Unit> missing;
  for (const KernelPlan &plan : plans) {
    keys.push_back(kernelKey(plan, *compiler));
    if (auto [place, isNew] = ready.try_emplace(keys.back()); isNew) {
      place->second = folder->find(keys.back());
      if (!place->second)
        missing.push_back({&plan, keys.back()});
    }
  }

  const auto total = static_cast<int64_t>(missing.size());
  const auto work = batches(std::move(missing));
  std::mutex mutex;
  std::optional<Error> failure;
  auto finish = [&](const std::vector<LibraryFolder::Unit> &units) -> Status {
    auto library = folder->build(*compiler, units);
    if (!library)
      return library.error();
    std::lock_guard lock(mutex);
    for (const LibraryFolder::Unit &unit : units) {
      ready[unit.key] = *library;
      if (onCompiled)
        onCompiled(unit.plan->name, total);
    }
    return {};
  };
  parallelFor(int64_t(work.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (Status together = finish(work[i]); together)
        continue;
      // Alone, so that the message names the right kernel.
      for (const LibraryFolder::Unit &unit : work[i])
        if (Status alone = finish({unit}); !alone) {
          std::lock_guard lock(mutex);
          if (!failure)
            failure = Error{alone.error().kind,
                            fmt::format("kernel {}: {}", unit.plan->name, alone.error().message)};
          break;
        }
    }
  });
  if (failure)
    return *failure;

  std::vector<std::shared_ptr<EmulatedKernel>> kernels;
  for (size_t i = 0; i < plans.size(); ++i)
    kernels.push_back(make(plans[i], ready[keys[i]], keys[i]));
  return kernels;
}

/// FUSION_EMULATE_ORDER: the seed by which blocks and threads take turns; 0: by number.
static uint64_t chosenOrder() {
  const char *text = std::getenv("FUSION_EMULATE_ORDER");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

/// Which of `blocks` blocks is run as number `turn`: another permutation for each seed.
static int64_t blockOf(int64_t turn, int64_t blocks, uint64_t seed) {
  if (seed == 0 || blocks < 2)
    return turn;
  auto factor = static_cast<int64_t>(seed * 0x9e3779b97f4a7c15 % static_cast<uint64_t>(blocks));
  while (std::gcd(factor, blocks) != 1)
    ++factor;
  return static_cast<int64_t>((static_cast<__int128>(turn) * factor + static_cast<int64_t>(seed % 1009)) %
                              blocks);
}

Status EmulatedKernel::launch(uint32_t gridX, uint32_t gridY, uint32_t gridZ, void *const *arguments) const {
  if (gridX > 2147483647u || gridY > 65535 || gridZ > 65535)
    return Error{ErrorKind::AnswerIsNo, fmt::format("kernel {}: a grid of {} x {} x {} blocks is too large",
                                                    code->name, gridX, gridY, gridZ)};
  static std::atomic<uint64_t> launches = 0;
  Launch launch = code->launch;
  launch.id = ++launches;
  launch.order = launch.waitsForRanks ? 0 : chosenOrder();
  launch.arguments = arguments;
  launch.grid[0] = gridX;
  launch.grid[1] = gridY;
  launch.grid[2] = gridZ;
  const int64_t blocks = int64_t(gridX) * gridY * gridZ;
  const int64_t grain = std::max<int64_t>(1, blocks / (int64_t(threadCount()) * 8));
  std::mutex mutex;
  std::string failure;
  ErrorKind kind = ErrorKind::AnswerIsNo;
  std::atomic<bool> failed = false;
  auto run = [&](int64_t begin, int64_t end) {
    thread_local BlockRunner runner;
    for (int64_t block = begin; block < end && !failed; ++block)
      if (std::string error = runner.run(launch, uint64_t(blockOf(block, blocks, launch.order)));
          !error.empty()) {
        std::lock_guard lock(mutex);
        if (!failed.exchange(true)) {
          failure = std::move(error);
          kind = runner.isShortOfMemory() ? ErrorKind::Environment : ErrorKind::AnswerIsNo;
        }
      }
  };
  if (launch.waitsForRanks) // the ranks would wait for the threads that run loops, and for each other
    run(0, blocks);
  else
    parallelFor(blocks, grain, run);
  if (failed)
    return Error{kind, fmt::format("kernel {}: {}", code->name, failure)};
  return {};
}

} // namespace fusion
