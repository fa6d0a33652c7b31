// When linear_attention_chunked.cuh computes it, and how it is launched.
#include "codegen/schedule/LinearAttention.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace fusion::linear_attention {

// As in ChunkShape.
constexpr int64_t chunk = 64, slabs = 4, warps = 2 * slabs, columns = 16 * slabs, mostDepth = 128, vectorLength = 8;

static int64_t sharedBytes(const Problem &problem) {
  const int64_t depth = llvm::alignTo(problem.depth, 16);
  const int64_t stage = 2 * chunk * (depth + 8) + chunk * (columns + 8), matrix = chunk * (chunk + 8);
  return 2 * (2 * stage + 4 * matrix) + 4 * (slabs * (16 * 20 + 16 * chunk) + 2 * (5 * chunk + 4));
}

bool isChunked(const Problem &problem) {
  nn::LinearAttentionOp op = problem.op;
  for (Value operand : {op.getQ(), op.getK(), op.getV()})
    if (dtype(operand) != DType::BF16 || !problem.readsVectors(operand, vectorLength))
      return false;
  return dtype(op.getY()) == DType::BF16 && problem.queries == 1 && problem.decayWidth <= 1 && problem.depth <= mostDepth &&
         sharedBytes(problem) <= problem.context.target.sharedBytesPerBlock;
}

KernelDraft emitChunked(const Problem &problem) {
  KernelBuilder kernel(problem, "chunked");
  return kernel.finish(warps, columns, sharedBytes(problem), /*residentBlocks=*/1);
}

} // namespace fusion::linear_attention
