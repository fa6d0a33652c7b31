#include "runtime/collective/ExchangeMemory.h"

#include "runtime/MemoryPlan.h"
#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace fusion {

using fusion_exchange::Exchange;
using fusion_exchange::Failure;

std::chrono::seconds collectiveTimeout(std::chrono::seconds otherwise) {
  const int seconds = std::atoi(environmentVariable("FUSION_COLLECTIVE_TIMEOUT").c_str());
  return seconds > 0 ? std::chrono::seconds(seconds) : otherwise;
}

Status ExchangeCommunicator::configure() {
  auto wanted = forcedAlgorithm();
  if (!wanted)
    return wanted.error();
  forced = *wanted;
  return {};
}

bool ExchangeCommunicator::canExchange() const {
  return reachesPeers() && ranks() <= static_cast<int>(fusion_exchange::maxRanks);
}

CollectiveAlgorithm ExchangeCommunicator::choose(size_t messageBytes,
                                                 std::span<const CollectiveCandidate> candidates) const {
  std::vector<CollectiveCandidate> possible;
  for (const CollectiveCandidate &candidate : candidates)
    if (candidate.algorithm == CollectiveAlgorithm::Library ? hasLibrary() || !canExchange() : canExchange())
      possible.push_back(candidate);
  return chooseAlgorithm(limits, forced, messageBytes, possible.empty() ? candidates : possible);
}

Result<void *> ExchangeCommunicator::exchange(size_t roundBytes) {
  if (!canExchange())
    return nullptr;
  if (!device)
    if (Status status = makeExchange(device, failure, failureOnDevice); !status)
      return status.error();
  if (roundBytes > capacity)
    if (Status status = replaceAreas(alignedSize(roundBytes)); !status)
      return status.error();
  return device;
}

/// Every step is done by all ranks before one does the next.
Status ExchangeCommunicator::releaseAreas() {
  if (Status status = finish(); !status)
    return status;
  if (Status status = rendezvous->barrier(); !status)
    return status;
  capacity = 0;
  peers = {};
  if (Status status = rendezvous->barrier(); !status)
    return status;
  areas = nullptr;
  return {};
}

Status ExchangeCommunicator::replaceAreas(size_t roundBytes) {
  // First, so that the old and the new ones need not fit together.
  if (Status status = releaseAreas(); !status)
    return status;
  auto memory = allocateAreas(roundBytes * fusion_exchange::rounds);
  if (!memory)
    return Error{memory.error().kind, "memory to exchange data with other ranks: " + memory.error().message};
  areas = *memory;
  auto reached = shareAreas(areas.get());
  if (!reached)
    return reached.error();
  peers = std::move(*reached);

  Exchange exchange = {};
  exchange.rank = static_cast<unsigned>(rank());
  exchange.ranks = static_cast<unsigned>(ranks());
  exchange.roundBytes = roundBytes;
  for (size_t peer = 0; peer < peers.addresses.size(); ++peer)
    exchange.memory[peer] = static_cast<unsigned char *>(peers.addresses[peer]);
  exchange.spinTimeout = static_cast<unsigned long long>(std::chrono::nanoseconds(spinTimeout).count());
  exchange.failure = failureOnDevice;
  if (Status status = upload(device, exchange); !status)
    return status;
  if (Status status = rendezvous->barrier(); !status)
    return status;
  capacity = roundBytes;
  return {};
}

Status ExchangeCommunicator::check() {
  if (failure && std::atomic_ref(failure->happened).load() != 0) {
    if (Status status = rendezvous->check(); !status)
      return status; // why the other one did not come
    const char *what = failure->phase == 1   ? "its part of the sum"
                       : failure->phase == 2 ? "the gathered row"
                                             : "its data";
    return environment(fmt::format(
        "rank {} waited {} s for rank {} in a collective: {} for row {} (phase {}) did not come. Is that "
        "rank alive, and "
        "does it run the same graph at the same sizes? FUSION_COLLECTIVE_TIMEOUT sets the seconds",
        rank(), spinTimeout.count(), failure->awaited, what, failure->row, failure->phase));
  }
  return rendezvous->check();
}

} // namespace fusion
