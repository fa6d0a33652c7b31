// What a kernel stores where: a concat is never a value of its own, its operands are stored side by side.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

/// A value that a kernel stores, and the slice of an output's buffer that takes its elements.
struct OutputSlice {
  mlir::Value value;
  unsigned output = 0; ///< of the region
  View target;         ///< has the value's shape
  std::optional<RowPlacement> placement = {}; ///< where data says which rows of the buffer are written
};

/// The slices of all outputs, in their order. A concat has one for each operand; a transpose of a computed
/// value is stored by the transposed strides. Left out is an input that lies in its slice already: the past
/// of a cache that is written in place. An nn.cache_write is stored apart only where its past lies in place,
/// and once more to clear the rows behind the past that it leaves where it grows.
llvm::SmallVector<OutputSlice> outputSlicesOf(const Region &region, const KernelContext &context);

} // namespace fusion
