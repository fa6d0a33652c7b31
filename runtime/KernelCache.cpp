#include "runtime/KernelCache.h"

#include "ir/base/Hash.h"
#include "ir/base/MappedFile.h"
#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace fusion {

/// An entry: this, the hash of what follows the header, a newline, the bytes.
static constexpr std::string_view magic = "fusion-cache 1 ";
static constexpr size_t hashLength = 32;
static constexpr size_t headerLength = magic.size() + hashLength + 1;

std::string KernelCache::defaultFolder() {
  if (std::string folder = environmentVariable("FUSION_CACHE_DIR"); !folder.empty())
    return folder;
  if (std::string folder = environmentVariable("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/fusion";
  if (std::string folder = environmentVariable("HOME"); !folder.empty())
    return folder + "/.cache/fusion";
  return {};
}

/// A program has several caches on one folder.
static void warnOnce(const std::string &text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard lock(mutex);
  if (said.insert(text).second)
    fmt::print(stderr, "warning: {}\n", text);
}

KernelCache::KernelCache(std::string folder, Warning warning)
    : root(std::move(folder)), warn(std::move(warning)) {
  if (!warn)
    warn = warnOnce;
}

std::string KernelCache::entryPath(std::string_view key) const {
  std::string hash = contentHash(key);
  return fmt::format("{}/{}/{}", root, hash.substr(0, 2), hash.substr(2));
}

std::optional<std::string> KernelCache::get(std::string_view key) {
  if (root.empty())
    return std::nullopt;
  std::string path = entryPath(key);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return std::nullopt;
  std::ostringstream stream;
  stream << file.rdbuf();
  std::string text = std::move(stream).str();
  bool whole = text.size() >= headerLength && text.starts_with(magic) && text[headerLength - 1] == '\n' &&
               std::string_view(text).substr(magic.size(), hashLength) ==
                   contentHash(std::string_view(text).substr(headerLength));
  if (!whole) {
    std::error_code ignored; // the folder may be read-only; then the entry is only skipped
    std::filesystem::remove(path, ignored);
    warn(fmt::format("the cache entry {} is damaged: made anew", path));
    return std::nullopt;
  }
  return text.substr(headerLength);
}

void KernelCache::put(std::string_view key, std::string_view bytes) {
  {
    std::lock_guard lock(mutex);
    if (root.empty() || unwritable)
      return;
  }
  std::string path = entryPath(key);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error)
    return reportUnwritable(error.message());
  if (Status status = writeFileAtomically(path, fmt::format("{}{}\n{}", magic, contentHash(bytes), bytes));
      !status)
    reportUnwritable(status.error().message);
}

void KernelCache::reportUnwritable(const std::string &reason) {
  std::lock_guard lock(mutex);
  if (unwritable)
    return;
  unwritable = true;
  warn(fmt::format(
      "the cache folder {} cannot be written to ({}): continuing without it; set FUSION_CACHE_DIR to "
      "another folder",
      root, reason));
}

} // namespace fusion
