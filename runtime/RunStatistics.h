// How runs were brought to the device.
#pragma once

#include <cstdint>
#include <string>

namespace fusion {

/// Since the program was made.
struct RunStatistics {
  uint64_t runs = 0;
  uint64_t plans = 0;       ///< sets of shapes worked out from the start …
  uint64_t updates = 0;     ///< … or from those of another run, by what depends on a dim that changed
  uint64_t speculated = 0;    ///< of `updates`, those that were ready when the run came
  uint64_t evaluations = 0; ///< expressions of the shapes
  uint64_t recordings = 0;  ///< of a run's launches as a graph
  uint64_t replays = 0;     ///< runs that were one launch of a graph
  uint64_t changedLaunches = 0; ///< kernels in graphs that got other arguments
  /// Of the last run: why its kernels were launched one by one. Empty: it was a replay.
  std::string whyOneByOne;
  double hostMicroseconds = 0; ///< of the last run: the host's work until all was queued
  uint64_t weightBytes = 0, temporaryBytes = 0; ///< on the device
  uint64_t peakBytes = 0; ///< most that was allocated there at once, inputs of the caller's not counted
  uint64_t variants = 1; ///< programs that were compiled for runs of one kind each: see Program::run
};

} // namespace fusion
