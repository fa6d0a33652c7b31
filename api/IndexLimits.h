// Which inputs are indices of a table, such as token ids, and how long the table is.
#pragma once

#include "ir/base/Safetensors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace fusion {

struct IndexLimit {
  std::string input;
  int64_t size; ///< indices are from -size to size - 1
};

/// Of the inputs that nn.gather reads its indices from, as they are or through casts and views, out of a dim of known
/// size: the smallest size of each.
std::vector<IndexLimit> indexLimits(mlir::func::FuncOp function);

/// An error that names the input, the first index out of range and the range. Tensors on a device are not looked into.
Status checkIndices(const std::vector<IndexLimit> &limits, const NamedTensors &inputs);

} // namespace fusion
