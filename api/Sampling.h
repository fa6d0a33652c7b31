// Sampling ops at the end of a graph.
#pragma once

#include "api/Fusion.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion {

/// Appends the choice of the next token to `entry`: see LoadOptions::sampling.
Status appendSampling(mlir::func::FuncOp entry, const Sampling &sampling);

} // namespace fusion
