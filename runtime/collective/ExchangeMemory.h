// What communicators share whose ranks reach each other's memory: areas that grow, one Exchange a rank,
// failures.
#pragma once

#include "codegen/device/exchange_abi.h"
#include "runtime/collective/Communicator.h"
#include "runtime/collective/CollectiveChoice.h"

#include <chrono>

namespace fusion {

/// FUSION_COLLECTIVE_TIMEOUT in seconds, or `otherwise`: how long a kernel waits for another rank.
std::chrono::seconds collectiveTimeout(std::chrono::seconds otherwise);

class ExchangeCommunicator : public Communicator {
public:
  int rank() const override { return rendezvous->rank(); }
  int ranks() const override { return rendezvous->ranks(); }
  Rendezvous &host() override { return *rendezvous; }
  Result<void *> exchange(size_t roundBytes) override;
  CollectiveAlgorithm choose(size_t messageBytes,
                             std::span<const CollectiveCandidate> candidates) const override;
  Status check() override;

protected:
  ExchangeCommunicator(std::unique_ptr<Rendezvous> rendezvous, std::chrono::seconds spinTimeout)
      : rendezvous(std::move(rendezvous)), spinTimeout(spinTimeout),
        limits(defaultAlgorithmLimits(this->rendezvous->ranks())) {}

  /// By subclasses, before the first call: FUSION_COLLECTIVE, and whether there are more ranks than an
  /// Exchange names.
  Status configure();

  /// What choose() goes by from here on; the same at all ranks.
  void setLimits(const AlgorithmLimits &measured) { limits = measured; }
  const AlgorithmLimits &algorithmLimits() const { return limits; }
  /// Whether sizes decide on the algorithm, of which there is more than one.
  bool chooses() const { return canExchange() && !forced; }

  /// With all ranks together: nobody frees what another may still write to.
  Status releaseAreas();
  /// The same at all ranks, unless their group has failed.
  bool hasAreas() const { return capacity > 0; }

  /// Whether the ranks reach each other's memory; the same answer at all ranks.
  virtual bool reachesPeers() const { return true; }
  /// Whether allReduce() can be called; likewise.
  virtual bool hasLibrary() const { return true; }
  /// Waits for what this rank's device runs.
  virtual Status finish() = 0;
  /// This rank's areas, aligned to 256 bytes; all bytes are those of emptyWord. Freed with the last copy.
  virtual Result<std::shared_ptr<void>> allocateAreas(size_t bytes) = 0;
  /// Where this rank's device reaches each rank's areas; called by all ranks alike. Valid until the last copy
  /// goes, which is before any rank frees its areas.
  struct Peers {
    std::vector<void *> addresses;
    std::shared_ptr<void> mapping; ///< may be null
  };
  virtual Result<Peers> shareAreas(void *own) = 0;
  /// The place for the Exchange in the device's memory, made on the first call, and a Failure that the device
  /// reaches.
  virtual Status makeExchange(void *&device, fusion_exchange::Failure *&failure,
                              fusion_exchange::Failure *&failureOnDevice) = 0;
  /// Complete when it returns.
  virtual Status upload(void *device, const fusion_exchange::Exchange &exchange) = 0;

  std::unique_ptr<Rendezvous> rendezvous;
  fusion_exchange::Failure *failure = nullptr; ///< null before the first exchange(); the host's address

private:
  bool canExchange() const;
  Status replaceAreas(size_t roundBytes);

  const std::chrono::seconds spinTimeout;
  AlgorithmLimits limits;
  std::optional<CollectiveAlgorithm> forced;
  void *device = nullptr;
  fusion_exchange::Failure *failureOnDevice = nullptr;
  std::shared_ptr<void> areas;
  Peers peers;
  size_t capacity = 0; ///< of one area
};

} // namespace fusion
