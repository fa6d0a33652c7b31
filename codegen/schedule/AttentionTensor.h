// Attention on tensor cores, for 16-bit types: a block takes a tile of rows of one key/value head and streams tiles of
// keys and values through shared memory. A warp has 16 or 32 of the rows; their scores, weights and weighted sums stay
// in its registers, as the fragments of matrix products.
#pragma once

#include "codegen/schedule/AttentionProblem.h"

namespace fusion::attention {

/// What one block works on.
struct Tiling {
  bool grouped = false;  ///< products of warpgroups, on sm_90a, else of warps
  int64_t warps = 4;
  int64_t warpTiles = 2; ///< tiles of 16 rows that a warp has
  int64_t keys = 64;     ///< at a time
  int64_t blocks = 1;    ///< on a multiprocessor: what the registers of a thread are limited for
  int64_t rows() const { return 16 * warps * warpTiles; }
  int64_t threads() const { return 32 * warps; }
};

class TensorEmitter {
public:
  explicit TensorEmitter(const Problem &problem);
  KernelDraft emit();

private:
  void place();
  void copies(const char *name, mlir::Value operand, int64_t width, int64_t padded);
  void copyNext();
  void loadQueries();
  void declareSums();
  void scores();
  void weighValues();
  void store();
  // AttentionWarpgroup.cpp: the same by warpgroups
  void declareProducts();
  void groupScores();
  void groupValues();
  // AttentionSoftmax.cpp
  void maskEdges();
  void finishScores();
  void softmaxStep();

  std::string tilePlace(int64_t rows, int64_t pitch, const std::string &row, const std::string &column) const;
  std::string rowOf(const std::string &tile, const std::string &half) const;

  const Problem &problem;
  nn::AttentionOp op;
  const DType type;
  const int64_t depth, valueDepth; ///< multiples of 16: what is beyond the heads is zero
  /// Scores are scaled, capped and masked one by one. Else they stay q·k, which the exponent's factor scales.
  const bool finished;
  const Tiling tile;
  const int64_t pitchK, pitchV; ///< elements of a tile's row: of keys or queries, of values
  KernelWriter writer;
  Code code;
};

} // namespace fusion::attention
