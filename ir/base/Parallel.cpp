#include "ir/base/Parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace fusion {

namespace {

thread_local bool insideLoop = false;

struct Loop {
  int64_t count;
  int64_t chunk;
  const std::function<void(int64_t, int64_t)> &body;
  std::atomic<int64_t> next{0};

  void work() {
    InlineLoops scope; // nested loops
    for (;;) {
      int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= count)
        return;
      body(begin, std::min(count, begin + chunk));
    }
  }
};

/// Workers sleep until a loop is posted; one loop runs at a time.
class Pool {
public:
  static Pool &instance() {
    static Pool pool;
    return pool;
  }

  void run(Loop &loop) {
    std::lock_guard oneLoop(loops);
    {
      std::lock_guard lock(mutex);
      while (workers.size() + 1 < static_cast<size_t>(threadCount()) && !lacksThreads)
        try {
          workers.emplace_back([this, seen = generation] { workerMain(seen); });
        } catch (const std::system_error &) {
          lacksThreads = true; // a limit of the user or of memory: those that are there do the work
        }
      current = &loop;
      ++generation;
    }
    wake.notify_all();
    loop.work();
    std::unique_lock lock(mutex);
    current = nullptr; // no worker joins from here on
    idle.wait(lock, [this] { return active == 0; });
  }

private:
  void workerMain(uint64_t seen) {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping)
        return;
      seen = generation;
      Loop *loop = current;
      if (!loop)
        continue;
      ++active;
      lock.unlock();
      loop->work();
      lock.lock();
      if (--active == 0)
        idle.notify_all();
    }
  }

  ~Pool() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread &worker : workers)
      worker.join();
  }

  std::mutex loops;
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::vector<std::thread> workers;
  Loop *current = nullptr;
  uint64_t generation = 0;
  int active = 0;
  bool stopping = false, lacksThreads = false;
};

} // namespace

InlineLoops::InlineLoops() : before(insideLoop) { insideLoop = true; }
InlineLoops::~InlineLoops() { insideLoop = before; }

int threadCount() {
  static const int count = [] {
    if (const char *text = std::getenv("FUSION_THREADS"))
      if (int wanted = std::atoi(text); wanted > 0)
        return std::min(wanted, 1024);
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }();
  return count;
}

void parallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)> &body) {
  if (count <= 0)
    return;
  grain = std::max<int64_t>(grain, 1);
  if (insideLoop || count <= grain || threadCount() == 1) {
    InlineLoops scope; // nested loops
    body(0, count);
    return;
  }
  // A few chunks a thread balance uneven work without going below the grain.
  int64_t chunks = int64_t{4} * threadCount();
  Loop loop{count, std::max(grain, (count + chunks - 1) / chunks), body};
  Pool::instance().run(loop);
}

} // namespace fusion
