#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace fusion {

std::string environmentVariable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
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
