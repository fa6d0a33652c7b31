// The configuration of gemm_sm90: many rows by warpgroups.
#include "codegen/schedule/MatmulRing.h"

using namespace mlir;

namespace fusion::matmul {

namespace {
constexpr int64_t reservedBytes = 2048; ///< what the source declares

/// One stride for each of the leading dims of a batch: of one index that runs over all.
std::optional<Dim> batchStride(const Problem &problem, const Operand &operand) {
  return mergedStride(problem.batch, operand.batchStrides);
}

/// Tiles that a multiprocessor takes one after the other, times what each costs: its width, and as much as 64
/// columns cost for what is read of A and for beginning and ending.
int64_t costOf(const Problem &problem, const TargetInfo &target, int64_t width, int64_t rows) {
  const int64_t high = (rows + ringRows - 1) / ringRows, wide = *columnTiles(problem, width).constant(),
                tiles = high * wide * problem.batchCount().constant().value_or(1);
  const auto sums = static_cast<int64_t>(problem.accumulators());
  return (tiles + target.multiprocessors - 1) / target.multiprocessors * (width * sums + 64);
}

/// The cheapest width, over numbers of rows that the kernel is for.
int64_t chooseWidth(const Region &region, const Problem &problem, const TargetInfo &target) {
  const SmallVector<int64_t> widths = ringWidths(region, problem);
  if (!columnTiles(problem, 64).constant())
    return widths[widths.size() / 2];
  constexpr int64_t samples = 8, largest = 8192;
  const int64_t most = std::max(problem.leastRows, std::min(problem.mostRows, largest));
  double best = 0;
  int64_t chosen = 0;
  for (int64_t width : widths) {
    double cost = 0;
    for (int64_t i = 1; i <= samples; ++i) {
      const int64_t rows = problem.leastRows + (most - problem.leastRows) * i / samples;
      cost += static_cast<double>(costOf(problem, target, width, rows)) / static_cast<double>(rows);
    }
    if (chosen == 0 || cost < best) {
      best = cost;
      chosen = width;
    }
  }
  return chosen;
}

TensorMapArgument mapOfA(const Problem &problem) {
  TensorMapArgument map;
  const auto bytes = static_cast<int64_t>(byteSize(problem.a.type));
  const Dim row = *mergedStride(problem.rowDims, problem.rowStrides), z = *batchStride(problem, problem.a);
  map.byteOffset = problem.a.offset * Dim(bytes);
  map.type = problem.a.type;
  map.shape = {z == Dim(0) ? Dim(1) : problem.batchCount(), problem.m, problem.k};
  map.strides = {z == Dim(0) ? row : z, row, 1};
  map.box = {1, ringRows, static_cast<uint32_t>(ringDepth(problem))};
  map.swizzle = TensorMapArgument::Swizzle::Bytes128;
  map.l2Promotion = TensorMapArgument::L2Promotion::Bytes256;
  return map;
}

TensorMapArgument mapOf(const Problem &problem, const Matmul &matmul, int64_t width) {
  TensorMapArgument map = mapOfB(problem, matmul, width);
  if (const Dim z = *batchStride(problem, matmul.b); !(z == Dim(0))) {
    map.shape[0] = problem.batchCount();
    map.strides[0] = z;
  }
  return map;
}
} // namespace

std::optional<std::string> sm90Refusal(const Problem &problem, const TargetInfo &target) {
  if (auto reason = ringRefusal(problem, target))
    return reason;
  if (problem.leastRows <= 16)
    return "there may be 16 rows or fewer";
  const std::optional<Dim> stride = mergedStride(problem.rowDims, problem.rowStrides),
                           z = batchStride(problem, problem.a);
  if (!stride || !z || !batchStride(problem, problem.b))
    return "no one distance leads from row to row, or from matrix to matrix";
  const int64_t vector = ringVector(problem);
  if (!(problem.a.columnStride == Dim(1)) || !problem.a.offset.knownMultipleOf(vector) ||
      !stride->knownMultipleOf(vector) || *stride == Dim(0) || stride->constant().value_or(1) <= 0 ||
      !z->knownMultipleOf(vector))
    return "the first operand's rows are no multiple of 16 bytes apart";
  return std::nullopt;
}

SmallVector<int64_t> sm90Limits(const Problem &problem, const TargetInfo &target) {
  Problem many = problem;
  many.leastRows = many.mostRows = 128;
  if (sm90Refusal(many, target))
    return {};
  // A tile of rows, then as many as fill the multiprocessors better by one width than by another.
  return {16, 128, 512, 2048};
}

KernelDraft emitSm90(const Region &region, const KernelContext &context, const Problem &problem) {
  const int64_t width = chooseWidth(region, problem, context.target),
                stages = ringStages(problem, context.target, width, reservedBytes);
  GemmSource source(region, context, problem, "gemm_sm90");
  setRing(source, problem, width, stages);
  source.set("a_batched", !(*batchStride(problem, problem.a) == Dim(0)));
  source.set("b_batched", !(*batchStride(problem, problem.b) == Dim(0)));
  KernelDraft draft = source.finishTiles(ringSums(problem), ringThreads, mapOfA(problem),
                                         [&](const Matmul &matmul) { return mapOf(problem, matmul, width); });
  finishRing(draft, problem, width, stages);
  draft.gridX = Dim::min(Dim(context.target.multiprocessors), blockCount(problem, ringRows, width));
  return draft;
}

} // namespace fusion::matmul
