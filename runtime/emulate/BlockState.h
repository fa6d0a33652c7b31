// The threads of a block that is emulated. Internal to this folder.
#pragma once

#include "runtime/emulate/BlockRunner.h"

namespace fusion::emulate {

namespace abi = fusion_emulation;

constexpr unsigned warpSize = 32;
constexpr size_t guardBytes = 64;
constexpr size_t dynamicAlignment = 1024; ///< what the widest swizzle repeats after
constexpr unsigned char guardByte = 0xa5;
constexpr unsigned char poisonByte = 0xff; // a NaN in every float type

struct PendingCopy {
  void *shared;
  const void *global;
  unsigned bytes; ///< of 16; zeros follow
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
  unsigned arrived = 0; ///< at the current operation
  unsigned phase = 0;   ///< which of the two sets of slots the current operation uses
  abi::WarpOperation kind = abi::WarpOperation::Barrier;
  alignas(64) unsigned char slots[2][warpSize * abi::slotBytes];
};

/// For messages: what lanes wait in.
const char *nameOf(abi::WarpOperation kind);

} // namespace fusion::emulate
