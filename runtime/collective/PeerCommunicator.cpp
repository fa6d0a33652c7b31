// Ranks as threads of one process, each on a GPU of its own that reaches the others' memory.
#include "runtime/collective/GpuCommunicator.h"

#include <fmt/format.h>

#include <atomic>

namespace fusion {
namespace {

using cuda::Driver;
using cuda::Session;
using fusion_exchange::Failure;

/// What a rank tells the others of the process; addresses are valid in all of its threads.
struct Introduction {
  int ordinal = 0;
  cuda::Context context = nullptr;
  Failure *failure = nullptr;
};

class PeerCommunicator : public GpuCommunicator {
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

  void stop(const std::string &reason) override {
    rendezvous->abandon(reason);
    for (NcclRank *rank : libraries)
      if (rank)
        rank->abort();
    for (const Introduction &rank : introductions)
      std::atomic_ref(rank.failure->happened).store(1);
  }

protected:
  Result<Peers> shareAreas(void *own) override {
    auto addresses = gatherAs(*rendezvous, own);
    if (!addresses)
      return addresses.error();
    return Peers{std::move(*addresses), nullptr};
  }

private:
  using GpuCommunicator::GpuCommunicator;

  Status open() {
    if (Status status = openOwn(); !status)
      return status;
    auto told = gatherAs(*rendezvous, Introduction{session->ordinal, session->handle(), ownFailure});
    if (!told)
      return told.error();
    introductions = std::move(*told);
    if (Status status = reachPeers(); !status)
      return status;
    if (Status status = openLibrary(); !status)
      return status;
    auto everyones = gatherAs(*rendezvous, nccl.get());
    if (!everyones)
      return everyones.error();
    libraries = std::move(*everyones);
    return measureCollectives();
  }

  /// Peer access, if every GPU of the group reaches every other.
  Status reachPeers() {
    int unreachable = -1;
    for (const Introduction &peer : introductions) {
      int reaches = 1;
      if (peer.ordinal != session->ordinal)
        if (Status status =
                driver.check(driver.cuDeviceCanAccessPeer(&reaches, session->ordinal, peer.ordinal),
                             "asking for peer access");
            !status)
          return status;
      if (!reaches)
        unreachable = peer.ordinal;
    }
    auto answers = gatherAs(*rendezvous, unreachable);
    if (!answers)
      return answers.error();
    for (size_t asking = 0; asking < answers->size(); ++asking)
      if ((*answers)[asking] >= 0) {
        remark(fmt::format("GPU {} does not reach the memory of GPU {}", introductions[asking].ordinal,
                           (*answers)[asking]));
        return {};
      }
    session->activate();
    for (const Introduction &peer : introductions) {
      if (peer.ordinal == session->ordinal)
        continue;
      const int code = driver.cuCtxEnablePeerAccess(peer.context, 0);
      if (code != 0 && code != cuda::peerAccessAlreadyEnabled)
        return driver.check(code,
                            fmt::format("peer access from GPU {} to GPU {}", session->ordinal, peer.ordinal));
    }
    reachable = true;
    return rendezvous->barrier(); // what one allocates from here on, all reach
  }

  std::vector<Introduction> introductions; ///< of each rank
  std::vector<NcclRank *> libraries;       ///< of each rank
};

} // namespace

Result<std::unique_ptr<Communicator>> makePeerCommunicator(std::unique_ptr<Rendezvous> host, int ordinal) {
  return PeerCommunicator::make(std::move(host), ordinal);
}

} // namespace fusion
