// The kernels of the sample plans, as the stand-in for the driver runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct FakeKernel {
  /// Takes the words of all arguments; 0 or the driver's error.
  int (*run)(const std::vector<uint64_t> &, uint64_t threads);
  std::vector<int> words; ///< of each argument
};

/// Null if there is none of that name.
const FakeKernel *findFakeKernel(const char *name);

/// Whether `bytes` from `pointer` lie in one live allocation of the stand-in.
bool isAllocated(uint64_t pointer, size_t bytes);
