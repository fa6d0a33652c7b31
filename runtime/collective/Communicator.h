// What a rank needs of the others: agreement on the host, and memory or a library through which kernels exchange data.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fusion {

/// The host's side: ranks meet and tell each other bytes. Every call is made by all ranks, in the same order; a rank
/// that is gone or does not come in time is an Environment error that names it.
class Rendezvous {
public:
  virtual ~Rendezvous() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// What each rank brought, by rank.
  virtual Result<std::vector<std::string>> gather(const std::string &bytes) = 0;
  Status meet() {
    auto all = gather({});
    return all ? Status() : Status(all.error());
  }
  /// Tells the others to stop, and why: what they wait for in gather() fails with `reason`.
  virtual void abandon(const std::string &reason) = 0;
  /// An error once another rank has abandoned the group or is gone. Never waits.
  virtual Status check() = 0;
};

/// Ranks as threads of one process.
std::vector<std::unique_ptr<Rendezvous>> makeThreadRendezvous(int ranks);

/// One rank's side of the group that a program runs on. Made by all ranks together; used by one thread.
class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// For people: "4 GPUs, peer memory", "2 ranks, emulated", "8 GPUs over NCCL".
  virtual std::string description() const = 0;

  /// The address for kernels of this rank's Exchange (codegen/device/exchange_abi.h), whose areas hold at least
  /// `roundBytes` each. All ranks call it alike; more bytes than before means new areas. Null if ranks cannot reach
  /// each other's memory: then only the library form runs.
  virtual Result<void *> exchange(size_t roundBytes) = 0;
  /// How a collective of so many bytes a rank is done, given which forms the plan has; the same on all ranks.
  virtual CollectiveForm choose(size_t messageBytes, size_t roundBytes) const = 0;
  /// Queues the sum over all ranks of `elements` at `from` into `to` on `stream` (unused in emulation). Can be recorded
  /// in a graph.
  virtual Status allReduce(const void *from, void *to, size_t elements, DType type, void *stream) = 0;
  /// After a run: an Environment error if a kernel gave up waiting, with rank, awaited rank, phase and row, or if
  /// another rank is gone.
  virtual Status check() = 0;
  virtual Rendezvous &host() = 0;
};

} // namespace fusion
