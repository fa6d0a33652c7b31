// Data-parallel loops on one process-wide thread pool.
#pragma once

#include <cstdint>
#include <functional>

namespace fusion {

/// Threads that parallelFor uses, the caller included: FUSION_THREADS, or one a hardware thread. At least 1.
int threadCount();

/// Calls `body` on disjoint ranges that cover [0, count), each of about `grain` items or more; returns when
/// all are done. Ranges run concurrently in any order. A call from within a body runs inline. The body must
/// not throw.
void parallelFor(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)> &body);

/// While one lives, the loops of this thread run inline. For threads that wait for each other from within
/// loops, as emulated ranks do: the pool runs one loop at a time.
class InlineLoops {
public:
  InlineLoops();
  ~InlineLoops();
  InlineLoops(const InlineLoops &) = delete;
  InlineLoops &operator=(const InlineLoops &) = delete;

private:
  bool before;
};

} // namespace fusion
