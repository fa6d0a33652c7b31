// What a rank needs of the others: agreement on the host, and memory or a library through which kernels
// exchange data.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fusion {

/// The host's side: ranks wait for and tell each other bytes. Every call is made by all ranks, in the same
/// order; a rank that is gone or does not come in time is an Environment error that names it.
class Rendezvous {
public:
  virtual ~Rendezvous() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// What each rank brought, by rank.
  virtual Result<std::vector<std::string>> gather(const std::string &bytes) = 0;
  /// Waits until all ranks have come.
  Status barrier() {
    auto all = gather({});
    return all ? Status() : Status(all.error());
  }
  /// Tells the others to stop, and why: what they wait for in gather() fails with `reason`.
  virtual void abandon(const std::string &reason) = 0;
  /// An error once another rank has abandoned the group or is gone. Never waits.
  virtual Status check() = 0;
};

/// The rendezvous of the ranks of one process, each a thread.
class ThreadRendezvous {
public:
  explicit ThreadRendezvous(int ranks);
  std::unique_ptr<Rendezvous> member(int rank) const;
  /// Forgets that a rank has abandoned the group. While no rank is in a call.
  void restart();

private:
  struct State;
  class Member;
  std::shared_ptr<State> state;
};

/// Ranks as threads of one process.
std::vector<std::unique_ptr<Rendezvous>> makeThreadRendezvous(int ranks);

/// An algorithm by which a plan can do a collective at the sizes of a run.
struct CollectiveCandidate {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Library;
  size_t roundBytes = 0; ///< that it needs of Exchange::roundBytes
  bool gathersRows = false; ///< Collective's
};

/// One rank's side of the group that a program runs on. Made by all ranks together; used by one thread.
class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// For people, after the names of the devices: "peer memory", "NCCL".
  virtual std::string description() const = 0;

  /// The address for kernels of this rank's Exchange (codegen/device/exchange_abi.h), whose areas hold at
  /// least `roundBytes` each. It never changes. All ranks call it alike, while no kernel runs; more bytes
  /// than before mean new areas. Null if ranks cannot reach each other's memory: then only the library
  /// algorithm runs.
  virtual Result<void *> exchange(size_t roundBytes) = 0;
  /// Which of `candidates` a collective of so many bytes a rank takes; the same on all ranks. `candidates` is
  /// not empty.
  virtual CollectiveAlgorithm choose(size_t messageBytes,
                                     std::span<const CollectiveCandidate> candidates) const = 0;
  /// Queues the sum over all ranks of `elements` at `from` into `to` on `stream` (unused in emulation). Can
  /// be recorded in a graph.
  virtual Status allReduce(const void *from, void *to, size_t elements, DType type, void *stream) = 0;
  /// After a run: an Environment error if a kernel gave up waiting, with rank, awaited rank, phase and row,
  /// or if another rank is gone.
  virtual Status check() = 0;
  /// This rank has failed: kernels that wait for it no longer do, where they can be told.
  virtual void stop(const std::string &reason) { host().abandon(reason); }
  virtual Rendezvous &host() = 0;
};

/// Ranks as threads of one process whose kernels are emulated. Sums of the library algorithm are taken in f32
/// (f64 for f64) in rank order and rounded once.
Result<std::unique_ptr<Communicator>> makeEmulatedCommunicator(std::unique_ptr<Rendezvous> host);

/// Ranks as threads of one process, this one on GPU `ordinal`. GPUs that do not reach each other's memory are
/// left with the library algorithm, which stderr says. Errors: what the driver refuses (Environment).
Result<std::unique_ptr<Communicator>> makePeerCommunicator(std::unique_ptr<Rendezvous> host, int ordinal);

} // namespace fusion
