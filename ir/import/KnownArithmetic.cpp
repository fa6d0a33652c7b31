#include "ir/import/KnownArithmetic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

namespace fusion::onnx {

namespace {
bool isPositive(const Dim &dim) { return (dim - Dim(1)).knownNonNegative(); }
bool isNegative(const Dim &dim) { return (Dim(-1) - dim).knownNonNegative(); }
bool both(const Dim &a, const Dim &b) { return a.isStatic() && b.isStatic(); }
} // namespace

std::optional<Dim> divide(const Dim &a, const Dim &b) {
  if (both(a, b)) // 64-bit overflow has no meaning in a shape
    return b.value() == 0 || b.value() == -1 ? std::nullopt : std::optional<Dim>(a.value() / b.value());
  if (auto exact = a.dividedBy(b))
    return exact;
  if (a.knownNonNegative() && b.knownNonNegative())
    return a.floorDiv(b);
  // Truncated toward zero: `(seq - 1) / 2` is 0 for no tokens, too.
  if (isPositive(b) && (a + b - Dim(1)).knownNonNegative())
    return Dim::max(a, Dim(0)).floorDiv(b);
  // Of either sign.
  if (b.knownNonNegative())
    return Dim::max(a, Dim(0)).floorDiv(b) - Dim::max(Dim(0) - a, Dim(0)).floorDiv(b);
  return std::nullopt;
}

std::optional<Dim> modulo(const Dim &a, const Dim &b) {
  if (both(a, b)) {
    if (b.value() == 0 || b.value() == -1)
      return std::nullopt;
    int64_t rest = a.value() % b.value();
    return rest != 0 && (rest < 0) != (b.value() < 0) ? rest + b.value() : rest;
  }
  return b.knownNonNegative() ? std::optional(a.mod(b)) : std::nullopt;
}

std::optional<Dim> absolute(const Dim &a) {
  if (a.knownNonNegative())
    return a;
  return Dim::max(a, Dim(0) - a);
}

std::optional<Dim> power(const Dim &a, const Dim &b) {
  constexpr int64_t largestExponent = 4;
  if (!b.isStatic() || b.value() < 0 || b.value() > largestExponent)
    return std::nullopt;
  Dim product = 1;
  for (int64_t i = 0; i < b.value(); ++i) {
    int64_t checked = 0;
    if (both(product, a) && llvm::MulOverflow(product.value(), a.value(), checked))
      return std::nullopt;
    product = product * a;
  }
  return product;
}

std::optional<Dim> equal(const Dim &a, const Dim &b) {
  if (a == b)
    return Dim(1);
  if (both(a, b)) // whose difference may wrap
    return Dim(0);
  return isPositive(a - b) || isNegative(a - b) ? std::optional<Dim>(0) : std::nullopt;
}

std::optional<Dim> less(const Dim &a, const Dim &b) {
  if (both(a, b))
    return Dim(a.value() < b.value() ? 1 : 0);
  if (isPositive(b - a))
    return Dim(1);
  return (a - b).knownNonNegative() ? std::optional<Dim>(0) : std::nullopt;
}

std::optional<Dim> negate(std::optional<Dim> truth) {
  return truth ? std::optional<Dim>(Dim(1) - *truth) : truth;
}

std::optional<Dim> logic(const Dim &a, const Dim &b, char operation) {
  if (!both(a, b))
    return std::nullopt;
  switch (operation) {
  case '&':
    return Dim(a.value() & b.value());
  case '|':
    return Dim(a.value() | b.value());
  default:
    return Dim(a.value() ^ b.value());
  }
}

bool fits(llvm::ArrayRef<Dim> values, mlir::Type type) {
  const auto integer = llvm::cast<mlir::IntegerType>(type);
  const bool isUnsigned = integer.isUnsigned() || integer.getWidth() == 1;
  const unsigned bits = integer.getWidth() - (isUnsigned ? 0 : 1);
  return llvm::all_of(values, [&](const Dim &dim) {
    if (!dim.isStatic())
      return true;
    if (isUnsigned && dim.value() < 0)
      return false;
    return bits >= 63 || (dim.value() >> bits) == (dim.value() < 0 ? -1 : 0);
  });
}

} // namespace fusion::onnx
