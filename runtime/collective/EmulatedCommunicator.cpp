// Ranks as threads of one process whose kernels are emulated: all memory is the host's.
#include "runtime/MemoryPlan.h"
#include "runtime/collective/HostExchange.h"
#include "runtime/collective/Shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace fusion {
namespace {

using fusion_exchange::Failure;

class EmulatedCommunicator : public HostExchangeCommunicator {
public:
  static Result<std::unique_ptr<Communicator>> make(std::unique_ptr<Rendezvous> host) {
    std::unique_ptr<EmulatedCommunicator> made(new EmulatedCommunicator(std::move(host)));
    if (Status status = made->configure(); !status)
      return status.error();
    auto failures = made->addressesOf(&made->ownFailure);
    if (!failures)
      return failures.error();
    for (void *place : *failures)
      made->failures.push_back(static_cast<Failure *>(place));
    return std::unique_ptr<Communicator>(std::move(made));
  }
  std::string description() const override { return "shared memory"; }

  Status allReduce(const void *from, void *to, size_t elements, DType type, void *) override {
    auto sources = addressesOf(const_cast<void *>(from));
    if (!sources)
      return sources.error();
    std::vector<Tensor> parts;
    for (void *source : *sources)
      parts.push_back(Tensor::wrap(type, {static_cast<int64_t>(elements)}, source, nullptr, {}));
    auto sum = sumOf(parts);
    if (!sum)
      return sum.error();
    if (Status status = rendezvous->barrier(); !status) // `to` may be `from`, which others read
      return status;
    if (elements > 0)
      std::memcpy(to, sum->data(), sum->bytes());
    return {};
  }

  void stop(const std::string &reason) override {
    rendezvous->abandon(reason);
    for (Failure *other : failures)
      std::atomic_ref(other->happened).store(1);
  }

protected:
  Status finish() override { return {}; }
  Result<std::shared_ptr<void>> allocateAreas(size_t bytes) override {
    void *memory = std::aligned_alloc(bufferAlignment, alignedSize(bytes));
    if (!memory)
      return environment(fmt::format("allocating {} MiB of host memory failed", (bytes >> 20) + 1));
    std::memset(memory, fusion_exchange::emptyWord & 0xff, bytes);
    return std::shared_ptr<void>(memory, std::free);
  }
  Result<Peers> shareAreas(void *own) override {
    auto addresses = addressesOf(own);
    if (!addresses)
      return addresses.error();
    return Peers{std::move(*addresses), nullptr};
  }

private:
  explicit EmulatedCommunicator(std::unique_ptr<Rendezvous> host)
      : HostExchangeCommunicator(std::move(host)) {}

  /// What each rank calls so, in its own memory, which is everyone's.
  Result<std::vector<void *>> addressesOf(void *own) {
    auto told = rendezvous->gather(std::string(reinterpret_cast<const char *>(&own), sizeof(own)));
    if (!told)
      return told.error();
    std::vector<void *> addresses;
    for (const std::string &bytes : *told) {
      void *address = nullptr;
      std::memcpy(&address, bytes.data(), sizeof(address));
      addresses.push_back(address);
    }
    return addresses;
  }

  std::vector<Failure *> failures; ///< of each rank
};

} // namespace

Result<std::unique_ptr<Communicator>> makeEmulatedCommunicator(std::unique_ptr<Rendezvous> host) {
  return EmulatedCommunicator::make(std::move(host));
}

} // namespace fusion
