// Runs a program plan on one device.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Safetensors.h"
#include "runtime/Backend.h"
#include "runtime/KernelCache.h"
#include "runtime/Profile.h"
#include "runtime/Results.h"
#include "runtime/RunStatistics.h"
#include "runtime/SharedWeights.h"
#include "runtime/collective/Communicator.h"

#include <memory>
#include <string>
#include <vector>

namespace fusion {

struct ExecutorOptions {
  enum class Target { Cuda, Emulate } target = Target::Cuda;
  int ordinal = 0;                                        ///< which GPU
  int rank = 0;                                           ///< which part of a program divided among several
  std::string cacheFolder = KernelCache::defaultFolder(); ///< empty: no cache
  KernelCache::Warning warn;                              ///< default: stderr
  /// Kernels that are compiled already, from a bundle: one for each of the plan's, and what they are for.
  std::vector<std::string> cubins;
  std::string cubinArch;
  bool keepOutputsOnDevice = false; ///< CUDA only: Results::Host means Results::Device
  size_t memoryLimit = 0;           ///< bytes of the device's memory that may be used; 0: what is free
  /// Inputs of the largest run that is to come, of which only type and shape count, or none: what it needs is
  /// checked before anything is allocated, and told on stderr unless progress is.
  NamedTensors largestRun;
  /// A cache that is given as a tensor of the buffer's own size is extended where it lies, whoever made it:
  /// the caller's tensor changes.
  bool donateCaches = false;
  bool recordGraphs = true;         ///< replay a CUDA graph from the second run of the same launches on
  /// Fills temporaries and outputs with 0xFF (NaN) before each run, so that elements that no kernel writes
  /// show. FUSION_POISON=1 turns it on too.
  bool poison = false;
  /// Where programs like it have their weights, which it then need not have again: it reads theirs, and lets
  /// others read its own.
  std::shared_ptr<SharedWeights> sharedWeights;
  /// Of a program for several ranks, each with an executor in a thread of its own: made by all of them
  /// together.
  std::shared_ptr<Communicator> communicator;
};

/// Thread-safe: runs wait for each other.
class Executor {
public:
  /// Loads the weights, and compiles or loads the kernels that every run needs. Kernels for some sizes only
  /// are compiled by the first run of such sizes; those of a bundle are compiled already. Errors: an invalid
  /// plan, a missing weight file, a kernel that does not compile (BadInput); no driver, GPU, NVRTC or host
  /// compiler, or no memory (Environment).
  static Result<std::unique_ptr<Executor>> create(ProgramPlan plan, ExecutorOptions options);
  ~Executor();

  /// Host tensors, or device tensors of the same GPU; results on the host unless keepOutputsOnDevice. An
  /// input that a kernel writes is copied first: the caller's tensor never changes. See bindInputs for the
  /// errors.
  /// A cache (a port with strides) is the exception. An input that has these strides, as the result of the
  /// last run has, is extended where it lies: what lies after its elements changes. Any other, unless it is
  /// donated, is copied into a buffer that nobody holds. The result is a view of that buffer on the device. A
  /// run that needs more positions than the buffer holds is an error.
  Result<NamedTensors> run(const NamedTensors &inputs, Results where = Results::Host);
  /// The same without waiting: queued on `stream` (of this GPU; see Backend::enter), results are device
  /// tensors that hold what they say once the stream has passed the run. Device inputs must keep their
  /// contents until then. While the stream records a graph of the caller's, nothing can be allocated or come
  /// from the host: run these shapes once before. What a recorded run uses stays reserved for its replays,
  /// which must not overlap other runs.
  Result<NamedTensors> enqueue(const NamedTensors &inputs, void *stream);
  /// Copies on the host, after everything queued so far.
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  /// Copies on the device of what it cannot read where it lies; runs that come later see their values.
  Result<NamedTensors> place(const NamedTensors &tensors);
  /// Waits for everything queued so far, on whatever stream.
  Status synchronize();
  /// Device time of each of `iterations` runs in microseconds, inputs in place, after three runs unmeasured.
  /// `cold`: nothing of a run before is left in the device's cache.
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold = false);
  /// Device time of each launch: the median of `iterations` runs.
  Result<std::vector<LaunchTiming>> profile(const NamedTensors &inputs, int iterations = 5);

  const ProgramPlan &plan() const { return program; }
  std::string device() const;
  DevicePeaks peaks() const;
  /// For people: which matmuls of the run before a library computed, and why; see AlgorithmSelection.
  std::string algorithms() const;
  /// For reports: bytes of weights on the device, and of temporaries for the largest shapes so far.
  size_t weightBytes() const;
  size_t arenaBytes() const;
  RunStatistics statistics() const;

private:
  class Runner;
  Executor(ProgramPlan plan, ExecutorOptions options);
  /// Whether what the program needs for `options.largestRun`, or its weights alone, fits on the device. The
  /// bytes of weights. `elsewhere`: by buffer, where other programs have the same.
  using Places = std::vector<SharedWeights::Place>;
  static Result<size_t> checkMemory(const ProgramPlan &plan, const ExecutorOptions &options,
                                    const Backend &device, const Places &elsewhere);
  static Result<NamedTensors> prepareWeights(const ProgramPlan &plan, const ExecutorOptions &options,
                                             const std::shared_ptr<Backend> &device, const Places &elsewhere);
  ProgramPlan program;
  ExecutorOptions options;
  KernelCache cache;
  std::unique_ptr<Runner> runner;
};

} // namespace fusion
