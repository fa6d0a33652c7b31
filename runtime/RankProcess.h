// One rank of a program whose ranks are processes that a launcher started.
#pragma once

#include "runtime/Executor.h"
#include "runtime/collective/DividedTensor.h"
#include "runtime/collective/Launcher.h"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fusion {

/// As RankGroup, with the same calls made by all processes: each takes the inputs of the whole graph and
/// returns its outputs. An error of one rank, or its end, ends the group: all calls of the others fail with
/// its number.
class RankProcess {
public:
  /// Meets the other ranks. Runs on GPU `place.localRank`, or is emulated. Errors besides those of
  /// Executor::create: a launch of another number of ranks than the plan's (BadInput), those of
  /// joinTcpRendezvous.
  static Result<std::unique_ptr<RankProcess>> join(ProgramPlan plan, ExecutorOptions options,
                                                   const LaunchedRank &place);
  ~RankProcess();

  Result<NamedTensors> run(const NamedTensors &inputs);
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold = false);
  Result<std::vector<LaunchTiming>> profile(const NamedTensors &inputs, int iterations = 5);
  int rank() const { return place.rank; }
  const ProgramPlan &plan() const { return executor->plan(); }
  std::string device() const;
  DevicePeaks peaks() const { return executor->peaks(); }
  std::string algorithms() const { return executor->algorithms(); }
  RunStatistics statistics() const { return executor->statistics(); }

private:
  explicit RankProcess(const LaunchedRank &place) : place(place) {}
  Status open(ProgramPlan plan, ExecutorOptions options);
  Result<NamedTensors> localInputs(const NamedTensors &whole) const;
  /// Whole tensors from this rank's shards.
  Result<NamedTensors> joinWithOthers(NamedTensors own, const std::vector<PortShard> &ports);
  /// Ends the group with this rank's error, if it is one.
  Status told(Status status);

  const LaunchedRank place;
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Executor> executor;
  std::vector<PortShard> inputs, outputs, caches; ///< `caches`: of the outputs those that stay divided
  std::shared_ptr<const void> mark = std::make_shared<char>(); ///< of what this rank left divided
  std::mutex mutex; ///< calls take turns
};

} // namespace fusion
