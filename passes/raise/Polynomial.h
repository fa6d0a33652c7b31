// Arithmetic over one or two values read as a polynomial: one answer for all orders in which exporters
// multiply out.
#pragma once

#include "mlir/IR/Value.h"

#include <map>
#include <optional>
#include <vector>

namespace fusion::raise {

/// Coefficients by the powers of x and of t.
using Polynomial = std::map<std::pair<int, int>, double>;

/// `value` as a polynomial in `x` and `t` (t may be null). Reads through add, sub, mul, div by a constant,
/// neg, square, pow with a small whole exponent, constants, and casts that are exact or round to the type of
/// x; nothing if another value is met.
std::optional<Polynomial> readPolynomial(mlir::Value value, mlir::Value x, mlir::Value t);

/// The same terms with coefficients equal within `tolerance`, relatively.
bool matches(const Polynomial &found, const Polynomial &expected, double tolerance);

/// The values, nearest first, that `value` may be a polynomial of: it itself and what the arithmetic above
/// leads to.
std::vector<mlir::Value> polynomialVariables(mlir::Value value);

} // namespace fusion::raise
