// Compiled kernels and whole compiled programs on disk, shared by processes.
#pragma once

#include "ir/base/PrivateFolder.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace fusion {

/// One file an entry, written to a temporary name and renamed: a reader sees a whole entry or none, also
/// when the writer is killed. Entries carry a code that needs the folder's key; a folder that is not private
/// to the user is not used (see PrivateFolder). What was used longest ago goes when there is more than
/// $FUSION_CACHE_SIZE. Thread-safe; any number of processes may share a folder.
class KernelCache {
public:
  using Warning = std::function<void(const std::string &)>;
  /// $FUSION_CACHE_DIR, else $XDG_CACHE_HOME/fusion, else ~/.cache/fusion; empty without any of them.
  static std::string defaultFolder();
  /// $FUSION_CACHE_SIZE, such as "512M", or 8 GiB.
  static uint64_t mostBytes();
  /// `folder` is made on the first put(); empty means no cache. `warn` is called for an entry
  /// that is damaged and once when the folder cannot be written to, or is not trusted; by default it prints
  /// to stderr, the same line once.
  explicit KernelCache(std::string folder = defaultFolder(), Warning warn = {});

  /// The bytes stored under `key` (any text). An entry that is damaged counts as absent and is removed,
  /// which `warn` says.
  std::optional<std::string> get(std::string_view key);
  /// Stores or replaces. A failure costs only the cached entry: it is reported through `warn`.
  void put(std::string_view key, std::string_view bytes);
  const std::string &folder() const { return root; }
  /// What an entry is: "kernel", "module", "plan", the first word of its key; nothing for another file or a
  /// damaged entry.
  static std::optional<std::string> kindOf(const PrivateFolder &folder, const std::string &name);
  /// The folder, made if it is absent; null if it cannot be, or is not to be trusted, of which it warns.
  std::shared_ptr<const PrivateFolder> privateFolder();
  /// Somebody who keeps files of their own in the folder could not write: warns, once.
  void reportUnwritable(const std::string &reason);

private:
  std::shared_ptr<const PrivateFolder> open(bool make);
  void warnUnwritable(const std::string &reason);

  std::string root;
  std::shared_ptr<const PrivateFolder> opened;
  Warning warn;
  std::mutex mutex;
  bool unwritable = false, distrusted = false;
};

} // namespace fusion
