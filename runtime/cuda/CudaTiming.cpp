// How long a GPU works.
#include "runtime/cuda/CudaBackend.h"

namespace fusion::cuda {

Status CudaBackend::emptyCache() {
  size_t bytes = static_cast<size_t>(properties.l2Bytes) * 4;
  if (!flush) {
    Result<std::shared_ptr<void>> memory = allocate(bytes);
    if (!memory)
      return memory.error();
    flush = *memory;
  }
  return fill(flush.get(), 0, bytes);
}

Result<double> CudaBackend::time(const std::function<Status()> &work) {
  session->activate();
  Events marks{session, {}};
  if (Status status = marks.create(2); !status)
    return status.error();
  if (Status status = mark(marks.events[0], 0); !status)
    return status.error();
  if (Status status = work(); !status)
    return status.error();
  if (Status status = mark(marks.events[1], 0); !status)
    return status.error();
  if (Status status = synchronize(); !status)
    return status.error();
  return microsecondsBetween(marks.events[0], marks.events[1]);
}

Result<std::vector<double>> CudaBackend::timeEach(std::span<const std::function<Status()>> works,
                                                  const std::function<Status()> &ready) {
  session->activate();
  Events marks{session, {}};
  if (Status status = marks.create(works.size() + 1); !status)
    return status.error();
  // As one graph: queued one by one, short kernels would wait for the host, and the waiting would count.
  auto recording = record([&]() -> Status {
    for (size_t i = 0; i <= works.size(); ++i) {
      if (Status status = i == 0 ? Status() : works[i - 1](); !status)
        return status;
      if (Status status = mark(marks.events[i], recordExternalEvent); !status)
        return status;
    }
    return {};
  });
  if (!recording)
    return recording.error();
  if (Status status = ready(); !status)
    return status.error();
  if (Status status = (*recording)->replay(); !status)
    return status.error();
  if (Status status = synchronize(); !status)
    return status.error();
  std::vector<double> microseconds;
  for (size_t i = 0; i < works.size(); ++i) {
    Result<double> elapsed = microsecondsBetween(marks.events[i], marks.events[i + 1]);
    if (!elapsed)
      return elapsed.error();
    microseconds.push_back(*elapsed);
  }
  return microseconds;
}

Status CudaBackend::mark(Event event, unsigned flags) {
  return driver.check(driver.cuEventRecordWithFlags(event, session->queue(), flags), "timing");
}

Result<double> CudaBackend::microsecondsBetween(Event begin, Event end) {
  float milliseconds = 0;
  if (Status status = driver.check(driver.cuEventElapsedTime(&milliseconds, begin, end), "timing"); !status)
    return status.error();
  return milliseconds * 1000.0;
}

} // namespace fusion::cuda
