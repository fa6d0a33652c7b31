// Times the algorithms of a sum on a GPU, by kernels of its own that do nothing else.
#pragma once

#include "runtime/collective/Calibration.h"
#include "runtime/cuda/Session.h"

#include <functional>
#include <memory>
#include <vector>

namespace fusion {

/// A kernel that sums bf16 over ranks and does nothing else, a block for each row: it instantiates a template
/// of codegen/device/all_reduce_timing.cuh.
struct TimingKernel {
  KernelPlan plan;
  TimedCollective collective;
  bool isSmall;    ///< for small messages
  size_t rowBytes; ///< that a block has; a message is whole rows

  /// What the kernel takes besides pointers.
  struct Sizes {
    int64_t slotBytes = 0, gatherSlotBytes = 0, areaBytes = 0;
  };
  Sizes sizes(size_t messageBytes, int ranks) const;
};
std::vector<TimingKernel> timingKernels(int ranks);

/// The kernels' text, a part of what a measurement depends on.
std::string timingSource(int ranks);

class GpuCollectiveTimer : public CollectiveTimer {
public:
  /// Over the exchange and the library of `communicator`, whose device `session` is; both outlive this.
  GpuCollectiveTimer(Communicator &communicator, std::shared_ptr<cuda::Session> session, KernelCache &cache)
      : communicator(communicator), session(std::move(session)), driver(this->session->driver), cache(cache) {
  }
  ~GpuCollectiveTimer() override;
  Status prepare(size_t messageBytes) override;
  Result<std::optional<double>> microseconds(const TimedCollective &collective, size_t messageBytes) override;

private:
  struct Loaded {
    cuda::Module module = nullptr;
    cuda::Function function = nullptr;
  };
  Status load(size_t number, const std::string &name, const std::string &cubin);
  Status record(size_t number, size_t messageBytes, cuda::GraphExec &graph);
  Status launch(size_t number, size_t messageBytes);
  /// The median microseconds between one `queue` and the next.
  Result<double> timed(const std::function<Status()> &queue);

  Communicator &communicator;
  const std::shared_ptr<cuda::Session> session;
  const cuda::Driver &driver;
  KernelCache &cache;
  std::vector<TimingKernel> kernels;
  std::vector<Loaded> loaded; ///< by kernel
  cuda::DevicePointer from = 0, to = 0;
  void *exchange = nullptr;
  size_t largest = 0; ///< message
};

} // namespace fusion
