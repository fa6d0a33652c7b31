// Times the forms of a sum on a GPU, by kernels of its own that do nothing else.
#pragma once

#include "runtime/collective/Calibration.h"
#include "runtime/cuda/Session.h"

#include <functional>
#include <memory>
#include <vector>

namespace fusion {

class GpuFormTimer : public FormTimer {
public:
  /// Over the exchange and the library of `communicator`, whose device `session` is; both outlive this.
  GpuFormTimer(Communicator &communicator, std::shared_ptr<cuda::Session> session, KernelCache &cache)
      : communicator(communicator), session(std::move(session)), driver(this->session->driver), cache(cache) {}
  ~GpuFormTimer() override;
  Status prepare(size_t messageBytes) override;
  Result<std::optional<double>> microseconds(const TimedForm &form, size_t messageBytes) override;

private:
  /// One of the kernels, and how it is launched.
  struct Kernel {
    cuda::Module module = nullptr;
    cuda::Function function = nullptr;
    unsigned threads = 0;
    size_t rowBytes = 0; ///< that a block has
  };
  Status load(size_t number, const std::string &name, const std::string &cubin);
  Status record(const Kernel &kernel, const TimedForm &form, size_t messageBytes, cuda::GraphExec &graph);
  Status launch(const Kernel &kernel, const TimedForm &form, size_t messageBytes);
  /// The median microseconds between one `queue` and the next.
  Result<double> timed(const std::function<Status()> &queue);

  Communicator &communicator;
  const std::shared_ptr<cuda::Session> session;
  const cuda::Driver &driver;
  KernelCache &cache;
  std::vector<Kernel> kernels;
  cuda::DevicePointer from = 0, to = 0;
  void *exchange = nullptr;
  size_t largest = 0; ///< message
};

/// The kernels' text, a part of what a measurement depends on.
std::string calibrationSource(int ranks);

} // namespace fusion
