// A read-only memory-mapped file.
#pragma once

#include "ir/base/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
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
  /// Bytes of the caller's, not copied; `owner` is released with the last user. open() finds them under path(), which is no
  /// file's, as long as this lives: the same in every process that makes its files in the same order.
  static std::shared_ptr<MappedFile> ofMemory(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  /// Whether there is a file to open, or one of memory.
  static bool exists(const std::string &path);
  ~MappedFile();
  std::span<const std::byte> bytes() const { return contents; }
  const std::string &path() const { return name; }
  bool isMemory() const { return number.has_value(); }

private:
  MappedFile() = default;
  std::string name;
  std::span<const std::byte> contents;
  std::shared_ptr<const void> owner; ///< of bytes in memory
  std::optional<uint64_t> number;    ///< of a file of memory
};

/// Writes `contents` to a temporary name beside `path`, fsyncs, and renames it there.
/// An existing `path` that is no regular file, such as /dev/stdout, is written in place.
Status writeFileAtomically(const std::string &path, std::string_view contents);
/// The same for contents that lie in several parts. A new file has `mode` less the process's mask.
Status writeFileAtomically(const std::string &path, std::span<const std::string_view> parts, unsigned mode = 0666);

} // namespace fusion
