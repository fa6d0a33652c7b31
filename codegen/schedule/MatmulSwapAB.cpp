// The configuration of gemm_swap_ab: up to 128 rows of A, B by TMA as fast as memory gives it.
#include "codegen/schedule/MatmulRing.h"
#include "codegen/schedule/MatmulSwap.h"

namespace fusion::matmul {

namespace {
constexpr int64_t mostRows = 128, tile = 64; // columns of C that a product has
constexpr int64_t mostStages = 31, vectorBytes = 16, ringAlignment = 1024;

/// How columns and K are shared out. Measured on an H200, see benchmarks/notes-matmul.md.
struct Sharing {
  int64_t tiles = 1;    ///< of 64 columns that a block computes at once, of each accumulator
  int64_t boxes = 1;    ///< of 128 bytes along k in a step
  int64_t kSplit = 1;   ///< blocks that share out K
  int64_t together = 1; ///< blocks that a multiprocessor holds at once
};

struct Memory {
  int64_t stage = 0, parts = 0,
          others = 0; ///< bytes: of a stage; behind the ring, with other blocks' parts; of the rest
};
/// Boxes of A that a block has room for: all, as one block alone does the work of a cluster where there are
/// none.
int64_t boxesOfRows(const Problem &problem, const Sharing &sharing) {
  return sharing.boxes * *problem.k.ceilDiv(sharing.boxes * tile).constant();
}
/// Of the norm's weight, for as many columns as all boxes have.
int64_t normBytes(const Problem &problem, const Sharing &sharing) {
  if (!problem.norm)
    return 0;
  nn::RmsNormOp norm = problem.norm->op;
  return tile * boxesOfRows(problem, sharing) * static_cast<int64_t>(byteSize(dtype(norm.getWeight())));
}
Memory memoryOf(const Problem &problem, const Sharing &sharing) {
  const auto sums = static_cast<int64_t>(problem.accumulators());
  const int64_t rows = swappedRows(problem), tiles = sums * sharing.tiles;
  const int64_t groups = (rows / 8 + sharing.kSplit - 1) / sharing.kSplit;
  const bool computes = !problem.prologue.empty();
  const int64_t weight = normBytes(problem, sharing);
  const int64_t parts = (sharing.kSplit - 1) * groups * tiles * 2048,
                staged = sums * (rows < 16 ? 8 : 16) * 20 * 16,
                computed = computes ? 128 * rows * boxesOfRows(problem, sharing) : 0,
                heads = problem.headTiles == 0 ? 0 : rows * (tile * sharing.tiles + 8) * 2;
  const int64_t ofBox =
      128 * (tile * tiles + (computes ? 0 : rows)) + (scalesSteps(problem) ? 4 * (tile * tiles + rows) : 0);
  constexpr int64_t reductions = 2048; // of the rows that are computed
  constexpr int64_t norms = 16 * 24;   // mbarriers: of 16-bit types there are no more stages
  return {sharing.boxes * ofBox, parts + computed + weight + heads,
          staged + 16 * mostStages + 64 + ringAlignment + largestBytes(problem) +
              (computes ? reductions : 0) + (problem.norm ? norms : 0)};
}

/// Shared memory that a block may have, if a multiprocessor holds so many.
int64_t roomOf(int64_t together, const TargetInfo &target) {
  constexpr int64_t reserved = 1024; // for the system, of each block's
  return std::min(target.sharedBytesPerBlock, target.sharedBytesPerMultiprocessor / together - reserved);
}

/// Tiles of columns that a block takes one after the other: as many for each.
int64_t turnsOf(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  return *columnTiles(problem, tile * sharing.tiles).ceilDiv(target.multiprocessors).constant();
}

/// As many as there is memory for, or as the block has steps: the rest is for blocks of the next kernel.
int64_t stagesOf(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  const Memory memory = memoryOf(problem, sharing);
  const int64_t depth = sharing.boxes * swappedDepth(problem),
                steps = *problem.k.ceilDiv(depth * sharing.kSplit).constant();
  return std::min({mostStages,
                   (roomOf(sharing.together, target) - memory.parts - memory.others) / memory.stage,
                   std::max<int64_t>(2, turnsOf(problem, sharing, target) * steps)});
}

/// Of more columns than one tile a multiprocessor: as many at once that all blocks have as much to do, in as
/// few turns as can be.
int64_t tilesAtOnce(const Problem &problem, int64_t processors) {
  const auto sums = static_cast<int64_t>(problem.accumulators());
  // Registers for the accumulators; those of bytes may be there twice.
  const int64_t rows = swappedRows(problem), most = (ringBytes(problem) && rows > 16 ? (rows > 32 ? 1 : 2)
                                                     : rows > 64                     ? 2
                                                                                     : 3) /
                                                    sums;
  int64_t best = 1, bestWork = INT64_MAX;
  for (int64_t tiles = 1; tiles <= most; ++tiles) {
    const int64_t work = tiles * *columnTiles(problem, tiles * tile).ceilDiv(processors).constant();
    if (work <= bestWork) {
      best = tiles;
      bestWork = work;
    }
  }
  return best;
}

/// Neither computed rows, nor heads, nor bytes.
bool isPlain(const Problem &problem) {
  return problem.prologue.empty() && problem.headTiles == 0 && !ringBytes(problem);
}

/// Two blocks on a multiprocessor, with half of a ring each, where clusters of these have more weights on
/// their way than those of blocks that have a multiprocessor to themselves. Measured:
/// benchmarks/notes-launch.md.
std::optional<Sharing> halfRings(const Problem &problem, const Sharing &whole, const TargetInfo &target) {
  if (!isPlain(problem) || problem.accumulators() > 1 || swappedRows(problem) > 32)
    return std::nullopt;
  constexpr int64_t mostSplit = 6, leastStages = 4;
  const int64_t columns = *columnTiles(problem, tile).constant();
  Sharing half{.boxes = 2, .together = 2};
  const int64_t steps = *problem.k.constant() / (half.boxes * swappedDepth(problem));
  for (int64_t split = 2; split <= mostSplit; ++split)
    if (columns * split <= 2 * target.multiprocessors && columns <= target.clustersAtOnce(split, 2) &&
        2 * split <= steps)
      half.kSplit = split;
  const bool isMore = half.kSplit > 2 * whole.kSplit && stagesOf(problem, half, target) >= leastStages;
  return isMore ? std::optional(half) : std::nullopt;
}

/// The blocks that share out K where two or three of them would have all of their weights in the ring before
/// the rows come: four, so that each has less left to do, but two steps. There may be three blocks for two
/// multiprocessors, if each of these holds two. Measured: benchmarks/notes-launch.md.
int64_t splitOfFewRows(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  Sharing four = sharing;
  four.kSplit = 4;
  const int64_t columns = *columnTiles(problem, tile).constant(),
                steps = *problem.k.ceilDiv(sharing.boxes * swappedDepth(problem)).constant();
  if (!isPlain(problem) || swappedRows(problem) > 32 || (sharing.kSplit != 2 && sharing.kSplit != 3) ||
      steps > sharing.kSplit * stagesOf(problem, sharing, target) || steps < 2 * four.kSplit ||
      2 * columns * four.kSplit > 3 * target.multiprocessors)
    return sharing.kSplit;
  const Memory memory = memoryOf(problem, four);
  const int64_t bytes = (steps + four.kSplit - 1) / four.kSplit * memory.stage + memory.parts + memory.others;
  return bytes <= roomOf(2, target) ? four.kSplit : sharing.kSplit;
}

/// A block on each multiprocessor, or on two thirds of them, which is enough for all of the memory's rate. Of
/// few rows a step takes little longer than the wait for it: long steps are better, as they are where all of
/// them are on their way at once. Of many rows a ring of short ones is.
Sharing chooseSharing(const Problem &problem, const TargetInfo &target) {
  const int64_t processors = target.multiprocessors, rows = swappedRows(problem);
  const auto sums = static_cast<int64_t>(problem.accumulators());
  const int64_t columns = *columnTiles(problem, tile * std::max<int64_t>(1, problem.headTiles)).constant(),
                k = *problem.k.constant(), depth = swappedDepth(problem);
  Sharing sharing;
  if (problem.headTiles > 0)
    sharing.tiles = problem.headTiles;
  else if (columns > processors)
    sharing.tiles = tilesAtOnce(problem, processors);
  if (problem.norm && problem.sideBySide() && columns <= processors) {
    // Fewer blocks normalise the same rows. Measured: benchmarks/notes-launch.md.
    sharing.tiles = sharing.boxes = 2;
    sharing.kSplit =
        swappedSplit(*columnTiles(problem, sharing.tiles * tile).constant(), k / (2 * depth), target);
    return sharing;
  }
  sharing.kSplit = swappedSplit(columns, k / depth, target);
  if (sharing.tiles > 1)
    return sharing;
  auto steps = [&] { return (k + sharing.boxes * depth - 1) / (sharing.boxes * depth); };
  // Rows that are normalised are ready sooner in short steps.
  for (sharing.boxes = (problem.norm ? 2 : 4) / sums; sharing.boxes > 1; sharing.boxes /= 2) {
    const int64_t stages = stagesOf(problem, sharing, target);
    const bool fits = steps() <= stages * sharing.kSplit;
    if (steps() >= sharing.kSplit && stages >= 2 &&
        (rows <= 16 || (rows <= 64 && (fits || sharing.boxes * sums == 2))))
      break;
  }
  sharing.kSplit = splitOfFewRows(problem, sharing, target);
  return halfRings(problem, sharing, target).value_or(sharing);
}

Dim blocksOf(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  const Dim tiles = columnTiles(problem, tile * sharing.tiles);
  return sharing.kSplit > 1 ? tiles * Dim(sharing.kSplit) : tiles.ceilDiv(turnsOf(problem, sharing, target));
}

bool isKMajorB(const Problem &problem) { return problem.b.rowStride == Dim(1); }

bool fitsB(const Problem &problem, const Matmul &matmul, DType type) {
  const Operand &b = matmul.b;
  const auto bits = 8 * static_cast<int64_t>(byteSize(type));
  if (b.type != type || matmul.n.constant().value_or(0) < tile)
    return false;
  return isKMajorB(problem) ? b.rowStride == Dim(1) && readsTiles(b.offset, b.columnStride, bits)
                            : b.columnStride == Dim(1) && readsTiles(b.offset, b.rowStride, bits);
}

/// Whether it can do what KernelContext::sendsTo asks: rows of whole words, of one float result.
bool canSend(const Region &region, const KernelContext &context, const Problem &problem, const Sums &sums) {
  if (context.sendsTo < 2 || problem.matmuls.size() != 1 || region.outputs.size() != 1)
    return false;
  const DType type = dtype(region.outputs[0]);
  return isFloat(type) && type != DType::F64 && sums.width * static_cast<int64_t>(byteSize(type)) % 4 == 0 &&
         context.shape(region.outputs[0]).back() == problem.n && problem.n.isStatic();
}

/// Whether it can do what KernelContext::sumsSquares asks: of one 16-bit float result, in whole tiles, where
/// the matmuls behind the norm can use it.
bool canSumSquares(const Region &region, const KernelContext &context, const Problem &problem) {
  if (!context.sumsSquares || problem.matmuls.size() != 1 || region.outputs.size() != 1 ||
      !hasNormedRows(problem))
    return false;
  const DType type = dtype(region.outputs[0]);
  return isFloat(type) && byteSize(type) == 2 && context.shape(region.outputs[0]).back() == problem.n &&
         problem.n.constant().value_or(1) % tile == 0;
}

/// Whether the template reads these operands, of which B's elements have this type.
bool fits(const Problem &problem, const TargetInfo &target, DType type) {
  return target.has(Feature::Wgmma) && target.has(Feature::Tma) && target.has(Feature::Clusters) &&
         problem.prologue.empty() && !problem.routing && problem.batch.empty() &&
         problem.accumulators() <= 2 && problem.k.constant().value_or(0) >= swappedDepth(problem) &&
         readsSwappedRows(problem) &&
         llvm::all_of(problem.matmuls, [&](const Matmul &matmul) { return fitsB(problem, matmul, type); });
}
} // namespace

int64_t swappedRows(const Problem &problem) {
  int64_t rows = 8;
  while (rows < problem.mostRows)
    rows *= 2;
  return rows;
}

int64_t swappedSplit(int64_t tiles, int64_t mostSteps, const TargetInfo &target) {
  const int64_t processors = target.multiprocessors, enough = processors * 2 / 3;
  int64_t chosen = 1;
  for (int64_t split = 2; split <= 8; ++split)
    if (tiles * chosen < enough && tiles <= target.clustersAtOnce(split, 1) && split <= mostSteps)
      chosen = split;
  return chosen;
}

bool readsTiles(const Dim &offset, const Dim &stride, int64_t bits) {
  const int64_t elements = 8 * vectorBytes / bits;
  return offset.knownMultipleOf(elements) && stride.knownMultipleOf(elements) &&
         stride.constant().value_or(1) > 0;
}

bool readsSwappedRows(const Problem &problem) {
  const std::optional<Dim> stride = mergedStride(problem.rowDims, problem.rowStrides);
  return problem.a.columnStride == Dim(1) && stride &&
         readsTiles(problem.a.offset, problem.m == Dim(1) ? Dim(vectorBytes) : *stride,
                    8 * static_cast<int64_t>(byteSize(problem.a.type)));
}

int64_t largestPartsOfRow(const Problem &problem, const TargetInfo &target) {
  if (prefersSmallMCodes(problem, target))
    return smallMCodesWarps(problem, target);
  return warpsOfBlock * (swapCodesRows(problem, target) > 0
                             ? swapCodesBlocks(problem, target)
                             : *blocksOf(problem, chooseSharing(problem, target), target).constant());
}

Dim largestWords(const Dim &rows, const TargetInfo &target) {
  constexpr int64_t mostWarps = 16; // on a multiprocessor
  return Dim::min(rows, Dim(mostRows)) * Dim(2 * mostWarps * target.multiprocessors);
}

int64_t largestBytes(const Problem &problem) {
  return problem.largest == Problem::Largest::None ? 0 : 8 * warpsOfBlock * swappedRows(problem);
}

int64_t swappedDepth(const Problem &problem) { return 128 / static_cast<int64_t>(byteSize(problem.a.type)); }

TensorMapArgument swappedMap(DType type, const Dim &offset, DimShape shape, const Dim &stride, int64_t rows,
                             int64_t length) {
  TensorMapArgument map;
  map.byteOffset = offset * Dim(static_cast<int64_t>(byteSize(type)));
  map.type = type;
  map.shape = std::move(shape);
  map.strides = {stride, 1};
  map.box = {static_cast<uint32_t>(rows), static_cast<uint32_t>(length)};
  map.swizzle = length * static_cast<int64_t>(byteSize(type)) == 64 ? TensorMapArgument::Swizzle::Bytes64
                                                                    : TensorMapArgument::Swizzle::Bytes128;
  map.l2Promotion = TensorMapArgument::L2Promotion::Bytes128; // the L2 need not fetch what another box has
  return map;
}

TensorMapArgument mapOfSwappedRows(const Problem &problem) {
  // A single row lies anywhere: its map has a stride all the same.
  const Dim stride = problem.m == Dim(1) ? problem.k.ceilDiv(vectorBytes) * Dim(vectorBytes)
                                         : *mergedStride(problem.rowDims, problem.rowStrides);
  return swappedMap(problem.a.type, problem.a.offset, {problem.m, problem.k}, stride, swappedRows(problem),
                    swappedDepth(problem));
}

int64_t swapABRows(const Problem &problem, const TargetInfo &target) {
  const std::optional<DType> type = tensorCoreType(problem);
  auto isDecoded = [](const Matmul &matmul) { return matmul.b.decode.has_value(); };
  if (!type || multipliesBytes(problem) || problem.a.decode || problem.a.type != *type ||
      llvm::any_of(problem.matmuls, isDecoded))
    return 0;
  return fits(problem, target, *type) ? mostRows : 0;
}

int64_t swapBytesRows(const Problem &problem, const TargetInfo &target) {
  auto isOther = [&](const Matmul &matmul) { return dtype(matmul.op.getY()) != dtype(problem.op.getY()); };
  const DType result = problem.result;
  if (!ringBytes(problem) || byteRefusal(problem) || llvm::any_of(problem.matmuls, isOther) ||
      !(result == DType::I32 || (isFloat(result) && byteSize(result) <= 4)) ||
      !fits(problem, target, problem.b.type))
    return 0;
  // Of two products that are added in f32 as well, a thread has registers for half as many.
  return problem.accumulators() > 1 ? mostRows / 2 : mostRows;
}

std::optional<std::string> swapABRefusal(const Problem &problem, const TargetInfo &target) {
  Problem plain = problem;
  plain.prologue.clear();
  if (swapABRows(plain, target) < problem.mostRows)
    return std::string("gemm_swap_ab does not take the matmuls");
  // Sums of heads of two accumulators, or of many tiles of many rows, are more than the registers.
  if (problem.headTiles > 0 && (problem.accumulators() > 1 || problem.headTiles * swappedRows(problem) > 128))
    return std::string("heads of more columns than a block sums at once");
  if (const int64_t stages = stagesOf(problem, chooseSharing(problem, target), target); stages < 2)
    return std::string("no room for a ring beside the rows that a block computes");
  return std::nullopt;
}

KernelDraft emitSwapAB(const Region &region, const KernelContext &context, const Problem &problem) {
  return emitSwapAB(region, context, problem, nullptr);
}

KernelDraft emitSwapAB(const Region &region, const KernelContext &context, const Problem &problem,
                       const TileHeads *heads) {
  // As in swap_ab_ring.cuh.
  constexpr uint32_t normWarps = 8;
  const uint32_t others = problem.norm                                        ? normWarps
                          : scalesSteps(problem) || !problem.prologue.empty() ? 3
                                                                              : 0,
                 threads = 160 + 32 * others;
  const Sharing sharing = chooseSharing(problem, context.target);
  const int64_t rows = swappedRows(problem), stages = stagesOf(problem, sharing, context.target);
  const bool kMajor = isKMajorB(problem);
  GemmSource source(region, context, problem, "gemm_swap_ab");
  if (problem.norm)
    source.shareMultiprocessor(); // as it was measured
  source.setType("type", body::spelling(problem.a.type));
  if (ringBytes(problem))
    source.setType("type_b", body::spelling(problem.b.type));
  source.set("rows", rows);
  source.set("tiles", sharing.tiles);
  source.set("boxes", sharing.boxes);
  source.set("stages", stages);
  source.set("k_split", sharing.kSplit);
  source.set("k_major", kMajor);
  if (!problem.prologue.empty())
    source.set("computed_boxes", boxesOfRows(problem, sharing));
  if (problem.norm) {
    source.set("norm_warps", int64_t(normWarps));
    source.set("norm_bytes", normBytes(problem, sharing));
  }
  if (scalesSteps(problem))
    source.set("scaled_steps", true);
  else if (addsExactly(problem))
    source.set("exact_steps", int64_t(1));
  Sums sums{problem.result == DType::I32 ? DType::I32 : DType::F32, resultVector(problem, rows < 16 ? 4 : 8),
            /*readsAhead=*/!heads};
  source.set("vector", sums.width);
  source.set("weights_before_wait", llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
               return context.isIndependentOfPredecessor(matmul.b.input);
             }));
  if (problem.largest != Problem::Largest::None)
    sums.partsOfRow = largestPartsOfRow(problem, context.target);
  else if (!heads) {
    sums.sends = canSend(region, context, problem, sums);
    sums.squares = canSumSquares(region, context, problem);
  }
  // The kernel behind one that sends begins once all before this one is done.
  const bool early = context.mayLaunchEarly && !sums.sends;
  if (early)
    source.set("launches_early", true);
  KernelDraft draft = source.finishSwapAB(
      sums, threads, static_cast<uint32_t>(sharing.kSplit),
      problem.prologue.empty() ? mapOfSwappedRows(problem) : TensorMapArgument(),
      [&](const Matmul &matmul) {
        const Operand &b = matmul.b;
        return kMajor ? swappedMap(b.type, b.offset, {matmul.n, problem.k}, b.columnStride, tile,
                                   swappedDepth(problem))
                      : swappedMap(b.type, b.offset, {problem.k, matmul.n}, b.rowStride, tile, tile);
      },
      heads);
  draft.sends = sums.sends || sums.squares || problem.norm;
  draft.launchesEarly = early;
  const Memory memory = memoryOf(problem, sharing);
  draft.kernel.dynamicSharedBytes =
      static_cast<uint32_t>(stages * memory.stage + memory.parts + ringAlignment);
  draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma | Feature::Tma | Feature::Clusters);
  draft.gridX = blocksOf(problem, sharing, context.target);
  return draft;
}

} // namespace fusion::matmul
