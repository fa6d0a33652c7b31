// Everything that the executor keeps for one set of input shapes. Internal to the executor.
#pragma once

#include "runtime/Backend.h"
#include "runtime/ShapePlan.h"

#include <deque>
#include <list>
#include <memory>
#include <vector>

namespace fusion {

/// Memory for one buffer that may still be in the caller's hands when the next run comes.
class BufferPool {
public:
  /// Memory of `bytes` or more that nobody else holds.
  Result<std::shared_ptr<void>> acquire(Backend &backend, size_t bytes);
  void release() { blocks.clear(); }

private:
  struct Block {
    std::shared_ptr<void> memory;
    size_t capacity;
  };
  std::deque<Block> blocks; ///< at most two: a result that becomes the next input alternates
};

struct ShapeBucket {
  std::vector<int64_t> key; ///< the inputs' shapes
  ShapePlan plan;
  /// Launches over one set of addresses, ready to replay.
  struct Recorded {
    std::vector<void *> addresses;
    std::unique_ptr<Backend::Recording> recording;
  };
  std::deque<Recorded> recorded;
  std::vector<void *> lastAddresses; ///< recorded when they come a second time
};

/// The most recently used buckets.
class ShapeBuckets {
public:
  /// Null if there is none; else it becomes the most recent.
  ShapeBucket *find(const std::vector<int64_t> &key);
  ShapeBucket &insert(std::vector<int64_t> key, ShapePlan plan);
  /// Drops all recordings: the memory that they use is about to move.
  void dropRecordings();

private:
  std::list<ShapeBucket> buckets;
};

} // namespace fusion
