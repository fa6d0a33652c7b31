// Where the time of a run went.
#pragma once

#include <span>
#include <string>

namespace fusion {

/// One launch of a run.
struct LaunchTiming {
  std::string kernel, schedule, fusion, location;
  double microseconds = 0;
  double bytes = 0; ///< read and written, as the plan counts them
  double flops = 0;
};

/// What a device can do at most; zeros where that is not known.
struct DevicePeaks {
  double bytesPerMicrosecond = 0;
  double flopsPerMicrosecond = 0; ///< of 16-bit matrix products
  std::string source;             ///< for people: how it is known, or why not
};

/// The least time in which a device could move these bytes and do these operations; 0 if not known.
double leastMicroseconds(double bytes, double flops, const DevicePeaks &peaks);

/// For people: what the peaks are, then a line a kernel, the slowest first, with calls, time, share of all,
/// bytes, operations and their rates, and the share of the time that the device would need at least.
std::string profileTable(std::span<const LaunchTiming> timings, const DevicePeaks &peaks);
/// The launches one after another, as JSON for chrome://tracing or Perfetto: a track of kernels, and a track
/// of the model's layers (the locations, split at dots).
std::string chromeTrace(std::span<const LaunchTiming> timings, const DevicePeaks &peaks);

} // namespace fusion
