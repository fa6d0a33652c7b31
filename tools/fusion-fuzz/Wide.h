// The graph as written, computed in other ways: without roundings, and without what GELU's kernels cancel.
#pragma once

#include "ir/base/BindSymbols.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion::fuzz {

/// What the function computes when all floats of 16 and 32 bits are f64. Errors: an op that does not take
/// that type.
Result<NamedTensors> runWide(mlir::func::FuncOp function, const NamedTensors &inputs);

/// What the function computes when GELU, but for the quick one, is 0 where x < -5: there 1 + erf(x / sqrt(2))
/// and 1 + tanh have no digit left in f32, and a kernel's result is 0 or some 1e-7.
Result<NamedTensors> runWithoutTails(mlir::func::FuncOp function, const NamedTensors &inputs);

} // namespace fusion::fuzz
