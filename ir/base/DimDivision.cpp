// Canonical forms of floordiv, mod, max and min. Each is a fixed point: building an atom's operation from
// the atom's own operands gives the atom again, which is what makes text round trip.
//
// A divisor that is an expression is taken to be non-zero.
#include "ir/base/DimNode.h"

#include <algorithm>
#include <numeric>

namespace fusion {

Dim::Node::Division Dim::Node::divideOut(const Dim &dividend, const Dim &divisor) {
  const std::vector<Term> &divisorTerms = termsOf(divisor);
  const Term &lead = divisorTerms.front();
  Dim quotient, pending = dividend;
  std::vector<Term> rest;
  while (pending.node) {
    const Term top = pending.node->terms.front();
    std::optional<Monomial> monomial = divide(top.monomial, lead.monomial);
    if (monomial && floorModulo(top.coefficient, lead.coefficient) == 0) {
      Dim step = fromTerm(std::move(*monomial), floorDivide(top.coefficient, lead.coefficient));
      quotient = quotient + step;
      pending = pending - step * divisor;
    } else {
      rest.push_back(top);
      pending = pending - fromTerm(top.monomial, top.coefficient);
    }
  }
  // `s // (s + 1)` is clearer than `1 + -1 // (s + 1)`.
  if (rest.size() >= termsOf(dividend).size())
    return {Dim(), dividend};
  return {quotient, fromTerms(std::move(rest))};
}

Dim Dim::Node::commonFactor(const Dim &a, const Dim &b) {
  auto less = [](const AtomRef &x, const AtomRef &y) { return compare(x, y) < 0; };
  int64_t content = 0;
  std::optional<Monomial> shared;
  for (const Dim *dim : {&a, &b})
    for (const Term &term : termsOf(*dim)) {
      content = safeGcd(content, term.coefficient);
      if (!shared) {
        shared = term.monomial;
        continue;
      }
      Monomial both;
      std::set_intersection(shared->begin(), shared->end(), term.monomial.begin(), term.monomial.end(),
                            std::back_inserter(both), less);
      shared = std::move(both);
    }
  return fromTerm(shared.value_or(Monomial()), content);
}

Dim Dim::Node::floorDivByConstant(const Dim &dividend, int64_t divisor) {
  if (divisor == INT64_MIN)
    return atom(Kind::FloorDiv, dividend, Dim(divisor));
  if (divisor < 0)
    return floorDivByConstant(dividend * Dim(-1), -divisor);
  // floor((c*q + r) / c) = q + floor(r / c), term by term.
  Dim quotient;
  std::vector<Term> symbolic;
  int64_t constant = 0;
  for (const Term &term : termsOf(dividend)) {
    if (term.monomial.empty()) {
      constant = term.coefficient;
      continue;
    }
    quotient = quotient + fromTerm(term.monomial, term.coefficient / divisor);
    if (int64_t left = term.coefficient % divisor)
      symbolic.push_back({term.monomial, left});
  }
  if (symbolic.empty())
    return quotient + Dim(floorDivide(constant, divisor));
  quotient = quotient + Dim(floorDivide(constant, divisor));
  constant = floorModulo(constant, divisor);
  // floor(-r / c) = -floor((r + c - 1) / c): the leading coefficient is made positive.
  int64_t sign = 1;
  if (symbolic.front().coefficient < 0) {
    sign = -1;
    constant = divisor - 1 - constant;
    for (Term &term : symbolic)
      term.coefficient = -term.coefficient;
  }
  // floor((g*r + k) / (g*c)) = floor((r + floor(k / g)) / c).
  int64_t content = divisor;
  for (const Term &term : symbolic)
    content = std::gcd(content, term.coefficient);
  for (Term &term : symbolic)
    term.coefficient /= content;
  constant = floorDivide(constant, content);
  divisor /= content;

  Dim rest = fromTerms(std::move(symbolic));
  // floor((floor(x / p) + k) / c) = floor((x + k*p) / (p*c)).
  if (AtomRef inner = soleAtom(rest); inner && inner->kind == Kind::FloorDiv) {
    int64_t innerDivisor = inner->right.constant().value_or(0);
    int64_t moved, combined;
    if (innerDivisor > 0 && !__builtin_mul_overflow(constant, innerDivisor, &moved) &&
        !__builtin_mul_overflow(divisor, innerDivisor, &combined))
      return quotient + Dim(sign) * floorDivByConstant(inner->left + Dim(moved), combined);
  }
  return quotient + Dim(sign) * atom(Kind::FloorDiv, rest + Dim(constant), Dim(divisor));
}

Dim Dim::floorDiv(const Dim &divisor) const {
  std::optional<int64_t> constantDivisor = divisor.constant();
  if (constantDivisor == 0)
    return Node::atom(Node::Kind::FloorDiv, *this, divisor);
  if (std::optional<Dim> exact = dividedBy(divisor))
    return *exact;
  if (constantDivisor)
    return Node::floorDivByConstant(*this, *constantDivisor);
  if (Node::termsOf(divisor).front().coefficient < 0)
    return (*this * Dim(-1)).floorDiv(divisor * Dim(-1));
  if (knownNonNegative() && Node::knownPositive(divisor - *this))
    return Dim();
  auto [quotient, rest] = Node::divideOut(*this, divisor);
  if (Node::AtomRef inner = Node::soleAtom(rest);
      inner && inner->kind == Node::Kind::Mod && inner->right == divisor)
    return quotient;
  Dim common = Node::commonFactor(rest, divisor);
  Dim restLeft = *rest.dividedBy(common), divisorLeft = *divisor.dividedBy(common);
  if (restLeft != *this || divisorLeft != divisor) // something smaller, which may simplify further
    return quotient + restLeft.floorDiv(divisorLeft);
  return Node::atom(Node::Kind::FloorDiv, *this, divisor);
}

Dim Dim::ceilDiv(const Dim &divisor) const {
  // The form with one floor, which the integers of convolution and pooling use, holds for positive divisors.
  if (divisor.knownNonNegative())
    return (*this + divisor - Dim(1)).floorDiv(divisor);
  Dim negated = divisor * Dim(-1);
  if (negated.knownNonNegative())
    return (*this * Dim(-1)).ceilDiv(negated);
  return Dim(-1) * (*this * Dim(-1)).floorDiv(divisor);
}

Dim Dim::Node::modConstant(const Dim &dividend, int64_t divisor) {
  if (divisor == INT64_MIN)
    return atom(Kind::Mod, dividend, Dim(divisor));
  if (divisor < 0)
    return Dim(-1) * modConstant(dividend * Dim(-1), -divisor);
  Dim rest;
  bool unwrapped = false;
  for (const Term &term : termsOf(dividend)) {
    int64_t left = floorModulo(term.coefficient, divisor);
    const Atom *inner = term.monomial.size() == 1 ? term.monomial[0].get() : nullptr;
    int64_t innerDivisor = inner && inner->kind == Kind::Mod ? inner->right.constant().value_or(0) : 0;
    // Modulo c, `x mod (k*c)` is x.
    bool redundant = left != 0 && innerDivisor != 0 && floorModulo(innerDivisor, divisor) == 0;
    unwrapped |= redundant;
    rest = rest + (redundant ? inner->left * Dim(left) : fromTerm(term.monomial, left));
  }
  if (unwrapped)
    return modConstant(rest, divisor);
  if (rest.isStatic())
    return rest;
  int64_t content = divisor;
  for (const Term &term : termsOf(rest))
    content = std::gcd(content, term.coefficient);
  if (content > 1)
    return modConstant(*rest.dividedBy(Dim(content)), divisor / content) * Dim(content);
  if (AtomRef inner = soleAtom(rest); inner && inner->kind == Kind::Mod) {
    int64_t innerDivisor = inner->right.constant().value_or(0);
    if (innerDivisor > 0 && innerDivisor <= divisor)
      return rest;
  }
  return atom(Kind::Mod, rest, Dim(divisor));
}

Dim Dim::mod(const Dim &divisor) const {
  std::optional<int64_t> constantDivisor = divisor.constant();
  if (constantDivisor == 0)
    return Node::atom(Node::Kind::Mod, *this, divisor);
  if (dividedBy(divisor))
    return Dim();
  if (constantDivisor)
    return Node::modConstant(*this, *constantDivisor);
  if (Node::termsOf(divisor).front().coefficient < 0)
    return Dim(-1) * (*this * Dim(-1)).mod(divisor * Dim(-1));
  if (knownNonNegative() && Node::knownPositive(divisor - *this))
    return *this;
  Dim rest = Node::divideOut(*this, divisor).rest;
  if (Node::AtomRef inner = Node::soleAtom(rest);
      inner && inner->kind == Node::Kind::Mod && inner->right == divisor)
    return rest;
  Dim common = Node::commonFactor(rest, divisor);
  Dim restLeft = *rest.dividedBy(common), divisorLeft = *divisor.dividedBy(common);
  if (restLeft != *this || divisorLeft != divisor)
    return common * restLeft.mod(divisorLeft);
  return Node::atom(Node::Kind::Mod, *this, divisor);
}

std::vector<Dim> Dim::Node::operandsOf(Kind kind, const Dim &dim) {
  std::vector<Dim> operands;
  Dim rest = dim;
  for (AtomRef nested = soleAtom(rest); nested && nested->kind == kind; nested = soleAtom(rest)) {
    operands.push_back(nested->left); // extremum() nests to the right only
    rest = nested->right;
  }
  operands.push_back(rest);
  return operands;
}

Dim Dim::Node::extremum(Kind kind, const Dim &left, const Dim &right) {
  auto covers = [kind](const Dim &a, const Dim &b) {
    return (kind == Kind::Max ? a - b : b - a).knownNonNegative();
  };
  // The operands of either side are free of each other already.
  std::vector<Dim> kept = operandsOf(kind, left);
  for (const Dim &candidate : operandsOf(kind, right)) {
    if (std::any_of(kept.begin(), kept.end(), [&](const Dim &other) { return covers(other, candidate); }))
      continue;
    std::erase_if(kept, [&](const Dim &other) { return covers(candidate, other); });
    kept.push_back(candidate);
  }
  std::sort(kept.begin(), kept.end());
  Dim result = kept.back();
  for (size_t i = kept.size() - 1; i-- > 0;)
    result = atom(kind, kept[i], result);
  return result;
}

Dim Dim::max(const Dim &a, const Dim &b) { return Node::extremum(Node::Kind::Max, a, b); }
Dim Dim::min(const Dim &a, const Dim &b) { return Node::extremum(Node::Kind::Min, a, b); }

} // namespace fusion
