// Page-locked memory of the host, to which a GPU copies at the link's speed.
#pragma once

#include "runtime/cuda/Session.h"

#include <memory>
#include <mutex>
#include <vector>

namespace fusion::cuda {

/// Blocks are kept for the next time when they are given back: page-locking takes longer than a copy.
/// Thread-safe, since the caller's threads give back.
class PinnedMemory : public std::enable_shared_from_this<PinnedMemory> {
public:
  explicit PinnedMemory(std::shared_ptr<Session> session) : session(std::move(session)) {}
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory &) = delete;
  PinnedMemory &operator=(const PinnedMemory &) = delete;

  /// Given back with the last copy of the pointer. Null where it would be more than there shall be, or the
  /// system has none.
  std::shared_ptr<void> acquire(size_t bytes);
  /// Whether the address lies in a block of this.
  bool holds(const void *address) const;

private:
  struct Block {
    std::byte *memory;
    size_t bytes;
    bool isFree;
  };
  void giveBack(const void *memory);
  /// Frees blocks that nobody holds until `bytes` more fit.
  bool makeRoom(size_t bytes);

  std::shared_ptr<Session> session;
  mutable std::mutex mutex;
  std::vector<Block> blocks;
  size_t total = 0;
};

} // namespace fusion::cuda
