// Configurations of the kernels of many rows: codegen/device/attention_prefill_*.cuh.
#include "codegen/schedule/AttentionBody.h"
#include "codegen/schedule/AttentionTiles.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace fusion::attention {

namespace {

KernelDraft emitFma(const Problem &problem, const std::string &reason) {
  constexpr int64_t rows = 16, warps = 4, residentBlocks = 4;
  // Odd pitches: threads that read different rows meet different banks.
  const int64_t keyPitch = problem.depth | 1, pitch = std::max(keyPitch, problem.valueDepth | 1);
  const bool isSmall = (rows * keyPitch + 32 * pitch + rows * 33) * 4 <= 48 * 1024;
  KernelBuilder kernel(problem, "prefill_fma", {.columnStrides = true});
  kernel.note("Not on tensor cores: " + reason + ".");
  kernel.config("tile_keys", int64_t(isSmall ? 32 : 16));
  return kernel.finish({rows, warps, residentBlocks});
}

/// Blocks that share the sequences of a tile of tokens. Not timed: a long prompt needs one of them, and what
/// the others cost is the start of a block; as many short ones keep all of them busy.
constexpr int64_t tileBlocks = 4;

/// Whether TMA copies keys and values, or pages of them.
bool isMapped(const Problem &problem) {
  return !problem.hasCodes() && hasTensorMap(problem.storedView(problem.storedKeys)) &&
         hasTensorMap(problem.storedView(problem.storedValues));
}

/// How a block's warps multiply.
enum class Products {
  Warps,      ///< mma.sync
  Warpgroups, ///< wgmma, on sm_90a
  Ring,       ///< wgmma, of what a further warpgroup copies
};

/// What one block works on.
struct Tiling {
  Products products = Products::Warps;
  int64_t warps = 4;          ///< that multiply
  int64_t rowTiles = 2;       ///< tiles of 16 rows that a warp has
  int64_t keys = 64;          ///< at a time
  int64_t residentBlocks = 1; ///< on a multiprocessor
  int64_t queryStages = 1;    ///< tiles of queries in a ring
  int64_t rows() const { return 16 * warps * rowTiles; }
};

/// The dynamic shared memory of a block: PrefillShape::shared_bytes in attention_prefill.cuh,
/// PrefillTma::shared_bytes in attention_prefill_tma.cuh.
int64_t sharedBytes(int64_t depth, int64_t valueDepth, const Tiling &tiling) {
  constexpr int64_t stages = 2, alignment = 1024;
  auto pitch = [&](int64_t width) {
    return tiling.products == Products::Warps ? width + 8 : static_cast<int64_t>(llvm::alignTo(width, 64));
  };
  return 2 * (tiling.queryStages * tiling.rows() * pitch(depth) +
              stages * tiling.keys * (pitch(depth) + pitch(valueDepth))) +
         (tiling.products == Products::Ring ? alignment : 0);
}

/// What takes registers beside the products.
struct Content {
  bool scaleOnly = false; ///< scores are q·k: neither a cap nor a mask
  bool masked = false, bounded = false;
  bool decoded = false; ///< keys or values are codes
  bool mapped = false;  ///< TMA copies keys and values
  bool paged = false;   ///< rows lie in pages, perhaps of several sequences
};

/// For heads of `depth`, and values of `valueDepth`: as much as the registers of a thread take. Of a 16 x 8
/// fragment of scores or accumulators it holds 4 elements. Of warps, those with 32 rows are better: what they
/// read of shared memory serves twice the products.
Tiling chooseTiling(int64_t depth, int64_t valueDepth, const Content &content, const TargetInfo &target) {
  const auto [scaleOnly, masked, bounded, decoded, mapped, paged] = content;
  const int64_t width = std::max(depth, valueDepth);
  if (target.has(Feature::Wgmma) && target.has(Feature::Tma) && mapped) {
    constexpr int64_t reserve = 1024; // what is declared in the source
    // Masks take registers for their elements and where they are, and so do ends of queries' own.
    const int64_t keys = masked ? (valueDepth > 128 ? 32 : 64) : valueDepth > 128 ? (bounded ? 64 : 80) : 128;
    Tiling ring{Products::Ring, 8, 1, keys, 1, depth > 128 ? 1 : 2};
    while (sharedBytes(depth, valueDepth, ring) + reserve > target.sharedBytesPerBlock)
      ring.keys -= 16;
    return ring;
  }
  if (target.has(Feature::Wgmma))
    return {Products::Warpgroups, 8, 1, width > 128 || !scaleOnly ? 64 : 128, 1};
  if (width > 128) {
    // Blocks of 99 KiB of shared memory take half the rows.
    const bool isSmall = target.sharedBytesPerBlock < 160 << 10;
    return {Products::Warps, isSmall ? 4 : 8, 1, scaleOnly ? 32 : 16, 1};
  }
  // Heads of 96 with larger tiles spill under some compilers, with pages those of 128.
  if (width > 80 && (!scaleOnly || decoded || paged))
    return {Products::Warps, 8, 1, 32, 1};
  return {Products::Warps, 4, 2, width > 80 || !scaleOnly ? 32 : 64, 2};
}

/// Rows of pages that TMA copies at a time: they divide a page and a tile.
int64_t pageBox(const Problem &problem, const Tiling &tiling) {
  return std::gcd(problem.pageSize, tiling.keys);
}

/// Of the queries of a head of each of a group: those of an entry, or tokens.
std::vector<uint32_t> queryBox(const Problem &problem, uint32_t queries) {
  const auto group = static_cast<uint32_t>(problem.group.value());
  return problem.isRagged ? std::vector<uint32_t>{queries, 1, group, 64}
                          : std::vector<uint32_t>{1, queries, group, 64};
}

/// The maps of attention_prefill_tma.cuh. Rows are in the order of their heads: TMA takes a tile of queries
/// that are whole groups.
std::string tensorMaps(const Problem &problem, const Tiling &tiling, KernelBuilder &kernel) {
  constexpr unsigned rowsInHeads[] = {0, 1, 2, 3}, headsInRows[] = {0, 2, 1, 3};
  constexpr uint32_t columns = 64;
  nn::AttentionOp op = problem.op;
  std::string names;
  const int64_t group = problem.group.value(), rows = tiling.rows();
  const bool takesQueries = rows % group == 0 && hasTensorMap(problem.view(op.getQ()));
  kernel.config("queries_mapped", takesQueries);
  if (takesQueries)
    names = kernel.tensorMap(op.getQ(), mapOf(problem.view(op.getQ()), op.getQ(), headsInRows,
                                              queryBox(problem, static_cast<uint32_t>(rows / group)))) +
            ", ";
  const int64_t keys = problem.table ? pageBox(problem, tiling) : tiling.keys;
  if (problem.table)
    kernel.config("page_box", keys);
  const std::vector<uint32_t> box = {1, 1, static_cast<uint32_t>(keys), columns};
  auto map = [&](const Stored &stored) {
    return kernel.tensorMap(stored.tensor,
                            mapOf(problem.storedView(stored), stored.tensor, rowsInHeads, box));
  };
  names += map(problem.storedKeys) + ", ";
  return names + map(problem.storedValues);
}

Tiling tilingOf(const Problem &problem, bool mapped) {
  const Content content{isScaleOnly(problem), static_cast<bool>(problem.mask), problem.bounds.has_value(),
                        problem.hasCodes(), mapped, problem.table != nullptr};
  return chooseTiling(static_cast<int64_t>(llvm::alignTo(problem.depth, 16)),
                      static_cast<int64_t>(llvm::alignTo(problem.valueDepth, 16)), content,
                      problem.context.target);
}

KernelDraft emitTensorCores(const Problem &problem, bool pagesByTma) {
  constexpr double log2e = 1.4426950408889634;
  nn::AttentionOp op = problem.op;
  const int64_t depth = llvm::alignTo(problem.depth, 16), valueDepth = llvm::alignTo(problem.valueDepth, 16);
  const bool scaleOnly = isScaleOnly(problem);
  const TargetInfo &target = problem.context.target;
  // What TMA copies goes to the tensor cores as it is.
  const bool mapped = problem.table ? pagesByTma : isMapped(problem);
  const Tiling tiling = tilingOf(problem, mapped);
  const bool isRing = tiling.products == Products::Ring;
  const char *const variant = isRing                                       ? "prefill_tma"
                              : tiling.products == Products::Warpgroups ? "prefill_sm90"
                                                                        : "prefill_mma";
  KernelBuilder kernel(problem, variant,
                       {.batch = isRing || static_cast<bool>(op.getCausal()), .score = !scaleOnly});
  kernel.config("warps", tiling.warps);
  kernel.config("row_tiles", tiling.rowTiles);
  kernel.config("tile_keys", tiling.keys);
  kernel.config("scale_only", scaleOnly);
  kernel.config("exponent_scale",
                scaleOnly ? static_cast<double>(op.getScale().convertToFloat()) * log2e : log2e);
  Launch launch{tiling.rows(), tiling.warps, tiling.residentBlocks, 1,
                sharedBytes(depth, valueDepth, tiling)};
  if (problem.isRagged) {
    launch.tileBlocks = tileBlocks;
    kernel.config("tile_blocks", tileBlocks);
  }
  if (isRing) {
    constexpr int64_t copyingWarps = 4;
    kernel.config("query_stages", tiling.queryStages);
    // A third of the L2 is left to what is written, and to queries.
    kernel.config("cached_keys", target.l2Bytes * 2 / 3 / (2 * (depth + valueDepth)));
    launch.warps += copyingWarps;
    launch.mostBlocks = target.multiprocessors;
    launch.arguments = tensorMaps(problem, tiling, kernel);
  }
  KernelDraft draft = kernel.finish(launch);
  if (tiling.products != Products::Warps)
    draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma);
  if (isRing)
    draft.kernel.features |= static_cast<uint32_t>(Feature::Tma);
  return draft;
}

} // namespace

std::optional<std::string> raggedRefusal(const Problem &problem) {
  nn::AttentionOp op = problem.op;
  constexpr int64_t fewestRows = 64; // of a tile
  if (problem.queries != Dim(1))
    return std::string("several queries of an entry");
  if (problem.isLatent())
    return std::string("heads too large for the kernels of many rows");
  if (problem.context.batchInvariant)
    return std::string("which kernel a token gets would depend on other sequences");
  if (op.getCausal() || op.getWindow() > 0 || problem.mask)
    return std::string("limits of the keys that count from the last one, or a mask");
  if (problem.sink && problem.context.shape(problem.sink->sink)[0] != Dim(1))
    return std::string("a sink of each entry");
  if (auto reason = tensorCoreRefusal(problem))
    return reason;
  if (problem.group.value() > fewestRows)
    return std::string("more heads share keys than a tile has rows");
  return std::nullopt;
}

bool copiesPagesByTma(const Problem &problem) {
  constexpr int64_t swizzledRows = 8;
  if (!problem.table || tensorCoreRefusal(problem) || !isMapped(problem))
    return false;
  const Tiling tiling = tilingOf(problem, true);
  return tiling.products == Products::Ring && pageBox(problem, tiling) % swizzledRows == 0;
}

KernelDraft emitPrefill(const Problem &problem, bool pagesByTma) {
  const std::optional<std::string> reason = tensorCoreRefusal(problem);
  return reason ? emitFma(problem, *reason) : emitTensorCores(problem, pagesByTma);
}

} // namespace fusion::attention
