// Ranks as processes.
#pragma once

#include "runtime/collective/Communicator.h"

#include <memory>
#include <string>

namespace fusion {

namespace cuda {
class Session;
}

/// The same in processes of one host, and in no others.
std::string bootIdentity();

/// Ranks whose kernels are emulated, each a process of this host: their areas are memory that they share.
/// Errors: ranks on other hosts (Environment).
Result<std::unique_ptr<Communicator>> makeSharedMemoryCommunicator(std::unique_ptr<Rendezvous> host);

/// Ranks on GPUs, this one on that of `session`, which is open. Those of one host share memory. Ranks of
/// several hosts, two on one GPU, and GPUs or containers that do not let each other in are left with NCCL,
/// which stderr says. Errors: what the driver refuses, NCCL missing where it is needed (Environment). At its
/// end it waits for the others' ends, unless they are gone.
Result<std::unique_ptr<Communicator>> makeGpuProcessCommunicator(std::unique_ptr<Rendezvous> host,
                                                                 std::shared_ptr<cuda::Session> session);

} // namespace fusion
