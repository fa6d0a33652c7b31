// Everything that the executor keeps for one set of launches. Internal to the executor.
#pragma once

#include "runtime/Backend.h"
#include "runtime/ShapePlan.h"

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace fusion {

/// Memory for one buffer that may still be in the caller's hands when the next run comes.
class BufferPool {
public:
  /// Memory of `bytes` or more that nobody else holds; the pointer to it is good until the next call.
  Result<const std::shared_ptr<void> *> acquire(Backend &backend, size_t bytes);
  /// Whether it is memory that acquire() gave.
  bool owns(const std::shared_ptr<void> &memory) const;
  void release() { blocks.clear(); }

private:
  struct Block {
    std::shared_ptr<void> memory;
    size_t capacity;
  };
  std::deque<Block> blocks;
};

/// Shapes, and those that they become step by step while the same kernels are launched in the same order.
struct ShapeBucket {
  ShapePlan plan;
  uint64_t runs = 0;
  /// The launches as a graph, and what it holds.
  struct Recorded {
    std::unique_ptr<Backend::Recording> recording;
    struct Launch {
      std::optional<size_t> number; ///< in the recording; nothing for what a library does
      std::array<uint32_t, 3> grid;
      std::vector<uint64_t> arguments;
    };
    std::vector<Launch> launches; ///< for each of the plan's
    std::vector<void *> addresses; ///< of each buffer
    std::vector<uint32_t> stale;   ///< of `launches`, those whose sizes may have changed since
  };
  std::optional<Recorded> recorded;

  /// How the symbols of the last run differ from those of the run before; the next step is speculated to be
  /// the same.
  std::vector<int64_t> lastSymbols, lastStep;
  bool keepsStep = true; ///< the last run came by the same step as the one before
  bool speculated = false; ///< `plan` is that of the step to come
};

/// The most recently used buckets.
class ShapeBuckets {
public:
  /// The one for these symbols, or null. It becomes the most recent.
  ShapeBucket *find(std::span<const int64_t> symbols);
  /// Those of which less than half of the launches may differ for these symbols, the nearest first.
  std::vector<ShapeBucket *> near(ShapePlanner &planner, std::span<const int64_t> symbols);
  /// Makes it the most recent.
  ShapeBucket &use(ShapeBucket &bucket);
  /// Whether insert() drops one.
  bool full() const;
  ShapeBucket &insert(ShapePlan plan);

private:
  std::list<ShapeBucket> buckets;
};

} // namespace fusion
