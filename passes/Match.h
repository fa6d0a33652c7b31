// Questions that rewrites ask about values.
#pragma once

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include "mlir/IR/Matchers.h"

namespace fusion {

/// Every value of `from` is a value of `to`.
bool isExactCast(mlir::Type from, mlir::Type to);
/// The operand of an exact cast between floats, or the value itself.
mlir::Value withoutExactCast(mlir::Value value);

/// The single user of a value that is used once.
mlir::Operation *onlyUser(mlir::Value value);
/// The single user, if it is an OpTy.
template <class OpTy>
OpTy onlyUserAs(mlir::Value value) {
  return llvm::dyn_cast_or_null<OpTy>(onlyUser(value));
}
/// The other operand of a binary op that reads `value`; null if both are `value`.
mlir::Value otherOperand(mlir::Operation *binary, mlir::Value value);

/// A constant whose elements all equal `expected` within `tolerance`, relatively.
bool isConstant(mlir::Value value, double expected, double tolerance = 0);
/// How far a rounded constant of this element type may lie from the number meant.
double constantTolerance(mlir::Type elementType);
/// A constant, a weight, or a view or cast of one: known before the program runs.
bool isParameter(mlir::Value value);

/// The permutation that swaps the last two dims, of which there must be two, and whether `perm` is that.
llvm::SmallVector<int64_t> lastTwoSwapped(int64_t rank);
bool swapsLastTwo(llvm::ArrayRef<int64_t> perm);

bool isFloat(mlir::Value value);
bool isF32(mlir::Value value);

} // namespace fusion
