// The ways to write the pairs of a rotary embedding.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// Elements [offset, offset + dim) of the last dim of `source` rotate.
struct Rotation {
  mlir::Value source;
  int64_t offset, dim;
  bool interleaved;
};

/// `value` is what rotates: `source` itself, or the slice of it.
bool isRotated(mlir::Value value, const Rotation &rotation, ShapeTable &shapes);
/// What rotates; a slice is built if only a part of `source` does.
mlir::Value rotatedValue(const Rotation &rotation, mlir::Location location, ShapeTable &shapes,
                         mlir::OpBuilder &builder);

/// One element of every pair: `half` elements of the last dim of `source`, `step` apart.
struct PairElement {
  mlir::Value source;
  int64_t start, step, half;
};
std::optional<PairElement> matchPairElement(mlir::Value value, ShapeTable &shapes);
/// The same with a last dim of 1, where the pairs' dim was added or is left: shape [.., h, 1].
std::optional<PairElement> matchUnitElement(mlir::Value value, ShapeTable &shapes);
/// The rotation whose pairs have these elements: halves that follow each other, or alternating elements.
std::optional<Rotation> pairUp(const PairElement &first, const PairElement &second);

/// concat(neg(second), first).
std::optional<Rotation> matchHalfRotation(mlir::Value value, ShapeTable &shapes);
/// reshape(concat(neg(second), first)) along a dim of size 1 before the last one, which merges with it.
std::optional<Rotation> matchStackedRotation(nn::ReshapeOp merge, ShapeTable &shapes);
/// reshape(concat(neg(second), first)), each with a last dim of size 1.
std::optional<Rotation> matchInterleavedRotation(nn::ReshapeOp merge, ShapeTable &shapes);
/// first and second of reshape(concat(first, second)), each with a last dim of size 1, as products of complex
/// numbers have real and imaginary parts.
std::optional<std::pair<mlir::Value, mlir::Value>> matchComplexParts(nn::ReshapeOp merge, ShapeTable &shapes);
/// first and second of reshape(concat(first, second)) that alternates their elements.
std::optional<std::pair<mlir::Value, mlir::Value>> matchInterleave(nn::ReshapeOp merge, ShapeTable &shapes);

/// Gives the pairs' dim, where a reshape adds or merges it together with others, a reshape of its own, as the
/// functions above expect it.
llvm::LogicalResult separatePairs(mlir::ModuleOp module);

} // namespace fusion::raise
