// The ports of a graph that is one rank's already.
#pragma once

#include "passes/shard/AxisClasses.h"

namespace fusion {

/// Gives `nn.shard` to the arguments and results of a function with `nn.mesh` that hold heads of an
/// attention, and of which ranks have different ones. Fails with an error at a result that differs between
/// ranks in another way.
llvm::LogicalResult placePorts(mlir::func::FuncOp function, const nn::SymbolicShapes &shapes, int64_t ranks);

} // namespace fusion
