// What follows a normalised value: the weight, the bias and the casts that a norm takes.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// What follows a normalised value, up to the last op that the norm can take.
struct Tail {
  mlir::Operation *root;    ///< the op to replace
  mlir::Type scaleIn;       ///< where the value meets the weight
  mlir::Value weight, bias; ///< null if there is none
};

/// The other operand of the only user of `value`, an OpTy, if it is a row over the last dim.
template <class OpTy>
mlir::Value rowOperand(mlir::Value value, ShapeTable &shapes) {
  auto user = onlyUserAs<OpTy>(value);
  mlir::Value other = user ? otherOperand(user, value) : mlir::Value();
  return other && isRowOf(other, value, shapes) ? other : mlir::Value();
}

/// Walks from the normalised f32 value over [cast] [mul weight] [add bias] [cast].
Tail walkTail(mlir::Operation *normalised, bool mayHaveBias, ShapeTable &shapes);

/// The same of each product with a weight, where nothing else reads the normalised value, as two norms of one
/// value come after equal ops were merged; else empty.
llvm::SmallVector<Tail> walkTails(mlir::Operation *normalised, bool mayHaveBias, ShapeTable &shapes);

/// Puts the norm of `input` in the place of `tail`: a layer norm if it is `centred`, else an RMS norm.
/// Without a weight the size of the last dim must be known. `assumes`: as in noteRaised().
void buildNorm(const Tail &tail, mlir::Value input, float eps, bool centred, Raiser &raiser,
               std::string assumes = {});

} // namespace fusion::raise
