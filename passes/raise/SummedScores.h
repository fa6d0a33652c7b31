// Scores that sum two products, q1 k1ᵀ + q2 k2ᵀ, as attention over a latent cache has them: one product of
// concatenated queries and keys.
#pragma once

#include "passes/raise/AttentionMatch.h"

namespace fusion::raise {

/// Reads `value` as scale * factors * product, or as that of a sum of two products, into `scores`. Fails with
/// a reason.
bool matchProducts(mlir::Value value, double scale, Scores &scores, ShapeTable &shapes, std::string &reason);

/// Queries [batch, heads, queries, d] and keys [batch, kv_heads, keys, d] of one product, and what it is
/// multiplied by.
struct ScorePart {
  mlir::Value query, key;
  double scale = 1;
};
/// One part in the place of two. The keys that are `value` too come first, so that one read of them serves
/// both, else the wider ones. Fails with a reason.
std::optional<ScorePart> joinParts(ScorePart first, ScorePart second, mlir::Value value, Raiser &raiser,
                                   std::string &reason);

} // namespace fusion::raise
