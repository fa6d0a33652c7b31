#include "runtime/cuda/Nvrtc.h"

#include "codegen/target/TargetInfo.h"
#include "runtime/cuda/Hints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

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
  Nvrtc nvrtc(*library);
  bool complete = library->resolve("nvrtcVersion", nvrtc.getVersion) &&
                  library->resolve("nvrtcGetErrorString", nvrtc.getErrorString) &&
                  library->resolve("nvrtcCreateProgram", nvrtc.createProgram) &&
                  library->resolve("nvrtcDestroyProgram", nvrtc.destroyProgram) &&
                  library->resolve("nvrtcCompileProgram", nvrtc.runCompiler) &&
                  library->resolve("nvrtcGetCUBINSize", nvrtc.getCubinSize) &&
                  library->resolve("nvrtcGetCUBIN", nvrtc.getCubin) &&
                  library->resolve("nvrtcGetProgramLogSize", nvrtc.getLogSize) &&
                  library->resolve("nvrtcGetProgramLog", nvrtc.getLog);
  if (!complete || nvrtc.getVersion(&nvrtc.major, &nvrtc.minor) != 0)
    return environment(fmt::format("{} is not a usable NVRTC: install version {}.{} or newer",
                                   library->path(), oldestNvrtc[0], oldestNvrtc[1]));
  if (std::pair(nvrtc.major, nvrtc.minor) < std::pair(oldestNvrtc[0], oldestNvrtc[1]))
    return environment(fmt::format("{} is NVRTC {}, which is too old: version {}.{} or newer is needed; {}",
                                   library->path(), nvrtc.version(), oldestNvrtc[0], oldestNvrtc[1],
                                   request.advice));
  return nvrtc;
}

std::string Nvrtc::version() const { return fmt::format("{}.{}", major, minor); }

std::string Nvrtc::fingerprint(const std::string &arch) const {
  return fmt::format("nvrtc {} {}, again where it spills", version(),
                     fmt::join(options(arch, {major, minor}), " "));
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

Result<Cubin> Nvrtc::compile(const std::string &source, const std::string &name,
                             const std::string &arch) const {
  Result<Cubin> usual = compileOnce(source, name, arch, nullptr);
  if (!usual || usual->spillBytes <= 0)
    return usual;
  Result<Cubin> roomy = compileOnce(source, name, arch, "-DFUSION_ALL_REGISTERS");
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
                                 const char *definition) const {
  Result<Output> output = compileProgram(source, name, arch, definition);
  if (!output)
    return output.error();
  return Cubin{resourcesIn(std::move(output->log)), std::move(output->bytes)};
}

Result<CubinModule> Nvrtc::compileModule(const std::string &source, const std::string &name,
                                         const std::string &arch) const {
  Result<Output> output = compileProgram(source, name, arch, nullptr);
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
                                            const std::string &arch, const char *definition) const {
  if (auto target = TargetInfo::find(arch); target && std::pair(major, minor) < target->oldestNvrtc)
    return environment(fmt::format("{} needs NVRTC {}.{} or newer, {} is version {}", arch,
                                   target->oldestNvrtc.first, target->oldestNvrtc.second, path(), version()));
  Program program = nullptr;
  std::string file = name + ".cu";
  if (int code = createProgram(&program, source.c_str(), file.c_str(), 0, nullptr, nullptr))
    return environment(fmt::format("kernel {}: NVRTC: {}", name, getErrorString(code)));
  std::vector<std::string> texts = options(arch, {major, minor});
  if (definition)
    texts.push_back(definition);
  std::vector<const char *> pointers;
  for (const std::string &text : texts)
    pointers.push_back(text.c_str());
  int code = runCompiler(program, static_cast<int>(pointers.size()), pointers.data());
  Output cubin;
  size_t size = 0;
  if (getLogSize(program, &size) == 0 && size > 1) {
    cubin.log.resize(size);
    if (getLog(program, cubin.log.data()) != 0)
      cubin.log.clear();
    cubin.log.resize(cubin.log.find_last_not_of(std::string_view("\n\0", 2)) + 1);
  }
  if (code == 0 && (code = getCubinSize(program, &size)) == 0) {
    cubin.bytes.resize(size);
    code = getCubin(program, cubin.bytes.data());
  }
  destroyProgram(&program);
  if (code != 0) {
    // A wrong architecture is the caller's mistake; anything else is a kernel that should have compiled.
    size_t error = cubin.log.find("error");
    size_t begin = error == std::string::npos ? 0 : cubin.log.rfind('\n', error) + 1;
    std::string message = cubin.log.substr(begin, cubin.log.find('\n', begin) - begin);
    return badInput(fmt::format("kernel {} does not compile for {} with NVRTC {}: {}: {}", name, arch,
                                version(), getErrorString(code), message.empty() ? "no message" : message));
  }
  return cubin;
}

} // namespace fusion
