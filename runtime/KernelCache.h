// Compiled kernels and whole compiled programs on disk, shared by processes.
#pragma once

#include "ir/base/Result.h"

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace fusion {

/// One file an entry, written to a temporary name and renamed: a reader sees a whole entry or none, also
/// when the writer is killed. Thread-safe; any number of processes may share a folder.
class KernelCache {
public:
  using Warning = std::function<void(const std::string &)>;
  /// $FUSION_CACHE_DIR, else $XDG_CACHE_HOME/fusion, else ~/.cache/fusion; empty without any of them.
  static std::string defaultFolder();
  /// `folder` is made on the first put(); empty means no cache. `warn` is called for an entry
  /// that is damaged and once when the folder cannot be written to; by default it prints to stderr, the
  /// same line once.
  explicit KernelCache(std::string folder = defaultFolder(), Warning warn = {});

  /// The bytes stored under `key` (any text). An entry that is damaged counts as absent and is removed,
  /// which `warn` says.
  std::optional<std::string> get(std::string_view key);
  /// Stores or replaces. A failure costs only the cached entry: it is reported through `warn`.
  void put(std::string_view key, std::string_view bytes);
  const std::string &folder() const { return root; }
  /// Somebody who keeps files of their own in the folder could not write: warns, once.
  void reportUnwritable(const std::string &reason);

private:
  std::string entryPath(std::string_view key) const;
  std::string root;
  Warning warn;
  std::mutex mutex;
  bool unwritable = false;
};

} // namespace fusion
