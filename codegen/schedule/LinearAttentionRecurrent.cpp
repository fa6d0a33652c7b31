// Configurations of linear_attention_recurrent.cuh.
#include "codegen/schedule/LinearAttention.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace fusion::linear_attention {

int64_t recurrentTokenBytes(const Problem &problem) {
  return 4 * (problem.depth * (1 + problem.queries) + problem.decayWidth + 1);
}

KernelDraft emitRecurrent(const Problem &problem) {
  constexpr int64_t warpColumns = 8, mostWarps = 4, stageBytes = 24 * 1024, mostStaged = 32;
  nn::LinearAttentionOp op = problem.op;
  int64_t vector = 4;
  while (problem.valueDepth % vector != 0)
    vector /= 2;
  const int64_t lanes = warpColumns / vector;
  const int64_t warps = std::min<int64_t>(mostWarps, llvm::divideCeil(problem.valueDepth, warpColumns));
  const int64_t tokenBytes = recurrentTokenBytes(problem);
  int64_t staged = std::clamp<int64_t>(stageBytes / tokenBytes, 1, mostStaged);
  if (problem.tokens.isStatic())
    staged = std::clamp<int64_t>(problem.tokens.value(), 1, staged);
  KernelBuilder kernel(problem, "recurrent");
  kernel.config("warps", warps);
  kernel.config("row_lanes", lanes);
  kernel.config("vector", vector);
  kernel.config("stage_tokens", staged);
  kernel.config("key_vector", problem.vectorOf(op.getK()));
  kernel.config("query_vector", problem.vectorOf(op.getQ()));
  kernel.config("state_vectors", problem.readsVectors(op.getState(), vector));
  kernel.config("value_vectors", problem.readsVectors(op.getV(), vector));
  kernel.config("early_state", problem.context.isIndependentOfPredecessor(problem.inputOf(op.getState())));
  return kernel.finish(warps, warps * warpColumns, staged * tokenBytes);
}

} // namespace fusion::linear_attention
