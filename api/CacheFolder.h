// The folder of compiled kernels, plans and reports, as fusion-cache shows it.
#pragma once

#include "ir/base/PrivateFolder.h"
#include "ir/base/Result.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fusion {

class CacheFolder {
public:
  /// Opens what is there; a folder that is absent has no entries. Errors: one that others may write
  /// (Environment).
  static Result<CacheFolder> open(const std::string &path);
  /// Where programs look, by FUSION_CACHE_DIR or HOME; empty if neither is set.
  static std::string defaultPath();
  /// Bytes above which what was used longest ago goes.
  static uint64_t mostBytes();

  std::vector<PrivateFolder::Entry> entries() const;
  /// Removes what was used longest ago, until `most` bytes are left.
  void shrink(uint64_t most) const;
  /// Nothing if the entry is damaged, or nothing that the cache has made. "unfinished": a process writes it,
  /// or has just renamed or removed it.
  std::optional<std::string> kindOf(const PrivateFolder::Entry &entry) const;

private:
  using Folder = std::shared_ptr<const PrivateFolder>;
  CacheFolder(Folder folder, Folder libraries) : folder(std::move(folder)), libraries(std::move(libraries)) {}
  static Result<Folder> openFolder(const std::string &path);
  std::optional<std::string> knownKindOf(const PrivateFolder::Entry &entry) const;

  Folder folder, libraries; ///< libraries: of the emulation
};

} // namespace fusion
