// The configuration of gemm_fma: f32 and f64 exactly, integers, and mixtures.
#include "codegen/schedule/MatmulSource.h"

namespace fusion::matmul {

KernelDraft emitFma(const Region &region, const KernelContext &context, const Problem &problem) {
  constexpr int64_t tile = 64, threads = 256; // as in gemm_fma.cuh
  GemmSource source(region, context, problem, problem.routing ? "expert_fma" : "gemm_fma");
  const Sums sums{sumType(problem.a.value()), resultVector(problem, 4)};
  source.setType("accumulator", body::spelling(sums.type));
  source.set("vector", sums.width);
  KernelDraft draft = source.finish(sums, threads, 0, /*takesPrologue=*/false);
  draft.gridX = problem.routing ? columnTiles(problem, tile) * expertGroups(problem)
                                : blockCount(problem, tile, tile);
  return draft;
}

} // namespace fusion::matmul
