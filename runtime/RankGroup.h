// Runs a program plan for several ranks in one process: an executor each, in a thread of its own.
#pragma once

#include "runtime/Executor.h"
#include "runtime/collective/Communicator.h"
#include "runtime/collective/DividedTensor.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fusion {

/// As an Executor, with the inputs and outputs of the whole graph: divided ones are cut and joined on the
/// host. Of the errors of a call, the one that did not follow from another rank's is returned, with its rank.
/// One that is not the inputs' fault (BadInput) ends the group: later calls repeat it.
class RankGroup {
public:
  /// Rank r runs on GPU r, or is emulated. `options` without a communicator. Errors besides those of
  /// Executor::create: fewer GPUs than ranks (Environment).
  static Result<std::unique_ptr<RankGroup>> create(ProgramPlan plan, ExecutorOptions options);
  ~RankGroup();

  /// Results are dense host tensors; caches stay divided (see DividedTensor), each shard where its rank runs,
  /// and can be the inputs of the next run.
  Result<NamedTensors> run(const NamedTensors &inputs);
  /// Copies of results on the host.
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  /// Of each run the slowest rank's time.
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold = false);
  /// The first rank's.
  Result<std::vector<LaunchTiming>> profile(const NamedTensors &inputs, int iterations = 5);

  const ProgramPlan &plan() const { return executors.front()->plan(); }
  /// "4 × NVIDIA H200 (sm_90a), peer memory".
  std::string device() const;
  DevicePeaks peaks() const { return executors.front()->peaks(); }
  std::string algorithms() const { return executors.front()->algorithms(); }
  /// The first rank's.
  RunStatistics statistics() const { return executors.front()->statistics(); }

private:
  class Threads;
  explicit RankGroup(int ranks);
  Status open(ProgramPlan plan, ExecutorOptions options);
  Result<NamedTensors> inputsOnRank(const NamedTensors &whole, size_t rank) const;
  /// Calls `work` with every rank, each in its thread, and waits for all.
  Status onAll(const std::function<Status(size_t rank)> &work);
  /// The same for runs: an error of one rank stops the others.
  Status together(const std::function<Status(size_t rank, Executor &executor)> &work);

  ThreadRendezvous rendezvous;
  std::vector<std::shared_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<PortShard> inputs, outputs, caches; ///< `caches`: of the outputs those that stay divided
  std::shared_ptr<const void> mark = std::make_shared<char>(); ///< of what this group left divided
  std::unique_ptr<Threads> threads;
  std::mutex mutex;      ///< calls take turns
  Status ended;          ///< why there are no more
};

} // namespace fusion
