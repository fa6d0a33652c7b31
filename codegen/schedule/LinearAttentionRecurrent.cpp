// Configurations of linear_attention_recurrent.cuh.
#include "codegen/schedule/LinearAttention.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace fusion::linear_attention {

namespace {

constexpr int64_t mostWarps = 4;

/// As in RecurrentShape.
struct Shape {
  explicit Shape(const Problem &problem) {
    constexpr int64_t lineBytes = 128, fewRows = 4;
    const auto elementBytes =
        static_cast<int64_t>(byteSize(dtype(nn::LinearAttentionOp(problem.op).getState())));
    vector = 16 / elementBytes;
    while (problem.valueDepth % vector != 0)
      vector /= 2;
    lanes = std::min<int64_t>(
        {32, lineBytes / elementBytes / vector,
         static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(problem.valueDepth / vector)))});
    warps = std::clamp<int64_t>(problem.depth * lanes / (32 * fewRows), 1, mostWarps);
    columns = lanes * vector;
    tokenBytes = 4 * (problem.depth * (1 + problem.queries) + problem.decayWidth + 1);
    sumBytes = 4 * 2 * warps * ((1 + problem.queries) * columns + problem.queries);
  }
  int64_t vector, lanes, warps, columns, tokenBytes, sumBytes;
};

} // namespace

int64_t recurrentBytes(const Problem &problem) {
  const Shape shape(problem);
  return shape.tokenBytes + shape.sumBytes;
}

KernelDraft emitRecurrent(const Problem &problem) {
  constexpr int64_t stageBytes = 24 * 1024, mostStaged = 32;
  nn::LinearAttentionOp op = problem.op;
  const Shape shape(problem);
  int64_t staged = std::clamp<int64_t>(stageBytes / shape.tokenBytes, 1, mostStaged);
  staged = std::clamp<int64_t>(problem.mostTokens, 1, staged);
  auto isEarly = [&](Value operand) {
    return problem.context.isIndependentOfPredecessor(problem.inputOf(operand));
  };
  KernelBuilder kernel(problem, "recurrent");
  kernel.config("warps", shape.warps);
  kernel.config("row_lanes", shape.lanes);
  kernel.config("vector", shape.vector);
  kernel.config("stage_tokens", staged);
  kernel.config("key_vector", problem.vectorOf(op.getK()));
  kernel.config("query_vector", problem.vectorOf(op.getQ()));
  kernel.config("state_vectors", problem.readsVectors(op.getState(), shape.vector));
  kernel.config("value_vectors", problem.readsVectors(op.getV(), shape.vector));
  kernel.config("early_state", isEarly(op.getState()));
  kernel.config("early_tokens", llvm::all_of(op->getOperands(), [&](Value operand) {
                  return operand == op.getState() || isEarly(operand);
                }));
  // Registers for a lane's part of the state beside as many blocks as keep enough of it on its way from
  // memory; loops over tokens need more, and small states are not worth it.
  const int64_t held = llvm::divideCeil(problem.depth * shape.columns, 32 * shape.warps);
  const int64_t residentWarps = shape.warps < mostWarps ? 8 : (held > 40 ? 16 : 24) / (staged > 1 ? 2 : 1);
  return kernel.finish(shape.warps, shape.columns, staged * shape.tokenBytes + shape.sumBytes,
                       residentWarps / shape.warps);
}

} // namespace fusion::linear_attention
