// Rotations of queries and keys with the writes into a cache, and the attention that reads it, as two
// regions.
#pragma once

#include "codegen/Schedule.h"
#include "ir/dialect/Dialect.h"

namespace fusion::attention {

struct RopeAttentionParts {
  Region heads;     ///< inputs: the region's; outputs: the queries, then the caches
  Region attention; ///< inputs: the region's, then the outputs of `heads`; output: the attention's result
  mlir::Value queries, result;
  /// A cache, what it held before, and what is new: an output, an input and a value of `heads`.
  struct Cache {
    mlir::Value whole, past, fresh;
  };
  llvm::SmallVector<Cache, 2> caches; ///< of keys and of values
};

/// The parts of a region, or why it has none.
std::variant<RopeAttentionParts, std::string> ropeAttentionParts(const Region &region);

} // namespace fusion::attention
