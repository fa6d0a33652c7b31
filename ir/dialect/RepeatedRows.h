// Tensors that repeat what another has along a dim, as graphs spell the scales of blocks of a matrix.
#pragma once

#include "ir/dialect/Dialect.h"

namespace fusion::nn {

struct RepeatedRows {
  mlir::Value from;
  size_t dim = 0;
  int64_t times = 1;                        ///< index i along `dim` is index i / times of `from`
  llvm::SmallVector<mlir::Operation *> ops; ///< in block order
};

/// Pattern: reshape(expand(reshape(from))) of static shapes, which puts a dim of `times` behind `dim` and
/// joins both: repeat_interleave.
std::optional<RepeatedRows> matchRepeatedRows(mlir::Value value);

} // namespace fusion::nn
