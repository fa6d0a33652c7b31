// Ranks as threads of one process, each on a GPU of its own that reaches the others' memory.
#include "runtime/MemoryPlan.h"
#include "runtime/collective/ExchangeMemory.h"
#include "runtime/collective/Nccl.h"
#include "runtime/cuda/Session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

namespace fusion {
namespace {

using cuda::DevicePointer;
using cuda::Driver;
using cuda::Session;
using fusion_exchange::Exchange;
using fusion_exchange::Failure;

constexpr std::chrono::seconds gpuPatience(20);

/// What a rank tells the others of the process; addresses are valid in all of its threads.
struct Introduction {
  int ordinal = 0;
  cuda::Context context = nullptr;
  Failure *failure = nullptr;
};

template <class T>
std::string bytesOf(const T &value) {
  return {reinterpret_cast<const char *>(&value), sizeof(value)};
}

/// What each rank brought as a T.
template <class T>
Result<std::vector<T>> gatherAs(Rendezvous &host, const T &own) {
  auto told = host.gather(bytesOf(own));
  if (!told)
    return told.error();
  std::vector<T> values(told->size());
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(&values[i], (*told)[i].data(), sizeof(T));
  return values;
}

class PeerCommunicator : public ExchangeCommunicator {
public:
  static Result<std::unique_ptr<Communicator>> make(std::unique_ptr<Rendezvous> host, int ordinal) {
    auto driver = Driver::instance();
    if (!driver)
      return driver.error();
    auto session = std::make_shared<Session>(**driver, ordinal);
    if (Status status = session->open(); !status)
      return status.error();
    std::unique_ptr<PeerCommunicator> made(new PeerCommunicator(std::move(host), std::move(session)));
    if (Status status = made->open(); !status)
      return status.error();
    return std::unique_ptr<Communicator>(std::move(made));
  }
  ~PeerCommunicator() override {
    session->activate();
    if (memory)
      driver.cuMemFree_v2(memory);
    if (ownFailure)
      driver.cuMemFreeHost(ownFailure);
  }

  std::string description() const override { return reachable ? "peer memory" : "NCCL"; }

  Status allReduce(const void *from, void *to, size_t elements, DType type, void *stream) override {
    return nccl ? nccl->allReduce(from, to, elements, type, stream) : environment(whyNoNccl);
  }

  Status check() override {
    Status status = ExchangeCommunicator::check();
    return status && nccl ? nccl->check() : status;
  }

  void stop(const std::string &reason) override {
    meeting->abandon(reason);
    for (NcclRank *rank : libraries)
      if (rank)
        rank->abort();
    for (const Introduction &rank : introductions)
      std::atomic_ref(rank.failure->happened).store(1);
  }

protected:
  bool reachesPeers() const override { return reachable; }
  bool hasLibrary() const override { return nccl != nullptr; }

  Status finish() override {
    session->activate();
    return driver.check(driver.cuCtxSynchronize(), "waiting for the GPU");
  }

  Result<std::shared_ptr<void>> allocateAreas(size_t bytes) override {
    session->activate();
    DevicePointer pointer = 0;
    int code = driver.cuMemAlloc_v2(&pointer, bytes);
    if (Status status = driver.check(code, fmt::format("allocating {} MiB", (bytes >> 20) + 1)); !status)
      return status.error();
    std::shared_ptr<void> areas(reinterpret_cast<void *>(pointer), [owner = session](void *freed) {
      owner->activate();
      owner->driver.cuMemFree_v2(reinterpret_cast<DevicePointer>(freed));
    });
    code = driver.cuMemsetD8Async(pointer, fusion_exchange::emptyWord & 0xff, bytes, session->ownStream());
    if (code == 0)
      code = driver.cuStreamSynchronize(session->ownStream());
    if (Status status = driver.check(code, "filling GPU memory"); !status)
      return status.error();
    return areas;
  }

  Result<Peers> shareAreas(void *own) override {
    auto addresses = gatherAs(*meeting, own);
    if (!addresses)
      return addresses.error();
    return Peers{std::move(*addresses), nullptr};
  }

  Status makeExchange(void *&device, Failure *&failure, Failure *&failureOnDevice) override {
    session->activate();
    DevicePointer seen = 0;
    int code = driver.cuMemAlloc_v2(&memory, std::max(sizeof(Exchange), bufferAlignment));
    if (code == 0)
      code = driver.cuMemHostGetDevicePointer_v2(&seen, ownFailure, 0);
    device = reinterpret_cast<void *>(memory);
    failure = ownFailure;
    failureOnDevice = reinterpret_cast<Failure *>(seen);
    return driver.check(code, "memory to exchange data with other ranks");
  }

  Status upload(void *device, const Exchange &exchange) override {
    session->activate();
    int code = driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<DevicePointer>(device), &exchange, sizeof(exchange),
                                           session->ownStream());
    if (code == 0)
      code = driver.cuStreamSynchronize(session->ownStream());
    return driver.check(code, "copying to the GPU");
  }

private:
  PeerCommunicator(std::unique_ptr<Rendezvous> host, std::shared_ptr<Session> session)
      : ExchangeCommunicator(std::move(host), collectivePatience(gpuPatience)), session(std::move(session)),
        driver(this->session->driver) {}

  Status open() {
    if (Status status = configure(); !status)
      return status;
    session->activate();
    int code = driver.cuMemHostAlloc(reinterpret_cast<void **>(&ownFailure), sizeof(Failure),
                                     cuda::portableHostMemory | cuda::mappedHostMemory);
    if (Status status = driver.check(code, "allocating page-locked memory"); !status)
      return status;
    *ownFailure = {};
    auto told = gatherAs(*meeting, Introduction{session->ordinal, session->handle(), ownFailure});
    if (!told)
      return told.error();
    introductions = std::move(*told);
    if (Status status = reachPeers(); !status)
      return status;
    auto library = NcclRank::make(*meeting, [session = session] {
      return session->driver.check(session->activate(), "opening the GPU");
    });
    if (library)
      nccl = std::move(*library);
    else if (reachable)
      whyNoNccl = library.error().message; // large messages go through shared memory too
    else
      return library.error();
    auto everyones = gatherAs(*meeting, nccl.get());
    if (!everyones)
      return everyones.error();
    libraries = std::move(*everyones);
    return {};
  }

  /// Peer access, if every GPU of the group reaches every other.
  Status reachPeers() {
    int unreachable = -1;
    for (const Introduction &peer : introductions) {
      int reaches = 1;
      if (peer.ordinal != session->ordinal)
        if (Status status = driver.check(driver.cuDeviceCanAccessPeer(&reaches, session->ordinal, peer.ordinal),
                                         "asking for peer access");
            !status)
          return status;
      if (!reaches)
        unreachable = peer.ordinal;
    }
    auto answers = gatherAs(*meeting, unreachable);
    if (!answers)
      return answers.error();
    for (size_t asking = 0; asking < answers->size(); ++asking)
      if ((*answers)[asking] >= 0) {
        if (rank() == 0)
          fmt::print(stderr, "GPU {} does not reach the memory of GPU {}: collectives go through NCCL\n",
                     introductions[asking].ordinal, (*answers)[asking]);
        return {};
      }
    session->activate();
    for (const Introduction &peer : introductions) {
      if (peer.ordinal == session->ordinal)
        continue;
      const int code = driver.cuCtxEnablePeerAccess(peer.context, 0);
      if (code != 0 && code != cuda::peerAccessAlreadyEnabled)
        return driver.check(code, fmt::format("peer access from GPU {} to GPU {}", session->ordinal, peer.ordinal));
    }
    reachable = true;
    return meeting->meet(); // what one allocates from here on, all reach
  }

  std::shared_ptr<Session> session;
  const Driver &driver;
  std::vector<Introduction> introductions; ///< of each rank
  bool reachable = false;
  Failure *ownFailure = nullptr; ///< page-locked; at one address for all GPUs of the process
  DevicePointer memory = 0;      ///< of the Exchange
  std::unique_ptr<NcclRank> nccl; ///< null where it is not installed
  std::string whyNoNccl;
  std::vector<NcclRank *> libraries; ///< of each rank
};

} // namespace

Result<std::unique_ptr<Communicator>> makePeerCommunicator(std::unique_ptr<Rendezvous> host, int ordinal) {
  return PeerCommunicator::make(std::move(host), ordinal);
}

} // namespace fusion
