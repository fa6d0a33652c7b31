// Which rank this process is, if a launcher started several: torchrun, mpirun, srun, or a script that sets
// their variables.
#pragma once

#include "ir/base/Result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fusion {

struct LaunchedRank {
  int rank = 0, ranks = 1;
  int localRank = 0;           ///< among the ranks of this host: which GPU is its own
  std::string address;         ///< of the host of rank 0, a name or a number
  std::vector<uint16_t> ports; ///< rank 0 listens at the first that is free
  std::string group;           ///< tells these ranks from those of another launch that tries the same ports
  std::string secret;          ///< that all of these ranks know and nobody else; empty: none was given
  bool onOneHost = false;      ///< all ranks run on one host
  std::string launcher;        ///< for people: "torchrun"
};

using ReadVariable = std::function<std::string(const char *)>; ///< empty: not set

/// Nothing if no launcher's variables are set. Those of torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE) come first, then Open MPI's, the PMI's of other mpiruns, and Slurm's. Rank 0 listens at
/// MASTER_ADDR, FUSION_MASTER_PORT or MASTER_PORT; where torchrun's own store has MASTER_PORT, at one of the
/// ports after it. Ranks that are known to be on one host meet at its loopback address.
/// FUSION_RENDEZVOUS_SECRET is what they know each other by. Variables that are not numbers or contradict
/// each other are BadInput.
Result<std::optional<LaunchedRank>> launchedRank(const ReadVariable &variable);
/// By the environment of the process.
Result<std::optional<LaunchedRank>> launchedRank();

} // namespace fusion
