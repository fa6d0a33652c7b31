#include "passes/raise/Polynomial.h"

#include "passes/Match.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fusion::raise {

namespace {

constexpr int maximumDepth = 10;
constexpr int maximumPower = 6;

Polynomial sum(const Polynomial &left, const Polynomial &right, double factor) {
  Polynomial result = left;
  for (const auto &[powers, coefficient] : right)
    result[powers] += factor * coefficient;
  return result;
}

std::optional<Polynomial> product(const Polynomial &left, const Polynomial &right) {
  Polynomial result;
  for (const auto &[leftPowers, a] : left)
    for (const auto &[rightPowers, b] : right) {
      std::pair powers(leftPowers.first + rightPowers.first, leftPowers.second + rightPowers.second);
      if (powers.first > maximumPower || powers.second > maximumPower)
        return std::nullopt;
      result[powers] += a * b;
    }
  return result;
}

/// What a cast is of that says no more than the ops around it: it is exact, or rounds to the type of x.
Value beforeCast(Value value, Value x) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  if (!cast || !isFloat(cast) || !isFloat(cast.getX()))
    return {};
  Type to = elementType(value);
  return to == elementType(x) || isExactCast(elementType(cast.getX()), to) ? cast.getX() : Value();
}

std::optional<Polynomial> read(Value value, Value x, Value t, int depth) {
  if (value == x)
    return Polynomial{{{1, 0}, 1.0}};
  if (value == t)
    return Polynomial{{{0, 1}, 1.0}};
  if (auto constant = constantScalar(value))
    return Polynomial{{{0, 0}, *constant}};
  if (Value source = beforeCast(value, x))
    return read(source, x, t, depth);
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return std::nullopt;
  auto operand = [&](unsigned index) { return read(op->getOperand(index), x, t, depth - 1); };
  if (llvm::isa<nn::NegOp>(op)) {
    auto inner = operand(0);
    return inner ? std::optional(sum({}, *inner, -1)) : std::nullopt;
  }
  if (llvm::isa<nn::SquareOp>(op)) {
    auto inner = operand(0);
    return inner ? product(*inner, *inner) : std::nullopt;
  }
  if (!llvm::isa<nn::AddOp, nn::SubOp, nn::MulOp, nn::DivOp, nn::PowOp>(op))
    return std::nullopt;
  auto left = operand(0);
  if (!left)
    return std::nullopt;
  if (llvm::isa<nn::DivOp, nn::PowOp>(op)) {
    auto constant = constantScalar(op->getOperand(1));
    if (!constant || *constant == 0)
      return std::nullopt;
    if (llvm::isa<nn::DivOp>(op))
      return sum({}, *left, 1 / *constant);
    if (*constant != 2 && *constant != 3)
      return std::nullopt;
    auto power = product(*left, *left);
    return power && *constant == 3 ? product(*power, *left) : power;
  }
  auto right = operand(1);
  if (!right)
    return std::nullopt;
  if (llvm::isa<nn::MulOp>(op))
    return product(*left, *right);
  return sum(*left, *right, llvm::isa<nn::AddOp>(op) ? 1 : -1);
}

} // namespace

std::optional<Polynomial> readPolynomial(Value value, Value x, Value t) {
  return read(value, x, t, maximumDepth);
}

bool matches(const Polynomial &found, const Polynomial &expected, double tolerance) {
  for (const auto &[powers, coefficient] : found)
    if (coefficient != 0 && !expected.contains(powers))
      return false;
  return llvm::all_of(expected, [&](const auto &term) {
    auto at = found.find(term.first);
    return at != found.end() && std::abs(at->second - term.second) <= tolerance * std::abs(term.second);
  });
}

std::vector<Value> polynomialVariables(Value value) {
  std::vector<Value> found = {value};
  // Breadth first; the list is its own queue.
  for (size_t next = 0; next < found.size() && found.size() < 24; ++next) {
    Operation *op = found[next].getDefiningOp();
    if (!op || !llvm::isa<nn::AddOp, nn::SubOp, nn::MulOp, nn::DivOp, nn::PowOp, nn::SquareOp, nn::NegOp,
                          nn::CastOp>(op))
      continue;
    for (Value operand : op->getOperands())
      if (!constantScalar(operand) && !llvm::is_contained(found, operand))
        found.push_back(operand);
  }
  return found;
}

} // namespace fusion::raise
