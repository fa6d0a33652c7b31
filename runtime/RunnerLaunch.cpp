// How the launches of a run reach the device: as a graph, which the next step changes where it differs, or
// one by one.
#include "runtime/Arguments.h"
#include "runtime/Runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace fusion {

Status Executor::Runner::resolve(const ShapePlan::Launch &launch, const std::vector<void *> &addresses) {
  return resolveArguments(launch, addresses, exchange, *backend, argumentValues);
}

Status Executor::Runner::launch(const Frame &frame, const ShapePlan::Launch &launch, bool mayOverlap) {
  const KernelPlan &kernel = plan.kernels[launch.kernel];
  Status status = resolve(launch, frame.addresses);
  if (status && launch.clearsWorkspace)
    status = clearWorkspace(launch, frame.addresses, *backend);
  if (status)
    status = kernel.isLibraryCall && !kernel.matmul
                 ? callLibrary(launch)
                 : backend->launch(
                       {launch.kernel, launch.grid, argumentValues, mayOverlap && launch.overlapsPrevious});
  const std::string &location = launch.launch->location;
  if (!status && !location.empty())
    return Error{status.error().kind, fmt::format("{}: {}", location, status.error().message)};
  return status;
}

Status Executor::Runner::callLibrary(const ShapePlan::Launch &launch) {
  const auto elements = static_cast<size_t>(argumentValues[2]);
  if (elements == 0)
    return {};
  return backend->call([this, elements, from = reinterpret_cast<const void *>(argumentValues[0]),
                        to = reinterpret_cast<void *>(argumentValues[1]),
                        type = plan.buffers[launch.arguments[0].place].type] {
    return options.communicator->allReduce(from, to, elements, type, backend->stream());
  });
}

Status Executor::Runner::launchAll(const Frame &frame) {
  const ShapePlan &shapes = frame.bucket->plan;
  auto launchSome = [&](size_t first, size_t end) {
    Status status;
    for (size_t i = first; i < end && status; ++i)
      status = launch(frame, shapes.launches[i], true);
    return status;
  };
  // Launches first … end - 1, with the repetitions from `inside` on that lie in them.
  auto launchAll = [&](auto &self, size_t first, size_t end, size_t inside) -> Status {
    const auto &repetitions = shapes.repetitions;
    while (inside < repetitions.size() && repetitions[inside].end <= end) {
      const ShapePlan::Repetition &rounds = repetitions[inside++];
      Status status = launchSome(first, rounds.first);
      for (int64_t round = 0; round < rounds.count && status; ++round)
        status = self(self, rounds.first, rounds.end, inside);
      if (!status)
        return status;
      first = rounds.end;
      while (inside < repetitions.size() && repetitions[inside].first < rounds.end)
        ++inside;
    }
    return launchSome(first, end);
  };
  return launchAll(launchAll, 0, shapes.launches.size(), 0);
}

Status Executor::Runner::findRecording(Frame &frame) {
  ShapeBucket &bucket = *frame.bucket;
  const bool isFirst = bucket.runs++ == 0;
  counted.whyOneByOne = !options.recordGraphs           ? "graphs are turned off"
                        : bucket.plan.launches.empty() ? "there is nothing to launch"
                                                       : "";
  if (!counted.whyOneByOne.empty())
    return {};
  Result<bool> capturing = backend->capturing();
  if (!capturing)
    return capturing.error();
  if (*capturing) {
    counted.whyOneByOne = "the caller's stream records a graph";
    return {};
  }
  if (bucket.recorded) {
    Result<bool> current = bringUpToDate(bucket, frame.addresses);
    if (current && *current) {
      frame.recording = bucket.recorded->recording.get();
      return {};
    }
    if (Status status = backend->synchronize(); !status) // it may be running
      return status;
    const bool canChange = bucket.recorded->recording->canChange();
    bucket.recorded.reset();
    if (!canChange) {
      bucket.runs = 1;
      counted.whyOneByOne = "the driver cannot change what was recorded: CUDA 12.3 can";
      return {};
    }
  } else if (isFirst) {
    counted.whyOneByOne = "the first run of these launches: the next one records them";
    return {};
  }
  return record(frame);
}

Status Executor::Runner::record(Frame &frame) {
  const ShapePlan &shapes = frame.bucket->plan;
  ShapeBucket::Recorded recorded;
  auto recording = backend->record([&] { return launchAll(frame); });
  if (!recording)
    return recording.error();
  if (!*recording) {
    counted.whyOneByOne = "the device does not record";
    return {};
  }
  recorded.recording = std::move(*recording);
  size_t kernels = 0;
  for (size_t i = 0; i < shapes.launches.size(); ++i) {
    const ShapePlan::Launch &launch = shapes.launches[i];
    if (Status status = resolve(launch, frame.addresses); !status)
      return status;
    bool isRepeated = false;
    size_t times = 1;
    for (const ShapePlan::Repetition &rounds : shapes.repetitions)
      if (rounds.first <= i && i < rounds.end) {
        isRepeated = true;
        times *= static_cast<size_t>(rounds.count);
      }
    const bool isLibraryCall = plan.kernels[launch.kernel].isLibraryCall;
    // Several of what was recorded are of one launch in a loop: where that differs, all is recorded anew.
    recorded.launches.push_back(
        {isLibraryCall || isRepeated ? std::nullopt : std::optional(kernels), launch.grid, argumentValues});
    if (!isLibraryCall)
      kernels += times;
  }
  recorded.addresses = frame.addresses;
  ++counted.recordings;
  frame.recording = recorded.recording.get();
  frame.bucket->recorded = std::move(recorded);
  return {};
}

Result<bool> Executor::Runner::bringUpToDate(ShapeBucket &bucket, const std::vector<void *> &addresses) {
  ShapeBucket::Recorded &recorded = *bucket.recorded;
  stale.assign(recorded.stale.begin(), recorded.stale.end());
  for (size_t i = 0; i < addresses.size(); ++i)
    if (addresses[i] != recorded.addresses[i])
      for (uint32_t source : usersOf[i])
        if (bucket.plan.states[source] == ShapePlan::State::Launched)
          stale.push_back(bucket.plan.positions[source]);
  std::sort(stale.begin(), stale.end());
  stale.erase(std::unique(stale.begin(), stale.end()), stale.end());
  for (uint32_t position : stale) {
    const ShapePlan::Launch &launch = bucket.plan.launches[position];
    ShapeBucket::Recorded::Launch &before = recorded.launches[position];
    if (Status status = resolve(launch, addresses); !status)
      return status.error();
    if (launch.grid == before.grid && argumentValues == before.arguments && !launch.clearsWorkspace)
      continue;
    if (!before.number || launch.clearsWorkspace || !recorded.recording->canChange())
      return false;
    if (Status status = recorded.recording->change(
            *before.number, {launch.kernel, launch.grid, argumentValues, launch.overlapsPrevious});
        !status)
      return status.error();
    before.grid = launch.grid;
    before.arguments = argumentValues;
    ++counted.changedLaunches;
  }
  recorded.stale.clear();
  recorded.addresses = addresses;
  return true;
}

Status Executor::Runner::speculate(const Frame &frame) {
  ShapeBucket &bucket = *frame.bucket;
  auto isZero = [](int64_t difference) { return difference == 0; };
  if (!frame.recording || !frame.recording->canChange() || !bucket.keepsStep ||
      std::all_of(bucket.lastStep.begin(), bucket.lastStep.end(), isZero))
    return {};
  symbols = bucket.lastSymbols;
  std::transform(symbols.begin(), symbols.end(), bucket.lastStep.begin(), symbols.begin(), std::plus());
  if (!updateShapes(bucket, symbols))
    return {};
  bucket.speculated = true;
  if (bucket.plan.arenaBytes > arenaCapacity || bucket.plan.keptZeroBytes > keptZeroCapacity)
    return {}; // memory is not moved while kernels may use it
  std::vector<void *> addresses = frame.addresses;
  placeTemporaries(bucket.plan, addresses);
  Result<bool> current = bringUpToDate(bucket, addresses);
  return current ? Status() : current.error();
}

Status Executor::Runner::execute(const Frame &frame) {
  if (options.poison)
    if (Status status = poison(frame); !status)
      return status;
  if (frame.recording) {
    ++counted.replays;
    return frame.recording->replay();
  }
  Result<bool> capturing = backend->capturing();
  if (!capturing)
    return capturing.error();
  if (*capturing) {
    reserved.push_back(arena);
    reserved.push_back(keptZero);
    for (const std::shared_ptr<void> *owner : frame.owners)
      if (owner)
        reserved.push_back(*owner);
  }
  return launchAll(frame);
}

} // namespace fusion
