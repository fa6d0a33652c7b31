// Checks a fusion pattern before it is used.
#pragma once

#include "ir/base/Result.h"

#include "mlir/Dialect/PDL/IR/PDLOps.h"

namespace fusion {
/// Names of ops, attributes, guards and rewrites exist; only constructs that the matcher knows occur.
Status validatePattern(mlir::pdl::PatternOp pattern);
/// The pdl.operations of commutative ops that are given both operands.
std::vector<mlir::Operation *> commutativeOps(mlir::pdl::PatternOp pattern);
} // namespace fusion
