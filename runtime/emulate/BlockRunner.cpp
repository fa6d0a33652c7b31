#include "runtime/emulate/BlockState.h"

#include "runtime/emulate/KernelLibrary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>

namespace fusion::emulate {

const char *nameOf(abi::WarpOperation kind) {
  switch (kind) {
  case abi::WarpOperation::Barrier:
    return "warp_barrier";
  case abi::WarpOperation::Shuffle:
    return "a shuffle";
  case abi::WarpOperation::Vote:
    return "a vote";
  case abi::WarpOperation::LoadMatrix:
    return "ldmatrix";
  case abi::WarpOperation::StoreMatrix:
    return "stmatrix";
  case abi::WarpOperation::MultiplyMatrix:
    return "mma";
  case abi::WarpOperation::TensorMemory:
    return "an access to tensor memory";
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

/// splitmix64
uint64_t BlockRunner::drawn() {
  uint64_t bits = random += 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

unsigned BlockRunner::laneOf(uint32_t ready) {
  const auto first = launch->order ? static_cast<unsigned>(drawn() % warpSize) : 0;
  return (static_cast<unsigned>(std::countr_zero(std::rotr(ready, static_cast<int>(first)))) + first) %
         warpSize;
}

void BlockRunner::leave(EmulatedThread &thread) {
  const Warp &warp = warps[thread.linear / warpSize];
  if (warp.ready) {
    EmulatedThread &next = threads[thread.linear / warpSize * warpSize + laneOf(warp.ready)];
    resume(next);
    Fiber::switchTo(thread.fiber, next.fiber);
  } else {
    Fiber::switchTo(thread.fiber, scheduler);
  }
}

void BlockRunner::enterThread(void *argument) {
  EmulatedThread &thread = *static_cast<EmulatedThread *>(argument);
  BlockRunner &runner = *thread.runner;
  runner.launch->kernel(runner.launch->arguments);
  if (std::string problem = runner.proxy.checkEnd(thread.linear); !problem.empty())
    runner.fail(thread, std::move(problem));
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
  shortOfMemory = !stacks.reserve(fibers);
  if (shortOfMemory) {
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
  shared.resize(dynamicAlignment + dynamicBytes + guardBytes + maxStaticSharedBytes / 16 * (16 + guardBytes));
  const size_t misalignment = reinterpret_cast<uintptr_t>(shared.data()) % dynamicAlignment;
  sharedUsed = misalignment ? dynamicAlignment - misalignment : 0;
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

void BlockRunner::wakeWaiting() {
  for (EmulatedThread *thread : atMbarrier)
    warps[thread->linear / warpSize].ready |= 1u << thread->linear % warpSize;
  atMbarrier.clear();
}

void BlockRunner::explainDeadlock() {
  std::string waiting;
  for (size_t i = 0; i < warps.size() && waiting.empty(); ++i)
    if (warps[i].arrived)
      waiting = fmt::format("{} lanes of warp {} wait in {}", warps[i].arrived, i, nameOf(warps[i].kind));
  if (atBarrier)
    waiting += fmt::format("{}{} threads wait at barrier()", waiting.empty() ? "" : " and ", atBarrier);
  if (!atMbarrier.empty())
    waiting +=
        fmt::format("{}{} threads wait at an mbarrier", waiting.empty() ? "" : " and ", atMbarrier.size());
  error = fmt::format("block ({}, {}, {}): {} for threads that never come ({} of {} have returned)",
                      block->index[0], block->index[1], block->index[2], waiting, returned, threadCount);
}

void BlockRunner::runFibers() {
  atBarrier = returned = 0;
  atMbarrier.clear();
  block->pendingTiles = 0;
  proxy.reset(block->dynamicShared, launch->dynamicSharedBytes, threadCount);
  tensors.reset(block->dynamicShared, launch->dynamicSharedBytes, threadCount);
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
  if (launch->order % 2 != 0)
    return runByPriority();
  while (returned < threadCount) {
    bool progress = false;
    const size_t first = launch->order ? drawn() % warps.size() : 0;
    const bool backwards = launch->order && drawn() % 2 != 0;
    for (size_t turn = 0; turn < warps.size(); ++turn) {
      const size_t i = (first + (backwards ? warps.size() - turn : turn)) % warps.size();
      while (warps[i].ready) {
        if (!runLane(warps[i]))
          return;
        progress = true;
      }
    }
    if (!progress)
      return explainDeadlock();
  }
}

bool BlockRunner::runLane(Warp &warp) {
  const auto index = static_cast<size_t>(&warp - warps.data());
  EmulatedThread &next = threads[index * warpSize + laneOf(warp.ready)];
  resume(next);
  Fiber::switchTo(scheduler, next.fiber);
  return error.empty();
}

void BlockRunner::runByPriority() {
  constexpr uint64_t runsBetweenDemotions = 64; // on average
  std::vector<Warp *> byPriority;
  for (Warp &warp : warps)
    byPriority.insert(byPriority.begin() + static_cast<ptrdiff_t>(drawn() % (byPriority.size() + 1)), &warp);
  while (returned < threadCount) {
    auto next = std::find_if(byPriority.begin(), byPriority.end(),
                             [](const Warp *warp) { return warp->ready; });
    if (next == byPriority.end())
      return explainDeadlock();
    if (!runLane(**next))
      return;
    if (drawn() % runsBetweenDemotions == 0)
      std::rotate(next, next + 1, byPriority.end());
  }
}

void BlockRunner::runPlainly() {
  *slot = &threads[0];
  block->pendingTiles = 0;
  threads[0].fiber.prepare(stacks.at(0), FiberStacks::usableBytes, enterPlainLoop, this);
  Fiber::switchTo(scheduler, threads[0].fiber);
}

std::string BlockRunner::run(const Launch &with, uint64_t linear) {
  error.clear();
  if (launchId != with.id && !adopt(with))
    return error;
  launch = &with;
  random = with.order ^ (linear << 20);
  block->index[0] = unsigned(linear % with.grid[0]);
  block->index[1] = unsigned(linear / with.grid[0] % with.grid[1]);
  block->index[2] = unsigned(linear / with.grid[0] / with.grid[1]);
  if (!with.cooperative) {
    runPlainly();
    return error;
  }
  clearSharedMemory();
  runFibers();
  for (const std::string &problem : {overrunArray(), tensors.checkEnd()})
    if (error.empty() && !problem.empty())
      error =
          fmt::format("block ({}, {}, {}): {}", block->index[0], block->index[1], block->index[2], problem);
  return error;
}

} // namespace fusion::emulate
