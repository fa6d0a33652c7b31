// What integer ops of ONNX make of sizes and numbers; nothing where that is not known for all sizes.
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/BuiltinTypes.h"

namespace fusion::onnx {

/// Truncated towards zero.
std::optional<Dim> divide(const Dim &a, const Dim &b);
/// With the sign of the divisor.
std::optional<Dim> modulo(const Dim &a, const Dim &b);
std::optional<Dim> absolute(const Dim &a);
/// Of a small exponent that is a number.
std::optional<Dim> power(const Dim &a, const Dim &b);
/// 0 or 1, as the next two.
std::optional<Dim> equal(const Dim &a, const Dim &b);
std::optional<Dim> less(const Dim &a, const Dim &b);
std::optional<Dim> negate(std::optional<Dim> truth);
/// Bit by bit: '&', '|' or '^'.
std::optional<Dim> logic(const Dim &a, const Dim &b, char operation);

/// Whether the type holds the numbers among the values: on the device they wrap around. Sizes that only a run
/// knows are taken to fit.
bool fits(llvm::ArrayRef<Dim> values, mlir::Type type);

} // namespace fusion::onnx
