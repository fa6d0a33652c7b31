// Ranks on GPUs that reach each other's memory, or sum through NCCL: what threads and processes have in
// common.
#pragma once

#include "runtime/collective/ExchangeMemory.h"
#include "runtime/collective/Nccl.h"
#include "runtime/cuda/Session.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace fusion {

/// What each rank brought as a T, bytes that mean the same to all of them.
template <class T>
Result<std::vector<T>> gatherAs(Rendezvous &host, const T &own) {
  auto told = host.gather({reinterpret_cast<const char *>(&own), sizeof(T)});
  if (!told)
    return told.error();
  std::vector<T> values(told->size());
  for (size_t i = 0; i < values.size(); ++i) {
    if ((*told)[i].size() != sizeof(T))
      return environment("the ranks run different versions of this program");
    std::memcpy(&values[i], (*told)[i].data(), sizeof(T));
  }
  return values;
}

class GpuCommunicator : public ExchangeCommunicator {
public:
  ~GpuCommunicator() override;
  std::string description() const override;
  Status allReduce(const void *from, void *to, size_t elements, DType type, void *stream) override;
  Status check() override;

protected:
  /// `session` is open.
  GpuCommunicator(std::unique_ptr<Rendezvous> host, std::shared_ptr<cuda::Session> session);

  /// By subclasses, in this order: what is this rank's alone; then they set `reachable`; then NCCL, by all
  /// ranks together. It may be missing where the ranks reach each other.
  Status openOwn();
  Status openLibrary();
  /// Measures how the algorithms compare, or finds what was measured before: by all ranks together, at the
  /// end. Where it cannot, description() says why. FUSION_COLLECTIVE_MEASURE=0: does nothing.
  Status measureCollectives();
  /// Says on stderr, once, why collectives go through NCCL. Called by all ranks.
  void remark(const std::string &why) const;

  bool reachesPeers() const override { return reachable; }
  bool hasLibrary() const override { return nccl != nullptr; }
  Status finish() override;
  Result<std::shared_ptr<void>> allocateAreas(size_t bytes) override;
  Status makeExchange(void *&device, fusion_exchange::Failure *&failure,
                      fusion_exchange::Failure *&failureOnDevice) override;
  Status upload(void *device, const fusion_exchange::Exchange &exchange) override;

  const std::shared_ptr<cuda::Session> session;
  const cuda::Driver &driver;
  bool reachable = false;                         ///< the same at all ranks
  fusion_exchange::Failure *ownFailure = nullptr; ///< page-locked; at one address for all GPUs of the process
  std::unique_ptr<NcclRank> nccl;                 ///< null where it is not installed

private:
  cuda::DevicePointer memory = 0; ///< of the Exchange
  std::string whyNoNccl, limitsOrigin;
};

} // namespace fusion
