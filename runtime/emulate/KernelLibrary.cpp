#include "runtime/emulate/KernelLibrary.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/Comments.h"
#include "ir/base/Authentication.h"
#include "ir/base/Hash.h"
#include "ir/base/MappedFile.h"
#include "ir/base/TemporaryPath.h"
#include "runtime/emulate/BlockRunner.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

namespace fusion::emulate {

namespace files = std::filesystem;

/// Opening a library that was cut short would end the process. Linkers write the section headers last.
static bool isWhole(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char *>(&header), sizeof(header)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return false;
  std::error_code failure;
  uint64_t size = files::file_size(path, failure);
  return !failure && header.e_shoff <= size &&
         uint64_t{header.e_shnum} * header.e_shentsize <= size - header.e_shoff;
}

Result<std::shared_ptr<KernelLibrary>> KernelLibrary::open(const std::string &path) {
  std::shared_ptr<KernelLibrary> library(new KernelLibrary);
  library->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library->handle)
    return environment(fmt::format("cannot open a library: {}", dlerror()));
  auto attach = reinterpret_cast<void (*)(const fusion_emulation::Machine *)>(
      dlsym(library->handle, "fusion_emulated_attach"));
  library->slot =
      reinterpret_cast<fusion_emulation::Thread **(*)()>(dlsym(library->handle, "fusion_emulated_thread"));
  if (!attach || !library->slot)
    return environment(fmt::format("{} is not a library of emulated kernels", path));
  attach(&BlockRunner::machine());
  return library;
}

KernelLibrary::~KernelLibrary() {
  if (handle)
    dlclose(handle);
}

KernelEntry KernelLibrary::entry(const std::string &key) const {
  return reinterpret_cast<KernelEntry>(dlsym(handle, ("fusion_emulated_" + key).c_str()));
}

/// The kernel in a namespace of its own, and a function of its key's name that calls it.
static std::string unitText(const KernelPlan &plan, const std::string &key, const std::string &source) {
  std::string text = fmt::format("namespace kernel_{} {{\n#line 1 \"{}\"\n{}\n", key, plan.name, source);
  std::string arguments;
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    text += fmt::format("using parameter_{} = {};\n", i, plan.parameters[i].type);
    arguments += fmt::format("{}*static_cast<parameter_{} const *>(arguments[{}])", i ? ", " : "", i, i);
  }
  text += fmt::format("extern \"C\" void fusion_emulated_{}(void *const *arguments) {{ {}({}); }}\n}}\n", key,
                      plan.name, arguments);
  return text;
}

std::string kernelKey(const KernelPlan &plan, const HostCompiler &compiler) {
  std::string content = compiler.identity + '\0';
  for (const std::string &flag : HostCompiler::flags())
    content += flag + '\0';
  const KernelText text = splitIncludes(withoutComments(plan.source));
  return contentHash(content + expandIncludes(text.includes, Flavour::Emulated) +
                     unitText(plan, "", text.rest));
}

namespace {
/// At the end of a library's file: this and the code of what is before it, which the dynamic linker does not
/// read.
constexpr std::string_view codeMark = "fusion-code:";
constexpr size_t codeBytes = 16;

/// Appends the code; nobody else has the file yet.
bool authenticate(const PrivateFolder &folder, const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  const std::string contents((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::ofstream out(path, std::ios::binary | std::ios::app);
  out << codeMark << folder.codeOf(contents);
  out.close();
  return in && out && chmod(path.c_str(), 0600) == 0;
}

bool isFull(const std::string &folder) {
  constexpr uint64_t enough = 16 << 20;
  struct statvfs facts;
  return statvfs(folder.c_str(), &facts) == 0 && facts.f_frsize * facts.f_bavail < enough;
}
} // namespace

bool isAuthentic(const PrivateFolder &folder, const std::string &name) {
  const std::optional<std::string> text = folder.read(name);
  if (!text || text->size() < codeMark.size() + codeBytes)
    return false;
  const std::string_view all = *text, contents = all.substr(0, all.size() - codeBytes - codeMark.size());
  return all.substr(contents.size(), codeMark.size()) == codeMark &&
         sameCode(all.substr(all.size() - codeBytes), folder.codeOf(contents));
}

struct LibraryFolder::Temporary {
  std::mutex mutex;
  Folder folder;
  std::optional<TemporaryPath> removed;
};

LibraryFolder::LibraryFolder(LibraryFolder &&) noexcept = default;
LibraryFolder::~LibraryFolder() = default;

Result<LibraryFolder> LibraryFolder::open(const std::string &path) {
  LibraryFolder result;
  result.temporary = std::make_unique<Temporary>();
  for (bool make : {true, false})
    if (!path.empty() && !result.kept)
      if (auto folder = PrivateFolder::open(path, make))
        result.kept = *folder;
  result.keepsMore = result.kept && result.kept->isWritable();
  if (!result.keepsMore && !result.temporaryFolder())
    return environment(fmt::format("cannot write to {} nor to a temporary folder; set TMPDIR", path));
  return result;
}

LibraryFolder::Folder LibraryFolder::temporaryFolder() const {
  std::lock_guard lock(temporary->mutex);
  if (temporary->folder)
    return temporary->folder;
  std::error_code failure;
  std::string name = (files::temp_directory_path(failure) / "fusion-emulate-XXXXXX").string();
  if (failure || !mkdtemp(name.data()))
    return nullptr;
  temporary->removed.emplace(name);
  auto made = PrivateFolder::open(name, /*make=*/true);
  if (made)
    temporary->folder = *made;
  return temporary->folder;
}

std::shared_ptr<KernelLibrary> LibraryFolder::find(const std::string &key) const {
  const std::string name = key + ".so",
                    path = kept ? fmt::format("{}/{}", kept->path(), name) : std::string();
  struct stat facts;
  if (!kept || lstat(path.c_str(), &facts) != 0)
    return nullptr;
  if (isAuthentic(*kept, name) && isWhole(path))
    if (auto library = KernelLibrary::open(path); library && (*library)->entry(key))
      return *library;
  unlink(path.c_str());
  return nullptr;
}

std::string LibraryFolder::precompiled(const HostCompiler &compiler, const std::string &text) const {
  if (!keepsMore || !compiler.precompiles)
    return {};
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::string content = compiler.identity + '\0';
  for (const std::string &flag : HostCompiler::flags())
    content += flag + '\0';
  const std::string name = fmt::format("headers/{}.h", contentHash(content + text)),
                    header = fmt::format("{}/{}", kept->path(), name);
  const std::string result = header + ".pch";
  std::error_code failure;
  if (access(result.c_str(), R_OK) == 0) {
    if (isAuthentic(*kept, name + ".pch"))
      return result;
    unlink(result.c_str());
  }
  files::create_directories(kept->path() + "/headers", failure);
  const TemporaryPath parts(fmt::format("{}/headers/building-{}-header", kept->path(), getpid()),
                            TemporaryPath::AndLonger);
  const std::string own = parts.path() + ".pch";
  const std::string_view contents[] = {text};
  const bool made = writeFileAtomically(header, contents, {.mode = 0600}) &&
                    compiler.precompile(header, own, own + ".log") && authenticate(*kept, own) &&
                    rename(own.c_str(), result.c_str()) == 0;
  return made ? result : std::string();
}

Result<std::shared_ptr<KernelLibrary>> LibraryFolder::build(const HostCompiler &compiler,
                                                            const std::vector<Unit> &units) const {
  if (keepsMore) {
    auto library = buildIn(*kept, compiler, units);
    if (library || !isFull(kept->path()))
      return library;
  }
  const Folder folder = temporaryFolder();
  return folder ? buildIn(*folder, compiler, units)
                : environment(
                      "no folder for compiled kernels can be written to; set FUSION_CACHE_DIR or TMPDIR");
}

Result<std::shared_ptr<KernelLibrary>> LibraryFolder::buildIn(const PrivateFolder &folder,
                                                              const HostCompiler &compiler,
                                                              const std::vector<Unit> &units) const {
  static std::atomic<unsigned> counter = 0;
  const TemporaryPath parts(fmt::format("{}/building-{}-{}.", folder.path(), getpid(), counter++),
                            TemporaryPath::AndLonger);
  const std::string &base = parts.path(), source = base + "cpp", binary = base + "so", log = base + "log";

  std::vector<std::string> includes;
  for (const Unit &unit : units)
    for (std::string &name : splitIncludes(unit.plan->source).includes)
      if (std::find(includes.begin(), includes.end(), name) == includes.end())
        includes.push_back(std::move(name));
  std::string kernels;
  for (const Unit &unit : units)
    kernels += unitText(*unit.plan, unit.key, splitIncludes(unit.plan->source).rest);
  const std::string device = expandIncludes(includes, Flavour::Emulated),
                    header = precompiled(compiler, device);
  auto compile = [&](const std::string &text, const std::string &header,
                     HostCompiler::Frames frames = HostCompiler::EachItsPlace) -> Status {
    std::ofstream out(source, std::ios::trunc);
    out << text;
    out.close();
    if (Status status = out ? compiler.compile(source, binary, log, header, frames)
                            : environment(fmt::format("cannot write {}", source));
        !status)
      return status;
    return authenticate(folder, binary) ? Status() : environment(fmt::format("cannot write {}", binary));
  };
  // A precompiled header that does not fit (cut short, say) costs time only.
  if (header.empty() || !compile(kernels, header)) {
    Status status = compile(device + kernels, "");
    if (!status && HostCompiler::isFrameTooLarge(status.error()))
      status = compile(device + kernels, "", HostCompiler::FewVariables);
    if (!status)
      return status.error();
  }
  auto library = KernelLibrary::open(binary);
  if (!library)
    return environment(fmt::format("{} made what is of no use: {}", compiler.path, library.error().message));
  for (const Unit &unit : units) {
    // A link appears whole or not at all. When another process was first, its file is as good; a file system
    // without links gets a copy under a temporary name, renamed.
    const std::string target = fmt::format("{}/{}.so", folder.path(), unit.key);
    if (link(binary.c_str(), target.c_str()) == 0 || errno == EEXIST)
      continue;
    std::error_code failure;
    files::copy_file(binary, base + "copy", files::copy_options::overwrite_existing, failure);
    if (!failure)
      files::rename(base + "copy", target, failure);
  }
  return library;
}

} // namespace fusion::emulate
