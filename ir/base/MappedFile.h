// A read-only memory-mapped file.
#pragma once

#include "ir/base/Result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fusion {

class MappedFile {
public:
  /// Maps the whole file. Opening the same canonical path twice while a mapping lives returns the same one,
  /// unless the file has been replaced or changed since.
  static Result<std::shared_ptr<MappedFile>> open(const std::string &path);
  /// Bytes of the caller's, not copied; `owner` is released with the last user. open() finds them under
  /// path(), which is no file's, as long as this lives: the same in every process that makes its files in the
  /// same order.
  static std::shared_ptr<MappedFile> ofMemory(std::span<const std::byte> bytes,
                                              std::shared_ptr<const void> owner);
  /// Bytes that lie on a GPU, and what brings them to the host once all that was queued there before is done.
  struct OnGpu {
    const std::byte *address = nullptr;
    size_t size = 0;
    int ordinal = 0;
  };
  using Fetch = std::function<Status(void *target, const OnGpu &source)>;
  /// As ofMemory(). open() fetches a copy, which lives as long as this; whoever can read them there uses
  /// onGpu().
  static std::shared_ptr<MappedFile> ofGpu(const OnGpu &place, std::shared_ptr<const void> owner,
                                           Fetch fetch);
  /// Where they are, by path; nothing for what is on the host or gone. The file keeps them alive.
  struct Found {
    std::shared_ptr<MappedFile> file;
    OnGpu place;
  };
  static std::optional<Found> onGpu(const std::string &path);
  /// Whether there is a file to open, or one of memory.
  static bool exists(const std::string &path);
  ~MappedFile();
  std::span<const std::byte> bytes() const { return contents; }
  size_t size() const { return gpu ? gpu->size : contents.size(); }
  const std::string &path() const { return name; }
  bool isMemory() const { return number.has_value(); }

private:
  MappedFile() = default;
  std::string name;
  std::span<const std::byte> contents;
  std::shared_ptr<const void> owner; ///< of bytes in memory
  std::optional<uint64_t> number;    ///< of a file of memory
  Status fetchOnce();
  std::optional<OnGpu> gpu;
  Fetch fetch;
  std::mutex fetching;
  std::unique_ptr<std::byte[]> fetched;
};

/// Writes `contents` to a temporary name beside `path`, fsyncs, and renames it there.
/// An existing `path` that is no regular file, such as /dev/stdout, is written in place.
Status writeFileAtomically(const std::string &path, std::string_view contents);
struct WriteOptions {
  unsigned mode = 0666; ///< of a new file, less the process's mask
  bool syncs = true;    ///< false: after a power failure it may be there with other contents
};
/// The same for contents that lie in several parts.
Status writeFileAtomically(const std::string &path, std::span<const std::string_view> parts,
                           const WriteOptions &options = {});

} // namespace fusion
