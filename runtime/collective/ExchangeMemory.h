// What communicators share whose ranks reach each other's memory: areas that grow, one Exchange a rank, failures.
#pragma once

#include "codegen/device/exchange_abi.h"
#include "runtime/collective/Communicator.h"
#include "runtime/collective/Forms.h"

#include <chrono>

namespace fusion {

/// FUSION_COLLECTIVE_TIMEOUT in seconds, or `otherwise`: how long a kernel waits for another rank.
std::chrono::seconds collectivePatience(std::chrono::seconds otherwise);

class ExchangeCommunicator : public Communicator {
public:
  int rank() const override { return meeting->rank(); }
  int ranks() const override { return meeting->ranks(); }
  Rendezvous &host() override { return *meeting; }
  Result<void *> exchange(size_t roundBytes) override;
  CollectiveForm choose(size_t messageBytes, std::span<const CollectiveWay> ways) const override;
  Status check() override;

protected:
  ExchangeCommunicator(std::unique_ptr<Rendezvous> meeting, std::chrono::seconds patience)
      : meeting(std::move(meeting)), patience(patience), limits(defaultFormLimits(this->meeting->ranks())) {}

  /// By subclasses, before the first call: FUSION_COLLECTIVE, and whether there are more ranks than an Exchange names.
  Status configure();

  /// What choose() goes by from here on; the same at all ranks.
  void setLimits(const FormLimits &measured) { limits = measured; }
  const FormLimits &formLimits() const { return limits; }
  /// Whether sizes decide on the form, of which there is more than one.
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
  /// Where this rank's device reaches each rank's areas; called by all ranks alike. Valid until the last copy goes, which
  /// is before any rank frees its areas.
  struct Peers {
    std::vector<void *> addresses;
    std::shared_ptr<void> mapping; ///< may be null
  };
  virtual Result<Peers> shareAreas(void *own) = 0;
  /// The place for the Exchange in the device's memory, made on the first call, and a Failure that the device reaches.
  virtual Status makeExchange(void *&device, fusion_exchange::Failure *&failure, fusion_exchange::Failure *&failureOnDevice) = 0;
  /// Complete when it returns.
  virtual Status upload(void *device, const fusion_exchange::Exchange &exchange) = 0;

  std::unique_ptr<Rendezvous> meeting;
  fusion_exchange::Failure *failure = nullptr; ///< null before the first exchange(); the host's address

private:
  bool canExchange() const;
  Status replaceAreas(size_t roundBytes);

  const std::chrono::seconds patience;
  FormLimits limits;
  std::optional<CollectiveForm> forced;
  void *device = nullptr;
  fusion_exchange::Failure *failureOnDevice = nullptr;
  std::shared_ptr<void> areas;
  Peers peers;
  size_t capacity = 0; ///< of one area
};

} // namespace fusion
