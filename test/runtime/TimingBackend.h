// A device that runs nothing and says that each launch takes the time its kernel is given.
#pragma once

#include "runtime/Backend.h"

#include <cstdlib>
#include <functional>

namespace fusion::test {

class TimingBackend : public Backend {
public:
  using Cost = std::function<double(const KernelPlan &, const Launch &)>; ///< microseconds

  TimingBackend(std::span<const KernelPlan> plans, Cost cost) : plans(plans), cost(std::move(cost)) {}

  Device device() const override { return {}; }
  std::string description() const override { return "a stopwatch"; }
  DevicePeaks peaks() const override { return {}; }
  bool sharesHostMemory() const override { return true; }
  Result<std::shared_ptr<void>> allocate(size_t bytes) override {
    return std::shared_ptr<void>(std::aligned_alloc(256, (bytes + 511) / 256 * 256), std::free);
  }
  Status upload(void *target, const void *source, size_t bytes) override {
    return copy(target, source, bytes);
  }
  Status download(void *target, const void *source, size_t bytes) override {
    return copy(target, source, bytes);
  }
  Status copy(void *target, const void *source, size_t bytes) override {
    std::copy_n(static_cast<const char *>(source), bytes, static_cast<char *>(target));
    return {};
  }
  Status fill(void *target, uint8_t value, size_t bytes) override {
    std::fill_n(static_cast<uint8_t *>(target), bytes, value);
    return {};
  }
  Status encodeTensorMap(const TensorMapArgument &, std::span<const int64_t>, void *,
                         std::span<uint64_t, tensorMapWords>) override {
    return {};
  }
  Status launch(const Launch &launch) override {
    elapsed += cost(plans[launch.kernel], launch);
    return {};
  }
  Status synchronize() override { return {}; }
  Status enter(std::optional<void *>) override { return {}; }
  Status leave() override { return {}; }
  Result<bool> capturing() const override { return false; }
  Status emptyCache() override { return {}; }
  Result<std::unique_ptr<Recording>> record(const std::function<Status()> &) override {
    return std::unique_ptr<Recording>();
  }
  Result<double> time(const std::function<Status()> &work) override {
    elapsed = 0;
    if (Status status = work(); !status)
      return status.error();
    return elapsed;
  }
  Result<std::vector<double>> timeEach(std::span<const std::function<Status()>>,
                                       const std::function<Status()> &) override {
    return badInput("not for this");
  }

private:
  std::span<const KernelPlan> plans;
  Cost cost;
  double elapsed = 0;
};

} // namespace fusion::test
