#include "passes/Match.h"

using namespace mlir;

namespace fusion {

bool isExactCast(Type from, Type to) {
  if (from == to)
    return true;
  auto fromFloat = llvm::dyn_cast<FloatType>(from), toFloat = llvm::dyn_cast<FloatType>(to);
  if (fromFloat && toFloat)
    return llvm::APFloatBase::isRepresentableBy(fromFloat.getFloatSemantics(), toFloat.getFloatSemantics());
  auto fromInt = llvm::dyn_cast<IntegerType>(from), toInt = llvm::dyn_cast<IntegerType>(to);
  if (!fromInt)
    return false;
  bool fromUnsigned = fromInt.isUnsigned() || fromInt.getWidth() == 1;
  if (toInt) {
    if (toInt.getWidth() <= fromInt.getWidth())
      return false;
    return fromUnsigned || !toInt.isUnsigned();
  }
  unsigned magnitude = fromInt.getWidth() - (fromUnsigned ? 0 : 1);
  return toFloat && magnitude <= toFloat.getFPMantissaWidth();
}

Value withoutExactCast(Value value) {
  while (auto cast = value.getDefiningOp<nn::CastOp>()) {
    if (!isFloat(cast.getX()) || !isExactCast(elementType(cast.getX()), elementType(value)))
      break;
    value = cast.getX();
  }
  return value;
}

Operation *onlyUser(Value value) { return value.hasOneUse() ? *value.getUsers().begin() : nullptr; }

Value otherOperand(Operation *binary, Value value) {
  Value left = binary->getOperand(0), right = binary->getOperand(1);
  if (left == right)
    return {};
  return left == value ? right : left;
}

bool isConstant(Value value, double expected, double tolerance) {
  auto found = constantScalar(value);
  return found && std::abs(*found - expected) <= tolerance * std::abs(expected);
}

double constantTolerance(Type elementType) {
  if (elementType.isBF16())
    return 8e-3;
  return elementType.isF16() ? 2e-3 : 1e-4;
}

bool isParameter(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && llvm::isa<nn::CastOp, nn::ReshapeOp, nn::TransposeOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return nn::isStored(op);
}

SmallVector<int64_t> lastTwoSwapped(int64_t rank) {
  SmallVector<int64_t> perm = llvm::to_vector(llvm::seq<int64_t>(rank));
  std::swap(perm[rank - 2], perm[rank - 1]);
  return perm;
}

bool swapsLastTwo(ArrayRef<int64_t> perm) {
  const auto rank = static_cast<int64_t>(perm.size());
  return rank >= 2 && perm == ArrayRef<int64_t>(lastTwoSwapped(rank));
}

bool isFloat(Value value) { return llvm::isa<FloatType>(elementType(value)); }
bool isF32(Value value) { return elementType(value).isF32(); }

} // namespace fusion
