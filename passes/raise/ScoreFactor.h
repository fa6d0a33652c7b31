// Scores of an attention that a tensor multiplies or divides, with one number for each row.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// scores * factor or scores / factor, where all keys of a query have the same factor: a learned temperature
/// of each head, a scale of each query.
struct ScoreFactor {
  mlir::Value scores, factor;
  bool divides = false;
};
/// Fails where the factor would give the scores another shape.
std::optional<ScoreFactor> matchScoreFactor(mlir::Value value, ShapeTable &shapes);

/// The queries with the factor, which gives their products with the keys the same factor.
mlir::Value withScoreFactor(mlir::Value query, const ScoreFactor &factor, Raiser &raiser);

} // namespace fusion::raise
