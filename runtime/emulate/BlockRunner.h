// Runs the threads of one block at a time, each on a fiber, and lets them wait for each other.
#pragma once

#include "codegen/device/emulation_abi.h"
#include "codegen/target/TargetInfo.h"
#include "runtime/emulate/AsyncProxy.h"
#include "runtime/emulate/Fiber.h"
#include "runtime/emulate/TensorMemory.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fusion::emulate {

class KernelLibrary;

/// One launch of a compiled kernel.
struct Launch {
  uint64_t id = 0; ///< unlike that of every other launch
  void (*kernel)(void *const *arguments) = nullptr;
  const KernelLibrary *library = nullptr; ///< where `kernel` is
  void *const *arguments = nullptr;
  unsigned block[3] = {1, 1, 1};
  unsigned grid[3] = {1, 1, 1};
  unsigned dynamicSharedBytes = 0;
  bool cooperative = true; ///< its threads wait for or talk to each other
  bool waitsForRanks = false; ///< which are other OS threads; its blocks run in order in the calling one
  /// Of threads that may run: 0, by number; else drawn by this seed. Even ones let each warp have its turn;
  /// odd ones let a warp run only while those before it wait, so that some fall far behind.
  uint64_t order = 0;
};

/// What shared memory a block may have on the devices we know.
constexpr unsigned maxStaticSharedBytes = 48 << 10;
inline const unsigned maxSharedBytes = static_cast<unsigned>(TargetInfo::mostSharedBytesPerBlock());

/// Belongs to one OS thread.
class BlockRunner {
public:
  BlockRunner();
  ~BlockRunner();

  /// Runs block `linear` (x fastest) of `launch`. An empty string, or what went wrong and where.
  std::string run(const Launch &launch, uint64_t linear);
  /// Whether that was the host's memory, not the kernel.
  bool isShortOfMemory() const { return shortOfMemory; }

  /// The functions that kernels call.
  static const fusion_emulation::Machine &machine();

private:
  struct EmulatedBlock;
  struct EmulatedThread;
  struct Warp;
  struct SharedArray {
    const void *key;
    size_t offset, bytes;
  };
  friend struct MachineFunctions;

  bool adopt(const Launch &launch);
  void clearSharedMemory();
  void runFibers();
  /// Of the warps that can run always the first; now and then one becomes the last.
  void runByPriority();
  /// A lane of a warp that has one which is ready, until it waits. Whether nothing went wrong.
  bool runLane(Warp &warp);
  void runPlainly();
  static void enterThread(void *thread);
  static void enterPlainLoop(void *runner);
  /// Leaves `thread`, which waits or has returned, for another one or for the scheduler.
  void leave(EmulatedThread &thread);
  void resume(EmulatedThread &thread);
  /// Those that wait for mbarriers look again.
  void wakeWaiting();
  void explainDeadlock();
  /// One of the lanes of a mask that is not 0; see Launch::order.
  unsigned laneOf(uint32_t ready);
  uint64_t drawn();
  std::string overrunArray() const;
  [[noreturn]] void fail(EmulatedThread &thread, std::string message);

  const Launch *launch = nullptr;
  uint64_t launchId = 0;
  unsigned threadCount = 0;
  uint64_t random = 0; ///< of the block, where the launch has an order
  EmulatedBlock *block;
  std::vector<EmulatedThread> threads;
  std::vector<Warp> warps;
  FiberStacks stacks;
  Fiber scheduler;
  fusion_emulation::Thread **slot = nullptr;
  unsigned atBarrier = 0, returned = 0;
  std::vector<EmulatedThread *> atMbarrier;
  AsyncProxy proxy;
  TensorMemory tensors;
  std::vector<char> shared; ///< dynamic area, guard, then static arrays each followed by a guard
  size_t sharedUsed = 0, staticBytes = 0;
  std::vector<SharedArray> arrays;
  std::string error;
  bool shortOfMemory = false;
};

} // namespace fusion::emulate
