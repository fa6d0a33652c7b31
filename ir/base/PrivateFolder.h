// A folder of one user's, for what programs keep between runs and trust when they find it again.
#pragma once

#include "ir/base/Result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fusion {

/// Belongs to the user or to root, and nobody else may write to it. Made with mode 0700, and in it `key`, 48
/// random bytes of mode 0600: what is kept there carries a code that needs the key, so that damage, and what
/// another user's folder or another machine's brought along, is seen.
class PrivateFolder {
public:
  /// `make`: makes it if it is absent. Null if it is absent, or without a key, and nothing could be made.
  /// AnswerIsNo with the reason if it is not to be trusted; Environment if it cannot be made.
  static Result<std::shared_ptr<const PrivateFolder>> open(const std::string &path, bool make);

  const std::string &path() const { return root; }
  bool isWritable() const;
  /// Of what is kept; 16 bytes.
  std::string codeOf(std::string_view contents) const;
  /// Known to programs of this user on machines that have the folder, to nobody else; another for each
  /// purpose.
  std::string secret(std::string_view purpose) const;

  /// The file `name` of the folder; nothing if it is absent, or no regular file of the folder's owner.
  /// `used`: notes the time, if it can be noted.
  std::optional<std::string> read(const std::string &name, bool used = true) const;
  bool isTrusted(const std::string &name) const;

  struct Entry {
    std::vector<std::string> names; ///< hard links of one file, relative to the folder
    uint64_t bytes = 0;
    int64_t used = 0; ///< seconds since 1970
  };
  /// All regular files but the key, the longest unused first.
  std::vector<Entry> entries() const;
  /// Whether a process still writes it, or it is gone since entries().
  bool isInMotion(const Entry &entry) const;
  /// Removes the longest unused, if all together have more than `most` bytes, until an eighth of that is
  /// free; and what killed processes left half written.
  void shrink(uint64_t most) const;
  /// The same, at most every few minutes or after this process has noted an eighth of `most` as written.
  void noteWritten(uint64_t bytes, uint64_t most) const;

private:
  PrivateFolder() = default;
  std::string root, key;
  uint32_t owner = 0;
};

/// "512M", "8G", "100000": bytes. Nothing for another text.
std::optional<uint64_t> parseBytes(std::string_view text);

} // namespace fusion
