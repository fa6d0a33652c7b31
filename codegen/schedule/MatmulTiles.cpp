// Tiles of a matmul that blocks take one after the other: their width, and the maps of what TMA reads.
#include "codegen/schedule/MatmulRing.h"

using namespace mlir;

namespace fusion::matmul {

std::optional<Dim> batchStride(const Problem &problem, const Operand &operand) {
  return mergedStride(problem.batch, operand.batchStrides);
}

/// Tiles that a multiprocessor takes one after the other, times what each costs: its width, and as much as 64
/// columns cost for what is read of A and for beginning and ending.
static int64_t costOf(const Problem &problem, const TargetInfo &target, int64_t width, int64_t rows) {
  const int64_t high = (rows + ringRows - 1) / ringRows, wide = *columnTiles(problem, width).constant(),
                tiles = high * wide * problem.batchCount().constant().value_or(1);
  const auto sums = static_cast<int64_t>(problem.accumulators());
  return (tiles + target.multiprocessors - 1) / target.multiprocessors * (width * sums + 64);
}

int64_t chooseWidth(ArrayRef<int64_t> widths, const Problem &problem, const TargetInfo &target) {
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

namespace {
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

std::optional<std::string> rowsRefusal(const Problem &problem) {
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

KernelDraft finishTiles(GemmSource &source, const Problem &problem, const TargetInfo &target, int64_t width,
                        int64_t stages, uint32_t threads, Feature multiplier) {
  source.set("a_batched", !(*batchStride(problem, problem.a) == Dim(0)));
  source.set("b_batched", !(*batchStride(problem, problem.b) == Dim(0)));
  KernelDraft draft = source.finishTiles(ringSums(problem), threads, mapOfA(problem),
                                         [&](const Matmul &matmul) { return mapOf(problem, matmul, width); });
  finishRing(draft, problem, width, stages, multiplier);
  draft.gridX = Dim::min(Dim(target.multiprocessors), blockCount(problem, ringRows, width));
  return draft;
}

} // namespace fusion::matmul
