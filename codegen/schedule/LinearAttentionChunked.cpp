// When linear_attention_chunked.cuh and linear_attention_prepared.cuh compute it, and how they are launched.
#include "codegen/schedule/LinearAttention.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace fusion::linear_attention {

// As in ChunkShape.
constexpr int64_t chunk = 64, blocks = chunk / 16, mostDepth = 128, vectorLength = 8;
constexpr int64_t matrix = chunk * (chunk + 8), factors = 5 * chunk + 4, scratch = 16 * 20,
                  updates = 16 * chunk;

static int64_t keyTile(const Problem &problem) { return chunk * (llvm::alignTo(problem.depth, 16) + 8); }
static int64_t stageElements(const Problem &problem, int64_t slabs) {
  return 2 * keyTile(problem) + chunk * (16 * slabs + 8);
}

/// Slabs of 16 columns that a block has, where it prepares the chunks itself, or prepares alone.
constexpr int64_t allSlabs = 4;

static int64_t sharedBytes(const Problem &problem) {
  return 2 * (2 * stageElements(problem, allSlabs) + 4 * matrix) +
         4 * (allSlabs * (scratch + updates) + 2 * factors);
}

bool isChunked(const Problem &problem) {
  nn::LinearAttentionOp op = problem.op;
  for (Value operand : {op.getQ(), op.getK(), op.getV()})
    if (dtype(operand) != DType::BF16 || !problem.readsVectors(operand, vectorLength))
      return false;
  return dtype(op.getY()) == DType::BF16 && problem.queries == 1 && problem.decayWidth <= 1 &&
         problem.depth <= mostDepth && sharedBytes(problem) <= problem.context.target.sharedBytesPerBlock;
}

KernelDraft emitChunked(const Problem &problem) {
  KernelBuilder kernel(problem, "chunked");
  kernel.config("slabs", allSlabs);
  return kernel.finish(2 * allSlabs, 16 * allSlabs, sharedBytes(problem), /*residentBlocks=*/1);
}

/// As PreparedChunk::words.
static int64_t preparedWords(const Problem &problem) {
  return (nn::LinearAttentionOp(problem.op).getBeta() ? 4 : 2) * matrix / 2 + factors;
}

/// The fewer columns a block has, the more multiprocessors work; each reads all that was prepared for the
/// head.
static int64_t slabsOf(const Problem &problem) {
  const int64_t heads = problem.batch.constant().value_or(1) * problem.heads;
  int64_t slabs = allSlabs;
  while (slabs > 1 &&
         heads * static_cast<int64_t>(llvm::divideCeil(problem.valueDepth, 8 * slabs)) <=
             problem.context.target.multiprocessors)
    slabs /= 2;
  return slabs;
}

static int64_t preparedBytes(const Problem &problem, int64_t slabs) {
  return 2 * (2 * stageElements(problem, slabs) + 4 * preparedWords(problem)) + 4 * slabs * updates;
}

static Dim chunksOf(const Problem &problem) { return problem.tokens.ceilDiv(chunk); }
static Dim scratchWords(const Problem &problem) {
  return problem.batch * Dim(problem.heads) * chunksOf(problem) * Dim(preparedWords(problem));
}

bool isPrepared(const Problem &problem) {
  return isChunked(problem) && problem.leastTokens >= leastPrepared &&
         preparedBytes(problem, slabsOf(problem)) <= problem.context.target.sharedBytesPerBlock;
}

KernelDraft emitPrepare(const Problem &problem) {
  KernelBuilder kernel(problem, "prepare");
  kernel.config("slabs", allSlabs);
  const int64_t bytes = 2 * 2 * keyTile(problem) + 4 * (preparedWords(problem) + blocks * scratch);
  KernelDraft draft =
      kernel.finish(2 * allSlabs, 1, bytes, 0, kernel.scratch(scratchWords(problem), /*written=*/true));
  draft.gridX = problem.batch * Dim(problem.heads) * chunksOf(problem);
  draft.flops = 0;
  return draft;
}

KernelDraft emitPrepared(const Problem &problem) {
  KernelBuilder kernel(problem, "prepared");
  const int64_t slabs = slabsOf(problem);
  kernel.config("slabs", slabs);
  return kernel.finish(2 * slabs, 16 * slabs, preparedBytes(problem, slabs), /*residentBlocks=*/1,
                       kernel.scratch(scratchWords(problem), /*written=*/false));
}

} // namespace fusion::linear_attention
