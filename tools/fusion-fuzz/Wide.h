// A graph without roundings.
#pragma once

#include "ir/base/BindSymbols.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion::fuzz {

/// What the function computes when all floats of 16 and 32 bits are f64. Errors: an op that does not take
/// that type.
Result<NamedTensors> runWide(mlir::func::FuncOp function, const NamedTensors &inputs);

} // namespace fusion::fuzz
