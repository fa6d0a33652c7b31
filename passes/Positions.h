// Integer tensors whose elements are known functions of their position, and conditions on them: what position
// ids and masks are built of.
#pragma once

#include "passes/ShapeTable.h"

namespace fusion {

/// base + Σ steps[d] * (index in dim d).
struct Affine {
  Dim base;
  llvm::SmallVector<int64_t> steps;
  bool isUniform() const;
};

/// Holds where every term is >= 0; with no terms, everywhere.
struct Condition {
  bool never = false;
  llvm::SmallVector<Affine> terms;
  bool always() const { return !never && terms.empty(); }
};

/// Answers, where a value's type holds every number, from the ops that make a value, through views, sums,
/// comparisons and logic. Remembers answers, so values must not be replaced by others at the same address
/// while it lives.
class Positions {
public:
  explicit Positions(ShapeTable &shapes) : shapes(shapes) {}
  std::optional<Affine> affine(mlir::Value value);
  /// Where an i1 holds, or an integer is not 0. Terms that hold for every index are left out.
  std::optional<Condition> condition(mlir::Value value);

private:
  bool fits(mlir::Value value, const Affine &affine);
  std::optional<Affine> findAffine(mlir::Value value);
  std::optional<Condition> findCondition(mlir::Value value);
  std::optional<Affine> concatenated(nn::ConcatOp concat);
  std::optional<Affine> throughView(mlir::Operation *view, const Affine &from);
  std::optional<Affine> combined(mlir::Operation *binary, int64_t left, int64_t right);
  std::optional<Condition> compared(mlir::Operation *comparison);
  void addTerm(Condition &condition, Affine term, const DimShape &shape);

  ShapeTable &shapes;
  int depth = 0; ///< of ops that were looked through
  llvm::DenseMap<mlir::Value, std::optional<Affine>> affines;
  llvm::DenseMap<mlir::Value, std::optional<Condition>> conditions;
};

} // namespace fusion
