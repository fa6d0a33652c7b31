#include "runtime/cuda/Nvrtc.h"

#include "codegen/target/TargetInfo.h"
#include "runtime/cuda/Hints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>

namespace fusion {

/// sm_90 is compiled as sm_90a; a device newer than all rows by its own name.
static std::string compilationName(const std::string &arch) {
  Result<TargetInfo> target = TargetInfo::find(arch);
  return target ? target->name : arch;
}

/// The first NVRTC that keeps what it compiles and has the option against it.
static constexpr std::pair firstWithCache(12, 9);

static std::vector<std::string> options(const std::string &arch, std::pair<int, int> version) {
  // No contraction of a*b + c: every op of the graph rounds, and kernels that want an fma ask for one.
  // No textures and no launches from kernels: less to parse, for the same code.
  // No cache of NVRTC's own: what comes from it has no resource report, and cubins are cached here anyway.
  std::vector<std::string> texts = {"--gpu-architecture=" + compilationName(arch), "--std=c++17",
                                    "--fmad=false", "--ptxas-options=-v", "--minimal"};
  if (version >= firstWithCache)
    texts.push_back("--no-cache");
  return texts;
}

static std::pair<int, int> versionOf(const NvrtcLibrary &library) {
  return {library.major(), library.minor()};
}

Result<Nvrtc *> Nvrtc::instance() {
  // Only success is remembered: a failure may be repaired by setting a variable.
  static std::mutex mutex;
  static Nvrtc *opened = nullptr;
  std::lock_guard lock(mutex);
  if (!opened) {
    Result<Nvrtc> nvrtc = open();
    if (!nvrtc)
      return nvrtc.error();
    opened = new Nvrtc(std::move(*nvrtc)); // lives as long as the library, which is never closed
  }
  return opened;
}

Result<Nvrtc> Nvrtc::open() {
  Library::Request request;
  request.purpose = "NVRTC, the CUDA runtime compiler,";
  request.advice =
      "run the project's set-up script, or `pip install nvidia-cuda-nvrtc`, or install a CUDA toolkit, "
      "and set FUSION_NVRTC to the path of libnvrtc.so if it is in an unusual place";
  request.files = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  if (std::string file = environmentVariable("FUSION_NVRTC"); !file.empty()) {
    request.files = {file}; // the user's choice, or none
  } else {
    request.directories.push_back(environmentVariable("FUSION_NVRTC_DIR"));
    for (const char *variable : {"FUSION_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"})
      if (std::string home = environmentVariable(variable); !home.empty()) {
        request.directories.push_back(home + "/lib64");
        request.directories.push_back(home + "/lib");
      }
    if (const char *hint = nvrtcHint())
      request.directories.push_back(hint);
    for (const char *folder : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}) // of CUDA 13, and 12
      for (std::string &found : wheelFolders(folder))
        request.fallbacks.push_back(std::move(found));
    request.fallbacks.insert(request.fallbacks.end(),
                             {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/opt/cuda/lib64"});
  }
  Result<Library> library = Library::open(request);
  if (!library)
    return library.error();
  std::optional<NvrtcLibrary> functions = NvrtcLibrary::of(*library);
  if (!functions)
    return environment(fmt::format("{} is not a usable NVRTC: install version {}.{} or newer",
                                   library->path(), oldestNvrtc[0], oldestNvrtc[1]));
  Nvrtc nvrtc(std::move(*functions));
  if (versionOf(nvrtc.library) < std::pair(oldestNvrtc[0], oldestNvrtc[1]))
    return environment(fmt::format("{} is NVRTC {}, which is too old: version {}.{} or newer is needed; {}",
                                   library->path(), nvrtc.version(), oldestNvrtc[0], oldestNvrtc[1],
                                   request.advice));
  return nvrtc;
}

std::string Nvrtc::version() const { return fmt::format("{}.{}", library.major(), library.minor()); }

std::string Nvrtc::fingerprint(const std::string &arch) const {
  return fmt::format("nvrtc {} {}, again where it spills", version(),
                     fmt::join(options(arch, versionOf(library)), " "));
}

/// The sum of the numbers that stand before each occurrence of `label`; -1 if there is none.
static int sumBefore(const std::string &log, std::string_view label) {
  int total = -1;
  for (size_t at = log.find(label); at != std::string::npos; at = log.find(label, at + 1)) {
    size_t begin = at;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(log[begin - 1])))
      --begin;
    total = std::max(total, 0) + std::atoi(log.c_str() + begin);
  }
  return total;
}

static int numberAfter(const std::string &log, std::string_view label) {
  size_t at = log.find(label);
  return at == std::string::npos ? -1 : std::atoi(log.c_str() + at + label.size());
}

Result<Cubin> Nvrtc::compile(const std::string &source, const std::string &name, const std::string &arch,
                             NvrtcProcess *process) const {
  Result<Cubin> usual = compileOnce(source, name, arch, nullptr, process);
  if (!usual || usual->spillBytes <= 0)
    return usual;
  Result<Cubin> roomy = compileOnce(source, name, arch, "-DFUSION_ALL_REGISTERS", process);
  return roomy && roomy->spillBytes < usual->spillBytes ? roomy : usual;
}

static KernelResources resourcesIn(std::string log) {
  KernelResources resources;
  resources.registers = numberAfter(log, "Used ");
  const int stores = sumBefore(log, " bytes spill stores"), loads = sumBefore(log, " bytes spill loads");
  resources.spillBytes = stores < 0 ? -1 : stores + std::max(loads, 0);
  resources.log = std::move(log);
  return resources;
}

Result<Cubin> Nvrtc::compileOnce(const std::string &source, const std::string &name, const std::string &arch,
                                 const char *definition, NvrtcProcess *process) const {
  Result<Output> output = compileProgram(source, name, arch, definition, process);
  if (!output)
    return output.error();
  return Cubin{resourcesIn(std::move(output->log)), std::move(output->bytes)};
}

Result<CubinModule> Nvrtc::compileModule(const std::string &source, const std::string &name,
                                         const std::string &arch, NvrtcProcess *process) const {
  Result<Output> output = compileProgram(source, name, arch, nullptr, process);
  if (!output)
    return output.error();
  // What stands after an entry point's name until the next one is said of it.
  CubinModule module{std::move(output->bytes), {}};
  const std::string &log = output->log;
  constexpr std::string_view entry = "Compiling entry function '";
  size_t next = log.find(entry);
  while (next != std::string::npos) {
    const size_t at = next, begin = at + entry.size();
    next = log.find(entry, begin);
    const size_t line = log.rfind('\n', at) + 1,
                 end = next == std::string::npos ? log.size() : log.rfind('\n', next);
    module.kernels[log.substr(begin, log.find('\'', begin) - begin)] =
        resourcesIn(log.substr(line, end - line));
  }
  return module;
}

Result<Nvrtc::Output> Nvrtc::compileProgram(const std::string &source, const std::string &name,
                                            const std::string &arch, const char *definition,
                                            NvrtcProcess *process) const {
  if (auto target = TargetInfo::find(arch); target && versionOf(library) < target->oldestNvrtc)
    return environment(fmt::format("{} needs NVRTC {}.{} or newer, {} is version {}", arch,
                                   target->oldestNvrtc.first, target->oldestNvrtc.second, path(), version()));
  NvrtcRequest request{source, name + ".cu", options(arch, versionOf(library))};
  if (definition)
    request.options.push_back(definition);
  std::optional<NvrtcAnswer> answer = process ? process->compile(request) : std::nullopt;
  if (!answer)
    answer = library.compile(request);
  if (answer->error.empty())
    return Output{std::move(answer->cubin), std::move(answer->log)};
  if (answer->log.empty())
    return environment(fmt::format("kernel {}: NVRTC: {}", name, answer->error));
  // A wrong architecture is the caller's mistake; anything else is a kernel that should have compiled.
  const std::string &log = answer->log;
  const size_t error = log.find("error"), begin = error == std::string::npos ? 0 : log.rfind('\n', error) + 1;
  return badInput(fmt::format("kernel {} does not compile for {} with NVRTC {}: {}: {}", name, arch,
                              version(), answer->error, log.substr(begin, log.find('\n', begin) - begin)));
}

} // namespace fusion
