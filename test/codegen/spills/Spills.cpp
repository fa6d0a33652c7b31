#include "Spills.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/Comments.h"
#include "codegen/target/TargetInfo.h"
#include "ir/base/Hash.h"
#include "runtime/CompileKernels.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <thread>

namespace fusion::test {

std::string testCacheFolder() { return std::string(FUSION_BINARY_DIR) + "/test-cache"; }
std::string emulationCacheFolder() {
  std::string folder = testCacheFolder() + "/emulated";
  std::filesystem::create_directories(folder);
  return folder;
}

namespace {

/// A kernel for a target.
struct Wanted {
  std::string test, name, target, code, source;
  std::vector<std::string> includes;
  bool mayCall = false;
  int spillBytes = -1; ///< of stores and loads; -1: not known
  std::string error;
};

constexpr size_t mostTogether = 16;

std::string keyOf(const Nvrtc &nvrtc, const Wanted &kernel) {
  return fmt::format("spills\n{}\n{}\n{}", nvrtc.fingerprint(kernel.target),
                     expandIncludes(kernel.includes, Flavour::Cuda), kernel.code);
}

/// The entry point's name in a program with others.
std::string entryName(const Wanted &kernel, size_t number) {
  return fmt::format("{}_{}", kernel.name, number);
}

/// The code with its entry point named so.
std::string renamed(const Wanted &kernel, size_t number) {
  auto isWord = [&](size_t at) {
    return at < kernel.code.size() &&
           (std::isalnum(static_cast<unsigned char>(kernel.code[at])) || kernel.code[at] == '_');
  };
  std::string code;
  size_t from = 0;
  for (size_t at = kernel.code.find(kernel.name); at != std::string::npos;
       at = kernel.code.find(kernel.name, from)) {
    const size_t end = at + kernel.name.size();
    const bool isWhole = (at == 0 || !isWord(at - 1)) && !isWord(end);
    code += kernel.code.substr(from, at - from) + (isWhole ? entryName(kernel, number) : kernel.name);
    from = end;
  }
  return code + kernel.code.substr(from);
}

/// What does not compile in company or spills is compiled by itself.
void compileTogether(const Nvrtc &nvrtc, const std::vector<Wanted *> &kernels) {
  std::optional<CubinModule> module;
  if (kernels.size() > 1) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < kernels.size(); ++i)
      texts.push_back(renamed(*kernels[i], i));
    if (auto compiled = nvrtc.compileModule(programOf(kernels.front()->includes, texts), "kernels",
                                            kernels.front()->target))
      module = std::move(*compiled);
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    Wanted &kernel = *kernels[i];
    if (module)
      if (auto found = module->kernels.find(entryName(kernel, i));
          found != module->kernels.end() && found->second.spillBytes == 0) {
        kernel.spillBytes = 0;
        continue;
      }
    auto cubin = nvrtc.compile(expandIncludes(kernel.includes, Flavour::Cuda) + kernel.code, kernel.name,
                               kernel.target);
    if (cubin)
      kernel.spillBytes = cubin->spillBytes;
    else
      kernel.error = cubin.error().message;
  }
}

class SpillChecks : public testing::Environment {
public:
  void add(const KernelPlan &kernel, const char *target, bool mayCall) {
    const testing::TestInfo *test = testing::UnitTest::GetInstance()->current_test_info();
    KernelText text = splitIncludes(withoutComments(kernel.source));
    Wanted wanted{fmt::format("{}.{}", test ? test->test_suite_name() : "", test ? test->name() : ""),
                  kernel.name,
                  target,
                  std::move(text.rest),
                  kernel.source,
                  std::move(text.includes),
                  mayCall};
    if (seen.insert(
                contentHash(fmt::format("{}\n{}\n{}", target, fmt::join(wanted.includes, "\n"), wanted.code)))
            .second)
      kernels.push_back(std::move(wanted));
  }

  void TearDown() override {
    auto nvrtc = Nvrtc::instance();
    if (!nvrtc || kernels.empty())
      return;
    KernelCache cache(testCacheFolder());
    const std::vector<std::vector<Wanted *>> batches = missing(**nvrtc, cache);
    std::atomic<size_t> next = 0;
    auto work = [&] {
      for (size_t i = next++; i < batches.size(); i = next++)
        compileTogether(**nvrtc, batches[i]);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
      threads.emplace_back(work);
    work();
    for (std::thread &thread : threads)
      thread.join();
    for (const std::vector<Wanted *> &batch : batches)
      for (Wanted *kernel : batch)
        if (kernel->error.empty())
          cache.put(keyOf(**nvrtc, *kernel), std::to_string(kernel->spillBytes));
    for (const Wanted &kernel : kernels)
      report(**nvrtc, kernel);
  }

private:
  static void report(const Nvrtc &nvrtc, const Wanted &kernel) {
    if (!kernel.error.empty())
      ADD_FAILURE() << kernel.test << ": " << kernel.target << ": " << kernel.error << "\n" << kernel.source;
    else if (kernel.spillBytes < 0)
      ADD_FAILURE() << kernel.test << ": " << kernel.name << " for " << kernel.target
                    << ": the assembler says nothing of it";
    else if (kernel.spillBytes > 0 && !kernel.mayCall)
      ADD_FAILURE() << kernel.test << ": " << kernel.name << " spills " << kernel.spillBytes << " bytes on "
                    << kernel.target << " by NVRTC " << nvrtc.version() << "\n"
                    << kernel.source;
  }

  /// What the cache does not know, in parts that are compiled together; what defines a macro stands alone.
  std::vector<std::vector<Wanted *>> missing(const Nvrtc &nvrtc, KernelCache &cache) {
    std::map<std::pair<std::string, std::vector<std::string>>, std::vector<std::vector<Wanted *>>> groups;
    for (Wanted &kernel : kernels) {
      if (std::optional<std::string> known = cache.get(keyOf(nvrtc, kernel))) {
        kernel.spillBytes = std::atoi(known->c_str());
        continue;
      }
      const bool alone = standsAlone({kernel.includes, kernel.code});
      auto &parts = groups[{kernel.target, kernel.includes}];
      auto fits = [&](const std::vector<Wanted *> &part) {
        return !alone && part.size() < mostTogether &&
               !standsAlone({part.front()->includes, part.front()->code});
      };
      auto place = std::find_if(parts.begin(), parts.end(), fits);
      if (place == parts.end())
        place = parts.emplace(parts.end());
      place->push_back(&kernel);
    }
    std::vector<std::vector<Wanted *>> batches;
    for (auto &[key, parts] : groups)
      batches.insert(batches.end(), parts.begin(), parts.end());
    return batches;
  }

  std::vector<Wanted> kernels;
  std::set<std::string> seen;
};

} // namespace

static SpillChecks *const checks = [] {
  auto *made = new SpillChecks;
  testing::AddGlobalTestEnvironment(made);
  return made;
}();

void checkSpills(const KernelPlan &kernel, Targets targets, bool mayCall) {
  if (kernel.isLibraryCall)
    return;
  const char *choice = std::getenv("FUSION_TEST_TARGETS");
  const bool all = choice && std::string_view(choice) == "all";
  std::vector<const char *> chosen(std::begin(testTargets), std::end(testTargets));
  if (all)
    chosen.insert(chosen.end(), {"sm_86", "sm_89", "sm_103a"});
  std::erase_if(chosen, [&](const char *target) {
    auto info = TargetInfo::find(target);
    return !info || (info->features & kernel.features) != kernel.features;
  });
  if (targets == Targets::One && !all && !chosen.empty())
    chosen = {chosen[std::hash<std::string>()(withoutComments(kernel.source)) % chosen.size()]};
  for (const char *target : chosen)
    checks->add(kernel, target, mayCall);
}

} // namespace fusion::test
