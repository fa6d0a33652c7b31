// Where temporaries live in one arena: two that are never alive at the same time may share addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fusion {

/// Alignment of every allocation and offset: what 16-byte accesses and TMA want, with room to spare.
constexpr size_t bufferAlignment = 256;
constexpr size_t alignedSize(size_t bytes) {
  return (bytes + bufferAlignment - 1) / bufferAlignment * bufferAlignment;
}

/// A buffer is alive from launch `first` to launch `last`, both included.
struct Lifetime {
  size_t bytes = 0;
  int64_t first = 0, last = 0;
  friend bool operator==(const Lifetime &, const Lifetime &) = default;
};

struct MemoryPlan {
  std::vector<size_t> offsets; ///< for each lifetime, a multiple of bufferAlignment
  size_t total = 0;            ///< at most the sum of the aligned sizes
};

/// Largest first, each into the smallest gap that fits between those alive at the same time.
MemoryPlan planMemory(std::span<const Lifetime> lifetimes);

} // namespace fusion
