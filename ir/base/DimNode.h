// The canonical form behind Dim. Private to ir/base.
#pragma once

#include "ir/base/Dim.h"

#include <compare>

namespace fusion {

/// A polynomial: terms in strictly descending lexicographic order of their monomials, no coefficient 0.
/// Coefficients wrap at 64 bits. Zero is the null node.
struct Dim::Node {
  enum class Kind : uint8_t { Symbol, FloorDiv, Mod, Max, Min };

  struct Atom {
    Kind kind;
    std::string name; ///< of a symbol
    Dim left, right;  ///< of the others
  };
  using AtomRef = std::shared_ptr<const Atom>;

  /// Atoms in ascending order, one an occurrence: `a*a*b` is [a, a, b].
  using Monomial = std::vector<AtomRef>;

  struct Term {
    Monomial monomial;
    int64_t coefficient;
  };

  std::vector<Term> terms;

  static const std::vector<Term> &termsOf(const Dim &dim);
  /// Sorts, adds up equal monomials, drops zeros.
  static Dim fromTerms(std::vector<Term> terms);
  /// The same for terms in order, where equal monomials are neighbours.
  static Dim fromSorted(std::vector<Term> terms);
  static Dim fromTerm(Monomial monomial, int64_t coefficient);
  static Dim atom(Kind kind, const Dim &left, const Dim &right);
  /// The atom if `dim` is nothing else, or null.
  static AtomRef soleAtom(const Dim &dim);

  static std::strong_ordering compare(const Dim &a, const Dim &b);
  static std::strong_ordering compare(const AtomRef &a, const AtomRef &b);
  static std::strong_ordering compare(const Monomial &a, const Monomial &b);

  static Monomial multiply(const Monomial &a, const Monomial &b);
  /// a / b, if every atom of b is in a.
  static std::optional<Monomial> divide(const Monomial &a, const Monomial &b);

  /// The greatest integer that provably divides the value: gcd over the terms; 0 for the constant 0.
  static int64_t knownFactor(const Dim &dim);
  static bool knownNonNegative(const AtomRef &atom);
  static bool knownNonNegative(const Term &term);
  /// Takes at most `splits` operations max and min apart, into what the sum is with either operand.
  static bool knownNonNegative(const Dim &dim, int splits);
  static bool knownPositive(const Dim &dim);

  /// For a divisor that is no constant: dividend = quotient * divisor + rest, taking out what makes the
  /// rest shorter.
  struct Division {
    Dim quotient, rest;
  };
  static Division divideOut(const Dim &dividend, const Dim &divisor);
  /// The greatest monomial with a positive coefficient that divides both exactly.
  static Dim commonFactor(const Dim &a, const Dim &b);
  static Dim floorDivByConstant(const Dim &dividend, int64_t divisor);
  static Dim modConstant(const Dim &dividend, int64_t divisor);
  /// The operands of nested max (or min) operations; `dim` alone if it is none.
  static std::vector<Dim> operandsOf(Kind kind, const Dim &dim);
  static Dim extremum(Kind kind, const Dim &left, const Dim &right);

  /// As `left.floorDiv(right)` and so on: the atom's own operation.
  static Dim apply(Kind kind, const Dim &left, const Dim &right);
  static std::string text(const AtomRef &atom);
};

/// Floor semantics; the divisor is not 0. INT64_MIN / -1 wraps.
int64_t floorDivide(int64_t dividend, int64_t divisor);
int64_t floorModulo(int64_t dividend, int64_t divisor);
/// 1 where a magnitude does not fit, that of INT64_MIN: 1 divides it too.
int64_t safeGcd(int64_t a, int64_t b);

} // namespace fusion
