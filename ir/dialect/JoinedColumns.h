// Rows that lie in two tensors: queries and keys of latent attention, of which one part is rotated.
#pragma once

#include "ir/dialect/Dialect.h"

namespace fusion::nn {

struct JoinedColumns {
  mlir::Value first, second;
  int64_t columns = 0; ///< of `first`
  mlir::Operation *op = nullptr;
};

/// Pattern: nn.concat of two tensors along the last dim, whose sizes are static.
std::optional<JoinedColumns> matchJoinedColumns(mlir::Value value);

} // namespace fusion::nn
