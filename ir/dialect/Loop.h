// nn.loop.
#pragma once

#include "ir/dialect/Dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#define GET_OP_CLASSES
#include "ir/dialect/NNLoop.h.inc"

namespace fusion::nn {

/// Whether the function is what loops apply, and no graph of its own: one that is private.
inline bool isLoopBody(mlir::func::FuncOp function) { return function.isPrivate(); }

} // namespace fusion::nn
