// Which shapes a tensor can have.
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/BuiltinTypes.h"

namespace fusion::nn {

/// No dim is negative, and the static ones, 0 taken for 1, multiply to what can be counted and addressed.
/// Products and sums of dims of such shapes do not wrap.
bool isPossibleShape(llvm::ArrayRef<Dim> shape);
bool isPossibleShape(mlir::RankedTensorType type);

} // namespace fusion::nn
