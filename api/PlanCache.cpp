#include "api/PlanCache.h"

#include "api/Graph.h"
#include "runtime/cuda/Driver.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"

#include <fmt/format.h>

#include <elf.h>
#include <link.h>

#include <set>

namespace fusion {

namespace {
/// What the linker calls the program or shared library that holds this function; empty if it was told not to.
struct BuildId {
  uintptr_t inside;
  std::string id;
};

int readBuildId(dl_phdr_info *object, size_t, void *data) {
  auto &found = *static_cast<BuildId *>(data);
  bool holds = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto &segment = object->dlpi_phdr[i];
    uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    holds |= segment.p_type == PT_LOAD && found.inside >= begin && found.inside < begin + segment.p_memsz;
  }
  if (!holds)
    return 0;
  auto aligned = [](size_t size) { return (size + 3) & ~size_t(3); };
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto &segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE)
      continue;
    const char *at = reinterpret_cast<const char *>(object->dlpi_addr + segment.p_vaddr),
               *end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto &note = *reinterpret_cast<const ElfW(Nhdr) *>(at);
      const char *name = at + sizeof(note), *content = name + aligned(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID &&
          std::string_view(name, note.n_namesz) == std::string_view("GNU", 4))
        found.id = llvm::toHex(llvm::StringRef(content, note.n_descsz));
      at = content + aligned(note.n_descsz);
    }
  }
  return 1;
}

std::string buildId() {
  BuildId found{reinterpret_cast<uintptr_t>(&readBuildId), ""};
  dl_iterate_phdr(readBuildId, &found);
  return found.id;
}

/// What measurements on this machine are kept under.
std::string measuringDevice(bool mayMeasure) {
  if (!mayMeasure || cuda::deviceCount() == 0)
    return "no GPU";
  auto properties = cuda::deviceProperties(0);
  return properties ? properties->name : "";
}
} // namespace

namespace {
/// The text of a pattern file and, in PDLL, of what it includes, which mlir-pdll looks for beside the
/// including file and beside the first one. False if one cannot be found: then nobody knows what the patterns
/// are.
bool addPatternText(const std::string &path, const std::string &firstFolder, std::set<std::string> &seen,
                    std::string &key) {
  auto text = llvm::MemoryBuffer::getFile(path);
  if (!text)
    return false;
  if (!seen.insert(path).second)
    return true;
  key += fmt::format("patterns {}: {}\n{}\n", path, (*text)->getBufferSize(), (*text)->getBuffer().str());
  if (!llvm::StringRef(path).ends_with(".pdll"))
    return true;
  static const llvm::Regex include("#[ \t]*include[ \t]*\"([^\"\n]*)\"");
  llvm::SmallVector<llvm::StringRef> found;
  for (llvm::StringRef rest = (*text)->getBuffer(); include.match(rest, &found);
       rest = rest.substr(found[0].end() - rest.begin())) {
    bool known = false;
    for (llvm::StringRef folder : {llvm::sys::path::parent_path(path), llvm::StringRef(firstFolder)}) {
      llvm::SmallString<256> place(folder);
      llvm::sys::path::append(place, found[1]);
      if (!llvm::sys::fs::exists(place))
        continue;
      if (!addPatternText(place.str().str(), firstFolder, seen, key))
        return false;
      known = true;
      break;
    }
    if (!known)
      return false;
  }
  return true;
}
} // namespace

std::string planKey(const Graph &graph, const CompileOptions &options, bool mayMeasure) {
  const Graph::Implementation &source = *graph.implementation();
  std::string build = buildId(), machine = measuringDevice(mayMeasure);
  if (build.empty() || machine.empty() || !options.schedules.empty())
    return {};
  std::string key = fmt::format(
      "plan\nbuild {}\ndevice {}\ntarget {}\nranks {}\nvocabulary {}\nfuse {}\nprofit {}\nkv capacity {}\n"
      "assume finite {}\nbatch invariant {}\nmodel {}\nweights {}\n",
      build, machine, options.target.arch, options.tensorParallel, options.vocabularyParallel, options.fuse,
      static_cast<int>(options.profit), options.kvCapacity, options.assumeFinite, options.batchInvariant,
      source.path, source.weightFolder);
  for (const std::string &name : options.disabledFusions)
    key += fmt::format("disabled {}\n", name);
  for (const std::string &file : options.patternFiles) {
    std::set<std::string> seen;
    if (!addPatternText(file, llvm::sys::path::parent_path(file).str(), seen, key))
      return {};
  }
  llvm::raw_string_ostream out(key);
  source.module.get()->print(out, mlir::OpPrintingFlags().enableDebugInfo().useLocalScope());
  return key;
}

std::optional<ProgramPlan> cachedPlan(KernelCache &cache, const std::string &key) {
  auto text = key.empty() ? std::nullopt : cache.get(key);
  auto plan = text ? programPlanFromJson(*text) : badInput("");
  return plan ? std::optional(std::move(*plan)) : std::nullopt;
}

void storePlan(KernelCache &cache, const std::string &key, const ProgramPlan &plan) {
  if (!key.empty())
    cache.put(key, toJson(plan));
}

} // namespace fusion
