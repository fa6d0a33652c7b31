#include "runtime/cuda/PinnedMemory.h"

#include <algorithm>

namespace fusion::cuda {

static constexpr size_t mostBytes = 256 << 20;
static constexpr size_t granularity = 64 << 10;

PinnedMemory::~PinnedMemory() {
  session->activate();
  for (const Block &block : blocks)
    session->driver.cuMemFreeHost(block.memory);
}

bool PinnedMemory::makeRoom(size_t bytes) {
  for (size_t i = blocks.size(); i-- > 0 && total + bytes > mostBytes;)
    if (blocks[i].isFree) {
      session->driver.cuMemFreeHost(blocks[i].memory);
      total -= blocks[i].bytes;
      blocks.erase(blocks.begin() + static_cast<int64_t>(i));
    }
  return total + bytes <= mostBytes;
}

std::shared_ptr<void> PinnedMemory::acquire(size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + granularity - 1) / granularity * granularity;
  std::lock_guard lock(mutex);
  Block *best = nullptr;
  for (Block &block : blocks) // the smallest that is large enough, and not far too large
    if (block.isFree && block.bytes >= bytes && block.bytes <= 4 * bytes &&
        (!best || block.bytes < best->bytes))
      best = &block;
  if (!best) {
    session->activate();
    void *memory = nullptr;
    if (!makeRoom(bytes) || session->driver.cuMemHostAlloc(&memory, bytes, 0) != 0)
      return nullptr;
    blocks.push_back({static_cast<std::byte *>(memory), bytes, false});
    total += bytes;
    best = &blocks.back();
  }
  best->isFree = false;
  return {best->memory, [pool = shared_from_this()](void *memory) { pool->giveBack(memory); }};
}

void PinnedMemory::giveBack(const void *memory) {
  std::lock_guard lock(mutex);
  for (Block &block : blocks)
    if (block.memory == memory)
      block.isFree = true;
}

bool PinnedMemory::holds(const void *address) const {
  std::lock_guard lock(mutex);
  const auto *place = static_cast<const std::byte *>(address);
  return std::any_of(blocks.begin(), blocks.end(), [&](const Block &block) {
    return block.memory <= place && place < block.memory + block.bytes;
  });
}

} // namespace fusion::cuda
