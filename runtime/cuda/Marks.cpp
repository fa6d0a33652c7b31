#include "runtime/cuda/Marks.h"

namespace fusion::cuda {

Marks::~Marks() {
  session->activate();
  for (Event event : free)
    session->driver.cuEventDestroy_v2(event);
  if (copies)
    session->driver.cuStreamDestroy_v2(copies);
}

Result<std::shared_ptr<void>> Marks::take() {
  session->activate();
  Event event = nullptr;
  {
    std::lock_guard lock(mutex);
    if (!free.empty()) {
      event = free.back();
      free.pop_back();
    }
  }
  const Driver &driver = session->driver;
  if (!event)
    if (Status status = driver.check(driver.cuEventCreate(&event, eventWithoutTiming), "creating an event");
        !status)
      return status.error();
  std::shared_ptr<void> mark(event, [owner = shared_from_this()](void *event) {
    std::lock_guard lock(owner->mutex);
    owner->free.push_back(static_cast<Event>(event));
  });
  if (Status status =
          driver.check(driver.cuEventRecordWithFlags(event, session->queue(), 0), "marking the end of a run");
      !status)
    return status.error();
  return mark;
}

Status Marks::makeStream() {
  return copies ? Status()
                : session->driver.check(session->driver.cuStreamCreate(&copies, nonBlockingStream),
                                        "making a stream for copies");
}

Status Marks::copyAfter(const std::shared_ptr<void> &mark, void *target, DevicePointer source, size_t bytes) {
  if (Status status = makeStream(); !status)
    return status;
  const Driver &driver = session->driver;
  int code = driver.cuStreamWaitEvent(copies, static_cast<Event>(mark.get()), 0);
  if (code == 0)
    code = driver.cuMemcpyDtoHAsync_v2(target, source, bytes, copies);
  return driver.check(code, "copying from the GPU");
}

Status Marks::synchronize() {
  return copies ? session->driver.check(session->driver.cuStreamSynchronize(copies), "copying from the GPU")
                : Status();
}

} // namespace fusion::cuda
