// The state of one executor. Internal.
#pragma once

#include "runtime/Executor.h"
#include "runtime/ShapeBucket.h"
#include "runtime/WeightStore.h"

#include <mutex>
#include <optional>

namespace fusion {

class Executor::Runner {
public:
  Runner(const ProgramPlan &plan, const ExecutorOptions &options, std::unique_ptr<Backend> backend,
         WeightStore weights);

  Result<NamedTensors> run(const NamedTensors &inputs);
  Result<NamedTensors> enqueue(const NamedTensors &inputs, void *stream);
  Result<NamedTensors> fetch(const NamedTensors &tensors);
  Result<std::vector<double>> bench(const NamedTensors &inputs, int iterations, bool cold);
  Result<std::vector<LaunchTiming>> profile(const NamedTensors &inputs, int iterations);

  const Backend &device() const { return *backend; }
  size_t weightBytes() const { return weights.deviceBytes(); }
  size_t arenaBytes() const { return arenaCapacity; }

private:
  /// One run: its sizes, where every buffer is, and who keeps the interface buffers.
  struct Frame {
    ShapeBucket *bucket = nullptr;
    std::vector<void *> addresses;
    std::vector<std::shared_ptr<void>> owners;
  };
  /// Checks the inputs, finds or makes their bucket, places every buffer and brings the inputs there.
  Result<Frame> prepare(const NamedTensors &inputs);
  Result<ShapeBucket *> bucketFor(const NamedTensors &inputs);
  Status growArena(size_t bytes);
  Status placeInput(const PortPlan &port, const Tensor &tensor, Frame &frame);
  /// The caller's tensor itself if it lies in a buffer with room, else a buffer of the pool that starts with a copy.
  Status placeCache(const PortPlan &port, const Shape &strides, const Tensor &tensor, Frame &frame);
  /// Whether kernels can use the tensor's memory as it is. An error if it is on another device.
  Result<bool> isUsable(const PortPlan &port, const Tensor &tensor) const;
  Status poison(const Frame &frame);
  /// Replays, records or launches.
  Status execute(const Frame &frame);
  Status launchAll(const Frame &frame);
  Status launch(const Frame &frame, const ShapePlan::Launch &launch, bool mayOverlap);
  Result<NamedTensors> collect(const Frame &frame, bool onDevice);

  const ProgramPlan &plan;
  const ExecutorOptions &options;
  std::mutex mutex;
  std::unique_ptr<Backend> backend; ///< before what it allocated, so that it is destroyed last
  WeightStore weights;
  std::vector<bool> writtenInputs;
  std::vector<BufferPool> pools; ///< for each buffer
  std::shared_ptr<void> arena;
  size_t arenaCapacity = 0;
  ShapeBuckets buckets;
  std::vector<uint64_t> argumentValues;
  /// What graphs of the caller's hold addresses of.
  std::vector<std::shared_ptr<void>> reserved;
};

} // namespace fusion
