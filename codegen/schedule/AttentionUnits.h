// How blocks share the keys of a head, for the kernels of a few rows.
#pragma once

#include "codegen/schedule/AttentionProblem.h"

namespace fusion::attention {

/// A unit is a tile of rows of one key/value head. The blocks of a cluster share its keys, and the warps of each block its
/// share; what the warps found is merged at the end. The grid does not depend on the number of keys.
class Units {
public:
  /// `resident`: how many blocks of so many warps are to fit on a multiprocessor.
  Units(const Problem &problem, KernelWriter &writer, Code &code, int64_t tileRows, int64_t warps, uint32_t resident);

  /// The block's unit and its share of the keys: thread, lane, warp; share (of sharing), first, end; keyRows,
  /// valueRows and what Code::place declares. All of them share the keys from first to end.
  void place();
  /// What each warp found: `tops`, the largest score of row r at warp * tileRows + r, and `totals`, the sum of its
  /// weights.
  void declareResults();
  /// From these, once all are there: the lines that declare `factor`, by which the warp's sums, relative to `largest`,
  /// are multiplied to become those of the block.
  void factor(const std::string &r, const std::string &largest);
  /// Merges and stores, from `sums`: of row r's column c at (warp * tileRows + r) * pitch() + c.
  void merge();
  int64_t pitch() const { return problem.valueDepth + 4; }
  int64_t sumBytes() const { return warps * tileRows * pitch() * 4; }
  /// The kernel; `bytes`: of dynamic shared memory, in which the sums lie.
  KernelDraft finish(int64_t bytes);

private:
  const Problem &problem;
  KernelWriter &writer;
  Code &code;
  const int64_t tileRows, warps;
  const uint32_t resident;
  const int64_t blocks; ///< of a cluster
};

} // namespace fusion::attention
