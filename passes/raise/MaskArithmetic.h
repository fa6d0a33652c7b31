// Masks that are written as arithmetic on conditions cast to 0 and 1.
#pragma once

#include "passes/raise/MaskMatch.h"

namespace fusion::raise {

/// A reshape or an expansion to `shape`.
struct View {
  bool expands;
  DimShape shape;
  bool operator==(const View &other) const { return expands == other.expands && shape == other.shape; }
};
/// An i1 without the nn.not around it and its views, or a float constant that says true where it is not 0.
struct Condition {
  mlir::Value base;
  bool inverted = false;
  llvm::SmallVector<View> views; ///< what is laid over `base`, outermost first
  Condition negated() const { return {base, !inverted, views}; }
};
bool same(const Condition &left, const Condition &right);
Condition matchCondition(mlir::Value value, bool inverted, ShapeTable &shapes);
/// The i1, built anew where it is viewed or inverted.
mlir::Value buildCondition(const Condition &condition, mlir::Location location, Raiser &raiser);

/// factor where the condition holds, else 0: a cast of an i1, or 1 - that, times a number; or a constant.
struct Indicator {
  Condition condition;
  double factor = 1;
};
std::optional<Indicator> matchIndicator(mlir::Value value, ShapeTable &shapes);

/// where(condition, scores, lowest) written as scores * c + lowest * (1 - c), with c of zeros and ones.
struct Blend {
  mlir::Value scores;
  Condition condition;
  double lowest;
};
std::optional<Blend> matchBlend(mlir::Value value, ShapeTable &shapes);

/// where(c, p, 0) or p * c, which reads the probabilities p alone, where c is what the mask keeps.
mlir::Operation *matchMaskGuard(mlir::Value probabilities, const MaskTerm &mask, ShapeTable &shapes);

} // namespace fusion::raise
