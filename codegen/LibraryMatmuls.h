// A region of matmuls of many rows, as calls of a library and regions of the remaining ops.
#pragma once

#include "codegen/RemainingOps.h"

namespace fusion {

/// A matrix in the buffer of a region's input, and those of a batch after it.
struct LibraryOperand {
  unsigned input = 0;   ///< of the region
  Dim offset = 0;       ///< all in elements
  Dim leading = 0;      ///< dimension: from one row, or column, to the next
  Dim batchStride = 0;  ///< from one matrix of the batch to the next
  bool columnMajor = false;
};

struct MatmulCall {
  nn::MatmulOp op;
  LibraryOperand a, b;
  Dim m = 1, n = 1, k = 1, count = 1;
  std::optional<unsigned> output; ///< of the region, which the library writes as it is
};

struct LibraryMatmuls {
  std::vector<MatmulCall> calls;
  std::vector<RemainingOps> remaining;
  SizeRange rows; ///< of all matmuls, and how many there must be
};

/// The reason why it cannot be done so, or not sooner than in a kernel: few rows, types or layouts that the
/// library does not take, no schedule for the remaining ops. `multiplied`: see SchedulePlan.
std::variant<LibraryMatmuls, std::string> splitMatmuls(const Region &region, const KernelContext &context,
                                                       const std::optional<Region> &multiplied = {});

/// Whether a kernel for all sizes computes each of the remaining regions: an alternative with the library's
/// calls has one range of sizes.
bool remainsForAllSizes(const LibraryMatmuls &split, const KernelContext &context);

} // namespace fusion
