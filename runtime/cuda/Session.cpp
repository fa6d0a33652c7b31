#include "runtime/cuda/Session.h"

#include <fmt/format.h>

namespace fusion::cuda {

Status Session::open() {
  int handle = 0;
  int code = driver.cuDeviceGet(&handle, ordinal);
  if (code == 0)
    code = driver.cuDevicePrimaryCtxRetain(&context, handle);
  if (code == 0)
    code = activate();
  if (code == 0)
    code = driver.cuStreamCreate(&own, nonBlockingStream);
  if (code == 0)
    code = driver.cuEventCreate(&queued, eventWithoutTiming);
  current = own;
  return driver.check(code, fmt::format("opening GPU {}", ordinal));
}

Session::~Session() {
  if (!context)
    return;
  activate();
  if (queued)
    driver.cuEventDestroy_v2(queued);
  if (own)
    driver.cuStreamDestroy_v2(own);
  driver.cuDevicePrimaryCtxRelease_v2(ordinal);
}

std::shared_ptr<Session> keepContext(int ordinal) {
  Result<const Driver *> driver = Driver::instance();
  if (!driver)
    return nullptr;
  auto session = std::make_shared<Session>(**driver, ordinal);
  return session->open() ? session : nullptr;
}

Result<bool> Session::capturing() const {
  int state = 0;
  activate();
  if (Status status = driver.check(driver.cuStreamIsCapturing(current, &state), "asking the caller's stream");
      !status)
    return status.error();
  return state != 0;
}

Status Session::enter(Stream stream) {
  activate();
  current = stream;
  if (!anyQueued || queuedOn == stream)
    return {};
  // What a caller records cannot wait for what runs: the caller orders the two.
  Result<bool> recording = capturing();
  if (!recording)
    return recording.error();
  if (*recording)
    return {};
  if (Status status = isMarked ? Status() : mark(); !status)
    return status;
  return driver.check(driver.cuStreamWaitEvent(current, queued, 0), "waiting for another stream");
}

Status Session::mark() {
  isMarked = true;
  return driver.check(driver.cuEventRecordWithFlags(queued, queuedOn, 0), "marking the end of a run");
}

Status Session::leave() {
  Result<bool> recording = capturing();
  Stream stream = current;
  current = own;
  if (!recording)
    return recording.error();
  if (*recording)
    return {};
  queuedOn = stream;
  anyQueued = true;
  isMarked = false;
  // These two are there when another stream is to wait, so that runs on one stream go without the mark.
  const bool stays = stream == own || stream == nullptr;
  return stays ? Status() : mark();
}

Events::~Events() {
  session->activate();
  for (Event event : events)
    session->driver.cuEventDestroy_v2(event);
}

Status Events::create(size_t count) {
  while (events.size() < count) {
    Event event = nullptr;
    if (Status status = session->driver.check(session->driver.cuEventCreate(&event, 0), "creating an event");
        !status)
      return status;
    events.push_back(event);
  }
  return {};
}

} // namespace fusion::cuda
