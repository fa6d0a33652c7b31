// The configurations of the kernels for a few rows of A without tensor cores: gemv, where B is contiguous
// along k, and gemv_kn, where it is contiguous along n.
#include "codegen/schedule/MatmulSource.h"

namespace fusion::matmul {

/// Rows of A whose accumulators a thread has registers for.
static int64_t mostRows(const Problem &problem) { return problem.combined ? 4 : 8; }

static bool multipliesFloats(const Problem &problem) {
  return isFloat(problem.a.value()) && sumType(problem.a.value()) == DType::F32;
}

int64_t gemvRows(const Problem &problem) {
  if (!multipliesFloats(problem) || problem.b.rowStride != Dim(1))
    return 0;
  return problem.a.columnStride == Dim(1) ? mostRows(problem) : 1;
}

int64_t gemvKnRows(const Problem &problem) {
  const bool contiguous = problem.b.columnStride == Dim(1) && problem.b.rowStride != Dim(1);
  return contiguous && multipliesFloats(problem) ? mostRows(problem) : 0;
}

int64_t fewRows(const Problem &problem) { return std::max(gemvRows(problem), gemvKnRows(problem)); }

static void setRows(GemmSource &source, const Problem &problem) {
  source.set("rows", problem.mostRows);
  source.set("least_rows", problem.leastRows);
  if (!problem.prologue.empty())
    source.set("depth", *problem.k.constant());
}

/// Elements of B in 16 bytes, if A and B can be read in vectors of as many; else 1.
static int64_t vectorAlongK(const Problem &problem) {
  const int64_t length = 16 / static_cast<int64_t>(byteSize(problem.b.type));
  return readsVectors(problem, true, length, length) && readsVectors(problem, false, length, length) ? length
                                                                                                     : 1;
}

KernelDraft emitGemv(const Region &region, const KernelContext &context, const Problem &problem) {
  constexpr int64_t threads = 128, warps = threads / 32; // as in gemv.cuh
  GemmSource source(region, context, problem, "gemv");
  setRows(source, problem);
  source.set("vector", vectorAlongK(problem));
  source.set("unroll", int64_t(problem.combined ? 2 : 4));
  KernelDraft draft = source.finish({}, threads, 0, /*takesPrologue=*/true);
  draft.gridX = columnTiles(problem, warps) * problem.batchCount();
  return draft;
}

namespace {
/// How a block's threads share out its strip of B.
struct Sharing {
  int64_t vector;  ///< columns that a thread reads at once
  int64_t steps;   ///< neighbours along k that it reads at once
  int64_t columns; ///< of the strip
  int64_t threads; ///< of the block
};

/// Blocks that a large GPU wants: one for each multiprocessor, about.
constexpr int64_t wantedBlocks = 128;

Sharing chooseSharing(const Problem &problem) {
  auto vectorOf = [&](bool isA) {
    const auto bytes = static_cast<int64_t>(byteSize(isA ? problem.a.type : problem.b.type));
    const int64_t length = std::min<int64_t>(8, 16 / bytes);
    return readsVectors(problem, isA, length, length) ? length : 1;
  };
  Sharing sharing{vectorOf(false), vectorOf(true), 64, 256};
  auto blocks = [&](int64_t columns) { return columnTiles(problem, columns).constant(); };
  while (sharing.columns > 16 && blocks(sharing.columns) && *blocks(sharing.columns) < wantedBlocks)
    sharing.columns /= 2;
  sharing.columns = std::min(sharing.columns, 32 * sharing.vector);
  const auto matmuls = static_cast<int64_t>(problem.accumulators());
  if (problem.mostRows * sharing.vector * matmuls <= 16) // registers are left for more loads in flight
    sharing.threads = 512;
  // The warps' accumulators beside rows of A that the block computes, and a KiB for the reductions of these.
  auto bytes = [&] { return sharing.threads / 32 * problem.mostRows * sharing.columns * 4 * matmuls; };
  while (!problem.prologue.empty() && sharing.columns > sharing.vector &&
         bytes() + prologueBytes(problem) > (47 << 10))
    sharing.columns /= 2;
  return sharing;
}
} // namespace

KernelDraft emitGemvKn(const Region &region, const KernelContext &context, const Problem &problem) {
  const Sharing sharing = chooseSharing(problem);
  GemmSource source(region, context, problem, "gemv_kn");
  setRows(source, problem);
  source.set("vector", sharing.vector);
  source.set("steps", sharing.steps);
  source.set("columns", sharing.columns);
  source.set("threads", sharing.threads);
  // Left to itself, the compiler spills accumulators of two matmuls to fit a third block of 512 threads.
  const uint32_t residentBlocks = sharing.threads == 512 && problem.accumulators() > 1 ? 2 : 0;
  KernelDraft draft =
      source.finish({}, static_cast<uint32_t>(sharing.threads), residentBlocks, /*takesPrologue=*/true);
  draft.gridX = columnTiles(problem, sharing.columns) * problem.batchCount();
  return draft;
}

} // namespace fusion::matmul
