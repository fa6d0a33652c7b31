// How long runs and their launches take.
#include "runtime/Runner.h"

#include <algorithm>

namespace fusion {

static constexpr int warmUpRuns = 3; // the second of equal runs records, the third replays

Result<std::vector<double>> Executor::Runner::bench(const NamedTensors &inputs, int iterations,
                                                            bool cold) {
  std::lock_guard lock(mutex);
  StreamGuard guard(*backend, std::nullopt);
  if (!guard.entered)
    return guard.entered.error();
  Result<Frame> frame = prepare(inputs);
  if (!frame)
    return frame.error();
  for (int i = 0; i < warmUpRuns; ++i)
    if (Status status = runOnce(*frame); !status)
      return status.error();
  if (options.communicator && !cold)
    return timeInOneGo(*frame, iterations);
  std::vector<double> microseconds;
  for (int i = 0; i < iterations; ++i) {
    if (Status status = cold ? backend->emptyCache() : Status(); !status)
      return status.error();
    if (Status status = meetOthers(); !status)
      return status.error();
    Result<double> elapsed = backend->time([&] { return execute(*frame); });
    if (!elapsed)
      return elapsed.error();
    microseconds.push_back(*elapsed);
  }
  return microseconds;
}

Result<std::vector<double>> Executor::Runner::timeEach(std::span<const std::function<Status()>> works) {
  Result<std::vector<double>> times = backend->timeEach(works, [&] { return meetOthers(); });
  if (Status status = times ? checkOthers() : Status(); !status)
    return status.error();
  return times;
}

/// Runs of several ranks wait for each other: one by one they would count how far apart the hosts start them.
Result<std::vector<double>> Executor::Runner::timeInOneGo(const Frame &frame, int iterations) {
  constexpr int most = 16; // of one graph, besides the first, which the ranks begin at different times
  std::vector<double> microseconds;
  while (static_cast<int>(microseconds.size()) < iterations) {
    const int runs = std::min(most, iterations - static_cast<int>(microseconds.size())) + 1;
    std::vector<std::function<Status()>> works(static_cast<size_t>(runs), [&] { return launchAll(frame); });
    Result<std::vector<double>> times = timeEach(works);
    if (!times)
      return times.error();
    microseconds.insert(microseconds.end(), times->begin() + 1, times->end());
  }
  return microseconds;
}

Result<std::vector<LaunchTiming>> Executor::Runner::profile(const NamedTensors &inputs, int iterations) {
  std::lock_guard lock(mutex);
  StreamGuard guard(*backend, std::nullopt);
  if (!guard.entered)
    return guard.entered.error();
  Result<Frame> frame = prepare(inputs);
  if (!frame)
    return frame.error();
  if (Status status = runOnce(*frame); !status)
    return status.error();
  const ShapePlan &shapes = frame->bucket->plan;
  std::vector<std::function<Status()>> works;
  for (const ShapePlan::Launch &one : shapes.launches)
    works.push_back([&] { return launch(*frame, one, false); });
  std::vector<std::vector<double>> samples(works.size());
  for (int i = 0; i < std::max(iterations, 1); ++i) {
    Result<std::vector<double>> times = timeEach(works);
    if (!times)
      return times.error();
    for (size_t j = 0; j < works.size(); ++j)
      samples[j].push_back((*times)[j]);
  }
  std::vector<LaunchTiming> timings;
  for (size_t i = 0; i < works.size(); ++i) {
    const KernelLaunch &source = *shapes.launches[i].launch;
    const KernelPlan &kernel = plan.kernels[source.kernel];
    auto middle = samples[i].begin() + static_cast<int64_t>(samples[i].size() / 2);
    std::nth_element(samples[i].begin(), middle, samples[i].end());
    const ShapePlanner::Traffic traffic = shapePlanner.traffic(shapes, i);
    timings.push_back({kernel.name, kernel.schedule, source.fusion, source.location, *middle, traffic.bytes,
                       traffic.flops});
  }
  return timings;
}

} // namespace fusion
