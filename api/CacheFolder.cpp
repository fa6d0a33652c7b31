#include "api/CacheFolder.h"

#include "runtime/KernelCache.h"
#include "runtime/emulate/KernelLibrary.h"

namespace fusion {

static constexpr std::string_view emulated = "emulated/";

Result<CacheFolder::Folder> CacheFolder::openFolder(const std::string &path) {
  auto folder = PrivateFolder::open(path, /*make=*/false);
  return folder ? folder : Result<Folder>(environment(path + ": " + folder.error().message));
}

Result<CacheFolder> CacheFolder::open(const std::string &path) {
  auto folder = openFolder(path), libraries = folder && *folder ? openFolder(path + "/emulated") : folder;
  if (!folder || !libraries)
    return (folder ? libraries : folder).error();
  return CacheFolder(*folder, *libraries);
}

std::string CacheFolder::defaultPath() { return KernelCache::defaultFolder(); }
uint64_t CacheFolder::mostBytes() { return KernelCache::mostBytes(); }

std::vector<PrivateFolder::Entry> CacheFolder::entries() const {
  return folder ? folder->entries() : std::vector<PrivateFolder::Entry>();
}

void CacheFolder::shrink(uint64_t most) const {
  if (folder)
    folder->shrink(most);
}

std::optional<std::string> CacheFolder::kindOf(const PrivateFolder::Entry &entry) const {
  auto kind = knownKindOf(entry);
  return kind || !folder->isInMotion(entry) ? kind : "unfinished";
}

std::optional<std::string> CacheFolder::knownKindOf(const PrivateFolder::Entry &entry) const {
  const std::string &name = entry.names.front();
  if (!name.starts_with(emulated))
    return KernelCache::kindOf(*folder, name);
  const std::string own = name.substr(emulated.size());
  if (own.ends_with(".h") && libraries && libraries->isTrusted(own))
    return "header"; // its text; it is read only to make a .pch again
  if (!libraries || !emulate::isAuthentic(*libraries, own))
    return std::nullopt;
  return own.ends_with(".pch") ? "header" : "library";
}

} // namespace fusion
