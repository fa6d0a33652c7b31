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

/// For people: a line a kernel, the slowest first, with calls, time, share and achieved GB/s.
std::string profileTable(std::span<const LaunchTiming> timings);
/// The launches one after another, as JSON for chrome://tracing or Perfetto.
std::string chromeTrace(std::span<const LaunchTiming> timings);

} // namespace fusion
