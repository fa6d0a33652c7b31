// NCCL, opened while the program runs: sums over ranks that do not reach each other's memory, or whose
// messages are large.
#pragma once

#include "runtime/collective/Communicator.h"

#include <atomic>
#include <functional>
#include <thread>

namespace fusion {

/// The functions that we use. Names, values and layouts are those of NCCL 2; every call returns 0 or an error
/// number.
struct Nccl {
  struct UniqueId {
    char bytes[128];
  };
  using Comm = struct NcclCommHandle *;

  /// The process's one instance: libnccl.so.2, or the file that FUSION_NCCL names. Sums by the switches of
  /// NVLink (NCCL_NVLS_ENABLE) are off unless the user has set it. Environment error where there is none.
  static Result<const Nccl *> instance();
  std::string version() const; ///< "2.28.9"

  int (*ncclGetVersion)(int *);
  int (*ncclGetUniqueId)(UniqueId *);
  int (*ncclCommInitRank)(Comm *, int, UniqueId, int);
  int (*ncclCommDestroy)(Comm);
  int (*ncclCommAbort)(Comm);
  int (*ncclCommGetAsyncError)(Comm, int *);
  int (*ncclAllReduce)(const void *, void *, size_t, int, int, Comm, void *);
  const char *(*ncclGetErrorString)(int);

private:
  static Result<Nccl> open();
};

/// One rank's side of an NCCL communicator: of a thread or a process. Used by one thread, but for abort().
class NcclRank {
public:
  /// All ranks together. `activate` makes this rank's device current for the thread that calls it. Errors,
  /// the same on all ranks: one of them has no NCCL, or another version (Environment).
  static Result<std::unique_ptr<NcclRank>> make(Rendezvous &host, std::function<Status()> activate);
  ~NcclRank();

  /// Queues the sum over all ranks of `elements` of `from` on `stream`. The first call is made by all ranks
  /// while no graph is recorded: it connects them, and fails if one of them is gone before.
  Status allReduce(const void *from, void *to, size_t elements, DType type, void *stream);
  /// An Environment error if NCCL reports one. Does not wait.
  Status check() const;
  /// What runs ends without a result, now; later calls are errors. By any thread.
  void abort();
  const std::string &version() const { return agreed; }

private:
  NcclRank(const Nccl &nccl, Rendezvous &host, std::function<Status()> activate, Nccl::UniqueId id,
           std::string agreed)
      : nccl(nccl), host(host), activate(std::move(activate)), id(id), agreed(std::move(agreed)) {}
  Status connect();

  const Nccl &nccl;
  Rendezvous &host;
  const std::function<Status()> activate;
  const Nccl::UniqueId id;
  const std::string agreed;
  std::atomic<Nccl::Comm> comm = nullptr;
  std::atomic<bool> aborted = false;
};

/// Looks after the other ranks while this one waits for its device: calls `whenFailed` once as soon as
/// host.check() fails.
class GroupWatch {
public:
  GroupWatch(Rendezvous &host, std::function<void()> whenFailed);
  ~GroupWatch();

private:
  std::atomic<bool> stopping = false;
  std::thread thread;
};

} // namespace fusion
