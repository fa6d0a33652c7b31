// The parts of a decomposed attention.
#pragma once

#include "passes/raise/MaskMatch.h"
#include "passes/raise/ScoreFactor.h"

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

/// [batch, heads, queries, keys] where reshapes lead from there to [batch * heads, queries, keys] or back.
using Heads = std::optional<DimShape>;
/// The operand of a reshape that merges or splits batch and heads. `heads` takes the rank-4 shape; null if
/// `value` is something else, or splits unlike `heads`.
mlir::Value beforeHeadsReshape(nn::ReshapeOp reshape, Heads &heads, ShapeTable &shapes);

/// The operand of a reshape that merges or splits heads and queries, as [batch, heads * queries, keys], with
/// the rank-4 shape in `stacked`; null if `value` is something else, or splits unlike `stacked`.
mlir::Value beforeStackedReshape(nn::ReshapeOp reshape, std::optional<DimShape> &stacked, ShapeTable &shapes);

/// x of a transpose that swaps the last two dims.
mlir::Value beforeSwap(mlir::Value value);
/// x of a transpose that swaps the heads and the queries of four dims.
mlir::Value beforeHeadsSwap(mlir::Value value);
void swapLastTwo(Heads &heads);

/// The value with its last two dims swapped that is made of `value`, its one use: an nn.transpose, which dims
/// of 1 may be inserted for and dropped after. Batch and heads may be merged then, as beforeHeadsReshape()
/// says.
mlir::Value swappedUser(mlir::Value value, Heads &heads, ShapeTable &shapes);
/// x with its last two dims swapped.
mlir::Value buildSwapped(mlir::Value x, Raiser &raiser);

/// scale * a·b.
struct ScoreProduct {
  nn::MatmulOp matmul;
  double scale = 1;
};

/// softmax's input read as mask(cap(factors * products)), where two products are summed.
struct Scores {
  llvm::SmallVector<ScoreProduct, 2> products;
  double softcap = 0;
  llvm::SmallVector<ScoreFactor> factors; ///< of the queries' rows
  llvm::SmallVector<MaskTerm> masks;
  Heads heads;
  std::optional<Dim> windows; ///< of the masks that are `ofWindows`
  /// [batch, heads, queries, keys] where the products have [batch, heads * queries, keys]: one head of keys.
  std::optional<DimShape> stacked;
  bool headsAfterQueries = false; ///< the products have [batch, queries, heads, keys], of one head of keys
  bool byKey = false;             ///< a is the keys and b the queries
};
/// `byKey`: the input has shape [.., keys, queries]. Fails with a reason.
std::optional<Scores> matchScores(mlir::Value input, bool byKey, Raiser &raiser, std::string &reason);

/// x of reshape(expand(reshape(x))) that repeats every index of dim 1 of x `groups` times in a row. `value`
/// has rank 4.
struct Repeat {
  mlir::Value value; ///< [b, heads / groups, s, d], or [b, heads / groups, 1, s, d] if `hasGroupDim`
  Dim groups{1};
  bool hasGroupDim = false;
};
std::optional<Repeat> matchRepeat(mlir::Value value, ShapeTable &shapes);
/// The value before the repetition, with rank 4.
mlir::Value withoutRepeat(const Repeat &repeat, Raiser &raiser);

} // namespace fusion::raise
