#include "runtime/cuda/Library.h"

#include "runtime/cuda/Hints.h"
#include "runtime/cuda/Packages.h"

#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <glob.h>

namespace fusion {

std::string environmentVariable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

std::string packagesAround(const std::string &file) {
  for (std::filesystem::path folder = file; folder.has_relative_path(); folder = folder.parent_path())
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages")
      return folder.string();
  return "";
}

std::string ownFile() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void *>(&packagesAround), &info) != 0 && info.dli_fname &&
      info.dli_fname[0] == '/')
    return info.dli_fname;
  std::error_code ignored; // a program's name there is what it was called by
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

std::vector<std::string> wheelFolders(const std::string &folder) {
  std::vector<std::string> folders;
  std::error_code ignored; // beside this library first, where it is of a wheel itself
  if (const std::string own = packagesAround(ownFile());
      !own.empty() && std::filesystem::exists(own + "/" + folder, ignored))
    folders.push_back(own + "/" + folder);
  std::vector<std::string> roots;
  for (const char *variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (std::string root = environmentVariable(variable); !root.empty())
      roots.push_back(root);
  if (const char *hint = pythonHint())
    roots.push_back(hint);
  if (std::string home = environmentVariable("HOME"); !home.empty())
    roots.push_back(home + "/.local");
  roots.insert(roots.end(), {"/usr/local", "/usr", "/opt/conda"});
  for (const std::string &root : roots)
    for (const char *packages : {"site-packages", "dist-packages"}) {
      glob_t found = {};
      if (glob(fmt::format("{}/lib/python3*/{}/{}", root, packages, folder).c_str(), 0, nullptr, &found) == 0)
        folders.insert(folders.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
      globfree(&found);
    }
  return folders;
}

Result<Library> Library::open(const Request &request) {
  std::string complaint;
  auto tryOpen = [&](const std::string &file) -> void * {
    void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    // A file that exists but does not load is more telling than one that is absent.
    if (const char *text = handle ? nullptr : dlerror();
        text && (complaint.empty() || std::filesystem::exists(file)))
      complaint = text;
    return handle;
  };
  auto tryDirectories = [&](const std::vector<std::string> &directories) -> std::optional<Library> {
    for (const std::string &directory : directories)
      for (const std::string &name : request.files) {
        std::string file = directory + "/" + name;
        std::error_code ignored;
        if (directory.empty() || !std::filesystem::exists(file, ignored))
          continue;
        if (void *handle = tryOpen(file))
          return Library(handle, file);
      }
    return std::nullopt;
  };
  if (auto library = tryDirectories(request.directories))
    return *library;
  for (const std::string &name : request.files)
    if (void *handle = tryOpen(name))
      return Library(handle, name);
  if (auto library = tryDirectories(request.fallbacks))
    return *library;
  return environment(fmt::format("{} cannot be loaded ({}): {}", request.purpose, complaint, request.advice));
}

void *Library::address(const char *symbol) const { return dlsym(handle, symbol); }

} // namespace fusion
