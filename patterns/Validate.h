// Checks a fusion pattern before it is used.
#pragma once

#include "patterns/PatternSet.h"

namespace fusion {
/// Names of ops, attributes, guards and rewrites exist; only constructs that the matcher knows occur.
Status validatePattern(mlir::pdl::PatternOp pattern);
/// What each pdl.operation of a valid pattern stands for.
llvm::DenseMap<mlir::Operation *, WantedOp> wantedOps(mlir::pdl::PatternOp pattern);
/// The pdl.operations of commutative ops that are given both operands.
std::vector<mlir::Operation *> commutativeOps(mlir::pdl::PatternOp pattern);
} // namespace fusion
