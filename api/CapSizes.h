// Smaller sizes for a check that would take long at a model's own.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion {

/// Static dims above 1024 of the one-group function `function` become smaller ones, from `least` on: equal
/// ones stay equal, and what is left after division by 128 stays. Only where the body multiplies matrices and
/// says no size but in its types, so that it means the same at any size; otherwise, or if the shapes do not
/// fit together then, nothing changes, and the result is false.
bool capSizes(mlir::func::FuncOp function, int64_t least = 512);

} // namespace fusion
