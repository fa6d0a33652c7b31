// Masks of attention that say no more than which key is the first, and which the last, that each query looks
// at.
#pragma once

#include "ir/dialect/Dialect.h"

namespace fusion::nn {

/// A bound on the keys' numbers: integers that broadcast against [batch, heads, queries, 1] and are one for
/// all heads.
struct KeyBound {
  mlir::Value limit; ///< null: there is none
  bool isExclusive = false;
};

struct KeyBounds {
  KeyBound above, below;
  /// What makes the mask of the bounds, in block order.
  llvm::SmallVector<mlir::Operation *> ops;
  /// The keys' numbers 0, 1, …, of one dim.
  llvm::SmallVector<mlir::Value> numbers;
};

/// Pattern: keys <= last, keys >= first, or both, where keys is nn.iota from 0 in steps of 1, or a constant
/// of the same numbers. Either comparison may be strict, and have its operands the other way round.
std::optional<KeyBounds> matchKeyBounds(mlir::Value mask);

} // namespace fusion::nn
