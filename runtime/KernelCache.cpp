#include "runtime/KernelCache.h"

#include "ir/base/Authentication.h"
#include "ir/base/Hash.h"
#include "ir/base/MappedFile.h"
#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

namespace fusion {

/// An entry: this, the code of its name, kind and bytes, its kind, a newline, the bytes.
static constexpr std::string_view magic = "fusion-cache 2 ", magicOfAll = "fusion-cache ";
static constexpr size_t codeLength = 32, mostKindLength = 16;
static constexpr size_t headerLength = magic.size() + codeLength + 1;

std::string KernelCache::defaultFolder() {
  if (std::string folder = environmentVariable("FUSION_CACHE_DIR"); !folder.empty())
    return folder;
  // The XDG Base Directory Specification: a relative path is invalid and ignored.
  if (std::string folder = environmentVariable("XDG_CACHE_HOME"); folder.starts_with('/'))
    return folder + "/fusion";
  if (std::string folder = environmentVariable("HOME"); folder.starts_with('/'))
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

uint64_t KernelCache::mostBytes() {
  constexpr uint64_t standard = uint64_t{8} << 30;
  return parseBytes(environmentVariable("FUSION_CACHE_SIZE")).value_or(standard);
}

static std::string entryName(std::string_view key) {
  std::string hash = contentHash(key);
  return fmt::format("{}/{}", hash.substr(0, 2), hash.substr(2));
}

static std::string codeOf(const PrivateFolder &folder, std::string_view name, std::string_view kind,
                          std::string_view bytes) {
  return toHex(folder.codeOf(fmt::format("{}\n{}\n{}", name, kind, bytes)));
}

namespace {
struct EntryText {
  std::string_view kind, bytes;
};
} // namespace

/// Nothing if it is damaged, or was written with another key or under another name.
static std::optional<EntryText> parseEntry(const PrivateFolder &folder, std::string_view name,
                                           std::string_view text) {
  const size_t end = text.find('\n', std::min(text.size(), headerLength));
  if (!text.starts_with(magic) || end == std::string_view::npos || end - headerLength > mostKindLength)
    return std::nullopt;
  const EntryText entry{text.substr(headerLength, end - headerLength), text.substr(end + 1)};
  if (!sameCode(text.substr(magic.size(), codeLength), codeOf(folder, name, entry.kind, entry.bytes)))
    return std::nullopt;
  return entry;
}

std::optional<std::string> KernelCache::kindOf(const PrivateFolder &folder, const std::string &name) {
  const std::optional<std::string> text = folder.read(name, false);
  const std::optional<EntryText> entry = text ? parseEntry(folder, name, *text) : std::nullopt;
  return entry ? std::optional(std::string(entry->kind)) : std::nullopt;
}

std::shared_ptr<const PrivateFolder> KernelCache::open(bool make) {
  std::lock_guard lock(mutex);
  if (root.empty() || distrusted || (make && unwritable))
    return nullptr;
  if (opened)
    return opened;
  auto folder = PrivateFolder::open(root, make);
  if (folder)
    return opened = *folder;
  if (folder.error().kind == ErrorKind::AnswerIsNo) {
    distrusted = true;
    warn(fmt::format("the cache folder {} is not used: {}; or set FUSION_CACHE_DIR to another folder", root,
                     folder.error().message));
  } else {
    warnUnwritable(folder.error().message);
  }
  return nullptr;
}

std::shared_ptr<const PrivateFolder> KernelCache::privateFolder() {
  auto folder = open(false);
  return folder ? folder : open(true);
}

std::optional<std::string> KernelCache::get(std::string_view key) {
  const auto folder = open(false);
  if (!folder)
    return std::nullopt;
  const std::string name = entryName(key), path = fmt::format("{}/{}", root, name);
  std::optional<std::string> text = folder->read(name);
  if (text)
    if (std::optional<EntryText> entry = parseEntry(*folder, name, *text))
      return std::string(entry->bytes);
  std::error_code ignored; // the folder may be read-only; then the entry is only skipped
  if (!text && !std::filesystem::exists(std::filesystem::symlink_status(path, ignored)))
    return std::nullopt;
  std::filesystem::remove(path, ignored);
  const bool isOfOtherVersion = text && text->starts_with(magicOfAll) && !text->starts_with(magic);
  if (!isOfOtherVersion)
    warn(fmt::format("the cache entry {} is damaged: made anew", path));
  return std::nullopt;
}

void KernelCache::put(std::string_view key, std::string_view bytes) {
  const auto folder = open(true);
  if (!folder)
    return;
  const std::string name = entryName(key), path = fmt::format("{}/{}", root, name);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error)
    return reportUnwritable(error.message());
  const std::string_view kind = key.substr(0, std::min(key.find_first_of(" \n"), mostKindLength));
  const std::string header = fmt::format("{}{} {}\n", magic, codeOf(*folder, name, kind, bytes), kind);
  const std::string_view parts[] = {header, bytes};
  // Not synced: an entry that a power failure damages fails its check.
  if (Status status = writeFileAtomically(path, parts, {.mode = 0600, .syncs = false}); !status)
    return reportUnwritable(status.error().message);
  folder->noteWritten(bytes.size(), mostBytes());
}

void KernelCache::reportUnwritable(const std::string &reason) {
  std::lock_guard lock(mutex);
  warnUnwritable(reason);
}

void KernelCache::warnUnwritable(const std::string &reason) {
  if (unwritable)
    return;
  unwritable = true;
  warn(fmt::format(
      "the cache folder {} cannot be written to ({}): continuing without it; set FUSION_CACHE_DIR to "
      "another folder",
      root, reason));
}

} // namespace fusion
