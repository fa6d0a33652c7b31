// Symbolic dimensions: integer expressions over named symbols, such as `batch`, `s15 + 1`, `4*batch*seq`.
#pragma once

#include "ir/base/Result.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fusion {

/// The values of the symbols in one run.
using SymbolValues = std::map<std::string, int64_t, std::less<>>;

/// An integer expression in canonical form: a sum of integer multiples of products of atoms, where an
/// atom is a symbol or one of floordiv, mod, min, max over two expressions. Two equal polynomials
/// compare equal: `a + a == 2*a`, `(a+1)*b == a*b + b`. A value type; cheap to copy.
class Dim {
public:
  Dim(int64_t constant = 0);
  static Dim symbol(std::string name);
  /// Grammar: + - * // % parentheses, integers, identifiers, max(a,b), min(a,b), floor(a/b), ceil(a/b)
  /// and `a/b` read as floor division: what exporters print in dim_param.
  static Result<Dim> parse(std::string_view text);

  bool isStatic() const;
  std::optional<int64_t> constant() const; ///< the value if static
  /// How many terms the sum has: 0 for zero, 1 for a monomial. What multiplication costs.
  size_t termCount() const;
  int64_t value() const;                   ///< asserts isStatic()
  /// Fails with the name of the first symbol that `values` lacks, or on division by zero.
  Result<int64_t> evaluate(const SymbolValues &values) const;
  Dim substitute(const std::map<std::string, Dim, std::less<>> &replacements) const;
  std::set<std::string> symbols() const;
  /// Canonical text; parse(str()) gives the same expression. Symbols that are not identifiers are
  /// quoted with backquotes, which parse() accepts.
  std::string str() const;
  /// The quotient, where `other` divides every coefficient, so that it is exact.
  std::optional<Dim> dividedBy(const Dim &other) const;
  /// True only when provably so for all non-negative symbol values.
  bool knownNonNegative() const;
  bool knownMultipleOf(int64_t factor) const;
  /// The greatest integer that provably divides the value; 0 for the constant 0.
  int64_t knownFactor() const;
  /// True only when provably 0 or 1, such as `min(1, seq)`: no index but 0 has an element.
  bool knownAtMostOne() const;

  friend Dim operator+(const Dim &, const Dim &);
  friend Dim operator-(const Dim &, const Dim &);
  friend Dim operator*(const Dim &, const Dim &);
  Dim floorDiv(const Dim &divisor) const; ///< exact polynomial division is simplified
  Dim ceilDiv(const Dim &divisor) const;
  Dim mod(const Dim &divisor) const;
  static Dim max(const Dim &, const Dim &);
  static Dim min(const Dim &, const Dim &);
  friend bool operator==(const Dim &, const Dim &);
  friend bool operator<(const Dim &, const Dim &); ///< any total order, for maps

private:
  friend class DimTable;
  struct Node;
  std::shared_ptr<const Node> node;
  explicit Dim(std::shared_ptr<const Node> node);
};

using DimShape = std::vector<Dim>;
Dim product(std::span<const Dim> dims);
std::string shapeString(std::span<const Dim> dims);

} // namespace fusion
