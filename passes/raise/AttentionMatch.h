// The pieces of a decomposed attention.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// scale * x.
struct Scaled {
  mlir::Value value;
  double scale = 1;
};
/// Strips multiplications with and divisions by one number, the float casts around them, and exact casts.
Scaled withoutScale(mlir::Value value);
/// Strips casts between floats.
mlir::Value withoutFloatCasts(mlir::Value value);

/// One thing done to the scores before the softmax.
struct MaskTerm {
  mlir::Value mask;     ///< a float to add, or an i1
  bool inverted = false; ///< the i1 keeps where false
  double lowest = 0;     ///< what an i1 puts where it does not keep: -inf, or a finite number
  bool isFloat() const { return lowest == 0; }
};

/// softmax's input read as mask(cap(scale * a·b)).
struct Scores {
  nn::MatmulOp product;
  double scale = 1;
  double softcap = 0;
  llvm::SmallVector<MaskTerm> masks;
};
/// Fails with a reason.
std::optional<Scores> matchScores(mlir::Value input, ShapeTable &shapes, std::string &reason);

/// x of reshape(expand(reshape(x))) that repeats every index of dim 1 of x `groups` times in a row. `value` has
/// rank 4.
struct Repeat {
  mlir::Value value; ///< [b, heads / groups, s, d], or [b, heads / groups, 1, s, d] if `hasGroupDim`
  Dim groups{1};
  bool hasGroupDim = false;
};
std::optional<Repeat> matchRepeat(mlir::Value value, ShapeTable &shapes);
/// The value before the repetition, with rank 4.
mlir::Value withoutRepeat(const Repeat &repeat, Raiser &raiser);

/// The condition of where(c, 0, -inf), in which a mask of i1 says the same.
std::optional<MaskTerm> asCondition(mlir::Value mask);

/// One mask operand for nn.attention that does what the terms do; null if there is none.
mlir::Value buildMask(llvm::ArrayRef<MaskTerm> terms, mlir::Location location, Raiser &raiser);

} // namespace fusion::raise
