// Memory of a GPU, and copies from and to it.
#include "ir/base/Parallel.h"
#include "runtime/MemoryPlan.h"
#include "runtime/cuda/CudaBackend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fusion::cuda {

/// Memory that has been copied to page-locked chunks reaches the device at the link's speed.
static constexpr size_t stagingChunk = 16 << 20;
static constexpr size_t stagingThreshold = 1 << 20;
/// From here on a copy out of pageable memory waits for what was queued before, which a copy out of a chunk
/// does not.
static constexpr size_t uploadThreshold = 64 << 10;

Result<std::shared_ptr<void>> CudaBackend::allocate(size_t bytes) {
  session->activate();
  DevicePointer pointer = 0;
  if (int code = driver.cuMemAlloc_v2(&pointer, std::max(bytes, bufferAlignment))) {
    size_t free = 0, total = 0;
    driver.cuMemGetInfo_v2(&free, &total);
    return driver
        .check(code, fmt::format("allocating {} MiB on {}, which has {} MiB free of {}", (bytes >> 20) + 1,
                                 properties.name, free >> 20, total >> 20))
        .error();
  }
  allocated->add(bytes);
  auto release = [owner = session, bytes, counter = allocated](void *memory) {
    counter->now -= bytes;
    owner->activate();
    owner->driver.cuMemFree_v2(address(memory));
  };
  return std::shared_ptr<void>(reinterpret_cast<void *>(pointer), release);
}

Status CudaBackend::upload(void *target, const void *source, size_t bytes) {
  if (bytes == 0)
    return {};
  session->activate();
  if (bytes >= uploadThreshold)
    return uploadStaged(address(target), static_cast<const std::byte *>(source), bytes, bytes, 1);
  // From pageable memory the driver copies the source before it returns.
  return driver.check(driver.cuMemcpyHtoDAsync_v2(address(target), source, bytes, session->queue()),
                      "copying to the GPU");
}

Status CudaBackend::uploadRows(void *target, const void *source, size_t bytes, size_t pitch, size_t count) {
  if (count == 1 || bytes * count == 0)
    return upload(target, source, bytes * count);
  session->activate();
  return uploadStaged(address(target), static_cast<const std::byte *>(source), bytes, pitch, count);
}

/// Bytes [begin, end) of rows laid side by side.
static void gatherRows(std::byte *target, const std::byte *source, size_t rowBytes, size_t pitch,
                       size_t begin, size_t end) {
  while (begin < end) {
    const size_t within = begin % rowBytes, count = std::min(rowBytes - within, end - begin);
    std::memcpy(target, source + begin / rowBytes * pitch + within, count);
    target += count;
    begin += count;
  }
}

Status CudaBackend::makeStaging() {
  if (stagingDone)
    return {};
  auto events = std::make_unique<Events>(Events{session, {}});
  if (Status status = events->create(2); !status)
    return status;
  for (std::byte *&chunk : staging)
    if (Status status =
            driver.check(driver.cuMemHostAlloc(reinterpret_cast<void **>(&chunk), stagingChunk, 0),
                         "allocating page-locked memory");
        !status)
      return status;
  stagingDone = std::move(events);
  return {};
}

Status CudaBackend::uploadStaged(DevicePointer target, const std::byte *source, size_t rowBytes, size_t pitch,
                                 size_t rows) {
  const size_t bytes = rowBytes * rows;
  if (Status status = makeStaging(); !status)
    return status;
  size_t turn = 0;
  for (size_t done = 0; done < bytes; done += stagingChunk, turn ^= 1) {
    size_t count = std::min(stagingChunk, bytes - done);
    int code = driver.cuEventSynchronize(stagingDone->events[turn]); // an event never recorded is complete
    if (code == 0) {
      parallelFor(static_cast<int64_t>(count), 1 << 20, [&](int64_t begin, int64_t end) {
        gatherRows(staging[turn] + begin, source, rowBytes, pitch, done + static_cast<size_t>(begin),
                   done + static_cast<size_t>(end));
      });
      code = driver.cuMemcpyHtoDAsync_v2(target + done, staging[turn], count, session->queue());
    }
    if (code == 0)
      code = driver.cuEventRecordWithFlags(stagingDone->events[turn], session->queue(), 0);
    if (Status status = driver.check(code, "copying to the GPU"); !status)
      return status;
  }
  return {};
}

std::shared_ptr<void> CudaBackend::allocateHost(size_t bytes) {
  if (!pinned)
    pinned = std::make_shared<PinnedMemory>(session);
  return pinned->acquire(bytes);
}

std::optional<size_t> CudaBackend::freeBytes() const {
  session->activate();
  size_t free = 0, total = 0;
  return driver.cuMemGetInfo_v2(&free, &total) == 0 ? std::optional(free) : std::nullopt;
}

/// Chunk by chunk: one is on its way while the one before is copied to where it belongs.
Status CudaBackend::downloadStaged(std::byte *target, DevicePointer source, size_t bytes) {
  if (Status status = makeStaging(); !status)
    return status;
  int code = 0;
  for (Event event : stagingDone->events) // what uploads still read
    code = code == 0 ? driver.cuEventSynchronize(event) : code;
  const size_t chunks = (bytes + stagingChunk - 1) / stagingChunk;
  for (size_t chunk = 0; chunk <= chunks && code == 0; ++chunk) {
    const size_t turn = chunk % 2;
    if (chunk < chunks) {
      const size_t begin = chunk * stagingChunk;
      code = driver.cuMemcpyDtoHAsync_v2(staging[turn], source + begin, std::min(stagingChunk, bytes - begin),
                                         session->queue());
      if (code == 0)
        code = driver.cuEventRecordWithFlags(stagingDone->events[turn], session->queue(), 0);
    }
    if (chunk == 0 || code != 0)
      continue;
    code = driver.cuEventSynchronize(stagingDone->events[turn ^ 1]);
    const size_t begin = (chunk - 1) * stagingChunk, count = std::min(stagingChunk, bytes - begin);
    parallelFor(static_cast<int64_t>(count), 1 << 20, [&](int64_t from, int64_t to) {
      std::memcpy(target + begin + from, staging[turn ^ 1] + from, static_cast<size_t>(to - from));
    });
  }
  return driver.check(code, "copying from the GPU");
}

Status CudaBackend::download(void *target, const void *source, size_t bytes) {
  session->activate();
  if (bytes >= stagingThreshold && !(pinned && pinned->holds(target)))
    return downloadStaged(static_cast<std::byte *>(target), address(source), bytes);
  int code = bytes == 0 ? 0 : driver.cuMemcpyDtoHAsync_v2(target, address(source), bytes, session->queue());
  if (code == 0)
    code = driver.cuStreamSynchronize(session->queue());
  return driver.check(code, "copying from the GPU");
}

Result<std::shared_ptr<void>> CudaBackend::mark() {
  if (!marks)
    marks = std::make_shared<Marks>(session);
  return marks->take();
}

Status CudaBackend::downloadAll(std::span<const Download> wanted) {
  session->activate();
  std::shared_ptr<void> end; // of all that has been queued
  for (const Download &one : wanted) {
    if (one.bytes == 0)
      continue;
    if (one.bytes >= stagingThreshold && !(pinned && pinned->holds(one.target))) {
      if (Status status = download(one.target, one.source, one.bytes); !status)
        return status;
      continue;
    }
    if (!one.after && !end) {
      auto marked = mark();
      if (!marked)
        return marked.error();
      end = std::move(*marked);
    }
    if (Status status =
            marks->copyAfter(one.after ? one.after : end, one.target, address(one.source), one.bytes);
        !status)
      return status;
  }
  return marks ? marks->synchronize() : Status();
}

Status CudaBackend::copy(void *target, const void *source, size_t bytes) {
  if (bytes == 0)
    return {};
  session->activate();
  return driver.check(driver.cuMemcpyDtoDAsync_v2(address(target), address(source), bytes, session->queue()),
                      "copying on the GPU");
}

Status CudaBackend::fill(void *target, uint8_t value, size_t bytes) {
  if (bytes == 0)
    return {};
  session->activate();
  return driver.check(driver.cuMemsetD8Async(address(target), value, bytes, session->queue()),
                      "filling GPU memory");
}

} // namespace fusion::cuda
