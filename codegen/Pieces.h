// What a kernel stores where: a concat is never a value of its own, its operands are stored side by side.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

/// A value and the place in an output's buffer where its elements go.
struct Piece {
  mlir::Value value;
  unsigned output = 0; ///< of the region
  View target;         ///< has the value's shape
  mlir::Operation *concat = nullptr; ///< that it is an operand of, if any
};

/// The pieces of all outputs, in their order. Concats are taken apart, and transposes of computed values are
/// stored through the transposed place. A piece that is an input which lies in its place already, as the past of a cache that is written in place, is left out.
llvm::SmallVector<Piece> piecesOf(const Region &region, const KernelContext &context);

} // namespace fusion
