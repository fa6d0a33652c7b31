// The configuration of gemm_swap_codes: up to 128 rows of A, quantised B whose codes TMA reads and registers
// decode.
#include "codegen/schedule/MatmulCodes.h"
#include "codegen/schedule/MatmulSwap.h"

#include <fmt/format.h>

namespace fusion::matmul {

namespace {
constexpr int64_t mostRows = 128, tile = 64, mostStages = 31; // columns of C that a product has
constexpr int64_t leastScaleDepth = 16;                       // codes along k that a product takes
constexpr int64_t staticBytes = 1024;                         // mbarriers, and the alignment of each array

/// How columns and K are shared out, and how large the parts of the ring are.
struct Sharing {
  int64_t tiles = 1;   ///< of 64 columns that a block computes at once, of each accumulator
  int64_t depth = 128; ///< of a step along K
  int64_t kSplit = 1;  ///< blocks that share out K
  int64_t groups = 2;  ///< warpgroups that share out the steps of a block
  int64_t stages = 2;
};

/// Whether several scales meet in 32 codes.
bool isClose(const Problem &problem) {
  const int64_t depth = scaleDepth(problem, 256);
  return depth != 0 && depth < 32;
}

/// Scales of a row in a step that one vector holds, and zero points; 0 if they are to be read one by one.
int64_t entriesAtOnce(const Problem &problem, int64_t depth) {
  const int64_t shared = scaleDepth(problem, depth);
  if (shared == 0 || *problem.k.constant() % depth != 0)
    return 0;
  const int64_t entries = depth / shared;
  auto isVector = [&](const std::optional<ScaleOrZero> &entry, bool isInteger) {
    if (!entry || entry->literal)
      return true;
    const int64_t bits = entryBits(*entry), vectorBits = std::min<int64_t>(entries * bits, 128);
    auto isWhole = [&](const Dim &elements) {
      const std::optional<int64_t> count = elements.constant();
      return count && *count * bits % vectorBits == 0;
    };
    return entry->rowBlock == shared && entry->rowStrides.size() == 1 && entry->rowStrides[0] == Dim(1) &&
           vectorBits >= 8 && (!isInteger || bits <= 8) && isWhole(entry->offset) &&
           isWhole(entry->columnStride);
  };
  const bool are = llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
    return isVector(matmul.b.decode->scale, false) && isVector(matmul.b.decode->zero, true);
  });
  return are ? entries : 0;
}

/// As in gemm_swap_codes.cuh.
int64_t stageBytes(const Problem &problem, const Sharing &sharing) {
  const int64_t tiles = sharing.tiles * static_cast<int64_t>(problem.accumulators());
  const int64_t shared = scaleDepth(problem, sharing.depth), entries = shared ? sharing.depth / shared : 0,
                entryBytes = isFloat(problem.b.type) ? 4 : 8;
  const int64_t bytes = tiles * tile * sharing.depth * codeBits(problem.b) / 8 +
                        sharing.depth / 64 * swappedRows(problem) * 128 + tiles * entries * tile * entryBytes;
  return (bytes + 1023) / 1024 * 1024;
}
/// What the warpgroups and the blocks of the cluster hand over.
int64_t partBytes(const Problem &problem, const Sharing &sharing) {
  const int64_t tiles = sharing.tiles * static_cast<int64_t>(problem.accumulators()),
                rows = swappedRows(problem), own = (rows / 8 + sharing.kSplit - 1) / sharing.kSplit;
  return tiles * 2048 * ((sharing.groups - 1) * rows / 8 + (sharing.kSplit - 1) * own);
}
int64_t stagedBytes(const Problem &problem) {
  return static_cast<int64_t>(problem.accumulators()) * (swappedRows(problem) < 16 ? 8 : 16) * 20 * 16 +
         largestBytes(problem);
}

int64_t columnsOf(const Problem &problem, int64_t tiles) {
  return *columnTiles(problem, tile * tiles).constant();
}
int64_t turnsOf(const Problem &problem, int64_t tiles, const TargetInfo &target) {
  return (columnsOf(problem, tiles) + target.multiprocessors - 1) / target.multiprocessors;
}

/// Steps that the ring has memory for.
int64_t mostSteps(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  const int64_t fixed = partBytes(problem, sharing) + stagedBytes(problem) + staticBytes + 1024;
  return std::min(mostStages, (target.sharedBytesPerBlock - fixed) / stageBytes(problem, sharing));
}
/// Steps of a block along K, of all of its tiles.
int64_t stepsOf(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  const int64_t depth = sharing.depth * sharing.kSplit, steps = (*problem.k.constant() + depth - 1) / depth;
  return turnsOf(problem, sharing.tiles, target) * steps;
}

/// The most rows for which a thread has registers for two tiles, beside the scales of its codes.
int64_t mostRowsOfTwo(const Problem &problem) { return isClose(problem) ? 32 : 64; }

/// Warps of four warpgroups hide what each waits for while it decodes. More rows, or scales, leave registers
/// for two.
Sharing chooseSharing(const Problem &problem, const TargetInfo &target) {
  const int64_t rows = swappedRows(problem), columns = columnsOf(problem, 1);
  Sharing sharing;
  // Two tiles at once read the rows of A once for both.
  if (columns > target.multiprocessors && problem.accumulators() == 1 && rows <= mostRowsOfTwo(problem) &&
      2 * turnsOf(problem, 2, target) <= turnsOf(problem, 1, target))
    sharing.tiles = 2;
  const int64_t deepest = codeBits(problem.b) == 4 && rows <= 64 ? 256 : 128,
                most = rows <= 16 && !isClose(problem) ? 4 : 2;
  const int64_t fewer = std::max(int64_t(2), most - 1), shallow = 128, one = 1;
  for (auto [depth, groups] : {std::pair(deepest, most), std::pair(deepest, fewer), std::pair(shallow, most),
                               std::pair(shallow, one)}) {
    sharing.depth = depth;
    sharing.groups = groups;
    sharing.kSplit = swappedSplit(columns, *problem.k.constant() / depth, target);
    // Each warpgroup has one that it has not given back, and another on its way; as many as the others have.
    const int64_t fitting = mostSteps(problem, sharing, target) / groups,
                  wanted = (stepsOf(problem, sharing, target) + groups - 1) / groups;
    sharing.stages = groups * std::min(fitting, std::max(int64_t(2), wanted));
    if (fitting >= 2)
      break;
  }
  return sharing;
}

int64_t blocksOf(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  const int64_t columns = columnsOf(problem, sharing.tiles), turns = turnsOf(problem, sharing.tiles, target);
  return sharing.kSplit > 1 ? columns * sharing.kSplit : (columns + turns - 1) / turns;
}

std::optional<std::string> refusesWeights(const Problem &problem, const Matmul &matmul) {
  const Operand &b = matmul.b;
  if (!(b.rowStride == Dim(1)))
    return "the second operand's codes do not lie along k";
  if (matmul.n.constant().value_or(0) < tile)
    return "there are fewer than 64 columns";
  if (!readsTiles(b.offset, b.columnStride, codeBits(b)))
    return "the second operand's rows are no multiple of 16 bytes apart";
  if (isFloat(b.type) && b.decode->zero)
    return "f8 has a zero point";
  if (const int64_t neighbours = neighboursPerScale(problem); neighbours % leastScaleDepth != 0)
    return fmt::format("blocks of {} along k, not of a multiple of 16", neighbours);
  return std::nullopt;
}
} // namespace

std::optional<std::string> swapCodesRefusal(const Problem &problem, const TargetInfo &target) {
  if (!target.has(Feature::Wgmma) || !target.has(Feature::Tma) || !target.has(Feature::Clusters))
    return "the GPU has no warpgroups";
  if (!problem.prologue.empty() || problem.routing || !problem.batch.empty())
    return "the first operand is computed in the kernel, or there are several matrices";
  const std::optional<Decode> &decode = problem.b.decode;
  if (!decode || !decode->scale || (decode->type != DType::BF16 && decode->type != DType::F16))
    return "the second operand is not dequantised to 16 bits";
  if (decode->scale->type == DType::F64)
    return "scales are f64";
  if (problem.a.decode || problem.a.type != decode->type || !readsSwappedRows(problem))
    return "the first operand has another type, or its rows are no multiple of 16 bytes apart";
  if (problem.accumulators() > 2)
    return "more than two products are combined";
  if (problem.k.constant().value_or(0) < 256)
    return "the products are shorter than 256";
  for (const Matmul &matmul : problem.matmuls)
    if (auto reason = refusesWeights(problem, matmul))
      return reason;
  return std::nullopt;
}

int64_t swapCodesBlocks(const Problem &problem, const TargetInfo &target) {
  return blocksOf(problem, chooseSharing(problem, target), target);
}

int64_t swapCodesRows(const Problem &problem, const TargetInfo &target) {
  if (swapCodesRefusal(problem, target))
    return 0;
  // Of scales so close together NVRTC 13.0 spills beside the sums of more rows.
  return problem.accumulators() > 1 ? mostRowsOfTwo(problem) : isClose(problem) ? mostRows / 2 : mostRows;
}

KernelDraft emitSwapCodes(const Region &region, const KernelContext &context, const Problem &problem) {
  const Sharing sharing = chooseSharing(problem, context.target);
  const int64_t rows = swappedRows(problem);
  GemmSource source(region, context, problem, "gemm_swap_codes");
  source.setType("type", body::spelling(problem.a.type));
  source.set("rows", rows);
  source.set("tiles", sharing.tiles);
  source.set("depth", sharing.depth);
  source.set("scale_depth", scaleDepth(problem, sharing.depth));
  source.set("scale_fits", scaleFits(problem));
  const int64_t atOnce = entriesAtOnce(problem, sharing.depth);
  source.set("entries_at_once", atOnce > 0);
  source.set("groups", sharing.groups);
  source.set("stages", sharing.stages);
  source.set("k_split", sharing.kSplit);
  Sums sums{DType::F32, resultVector(problem, rows < 16 ? 4 : 8), /*readsAhead=*/true};
  if (problem.largest != Problem::Largest::None)
    sums.partsOfRow = warpsOfBlock * blocksOf(problem, sharing, context.target);
  source.set("vector", sums.width);
  const bool isEarly = readsCodesEarly(problem, context);
  source.set("weights_before_wait", isEarly);
  if (context.mayLaunchEarly)
    source.set("launches_early", true);
  KernelDraft draft = source.finishSwapCodes(
      sums, static_cast<uint32_t>(128 * (sharing.groups + 1)), static_cast<uint32_t>(sharing.kSplit), isEarly,
      atOnce, mapOfSwappedRows(problem), [&](const Matmul &matmul) {
        const Operand &b = matmul.b;
        const Dim perByte = 8 / codeBits(b);
        TensorMapArgument map =
            swappedMap(DType::U8, 0, {matmul.n, problem.k.ceilDiv(*perByte.constant())},
                       b.columnStride.ceilDiv(*perByte.constant()), tile, sharing.depth * codeBits(b) / 8);
        map.byteOffset = b.offset.ceilDiv(*perByte.constant());
        return map;
      });
  draft.launchesEarly = context.mayLaunchEarly;
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(sharing.stages * stageBytes(problem, sharing) +
                                                          partBytes(problem, sharing) + 1024);
  draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma | Feature::Tma | Feature::Clusters);
  draft.gridX = blocksOf(problem, sharing, context.target);
  return draft;
}

} // namespace fusion::matmul
