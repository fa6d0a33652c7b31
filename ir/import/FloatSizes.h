// Sizes that a graph computes with floats: ceil((length - 7) / 2 + 1) as an integer.
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/Value.h"

#include <optional>

namespace fusion::onnx {

/// The few integers that `value` is, row-major, where it is rounded from sums, products, quotients, largest
/// and smallest of sizes and constants that floats hold exactly; nothing else.
std::optional<DimShape> sizesThroughFloats(mlir::Value value);
/// The same of one element.
std::optional<Dim> sizeThroughFloats(mlir::Value value);

} // namespace fusion::onnx
