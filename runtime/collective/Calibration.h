// Which algorithm of a collective is the fastest on the machine at hand: measured once, then cached.
#pragma once

#include "runtime/KernelCache.h"
#include "runtime/collective/CollectiveChoice.h"

namespace fusion {

/// What is timed: an algorithm, and for two-shot whether rows half as long as the sum are gathered instead of
/// the sum.
struct TimedCollective {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::OneShot;
  bool gathersRows = false;
  friend bool operator==(const TimedCollective &, const TimedCollective &) = default;
};

/// Runs sums on one rank's device. Every call is made by all ranks, in the same order, while nothing is
/// recorded.
class CollectiveTimer {
public:
  virtual ~CollectiveTimer() = default;
  /// Before all else: kernels and memory for messages of up to `messageBytes`. Errors: why this rank cannot
  /// measure.
  virtual Status prepare(size_t messageBytes) = 0;
  /// Microseconds that one of many sums of so many bytes a rank takes; the library's includes what a kernel
  /// after it would read and write. Nothing: there is no such algorithm here.
  virtual Result<std::optional<double>> microseconds(const TimedCollective &collective,
                                                     size_t messageBytes) = 0;
};

/// Microseconds for messages of `bytes`, of the slowest rank; a negative number where it was not measured.
struct CollectiveTimes {
  size_t bytes = 0;
  double oneShot = -1, twoShot = -1, gatheredRows = -1, library = -1;
};

/// Where the lines cross, in ascending order of `bytes`; between two sizes by their logarithms. A limit that
/// lies beyond the sizes is `table`'s, if that is beyond them too.
AlgorithmLimits limitsOf(std::span<const CollectiveTimes> times, const AlgorithmLimits &table);

struct Calibration {
  AlgorithmLimits limits;
  std::string origin; ///< for people: "measured", "measured before", or "not measured: …"
};

/// The limits for the group, the same on all ranks: what rank 0 finds under `key` in `cache`, else what
/// `timer` measures, which is stored there, else `table`. Errors: those of `host`.
Result<Calibration> calibrate(Rendezvous &host, KernelCache &cache, const std::string &key,
                              CollectiveTimer &timer, const AlgorithmLimits &table);

} // namespace fusion
