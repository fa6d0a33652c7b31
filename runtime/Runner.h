// The state of one executor. Internal.
#pragma once

#include "runtime/Binding.h"
#include "runtime/Executor.h"
#include "runtime/AlgorithmSelection.h"
#include "runtime/ShapeBucket.h"
#include "runtime/WeightStore.h"

#include <map>
#include <mutex>
#include <optional>

namespace fusion {

/// Between its construction and its end, work goes to one stream.
class StreamGuard {
public:
  StreamGuard(Backend &backend, std::optional<void *> stream)
      : entered(backend.enter(stream)), backend(backend) {}
  ~StreamGuard() { (void)backend.leave(); }
  StreamGuard(const StreamGuard &) = delete;
  StreamGuard &operator=(const StreamGuard &) = delete;
  const Status entered;

private:
  Backend &backend;
};

class Executor::Runner {
public:
  Runner(const ProgramPlan &plan, const ExecutorOptions &options, std::shared_ptr<Backend> backend,
         WeightStore weights, size_t weightNeed);

  Result<NamedTensors> run(const NamedTensors &inputs, Results where);
  Result<NamedTensors> enqueue(const NamedTensors &inputs, void *stream);
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  Result<NamedTensors> place(const NamedTensors &tensors);
  Status synchronize();
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold);
  Result<std::vector<LaunchTiming>> profile(const NamedTensors &inputs, int iterations);

  const Backend &device() const { return *backend; }
  size_t weightBytes() const { return weights.deviceBytes(); }
  size_t arenaBytes() const { return arenaCapacity; }
  RunStatistics statistics();
  std::string algorithmsText() const { return algorithms.text(); }

private:
  /// One run, while the caller's tensors are there: its sizes, where every buffer is, and who keeps the
  /// interface buffers.
  struct Frame {
    ShapeBucket *bucket = nullptr;
    std::vector<void *> addresses; ///< of ShapePlan's places
    /// Of interface buffers, else null: a tensor's of the caller, or a pool's.
    std::vector<const std::shared_ptr<void> *> owners;
    Backend::Recording *recording = nullptr; ///< of these launches, if there is one
  };
  /// Checks the inputs, finds or makes their bucket, places every buffer and brings the inputs there.
  Result<Frame> prepare(const NamedTensors &inputs);
  /// For the symbols in `symbols`: one that has these shapes, one that can be changed to them, or a new one.
  Result<ShapeBucket *> bucketFor();
  Result<ShapeBucket *> newBucket();
  /// Whether these shapes fit in the memory that there was for the program.
  Status checkMemory(const ShapePlan &shapes) const;
  /// False where the bucket cannot take these values.
  bool updateShapes(ShapeBucket &bucket, std::span<const int64_t> values);
  /// Whether all ranks are about to do the same; before the first run of any launches.
  Status agreeOn(const SymbolValues &symbols);
  /// Which alternatives of measured steps are taken at these sizes; the same on all ranks.
  Status selectAlgorithms(const SymbolValues &symbols);
  /// Kernels that are compiled when they are needed, and what ranks exchange data through.
  Status prepareLaunches(const ShapePlan &shapes);
  Status growArena(size_t bytes);
  Status growKeptZero(size_t bytes);
  void placeTemporaries(const ShapePlan &shapes, std::vector<void *> &addresses) const;
  Status placeInput(const PortPlan &port, const Tensor &tensor, Frame &frame);
  /// The caller's tensor itself if it lies in a buffer with room, else a buffer of the pool that starts with
  /// a copy.
  Status placeCache(const PortPlan &port, const Shape &strides, const Tensor &tensor, Frame &frame);
  Status checkCaches(const Frame &frame) const;
  /// Whether kernels can use the tensor's memory as it is. An error if it is on another device.
  Result<bool> isUsable(const PortPlan &port, const Tensor &tensor) const;
  Status poison(const Frame &frame);

  /// The graph of the bucket's launches with the frame's sizes and addresses, recorded when launches come the
  /// second time.
  Status findRecording(Frame &frame);
  Status record(Frame &frame);
  /// Changes those launches of the bucket's graph whose arguments differ. False if it must be recorded anew.
  Result<bool> bringUpToDate(ShapeBucket &bucket, const std::vector<void *> &addresses);
  /// While the device works: makes the bucket ready for the step that the last two runs suggest.
  Status speculate(const Frame &frame);
  /// Replays or launches.
  Status execute(const Frame &frame);
  Status launchAll(const Frame &frame);
  /// Into `argumentValues`.
  Status resolve(const ShapePlan::Launch &launch, const std::vector<void *> &addresses);
  Status launch(const Frame &frame, const ShapePlan::Launch &launch, bool mayOverlap);
  /// prepare() and start(), which are counted and timed.
  Result<Frame> begin(const NamedTensors &inputs);
  /// execute(), when every rank is ready for it.
  Status start(Frame &frame);
  /// Until it is done at all ranks.
  Status finish();
  Status runOnce(Frame &frame);
  /// Waits until every rank has come here: nothing that one does before, such as an allocation, can then wait
  /// for a kernel of another that in turn waits for this rank. With the run that follows: an error unless all
  /// are about to run the same shapes.
  Status meetOthers(const Frame *frame = nullptr);
  /// After a run: whether all ranks came through it.
  Status checkOthers();
  Result<std::vector<double>> timeEach(std::span<const std::function<Status()>> works);
  Result<std::vector<double>> timeInOneGo(const Frame &frame, int iterations);
  Status callLibrary(const ShapePlan::Launch &launch); ///< with `argumentValues`
  /// Notes the end of a run that was queued just now; one of another kind, after which callers may have
  /// queued work of their own, makes none known.
  Status noteEnd(const Frame &frame, bool isQueued);
  /// The results where they are, and on the host those that the device's memory does not show.
  NamedTensors results(const Frame &frame) const;
  Status bringToHost(NamedTensors &results);
  /// A tensor on the host, where copies from the device come fastest.
  Tensor hostTensor(DType type, const Shape &shape);

  const ProgramPlan &plan;
  const ExecutorOptions &options;
  ShapePlanner shapePlanner;
  AlgorithmSelection algorithms;
  InputBinder binder;
  std::mutex mutex;
  std::shared_ptr<Backend> backend; ///< before what it allocated, so that it is destroyed last
  WeightStore weights;
  const size_t weightNeed; ///< bytes, what is prepared counted in
  std::vector<bool> writtenInputs;
  std::vector<std::vector<uint32_t>> usersOf; ///< for each place, the plan's launches that have its address
  std::vector<BufferPool> pools; ///< for each buffer
  std::shared_ptr<void> arena;
  size_t arenaCapacity = 0;
  std::shared_ptr<void> keptZero; ///< workspace that is kept zero
  size_t keptZeroCapacity = 0;
  /// Of memory that queued runs write, the end of the last of them: fetch() waits for no more.
  std::map<const void *, std::shared_ptr<void>> ends;
  ShapeBuckets buckets;
  Frame spareFrame; ///< of the last run, for its room: one of many buffers makes the allocator tidy up
  std::vector<const Tensor *> tensors; ///< of the run in hand, for each input port …
  std::vector<int64_t> symbols;        ///< … and the symbols' values
  std::vector<uint64_t> argumentValues;
  std::vector<uint32_t> changed, stale;
  RunStatistics counted;
  void *exchange = nullptr; ///< this rank's, for kernels; null until a launch needs it
  /// What graphs of the caller's hold addresses of.
  std::vector<std::shared_ptr<void>> reserved;
};

} // namespace fusion
