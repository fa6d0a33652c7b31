// Runs a region that sums over ranks, each rank a thread whose kernels are emulated, against the reference.
#pragma once

#include "codegen/device/exchange_abi.h"
#include "codegen/schedule/Schedules.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace fusion::test {

struct RankCase {
  /// A module with one function that carries nn.mesh. Of its argument 0 each rank has its own.
  std::string text;
  /// The sizes of calls one after the other, over the same memory.
  std::vector<SymbolValues> calls = {{}};
  double tolerance = 2e-6;
  std::function<void(int64_t rank, unsigned index, Tensor &tensor)> fill = {};
  /// KernelContext's, with gathersFullSizeRows: the two-shot algorithm alone is run, each rank is given only
  /// its own rows of argument 1, and only those of such outputs are looked at.
  std::vector<bool> scattered = {};
  bool compiles = true; ///< whether NVRTC, if it is there, compiles the kernels too
};

/// In each algorithm that the schedule has for it and a rank alone can do, and, with several calls, in all of
/// them in turn. Returns the source of the last algorithm.
std::string checkRanks(const RankCase &test);

/// What rank 0 reports when no other rank comes.
fusion_exchange::Failure failureAlone(const std::string &text, CollectiveAlgorithm algorithm);

} // namespace fusion::test
