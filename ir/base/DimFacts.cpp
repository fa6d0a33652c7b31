// What can be proven about a Dim for all non-negative values of its symbols.
#include "ir/base/DimNode.h"

#include <algorithm>

namespace fusion {

int64_t Dim::Node::knownFactor(const Dim &dim) {
  int64_t factor = 0;
  for (const Term &term : termsOf(dim)) {
    int64_t content = term.coefficient;
    for (const AtomRef &atom : term.monomial)
      if (atom->kind == Kind::Max || atom->kind == Kind::Min || atom->kind == Kind::Mod) {
        int64_t common = safeGcd(knownFactor(atom->left), knownFactor(atom->right));
        if (__builtin_mul_overflow(content, common, &content))
          return 1;
      }
    factor = safeGcd(factor, content);
  }
  return factor;
}

bool Dim::Node::knownPositive(const Dim &dim) { return (dim - Dim(1)).knownNonNegative(); }

bool Dim::Node::knownNonNegative(const AtomRef &atom) {
  const Dim &left = atom->left, &right = atom->right;
  switch (atom->kind) {
  case Kind::Symbol:
    return true;
  case Kind::FloorDiv:
    return left.knownNonNegative() && right.knownNonNegative();
  case Kind::Mod:
    return right.knownNonNegative();
  case Kind::Max:
    return left.knownNonNegative() || right.knownNonNegative();
  case Kind::Min:
    return left.knownNonNegative() && right.knownNonNegative();
  }
  return false;
}

bool Dim::Node::knownNonNegative(const Term &term) {
  if (term.coefficient < 0)
    return false;
  // An even power is never negative, so equal atoms cancel in pairs.
  for (size_t i = 0; i < term.monomial.size(); ++i) {
    if (i + 1 < term.monomial.size() && compare(term.monomial[i], term.monomial[i + 1]) == 0)
      ++i;
    else if (!knownNonNegative(term.monomial[i]))
      return false;
  }
  return true;
}

bool Dim::Node::knownNonNegative(const Dim &dim, int splits) {
  const std::vector<Term> &terms = termsOf(dim);
  if (std::ranges::all_of(terms, [](const Term &term) { return knownNonNegative(term); }))
    return true;
  auto term = std::ranges::find_if(terms, [](const Term &term) {
    return term.monomial.size() == 1 &&
           (term.monomial[0]->kind == Kind::Max || term.monomial[0]->kind == Kind::Min);
  });
  if (splits == 0 || term == terms.end())
    return false;
  const Atom &atom = *term->monomial[0];
  const Dim rest = dim - fromTerm(term->monomial, term->coefficient);
  auto holdsWith = [&](const Dim &operand) {
    return knownNonNegative(rest + operand * Dim(term->coefficient), splits - 1);
  };
  // The sum is at least what it is with either operand, or else as little as with one of them.
  const bool either = (atom.kind == Kind::Max) == (term->coefficient > 0);
  return either ? holdsWith(atom.left) || holdsWith(atom.right)
                : holdsWith(atom.left) && holdsWith(atom.right);
}

bool Dim::knownNonNegative() const {
  constexpr int mostSplits = 4; // each doubles the work
  return Node::knownNonNegative(*this, mostSplits);
}

bool Dim::knownAtMostOne() const {
  if (isStatic())
    return value() <= 1;
  if (Node::AtomRef atom = Node::soleAtom(*this); atom && atom->kind == Node::Kind::Min)
    return atom->left.knownAtMostOne() || atom->right.knownAtMostOne();
  return (Dim(1) - *this).knownNonNegative();
}

int64_t Dim::knownFactor() const { return Node::knownFactor(*this); }

bool Dim::knownMultipleOf(int64_t factor) const {
  int64_t known = knownFactor();
  return factor == 0 ? known == 0 : floorModulo(known, factor) == 0;
}

} // namespace fusion
