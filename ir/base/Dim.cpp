// Symbols, the polynomial ring over atoms, and values.
#include "ir/base/Dim.h"

#include "ir/base/DimNode.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <fmt/format.h>
#include <numeric>

namespace fusion {

namespace {
// Unsigned arithmetic wraps instead of being undefined.
int64_t wrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrapMultiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
} // namespace

int64_t floorDivide(int64_t dividend, int64_t divisor) {
  if (divisor == -1)
    return wrapMultiply(dividend, -1);
  int64_t quotient = dividend / divisor;
  return dividend % divisor != 0 && (dividend < 0) != (divisor < 0) ? quotient - 1 : quotient;
}

int64_t floorModulo(int64_t dividend, int64_t divisor) {
  if (divisor == -1)
    return 0;
  int64_t remainder = dividend % divisor;
  return remainder != 0 && (remainder < 0) != (divisor < 0) ? remainder + divisor : remainder;
}

int64_t safeGcd(int64_t a, int64_t b) { return a == INT64_MIN || b == INT64_MIN ? 1 : std::gcd(a, b); }

// The canonical form.

const std::vector<Dim::Node::Term> &Dim::Node::termsOf(const Dim &dim) {
  static const std::vector<Term> none;
  return dim.node ? dim.node->terms : none;
}

Dim Dim::Node::fromTerms(std::vector<Term> terms) {
  std::sort(terms.begin(), terms.end(),
            [](const Term &a, const Term &b) { return compare(a.monomial, b.monomial) > 0; });
  return fromSorted(std::move(terms));
}

Dim Dim::Node::fromSorted(std::vector<Term> terms) {
  std::vector<Term> sum;
  for (Term &term : terms) {
    if (!sum.empty() && compare(sum.back().monomial, term.monomial) == 0)
      sum.back().coefficient = wrapAdd(sum.back().coefficient, term.coefficient);
    else
      sum.push_back(std::move(term));
  }
  std::erase_if(sum, [](const Term &term) { return term.coefficient == 0; });
  if (sum.empty())
    return Dim();
  return Dim(std::make_shared<const Node>(Node{std::move(sum)}));
}

Dim Dim::Node::fromTerm(Monomial monomial, int64_t coefficient) {
  std::vector<Term> terms;
  terms.push_back({std::move(monomial), coefficient});
  return fromTerms(std::move(terms));
}

Dim Dim::Node::atom(Kind kind, const Dim &left, const Dim &right) {
  return fromTerm({std::make_shared<const Atom>(Atom{kind, {}, left, right})}, 1);
}

Dim::Node::AtomRef Dim::Node::soleAtom(const Dim &dim) {
  const std::vector<Term> &terms = termsOf(dim);
  if (terms.size() != 1 || terms[0].coefficient != 1 || terms[0].monomial.size() != 1)
    return nullptr;
  return terms[0].monomial[0];
}

std::strong_ordering Dim::Node::compare(const Dim &a, const Dim &b) {
  if (a.node == b.node)
    return std::strong_ordering::equal;
  const std::vector<Term> &left = termsOf(a), &right = termsOf(b);
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (auto order = compare(left[i].monomial, right[i].monomial); order != 0)
      return order;
    if (auto order = left[i].coefficient <=> right[i].coefficient; order != 0)
      return order;
  }
  return left.size() <=> right.size();
}

std::strong_ordering Dim::Node::compare(const AtomRef &a, const AtomRef &b) {
  if (a == b)
    return std::strong_ordering::equal;
  if (a->kind != b->kind)
    return a->kind <=> b->kind;
  if (a->kind == Kind::Symbol)
    return a->name <=> b->name;
  if (auto order = compare(a->left, b->left); order != 0)
    return order;
  return compare(a->right, b->right);
}

std::strong_ordering Dim::Node::compare(const Monomial &a, const Monomial &b) {
  // Lexicographic with the smallest atom the most significant; respects multiplication, as division needs.
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (auto order = compare(b[i], a[i]); order != 0)
      return order;
  return a.size() <=> b.size();
}

Dim::Node::Monomial Dim::Node::multiply(const Monomial &a, const Monomial &b) {
  Monomial product;
  product.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(product),
             [](const AtomRef &x, const AtomRef &y) { return compare(x, y) < 0; });
  return product;
}

std::optional<Dim::Node::Monomial> Dim::Node::divide(const Monomial &a, const Monomial &b) {
  auto less = [](const AtomRef &x, const AtomRef &y) { return compare(x, y) < 0; };
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end(), less))
    return std::nullopt;
  Monomial quotient;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(quotient), less);
  return quotient;
}

Dim Dim::Node::apply(Kind kind, const Dim &left, const Dim &right) {
  switch (kind) {
  case Kind::FloorDiv:
    return left.floorDiv(right);
  case Kind::Mod:
    return left.mod(right);
  case Kind::Max:
    return max(left, right);
  default:
    return min(left, right);
  }
}

// Construction and the ring.

Dim::Dim(std::shared_ptr<const Node> node) : node(std::move(node)) {}

namespace {
/// A graph has few sizes and asks for them again and again: a thread's last ones are kept.
struct RecentConstants {
  std::array<Dim, 256> dims;
  ~RecentConstants();
};
/// What ends with the thread or the program later may still ask for sizes.
thread_local bool recentAreGone = false;
RecentConstants::~RecentConstants() { recentAreGone = true; }
} // namespace

Dim::Dim(int64_t constant) {
  if (constant == 0)
    return;
  auto make = [&] { return std::make_shared<const Node>(Node{{{{}, constant}}}); };
  if (recentAreGone) {
    node = make();
    return;
  }
  thread_local RecentConstants recent;
  Dim &place = recent.dims[static_cast<uint64_t>(constant) % recent.dims.size()];
  if (!place.node || place.node->terms[0].coefficient != constant)
    place.node = make();
  node = place.node;
}

Dim Dim::symbol(std::string name) {
  Node::Atom atom{Node::Kind::Symbol, std::move(name), {}, {}};
  return Node::fromTerm({std::make_shared<const Node::Atom>(std::move(atom))}, 1);
}

bool Dim::isStatic() const { return !node || (node->terms.size() == 1 && node->terms[0].monomial.empty()); }

std::optional<int64_t> Dim::constant() const {
  if (!isStatic())
    return std::nullopt;
  return node ? node->terms[0].coefficient : 0;
}

int64_t Dim::value() const {
  assert(isStatic());
  return *constant();
}

size_t Dim::termCount() const { return Node::termsOf(*this).size(); }

Dim operator+(const Dim &a, const Dim &b) {
  const std::vector<Dim::Node::Term> &left = Dim::Node::termsOf(a), &right = Dim::Node::termsOf(b);
  if (left.empty() || right.empty())
    return left.empty() ? b : a;
  if (a.isStatic() && b.isStatic())
    return wrapAdd(left[0].coefficient, right[0].coefficient);
  std::vector<Dim::Node::Term> terms;
  terms.reserve(left.size() + right.size());
  std::merge(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(terms),
             [](const auto &x, const auto &y) { return Dim::Node::compare(x.monomial, y.monomial) > 0; });
  return Dim::Node::fromSorted(std::move(terms));
}

Dim operator-(const Dim &a, const Dim &b) { return a + b * Dim(-1); }

Dim operator*(const Dim &a, const Dim &b) {
  if (a.isStatic() && b.isStatic())
    return wrapMultiply(*a.constant(), *b.constant());
  const bool isOne = a.isStatic() && a.constant() == 1;
  if (isOne || (b.isStatic() && b.constant() == 1))
    return isOne ? b : a;
  std::vector<Dim::Node::Term> terms;
  for (const Dim::Node::Term &left : Dim::Node::termsOf(a))
    for (const Dim::Node::Term &right : Dim::Node::termsOf(b))
      terms.push_back({Dim::Node::multiply(left.monomial, right.monomial),
                       wrapMultiply(left.coefficient, right.coefficient)});
  return Dim::Node::fromTerms(std::move(terms));
}

bool operator==(const Dim &a, const Dim &b) { return Dim::Node::compare(a, b) == 0; }
bool operator<(const Dim &a, const Dim &b) { return Dim::Node::compare(a, b) < 0; }

std::optional<Dim> Dim::dividedBy(const Dim &other) const {
  const std::vector<Node::Term> &divisor = Node::termsOf(other);
  if (divisor.empty())
    return std::nullopt;
  const Node::Term &lead = divisor.front();
  Dim rest = *this;
  Dim quotient;
  // Each round removes the leading monomial for good, so the loop ends.
  while (rest.node) {
    const Node::Term &top = rest.node->terms.front();
    std::optional<Node::Monomial> monomial = Node::divide(top.monomial, lead.monomial);
    if (!monomial || floorModulo(top.coefficient, lead.coefficient) != 0)
      return std::nullopt;
    Dim step = Node::fromTerm(std::move(*monomial), floorDivide(top.coefficient, lead.coefficient));
    quotient = quotient + step;
    rest = rest - step * other;
  }
  return quotient;
}

// Evaluation.

Result<int64_t> Dim::evaluate(const SymbolValues &values) const {
  auto overflow = [&] { return badInput(fmt::format("{} does not fit 64 bits", str())); };
  int64_t sum = 0;
  for (const Node::Term &term : Node::termsOf(*this)) {
    int64_t product = term.coefficient;
    for (const Node::AtomRef &atom : term.monomial) {
      int64_t factor;
      if (atom->kind == Node::Kind::Symbol) {
        auto found = values.find(atom->name);
        if (found == values.end())
          return badInput(fmt::format("no value for the symbol '{}'", atom->name));
        factor = found->second;
      } else {
        Result<int64_t> left = atom->left.evaluate(values);
        if (!left)
          return left;
        Result<int64_t> right = atom->right.evaluate(values);
        if (!right)
          return right;
        bool divides = atom->kind == Node::Kind::FloorDiv || atom->kind == Node::Kind::Mod;
        if (divides && *right == 0)
          return badInput(fmt::format("division by zero in {}", Node::text(atom)));
        switch (atom->kind) {
        case Node::Kind::FloorDiv:
          factor = floorDivide(*left, *right);
          break;
        case Node::Kind::Mod:
          factor = floorModulo(*left, *right);
          break;
        case Node::Kind::Max:
          factor = std::max(*left, *right);
          break;
        default:
          factor = std::min(*left, *right);
          break;
        }
      }
      if (__builtin_mul_overflow(product, factor, &product))
        return overflow();
    }
    if (__builtin_add_overflow(sum, product, &sum))
      return overflow();
  }
  return sum;
}

Dim Dim::substitute(const std::map<std::string, Dim, std::less<>> &replacements) const {
  Dim sum;
  for (const Node::Term &term : Node::termsOf(*this)) {
    Dim product(term.coefficient);
    for (const Node::AtomRef &atom : term.monomial) {
      if (atom->kind != Node::Kind::Symbol) {
        product = product * Node::apply(atom->kind, atom->left.substitute(replacements),
                                        atom->right.substitute(replacements));
        continue;
      }
      auto found = replacements.find(atom->name);
      product = product * (found != replacements.end() ? found->second : Node::fromTerm({atom}, 1));
    }
    sum = sum + product;
  }
  return sum;
}

std::set<std::string> Dim::symbols() const {
  std::set<std::string> names;
  for (const Node::Term &term : Node::termsOf(*this))
    for (const Node::AtomRef &atom : term.monomial) {
      if (atom->kind == Node::Kind::Symbol) {
        names.insert(atom->name);
        continue;
      }
      names.merge(atom->left.symbols());
      names.merge(atom->right.symbols());
    }
  return names;
}

Dim product(std::span<const Dim> dims) {
  Dim result(1);
  for (const Dim &dim : dims)
    result = result * dim;
  return result;
}

} // namespace fusion
