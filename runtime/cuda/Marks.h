// Copies to the host beside the work that is queued.
#pragma once

#include "runtime/cuda/Session.h"

#include <memory>
#include <mutex>
#include <vector>

namespace fusion::cuda {

/// Events that mark ends of work, kept for the next time when they are given back, and a stream for copies
/// that wait for such an event only. Thread-safe, since the caller's threads give back.
class Marks : public std::enable_shared_from_this<Marks> {
public:
  explicit Marks(std::shared_ptr<Session> session) : session(std::move(session)) {}
  ~Marks();
  Marks(const Marks &) = delete;
  Marks &operator=(const Marks &) = delete;

  /// After what has been queued; an Event, given back with the last copy of the pointer.
  Result<std::shared_ptr<void>> take();
  /// Queues a copy to the host behind the mark.
  Status copyAfter(const std::shared_ptr<void> &mark, void *target, DevicePointer source, size_t bytes);
  /// Waits for these copies.
  Status synchronize();

private:
  Status makeStream();

  std::shared_ptr<Session> session;
  std::mutex mutex;
  std::vector<Event> free;
  Stream copies = nullptr;
};

} // namespace fusion::cuda
