#include "runtime/collective/GpuCommunicator.h"

#include "runtime/MemoryPlan.h"
#include "runtime/collective/GpuCollectiveTimer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace fusion {

using cuda::DevicePointer;
using fusion_exchange::Exchange;
using fusion_exchange::Failure;

static constexpr std::chrono::seconds gpuTimeout(20);

GpuCommunicator::GpuCommunicator(std::unique_ptr<Rendezvous> host, std::shared_ptr<cuda::Session> session)
    : ExchangeCommunicator(std::move(host), collectiveTimeout(gpuTimeout)), session(std::move(session)),
      driver(this->session->driver) {}

GpuCommunicator::~GpuCommunicator() {
  session->activate();
  if (memory)
    driver.cuMemFree_v2(memory);
  if (ownFailure)
    driver.cuMemFreeHost(ownFailure);
}

Status GpuCommunicator::openOwn() {
  if (Status status = configure(); !status)
    return status;
  session->activate();
  int code = driver.cuMemHostAlloc(reinterpret_cast<void **>(&ownFailure), sizeof(Failure),
                                   cuda::portableHostMemory | cuda::mappedHostMemory);
  if (Status status = driver.check(code, "allocating page-locked memory"); !status)
    return status;
  *ownFailure = {};
  return {};
}

Status GpuCommunicator::openLibrary() {
  auto library = NcclRank::make(*rendezvous, [session = session] {
    return session->driver.check(session->activate(), fmt::format("GPU {}", session->ordinal));
  });
  if (library)
    nccl = std::move(*library);
  else if (reachable)
    whyNoNccl = library.error().message; // large messages go through shared memory too
  else
    return library.error();
  return {};
}

void GpuCommunicator::remark(const std::string &why) const {
  if (rank() == 0)
    fmt::print(stderr, "{}: collectives go through NCCL\n", why);
}

static std::string bytesText(size_t bytes) {
  return bytes < size_t(10) << 20 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

Status GpuCommunicator::measureCollectives() {
  if (ranks() == 1 || !chooses() || environmentVariable("FUSION_COLLECTIVE_MEASURE") == "0")
    return {};
  char bus[32] = {}, host[256] = {};
  auto properties = cuda::deviceProperties(session->ordinal);
  if (!properties)
    return properties.error();
  if (Status status = driver.check(driver.cuDeviceGetPCIBusId(bus, sizeof bus, session->ordinal),
                                   "asking where the GPU is");
      !status)
    return status;
  gethostname(host, sizeof host - 1);
  // Which GPUs of which host: how they are linked follows from that.
  auto places = rendezvous->gather(fmt::format("{} {} {}", properties->name, bus, host));
  if (!places)
    return places.error();
  const std::string key = fmt::format("collective algorithms 1\n{}\nNCCL {}\n{}", fmt::join(*places, "\n"),
                                      nccl ? nccl->version() : "none", timingSource(ranks()));
  KernelCache cache;
  Result<Calibration> result = environment("");
  {
    GpuCollectiveTimer timer(*this, session, cache);
    result = calibrate(*rendezvous, cache, key, timer, algorithmLimits());
  }
  if (!result)
    return result.error();
  setLimits(result->limits);
  limitsOrigin = result->origin;
  return hasAreas() ? releaseAreas() : Status();
}

std::string GpuCommunicator::description() const {
  if (!reachable)
    return nccl ? "NCCL " + nccl->version() : "NCCL";
  if (limitsOrigin.empty())
    return "peer memory";
  const AlgorithmLimits &limits = algorithmLimits();
  return fmt::format("peer memory, one-shot to {} ({} where normed rows are gathered), two-shot to {} ({})",
                     bytesText(limits.oneShot), bytesText(limits.oneShotOfGatheredRows),
                     bytesText(limits.twoShot), limitsOrigin);
}

Status GpuCommunicator::allReduce(const void *from, void *to, size_t elements, DType type, void *stream) {
  return nccl ? nccl->allReduce(from, to, elements, type, stream) : environment(whyNoNccl);
}

Status GpuCommunicator::check() {
  Status status = ExchangeCommunicator::check();
  return status && nccl ? nccl->check() : status;
}

Status GpuCommunicator::finish() {
  session->activate();
  return driver.check(driver.cuCtxSynchronize(), "waiting for the GPU");
}

Result<std::shared_ptr<void>> GpuCommunicator::allocateAreas(size_t bytes) {
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

Status GpuCommunicator::makeExchange(void *&device, Failure *&failure, Failure *&failureOnDevice) {
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

Status GpuCommunicator::upload(void *device, const Exchange &exchange) {
  session->activate();
  int code = driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<DevicePointer>(device), &exchange, sizeof(exchange),
                                         session->ownStream());
  if (code == 0)
    code = driver.cuStreamSynchronize(session->ownStream());
  return driver.check(code, "copying to the GPU");
}

} // namespace fusion
