// The functions that emulated kernels call.
#include "runtime/emulate/BlockState.h"
#include "runtime/emulate/KernelLibrary.h"

#include <bit>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <thread>

namespace fusion::emulate {

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

  static unsigned char *warpOperation(abi::Thread *self, abi::WarpOperation kind, const void *mine,
                                      unsigned bytes, void (*compute)(unsigned char *)) {
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

  static void copyAsync(abi::Thread *self, void *shared, const void *global, unsigned bytes) {
    Thread &thread = ours(self);
    checkShared(self, shared, 16, "cp_async_16");
    if (bytes > 16)
      thread.runner->fail(thread, "cp_async_16: more than 16 bytes");
    if (bytes && reinterpret_cast<uintptr_t>(global) % 16)
      thread.runner->fail(thread, "cp_async_16: global address not aligned to 16 bytes");
    std::memset(shared, poisonByte, 16);
    thread.copies.push_back({shared, global, bytes, thread.committedGroups});
  }

  static void commitCopies(abi::Thread *self) { ++ours(self).committedGroups; }

  static void awaitCopies(abi::Thread *self, unsigned groupsLeft) {
    Thread &thread = ours(self);
    std::vector<PendingCopy> later;
    for (const PendingCopy &copy : thread.copies) {
      if (copy.group + groupsLeft >= thread.committedGroups) {
        later.push_back(copy);
        continue;
      }
      std::memset(copy.shared, 0, 16);
      if (copy.bytes)
        std::memcpy(copy.shared, copy.global, copy.bytes);
    }
    thread.copies.swap(later);
  }

  // The asynchronous proxy.
  static void check(Thread &thread, std::string problem) {
    if (!problem.empty())
      thread.runner->fail(thread, std::move(problem));
  }
  static void checkAccess(abi::Thread *self, const void *address, unsigned long long bytes) {
    Thread &thread = ours(self);
    check(thread, thread.runner->proxy.checkAccess(address, bytes));
  }
  static void checkAsyncRead(abi::Thread *self, const void *address, unsigned bytes, const char *operation) {
    Thread &thread = ours(self);
    check(thread, thread.runner->proxy.checkRead(address, bytes, operation));
  }
  static void publishShared(abi::Thread *self) { ours(self).runner->proxy.publishShared(); }
  static void initBarrier(abi::Thread *self, void *barrier, unsigned arrivals) {
    Thread &thread = ours(self);
    check(thread, thread.runner->proxy.initBarrier(barrier, arrivals));
  }
  static void publishBarriers(abi::Thread *self) { ours(self).runner->proxy.publishBarriers(); }
  static void arriveAtBarrier(abi::Thread *self, void *barrier, unsigned expectedBytes) {
    Thread &thread = ours(self);
    check(thread, thread.runner->proxy.arrive(barrier, expectedBytes));
    thread.runner->wakeWaiting();
  }
  static void awaitBarrier(abi::Thread *self, void *barrier, unsigned parity) {
    Thread &thread = ours(self);
    BlockRunner &runner = *thread.runner;
    requireFibers(thread);
    for (bool completed = false, some = false;;) {
      check(thread, runner.tensors.poll(barrier, runner.proxy, some));
      if (some)
        runner.wakeWaiting();
      check(thread, runner.proxy.poll(barrier, parity, completed));
      runner.block->pendingTiles = runner.proxy.pendingTiles();
      if (completed)
        return;
      runner.atMbarrier.push_back(&thread);
      runner.leave(thread);
    }
  }
  static void loadTile(abi::Thread *self, void *shared, const abi::TensorMap *map, void *barrier,
                       const int *place, unsigned rank) {
    Thread &thread = ours(self);
    check(thread, thread.runner->tensors.checkWrite(shared, bytesOf(*map)));
    check(thread, thread.runner->proxy.load(shared, *map, barrier, place, rank));
    thread.runner->block->pendingTiles = thread.runner->proxy.pendingTiles();
    thread.runner->wakeWaiting();
  }
  static void storeTile(abi::Thread *self, const abi::TensorMap *map, const void *shared, const int *place,
                        unsigned rank) {
    Thread &thread = ours(self);
    check(thread, thread.runner->proxy.store(thread.linear, *map, shared, place, rank));
  }
  static void commitStores(abi::Thread *self) { ours(self).runner->proxy.commitStores(ours(self).linear); }
  static void awaitStores(abi::Thread *self, unsigned groupsLeft) {
    ours(self).runner->proxy.awaitStores(ours(self).linear, groupsLeft);
  }

  // Tensor memory.
  static unsigned allocateTensor(abi::Thread *self, unsigned columns) {
    Thread &thread = ours(self);
    unsigned address = 0;
    check(thread, thread.runner->tensors.allocate(columns, address));
    return address;
  }
  static void freeTensor(abi::Thread *self, unsigned address, unsigned columns) {
    Thread &thread = ours(self);
    check(thread, thread.runner->tensors.free(address, columns));
  }
  static void relinquishTensor(abi::Thread *self) { ours(self).runner->tensors.relinquish(); }
  static void multiplyTensor(abi::Thread *self, const abi::TensorProduct *product) {
    Thread &thread = ours(self);
    BlockRunner &runner = *thread.runner;
    check(thread, runner.tensors.multiply(thread.linear, *product, runner.proxy));
  }
  static void commitProducts(abi::Thread *self, void *barrier) {
    Thread &thread = ours(self);
    thread.runner->tensors.commit(thread.linear, barrier);
    thread.runner->wakeWaiting();
  }
  static void loadTensor(abi::Thread *self, unsigned address, unsigned repeats, unsigned *to) {
    Thread &thread = ours(self);
    check(thread, thread.runner->tensors.load(thread.linear, address, repeats, to));
  }
  static void awaitTensorLoads(abi::Thread *self) {
    ours(self).runner->tensors.awaitLoads(ours(self).linear);
  }
  static void fenceTensor(abi::Thread *self, bool after) {
    Thread &thread = ours(self);
    TensorMemory &tensors = thread.runner->tensors;
    after ? tensors.fenceAfter(thread.linear) : tensors.fenceBefore(thread.linear);
  }

  static void fail(abi::Thread *self, const char *message) { ours(self).runner->fail(ours(self), message); }

  static void pause() { std::this_thread::yield(); }
  static unsigned long long nanoseconds() {
    return static_cast<unsigned long long>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
};

const abi::Machine &BlockRunner::machine() {
  using Functions = MachineFunctions;
  static const abi::Machine functions = {Functions::barrier,
                                         Functions::warpOperation,
                                         Functions::sharedArray,
                                         Functions::checkShared,
                                         Functions::copyAsync,
                                         Functions::commitCopies,
                                         Functions::awaitCopies,
                                         Functions::checkAccess,
                                         Functions::checkAsyncRead,
                                         Functions::publishShared,
                                         Functions::initBarrier,
                                         Functions::publishBarriers,
                                         Functions::arriveAtBarrier,
                                         Functions::awaitBarrier,
                                         Functions::loadTile,
                                         Functions::storeTile,
                                         Functions::commitStores,
                                         Functions::awaitStores,
                                         Functions::allocateTensor,
                                         Functions::freeTensor,
                                         Functions::relinquishTensor,
                                         Functions::multiplyTensor,
                                         Functions::commitProducts,
                                         Functions::loadTensor,
                                         Functions::awaitTensorLoads,
                                         Functions::fenceTensor,
                                         Functions::fail,
                                         Functions::pause,
                                         Functions::nanoseconds};
  return functions;
}

} // namespace fusion::emulate
