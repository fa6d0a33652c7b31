// Ranks as processes, each on a GPU: on one host they open each other's memory by handles of the driver.
#include "runtime/collective/GpuCommunicator.h"
#include "runtime/collective/ProcessCommunicator.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <optional>

namespace fusion {
namespace {

using cuda::DevicePointer;
using cuda::IpcHandle;
using cuda::Session;

/// The driver shares whole blocks of this size: other allocations stay out of those that are shared.
constexpr size_t sharedBlockBytes = size_t(2) << 20;
constexpr size_t mostBusIdBytes = 32;

/// Where a rank runs.
struct Place {
  char boot[64] = {};
  char bus[mostBusIdBytes] = {}; ///< of its GPU
};

struct Offer {
  int code = 0; ///< of cuIpcGetMemHandle
  IpcHandle handle = {};
};

/// What became of opening the others' memory: 0, or the driver's number, and whose.
struct Attempt {
  int code = 0;
  int peer = 0;
};

struct OpenedAreas {
  std::shared_ptr<Session> session;
  std::vector<DevicePointer> pointers;
  ~OpenedAreas() {
    session->activate();
    for (DevicePointer pointer : pointers)
      session->driver.cuIpcCloseMemHandle(pointer);
  }
};

class GpuProcessCommunicator : public GpuCommunicator {
public:
  static Result<std::unique_ptr<Communicator>> make(std::unique_ptr<Rendezvous> host,
                                                    std::shared_ptr<Session> session) {
    std::unique_ptr<GpuProcessCommunicator> made(
        new GpuProcessCommunicator(std::move(host), std::move(session)));
    if (Status status = made->open(); !status)
      return status.error();
    return std::unique_ptr<Communicator>(std::move(made));
  }
  ~GpuProcessCommunicator() override {
    if (hasAreas())
      (void)releaseAreas(); // others that are gone use them no longer
  }

  void stop(const std::string &reason) override {
    rendezvous->abandon(reason);
    giveUp();
  }

protected:
  Result<std::shared_ptr<void>> allocateAreas(size_t bytes) override {
    return GpuCommunicator::allocateAreas((bytes + sharedBlockBytes - 1) / sharedBlockBytes *
                                          sharedBlockBytes);
  }

  /// An error of the driver is the same, in the same words, at all ranks.
  Result<Peers> shareAreas(void *own) override {
    session->activate();
    Offer offer;
    offer.code = driver.cuIpcGetMemHandle(&offer.handle, reinterpret_cast<DevicePointer>(own));
    auto offers = gatherAs(*rendezvous, offer);
    if (!offers)
      return offers.error();
    for (size_t rank = 0; rank < offers->size(); ++rank)
      if (const int code = (*offers)[rank].code)
        return driver.check(code, fmt::format("rank {} cannot share the memory of its GPU", rank)).error();

    Peers peers;
    Attempt attempt;
    auto opened = std::make_shared<OpenedAreas>(session, std::vector<DevicePointer>());
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank()) {
        peers.addresses.push_back(own);
        continue;
      }
      DevicePointer pointer = 0;
      attempt = {driver.cuIpcOpenMemHandle_v2(&pointer, (*offers)[static_cast<size_t>(peer)].handle,
                                              cuda::lazyPeerAccess),
                 peer};
      if (attempt.code != 0)
        break;
      opened->pointers.push_back(pointer);
      peers.addresses.push_back(reinterpret_cast<void *>(pointer));
    }
    auto attempts = gatherAs(*rendezvous, attempt);
    if (!attempts)
      return attempts.error();
    for (size_t rank = 0; rank < attempts->size(); ++rank)
      if (const auto [code, peer] = (*attempts)[rank]; code != 0)
        return driver.check(code, fmt::format("rank {} cannot open the memory of rank {}'s GPU", rank, peer))
            .error();
    peers.mapping = opened;
    return peers;
  }

private:
  GpuProcessCommunicator(std::unique_ptr<Rendezvous> host, std::shared_ptr<Session> session)
      : GpuCommunicator(std::move(host), std::move(session)) {}

  Status open() {
    if (Status status = openOwn(); !status)
      return status;
    auto why = whyOutOfReach();
    if (!why)
      return why.error();
    reachable = why->empty();
    if (!reachable)
      remark(*why);
    if (Status status = openLibrary(); !status)
      return status;
    watch.emplace(*rendezvous, [this] { giveUp(); });
    return measureCollectives();
  }

  /// Kernels of this process no longer wait for others.
  void giveUp() {
    std::atomic_ref(ownFailure->happened).store(1);
    if (nccl)
      nccl->abort();
  }

  /// Empty if every rank can write to every other's memory. The same at all ranks.
  Result<std::string> whyOutOfReach() {
    Place own;
    bootIdentity().copy(own.boot, sizeof own.boot - 1);
    if (Status status = driver.check(driver.cuDeviceGetPCIBusId(own.bus, mostBusIdBytes, session->ordinal),
                                     "asking where the GPU is");
        !status)
      return status.error();
    auto places = gatherAs(*rendezvous, own);
    if (!places)
      return places.error();
    for (size_t rank = 1; rank < places->size(); ++rank) {
      if (std::strcmp((*places)[rank].boot, places->front().boot) != 0)
        return fmt::format("rank {} is on another host than rank 0", rank);
      for (size_t other = 0; other < rank; ++other)
        if (std::strcmp((*places)[rank].bus, (*places)[other].bus) == 0)
          return environment(fmt::format("ranks {} and {} are on one GPU ({}): a rank waits for others while "
                                         "its kernel runs, and needs a "
                                         "GPU of its own. LOCAL_RANK and CUDA_VISIBLE_DEVICES say which",
                                         other, rank, (*places)[rank].bus));
    }
    auto unreachable = gatherAs(*rendezvous, firstWithoutAccess(*places));
    if (!unreachable)
      return unreachable.error();
    for (size_t rank = 0; rank < unreachable->size(); ++rank)
      if (const int peer = (*unreachable)[rank]; peer >= 0)
        return fmt::format("the GPU of rank {} does not reach the memory of rank {}'s", rank, peer);
    return triedToShare();
  }

  /// A rank whose GPU this one's does not reach, or -1. Of a GPU that CUDA_VISIBLE_DEVICES hides nothing is
  /// known.
  int firstWithoutAccess(const std::vector<Place> &places) const {
    for (int peer = 0; peer < ranks(); ++peer) {
      int device = 0, reaches = 1;
      if (peer != rank() &&
          driver.cuDeviceGetByPCIBusId(&device, places[static_cast<size_t>(peer)].bus) == 0 &&
          driver.cuDeviceCanAccessPeer(&reaches, session->ordinal, device) == 0 && !reaches)
        return peer;
    }
    return -1;
  }

  /// Containers, rights and hidden GPUs decide whether it works: a block is shared, and given back.
  Result<std::string> triedToShare() {
    auto block = allocateAreas(sharedBlockBytes);
    if (!block)
      return block.error();
    std::string why;
    if (auto shared = shareAreas(block->get()); !shared)
      why = shared.error().message;
    if (Status status = rendezvous->barrier();
        !status) // closed everywhere; or this was no refusal of the driver
      return status.error();
    return why;
  }

  std::optional<GroupWatch> watch; ///< last, so that it ends first
};

} // namespace

Result<std::unique_ptr<Communicator>> makeGpuProcessCommunicator(std::unique_ptr<Rendezvous> host,
                                                                 std::shared_ptr<Session> session) {
  return GpuProcessCommunicator::make(std::move(host), std::move(session));
}

} // namespace fusion
