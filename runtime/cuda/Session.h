// A device's context, and the streams that a backend queues work on.
#pragma once

#include "runtime/cuda/Driver.h"

#include <memory>
#include <vector>

namespace fusion::cuda {

/// Allocations hold it, so that it outlives them. Work goes to one stream of its own, or, between enter() and
/// leave(), to one of the caller's; it is done in the order in which it was queued, whatever the streams.
class Session {
public:
  Session(const Driver &driver, int ordinal) : driver(driver), ordinal(ordinal) {}
  ~Session();
  /// Errors: the device's context cannot be had (Environment).
  Status open();
  /// Contexts are current for a thread, and any thread may call.
  int activate() const { return driver.cuCtxSetCurrent(context); }

  Context handle() const { return context; }

  Status enter(Stream stream);
  Status leave();
  /// True if `queue()` records a graph for the caller instead of running.
  Result<bool> capturing() const;

  Stream queue() const { return current; }
  Stream ownStream() const { return own; }
  /// Recording happens on the own stream: the caller's may be one that cannot record.
  void redirect(Stream stream) { current = stream; }

  const Driver &driver;
  const int ordinal;

private:
  /// Marks the end of what was queued on `queuedOn`.
  Status mark();

  Context context = nullptr;
  Stream own = nullptr, current = nullptr;
  Event queued = nullptr;    ///< after what was queued last …
  Stream queuedOn = nullptr; ///< … here
  bool anyQueued = false, isMarked = false;
};

/// Keeps the device's context from one backend to the next: making it anew takes some 0.2 s. Null where it
/// cannot be had.
std::shared_ptr<Session> keepContext(int ordinal);

struct Events {
  std::shared_ptr<Session> session;
  std::vector<Event> events;
  ~Events();
  Status create(size_t count);
};

} // namespace fusion::cuda
