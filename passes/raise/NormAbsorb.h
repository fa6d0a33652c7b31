// What a norm op can take over from the ops around it.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace fusion::raise {

/// Casts of input, weight and result, a constant added to the weight, and a multiplication after a norm by
/// ones move into nn.rms_norm and nn.layer_norm where rounding points stay.
llvm::LogicalResult absorbIntoNorms(mlir::ModuleOp module);

} // namespace fusion::raise
