// The sizes that an op depends on.
#pragma once

#include "ir/dialect/SymbolicShapes.h"

#include <set>

namespace fusion::nn {

/// Symbols that the op and its body speak of: in the shapes of its operands and of all results, and in
/// attributes.
std::set<std::string> symbolsOf(mlir::Operation *op, const SymbolicShapes &shapes);

} // namespace fusion::nn
