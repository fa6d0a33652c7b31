#include "runtime/emulate/BlockRunner.h"

#include "runtime/emulate/KernelLibrary.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <thread>

namespace fusion::emulate {

namespace abi = fusion_emulation;

constexpr unsigned warpSize = 32;
constexpr size_t guardBytes = 64;
constexpr unsigned char guardByte = 0xa5;
constexpr unsigned char poisonByte = 0xff; // a NaN in every float type

struct PendingCopy {
  void *shared;
  const void *global; ///< null: zeros
  unsigned group;
};

struct BlockRunner::EmulatedThread : abi::Thread {
  BlockRunner *runner = nullptr;
  Fiber fiber;
  std::vector<PendingCopy> copies;
  unsigned committedGroups = 0;
};

struct BlockRunner::EmulatedBlock : abi::Block {};

struct BlockRunner::Warp {
  uint32_t present = 0; ///< lanes that the block has
  uint32_t ready = 0;   ///< lanes that could run and do not
  unsigned arrived = 0; ///< at the current meeting
  unsigned phase = 0;   ///< which of the two sets of slots the current meeting uses
  abi::Meeting kind = abi::Meeting::Barrier;
  alignas(64) unsigned char slots[2][warpSize * abi::slotBytes];
};

static const char *nameOf(abi::Meeting kind) {
  switch (kind) {
  case abi::Meeting::Barrier:
    return "warp_barrier";
  case abi::Meeting::Shuffle:
    return "a shuffle";
  case abi::Meeting::Vote:
    return "a vote";
  case abi::Meeting::LoadMatrix:
    return "ldmatrix";
  case abi::Meeting::MultiplyMatrix:
    return "mma";
  }
  return "";
}

BlockRunner::BlockRunner() : block(new EmulatedBlock) {}
BlockRunner::~BlockRunner() { delete block; }

[[noreturn]] void BlockRunner::fail(EmulatedThread &thread, std::string message) {
  error = fmt::format("block ({}, {}, {}), thread ({}, {}, {}): {}", block->index[0], block->index[1],
                      block->index[2], thread.index[0], thread.index[1], thread.index[2], message);
  Fiber::switchTo(thread.fiber, scheduler);
  __builtin_unreachable(); // the scheduler gives the block up
}

void BlockRunner::resume(EmulatedThread &thread) {
  warps[thread.linear / warpSize].ready &= ~(1u << thread.linear % warpSize);
  *slot = &thread;
}

void BlockRunner::leave(EmulatedThread &thread) {
  const Warp &warp = warps[thread.linear / warpSize];
  if (warp.ready) {
    EmulatedThread &next = threads[thread.linear / warpSize * warpSize + std::countr_zero(warp.ready)];
    resume(next);
    Fiber::switchTo(thread.fiber, next.fiber);
  } else {
    Fiber::switchTo(thread.fiber, scheduler);
  }
}

/// What the kernel calls; `self` is always one of our threads.
struct MachineFunctions {
  using Thread = BlockRunner::EmulatedThread;

  static Thread &ours(abi::Thread *self) { return *static_cast<Thread *>(self); }

  static void requireFibers(Thread &thread) {
    if (!thread.runner->launch->cooperative)
      thread.runner->fail(thread, "a thread waits for others in a kernel whose text has no such operation");
  }

  static void barrier(abi::Thread *self) {
    Thread &thread = ours(self);
    BlockRunner &runner = *thread.runner;
    requireFibers(thread);
    if (++runner.atBarrier < runner.threadCount) {
      runner.leave(thread);
      return;
    }
    runner.atBarrier = 0;
    for (BlockRunner::Warp &warp : runner.warps)
      warp.ready = warp.present;
    runner.resume(thread);
  }

  static unsigned char *meet(abi::Thread *self, abi::Meeting kind, const void *mine, unsigned bytes,
                             void (*compute)(unsigned char *)) {
    Thread &thread = ours(self);
    BlockRunner &runner = *thread.runner;
    requireFibers(thread);
    BlockRunner::Warp &warp = runner.warps[thread.linear / warpSize];
    const unsigned lane = thread.linear % warpSize;
    if (warp.arrived == 0)
      warp.kind = kind;
    else if (warp.kind != kind)
      runner.fail(thread, fmt::format("comes to {} while other lanes of its warp wait in {}", nameOf(kind),
                                      nameOf(warp.kind)));
    unsigned char *slots = warp.slots[warp.phase];
    if (bytes)
      std::memcpy(slots + lane * abi::slotBytes, mine, bytes);
    if (++warp.arrived < unsigned(std::popcount(warp.present))) {
      runner.leave(thread);
      return slots;
    }
    if (compute)
      compute(slots);
    warp.arrived = 0;
    warp.phase ^= 1;
    warp.ready = warp.present & ~(1u << lane);
    return slots;
  }

  static void *sharedArray(abi::Thread *self, const void *key, unsigned long long bytes) {
    Thread &thread = ours(self);
    BlockRunner &runner = *thread.runner;
    for (const BlockRunner::SharedArray &array : runner.arrays)
      if (array.key == key)
        return runner.shared.data() + array.offset;
    const size_t rounded = (bytes + 15) / 16 * 16;
    if (runner.staticBytes + rounded > maxStaticSharedBytes ||
        runner.staticBytes + rounded + runner.launch->dynamicSharedBytes > maxSharedBytes)
      runner.fail(thread, "the block has more shared arrays than a device has room for");
    const size_t offset = runner.sharedUsed;
    runner.staticBytes += rounded;
    runner.sharedUsed += rounded + guardBytes;
    runner.arrays.push_back({key, offset, bytes});
    std::memset(runner.shared.data() + offset, poisonByte, bytes);
    std::memset(runner.shared.data() + offset + bytes, guardByte, rounded - bytes + guardBytes);
    return runner.shared.data() + offset;
  }

  static void checkShared(abi::Thread *self, const void *address, unsigned bytes, const char *operation) {
    Thread &thread = ours(self);
    BlockRunner &runner = *thread.runner;
    if (reinterpret_cast<uintptr_t>(address) % 16)
      runner.fail(thread, fmt::format("{}: shared address not aligned to 16 bytes", operation));
    const auto *begin = static_cast<const char *>(address);
    if (begin < runner.shared.data() || begin + bytes > runner.shared.data() + runner.sharedUsed)
      runner.fail(thread, fmt::format("{}: address outside the block's shared memory", operation));
  }

  static void copyAsync(abi::Thread *self, void *shared, const void *global, bool valid) {
    Thread &thread = ours(self);
    checkShared(self, shared, 16, "cp_async_16");
    if (valid && reinterpret_cast<uintptr_t>(global) % 16)
      thread.runner->fail(thread, "cp_async_16: global address not aligned to 16 bytes");
    std::memset(shared, poisonByte, 16);
    thread.copies.push_back({shared, valid ? global : nullptr, thread.committedGroups});
  }

  static void commitCopies(abi::Thread *self) { ++ours(self).committedGroups; }

  static void awaitCopies(abi::Thread *self, unsigned groupsLeft) {
    Thread &thread = ours(self);
    std::vector<PendingCopy> later;
    for (const PendingCopy &copy : thread.copies) {
      if (copy.group + groupsLeft >= thread.committedGroups)
        later.push_back(copy);
      else if (copy.global)
        std::memcpy(copy.shared, copy.global, 16);
      else
        std::memset(copy.shared, 0, 16);
    }
    thread.copies.swap(later);
  }

  static void fail(abi::Thread *self, const char *message) { ours(self).runner->fail(ours(self), message); }

  static void pause() { std::this_thread::yield(); }
  static unsigned long long nanoseconds() {
    return static_cast<unsigned long long>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
};

const abi::Machine &BlockRunner::machine() {
  static const abi::Machine functions = {MachineFunctions::barrier,     MachineFunctions::meet,
                                         MachineFunctions::sharedArray, MachineFunctions::checkShared,
                                         MachineFunctions::copyAsync,   MachineFunctions::commitCopies,
                                         MachineFunctions::awaitCopies, MachineFunctions::fail,
                                         MachineFunctions::pause,       MachineFunctions::nanoseconds};
  return functions;
}

void BlockRunner::enterThread(void *argument) {
  EmulatedThread &thread = *static_cast<EmulatedThread *>(argument);
  BlockRunner &runner = *thread.runner;
  runner.launch->kernel(runner.launch->arguments);
  ++runner.returned;
  runner.leave(thread);
  __builtin_unreachable();
}

void BlockRunner::enterPlainLoop(void *argument) {
  BlockRunner &runner = *static_cast<BlockRunner *>(argument);
  EmulatedThread &thread = runner.threads[0];
  const Launch &launch = *runner.launch;
  thread.linear = 0;
  for (unsigned z = 0; z < launch.block[2]; ++z)
    for (unsigned y = 0; y < launch.block[1]; ++y)
      for (unsigned x = 0; x < launch.block[0]; ++x) {
        thread.index[0] = x;
        thread.index[1] = y;
        thread.index[2] = z;
        launch.kernel(launch.arguments);
        ++thread.linear;
      }
  Fiber::switchTo(thread.fiber, runner.scheduler);
  __builtin_unreachable();
}

bool BlockRunner::adopt(const Launch &with) {
  launch = &with;
  launchId = with.id;
  threadCount = with.block[0] * with.block[1] * with.block[2];
  slot = with.library->threadSlot();
  const unsigned fibers = with.cooperative ? threadCount : 1;
  if (!stacks.reserve(fibers)) {
    error = fmt::format("no memory for the stacks of {} threads", fibers);
    return false;
  }
  std::memcpy(block->dim, with.block, sizeof(block->dim));
  std::memcpy(block->grid, with.grid, sizeof(block->grid));
  if (threads.size() < fibers)
    threads.resize(fibers);
  for (unsigned i = 0; i < fibers; ++i) {
    EmulatedThread &thread = threads[i];
    thread.index[0] = i % with.block[0];
    thread.index[1] = i / with.block[0] % with.block[1];
    thread.index[2] = i / with.block[0] / with.block[1];
    thread.linear = i;
    thread.block = block;
    thread.runner = this;
  }
  warps.resize((fibers + warpSize - 1) / warpSize);
  for (size_t i = 0; i < warps.size(); ++i) {
    const unsigned lanes = std::min<unsigned>(warpSize, fibers - unsigned(i) * warpSize);
    warps[i].present = lanes == warpSize ? ~0u : (1u << lanes) - 1;
  }
  // Room for the guards, too: static arrays are at least 16 bytes each.
  const size_t dynamicBytes = (with.dynamicSharedBytes + 15) / 16 * 16;
  shared.resize(64 + dynamicBytes + guardBytes + maxStaticSharedBytes / 16 * (16 + guardBytes));
  const size_t misalignment = reinterpret_cast<uintptr_t>(shared.data()) % 64;
  sharedUsed = misalignment ? 64 - misalignment : 0;
  block->dynamicShared = reinterpret_cast<unsigned char *>(shared.data() + sharedUsed);
  arrays.clear();
  arrays.push_back({nullptr, sharedUsed, with.dynamicSharedBytes});
  sharedUsed += dynamicBytes + guardBytes;
  staticBytes = 0;
  return true;
}

void BlockRunner::clearSharedMemory() {
  for (size_t i = 0; i < arrays.size(); ++i) {
    const size_t end = i + 1 < arrays.size() ? arrays[i + 1].offset : sharedUsed;
    std::memset(shared.data() + arrays[i].offset, poisonByte, arrays[i].bytes);
    std::memset(shared.data() + arrays[i].offset + arrays[i].bytes, guardByte,
                end - arrays[i].offset - arrays[i].bytes);
  }
}

std::string BlockRunner::overrunArray() const {
  for (size_t i = 0; i < arrays.size(); ++i) {
    const size_t end = i + 1 < arrays.size() ? arrays[i + 1].offset : sharedUsed;
    for (size_t at = arrays[i].offset + arrays[i].bytes; at < end; ++at)
      if (static_cast<unsigned char>(shared[at]) != guardByte)
        return fmt::format("writes past the end of {} of {} bytes",
                           i == 0 ? "dynamic shared memory" : "a shared array", arrays[i].bytes);
  }
  return {};
}

void BlockRunner::explainDeadlock() {
  std::string waiting;
  for (size_t i = 0; i < warps.size() && waiting.empty(); ++i)
    if (warps[i].arrived)
      waiting = fmt::format("{} lanes of warp {} wait in {}", warps[i].arrived, i, nameOf(warps[i].kind));
  if (atBarrier)
    waiting += fmt::format("{}{} threads wait at barrier()", waiting.empty() ? "" : " and ", atBarrier);
  error = fmt::format("block ({}, {}, {}): {} for threads that never come ({} of {} have returned)",
                      block->index[0], block->index[1], block->index[2], waiting, returned, threadCount);
}

void BlockRunner::runFibers() {
  atBarrier = returned = 0;
  for (Warp &warp : warps) {
    warp.ready = warp.present;
    warp.arrived = warp.phase = 0;
    if (warp.present != ~0u)
      std::memset(warp.slots, 0, sizeof(warp.slots));
  }
  for (unsigned i = 0; i < threadCount; ++i) {
    threads[i].copies.clear();
    threads[i].committedGroups = 0;
    threads[i].fiber.prepare(stacks.at(i), FiberStacks::usableBytes, enterThread, &threads[i]);
  }
  while (returned < threadCount) {
    bool progress = false;
    for (size_t i = 0; i < warps.size(); ++i)
      while (warps[i].ready) {
        EmulatedThread &next = threads[i * warpSize + std::countr_zero(warps[i].ready)];
        resume(next);
        Fiber::switchTo(scheduler, next.fiber);
        if (!error.empty())
          return;
        progress = true;
      }
    if (!progress)
      return explainDeadlock();
  }
}

void BlockRunner::runPlainly() {
  *slot = &threads[0];
  threads[0].fiber.prepare(stacks.at(0), FiberStacks::usableBytes, enterPlainLoop, this);
  Fiber::switchTo(scheduler, threads[0].fiber);
}

std::string BlockRunner::run(const Launch &with, uint64_t linear) {
  error.clear();
  if (launchId != with.id && !adopt(with))
    return error;
  launch = &with;
  block->index[0] = unsigned(linear % with.grid[0]);
  block->index[1] = unsigned(linear / with.grid[0] % with.grid[1]);
  block->index[2] = unsigned(linear / with.grid[0] / with.grid[1]);
  if (!with.cooperative) {
    runPlainly();
    return error;
  }
  clearSharedMemory();
  runFibers();
  if (error.empty())
    if (std::string overrun = overrunArray(); !overrun.empty())
      error =
          fmt::format("block ({}, {}, {}): {}", block->index[0], block->index[1], block->index[2], overrun);
  return error;
}

} // namespace fusion::emulate
