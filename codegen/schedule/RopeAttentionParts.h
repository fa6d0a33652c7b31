// Writes into a cache, with rotations of queries and keys if there are any, and the attention that reads it,
// as two regions.
#pragma once

#include "codegen/Schedule.h"
#include "ir/dialect/Dialect.h"

namespace fusion::attention {

struct RopeAttentionParts {
  Region heads;        ///< inputs: the region's; outputs: the queries, if they are made, then the caches
  Region attention;    ///< inputs: the region's, then the outputs of `heads`; output: the attention's result
  mlir::Value queries; ///< null: they are an input of the region
  mlir::Value result;
  /// A cache and what it held before: an output and an input.
  struct Cache {
    mlir::Value whole, past;
  };
  llvm::SmallVector<Cache, 2> caches; ///< of keys and of values
  bool isExtended = true;             ///< new rows come after those of the past, else where data says
};

/// The parts of a region, or why it has none.
std::variant<RopeAttentionParts, std::string> ropeAttentionParts(const Region &region);

} // namespace fusion::attention
