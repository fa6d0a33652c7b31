// Sizes that a graph computes with floats: ceil((length - 7) / 2 + 1) as an integer.
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/Value.h"

#include <optional>

namespace fusion::onnx {

/// The integer of one element that `value` is, where it is rounded from sums, products and quotients of sizes
/// and constants that floats hold exactly; nothing else.
std::optional<Dim> sizeThroughFloats(mlir::Value value);

} // namespace fusion::onnx
