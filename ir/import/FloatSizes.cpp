#include "ir/import/FloatSizes.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include <cmath>

using namespace mlir;

namespace fusion::onnx {

namespace {

constexpr int deepest = 32;
constexpr int64_t largest = 1 << 24; ///< integers up to it are floats

/// numerator / denominator, the latter positive.
struct Quotient {
  Dim numerator;
  int64_t denominator = 1;
};

/// A float with a denominator that is a power of two, as constants of sizes are.
std::optional<Quotient> quotientOf(double value) {
  for (int64_t denominator = 1; denominator <= 1024; denominator *= 2)
    if (const double numerator = value * static_cast<double>(denominator); std::abs(numerator) > largest)
      return std::nullopt;
    else if (numerator == std::floor(numerator))
      return Quotient{Dim(static_cast<int64_t>(numerator)), denominator};
  return std::nullopt;
}

std::optional<Quotient> product(const Quotient &a, const Quotient &b) {
  const int64_t denominator = a.denominator * b.denominator;
  if (denominator > largest || (!a.numerator.isStatic() && !b.numerator.isStatic()))
    return std::nullopt;
  return Quotient{a.numerator * b.numerator, denominator};
}

std::optional<Quotient> inverse(const Quotient &a) {
  if (!a.numerator.isStatic() || a.numerator.value() == 0)
    return std::nullopt;
  const int64_t sign = a.numerator.value() < 0 ? -1 : 1;
  return Quotient{Dim(sign * a.denominator), sign * a.numerator.value()};
}

std::optional<Quotient> quotientOf(Value value, int depth) {
  Operation *op = value.getDefiningOp();
  auto type = llvm::dyn_cast<RankedTensorType>(value.getType());
  if (!op || depth == 0 || !type || !type.hasStaticShape() || type.getNumElements() != 1)
    return std::nullopt;
  if (llvm::isa<nn::ConstantOp>(op)) {
    auto number = constantScalar(value);
    return number ? quotientOf(*number) : std::nullopt;
  }
  if (auto dims = llvm::dyn_cast<nn::DimConstantOp>(op))
    return Quotient{nn::dimsFromAttr(dims.getValues()).front(), 1};
  std::optional<Quotient> a = quotientOf(op->getOperand(0), depth - 1), b;
  if (!a)
    return std::nullopt;
  if (op->getNumOperands() == 2 && !(b = quotientOf(op->getOperand(1), depth - 1)))
    return std::nullopt;
  const bool isFloat = llvm::isa<FloatType>(type.getElementType());
  if (llvm::isa<nn::ReshapeOp>(op))
    return a;
  if (llvm::isa<nn::CastOp>(op))
    return isFloat || a->denominator == 1 ? a : std::nullopt;
  if (llvm::isa<nn::CeilOp>(op))
    return Quotient{a->numerator.ceilDiv(a->denominator), 1};
  if (llvm::isa<nn::FloorOp>(op))
    return Quotient{a->numerator.floorDiv(a->denominator), 1};
  if (llvm::isa<nn::AddOp>(op) || llvm::isa<nn::SubOp>(op)) {
    if (a->denominator * b->denominator > largest)
      return std::nullopt;
    const Dim left = a->numerator * Dim(b->denominator), right = b->numerator * Dim(a->denominator);
    return Quotient{llvm::isa<nn::AddOp>(op) ? left + right : left - right, a->denominator * b->denominator};
  }
  if (llvm::isa<nn::MulOp>(op))
    return product(*a, *b);
  if (llvm::isa<nn::DivOp>(op) && isFloat)
    if (auto inverted = inverse(*b))
      return product(*a, *inverted);
  return std::nullopt;
}

} // namespace

std::optional<Dim> sizeThroughFloats(Value value) {
  auto quotient = quotientOf(value, deepest);
  return quotient && quotient->denominator == 1 ? std::optional(quotient->numerator) : std::nullopt;
}

} // namespace fusion::onnx
