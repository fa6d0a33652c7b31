#include "ir/import/FloatSizes.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;

namespace fusion::onnx {

namespace {

constexpr int deepest = 32;
constexpr int64_t largest = 1 << 24; ///< integers up to it are floats
constexpr double exactDoubles = 1LL << 53;
constexpr int64_t mostSizes = 16;

/// numerator / denominator, the latter positive.
struct Quotient {
  Dim numerator;
  int64_t denominator = 1;
};

/// A float with a denominator that is a power of two, as constants of sizes are, or any integer.
std::optional<Quotient> quotientOf(double value) {
  if (value == std::floor(value) && std::abs(value) <= exactDoubles)
    return Quotient{Dim(static_cast<int64_t>(value)), 1};
  for (int64_t denominator = 2; denominator <= 1024; denominator *= 2)
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

/// Both as parts of the product of their denominators.
struct Aligned {
  Dim left, right;
  int64_t denominator;
};
std::optional<Aligned> aligned(const Quotient &a, const Quotient &b) {
  if (a.denominator * b.denominator > largest)
    return std::nullopt;
  return Aligned{a.numerator * Dim(b.denominator), b.numerator * Dim(a.denominator),
                 a.denominator * b.denominator};
}

std::optional<Quotient> ofOne(Operation *op, const Quotient &a, bool isFloat) {
  if (llvm::isa<nn::CastOp>(op))
    return isFloat || a.denominator == 1 ? std::optional(a) : std::nullopt;
  if (llvm::isa<nn::CeilOp>(op))
    return Quotient{a.numerator.ceilDiv(a.denominator), 1};
  if (llvm::isa<nn::FloorOp>(op))
    return Quotient{a.numerator.floorDiv(a.denominator), 1};
  if (llvm::isa<nn::NegOp>(op))
    return Quotient{Dim(0) - a.numerator, a.denominator};
  return std::nullopt;
}

std::optional<Quotient> ofTwo(Operation *op, const Quotient &a, const Quotient &b, bool isFloat) {
  if (llvm::isa<nn::MulOp>(op))
    return product(a, b);
  if (llvm::isa<nn::DivOp>(op)) {
    auto inverted = isFloat ? inverse(b) : std::nullopt;
    return inverted ? product(a, *inverted) : std::nullopt;
  }
  const auto both = aligned(a, b);
  if (!both)
    return std::nullopt;
  if (llvm::isa<nn::AddOp>(op))
    return Quotient{both->left + both->right, both->denominator};
  if (llvm::isa<nn::SubOp>(op))
    return Quotient{both->left - both->right, both->denominator};
  if (llvm::isa<nn::MaxOp>(op))
    return Quotient{Dim::max(both->left, both->right), both->denominator};
  if (llvm::isa<nn::MinOp>(op))
    return Quotient{Dim::min(both->left, both->right), both->denominator};
  return std::nullopt;
}

using Quotients = llvm::SmallVector<Quotient>;

std::optional<Quotients> constants(Value value, const RankedTensorType &type) {
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)))
    return std::nullopt;
  Quotients result;
  auto add = [&](double number) {
    auto quotient = quotientOf(number);
    if (quotient)
      result.push_back(*quotient);
    return quotient.has_value();
  };
  if (llvm::isa<FloatType>(type.getElementType())) {
    for (const APFloat &number : elements.getValues<APFloat>())
      if (!add(number.convertToDouble()))
        return std::nullopt;
  } else {
    for (const APInt &number : elements.getValues<APInt>())
      result.push_back({Dim(type.getElementType().isUnsignedInteger() || type.getElementType().isInteger(1)
                                ? static_cast<int64_t>(number.getZExtValue())
                                : number.getSExtValue())});
  }
  return result;
}

std::optional<Quotients> quotientsOf(Value value, int depth) {
  Operation *op = value.getDefiningOp();
  auto type = llvm::dyn_cast<RankedTensorType>(value.getType());
  if (!op || depth == 0 || !type || !type.hasStaticShape() || type.getNumElements() > mostSizes)
    return std::nullopt;
  if (llvm::isa<nn::ConstantOp>(op))
    return constants(value, type);
  if (auto dims = llvm::dyn_cast<nn::DimConstantOp>(op)) {
    Quotients result;
    for (const Dim &dim : nn::dimsFromAttr(dims.getValues()))
      result.push_back({dim});
    return result;
  }
  if (op->getNumOperands() == 0 || op->getNumOperands() > 2)
    return std::nullopt;
  llvm::SmallVector<Quotients, 2> operands;
  for (Value operand : op->getOperands())
    if (auto quotients = quotientsOf(operand, depth - 1))
      operands.push_back(std::move(*quotients));
    else
      return std::nullopt;
  if (llvm::isa<nn::ReshapeOp>(op))
    return operands[0];
  const bool isFloat = llvm::isa<FloatType>(type.getElementType());
  const auto count = static_cast<size_t>(type.getNumElements());
  // Of numpy's broadcasting only one number for all.
  if (llvm::any_of(operands, [&](const Quotients &one) { return one.size() != count && one.size() != 1; }))
    return std::nullopt;
  Quotients result;
  for (size_t i = 0; i < count; ++i) {
    auto element = [&](const Quotients &one) { return one[one.size() == 1 ? 0 : i]; };
    auto quotient = operands.size() == 1 ? ofOne(op, element(operands[0]), isFloat)
                                         : ofTwo(op, element(operands[0]), element(operands[1]), isFloat);
    if (!quotient)
      return std::nullopt;
    result.push_back(std::move(*quotient));
  }
  return result;
}

} // namespace

std::optional<DimShape> sizesThroughFloats(Value value) {
  auto quotients = quotientsOf(value, deepest);
  if (!quotients)
    return std::nullopt;
  DimShape sizes;
  for (const Quotient &one : *quotients) {
    if (one.denominator != 1)
      return std::nullopt;
    sizes.push_back(one.numerator);
  }
  return sizes;
}

std::optional<Dim> sizeThroughFloats(Value value) {
  auto sizes = sizesThroughFloats(value);
  return sizes && sizes->size() == 1 ? std::optional(sizes->front()) : std::nullopt;
}

} // namespace fusion::onnx
