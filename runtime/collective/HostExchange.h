// Ranks whose kernels are emulated: each rank's Exchange is the host's memory.
#pragma once

#include "runtime/collective/ExchangeMemory.h"

namespace fusion {

class HostExchangeCommunicator : public ExchangeCommunicator {
protected:
  /// A kernel that takes a GPU microseconds takes a busy host seconds.
  static constexpr std::chrono::seconds emulatedTimeout{300};

  explicit HostExchangeCommunicator(std::unique_ptr<Rendezvous> host)
      : ExchangeCommunicator(std::move(host), collectiveTimeout(emulatedTimeout)) {}

  Status makeExchange(void *&device, fusion_exchange::Failure *&failure,
                      fusion_exchange::Failure *&failureOnDevice) override {
    device = &ownExchange;
    failure = failureOnDevice = &ownFailure;
    return {};
  }
  Status upload(void *, const fusion_exchange::Exchange &exchange) override {
    ownExchange = exchange;
    return {};
  }

  fusion_exchange::Exchange ownExchange = {};
  fusion_exchange::Failure ownFailure = {};
};

} // namespace fusion
