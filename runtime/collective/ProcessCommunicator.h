// Ranks as processes.
#pragma once

#include "runtime/collective/Communicator.h"

#include <functional>

namespace fusion {

/// Ranks whose kernels are emulated, each a process of this host: their areas are memory that they share. Errors: ranks on
/// other hosts (Environment).
Result<std::unique_ptr<Communicator>> makeSharedMemoryCommunicator(std::unique_ptr<Rendezvous> host);

/// Ranks on GPUs of any hosts: sums go through NCCL. `activate` makes this rank's GPU current for the thread that calls
/// it. Errors: see NcclRank::make.
Result<std::unique_ptr<Communicator>> makeNcclCommunicator(std::unique_ptr<Rendezvous> host,
                                                           std::function<Status()> activate);

} // namespace fusion
