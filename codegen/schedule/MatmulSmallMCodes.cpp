// The configuration of gemm_small_m_codes: up to 32 rows of A, quantised B whose codes warps copy to shared
// memory and decode in registers.
#include "codegen/schedule/MatmulCodes.h"
#include "codegen/schedule/MatmulSource.h"

#include <fmt/format.h>

namespace fusion::matmul {

namespace {
constexpr int64_t mostRows = 32, tile = 16; // columns of C that a warp computes at once
constexpr int64_t leastScaleDepth = 16;     // codes along k that share a scale
constexpr int64_t wordBytes = 16;

/// Rows that lie in shared memory, and of products: as in gemm_small_m_codes.cuh.
int64_t productRows(const Problem &problem) { return (rowsAtOnce(problem) + 7) / 8 * 8; }
int64_t heldRows(const Problem &problem) {
  const int64_t rows = rowsAtOnce(problem);
  return rows < 8 ? rows : productRows(problem);
}

/// Warps of a block. Two accumulators, or many rows, leave registers for no more; of few rows there are two
/// blocks on a multiprocessor.
int64_t warpsOf(const Problem &problem) {
  return problem.accumulators() > 1 || productRows(problem) != 16 ? 8 : 16;
}
int64_t laneCodes(const Problem &problem) { return 8 * wordBytes / codeBits(problem.b); }

/// How columns and K are shared out.
struct Sharing {
  /// Of a launch on a multiprocessor. Of two one multiplies while the other adds up, or waits for its rows;
  /// and one by one they make room for the next kernel's.
  int64_t blocks = 1;
  int64_t depth = 0;  ///< of a step along K
  int64_t kSplit = 1; ///< warps that share out K of a tile
  int64_t stages = 2; ///< steps that a warp has on their way
};

/// Aligned words of 16 bytes that hold the entries of a step, wherever they begin.
int64_t wordsOf(const Problem &problem, bool isScale, int64_t depth) {
  const int64_t shared = scaleDepth(problem, depth);
  auto entryOf = [&](const Matmul &matmul) -> const std::optional<ScaleOrZero> & {
    return isScale ? matmul.b.decode->scale : matmul.b.decode->zero;
  };
  const std::optional<ScaleOrZero> &first = entryOf(problem.matmuls.front());
  if (shared == 0 || !first || first->literal)
    return 0;
  const int64_t bits = entryBits(*first), entries = depth / shared, whole = (entries * bits + 127) / 128;
  const bool areAligned = llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
    const ScaleOrZero &entry = *entryOf(matmul);
    return entry.offset.knownMultipleOf(entries) && entry.columnStride.knownMultipleOf(entries);
  });
  return areAligned && (128 % (entries * bits) == 0 || entries * bits % 128 == 0) ? whole : whole + 1;
}

/// Whether rows of scales and zero points begin and end with words.
bool hasWholeWords(const Problem &problem) {
  return llvm::all_of(problem.matmuls, [](const Matmul &matmul) {
    auto isWhole = [](const std::optional<ScaleOrZero> &entry) {
      if (!entry || entry->literal)
        return true;
      const int64_t perWord = 8 * wordBytes / entryBits(*entry);
      return entry->offset.knownMultipleOf(perWord) && entry->columnStride.knownMultipleOf(perWord);
    };
    return isWhole(matmul.b.decode->scale) && isWhole(matmul.b.decode->zero);
  });
}

int64_t stageBytes(const Problem &problem, int64_t depth) {
  const int64_t entries = wordsOf(problem, true, depth) + wordsOf(problem, false, depth);
  return static_cast<int64_t>(problem.accumulators()) *
         (tile * depth * codeBits(problem.b) / 8 + tile * wordBytes * entries);
}
int64_t stepsOf(const Problem &problem, int64_t depth) { return (*problem.k.constant() + depth - 1) / depth; }
constexpr int64_t staticBytes = 1024; // sums of a prologue
/// Beside the ring: A, and the partial sums of all warps.
int64_t otherBytes(const Problem &problem, int64_t depth) {
  const int64_t pitch = stepsOf(problem, depth) * depth + 32, parts = 20 * productRows(problem) * 4;
  const int64_t warps = warpsOf(problem),
                largest = problem.largest == Problem::Largest::None ? 0 : 8 * warps * heldRows(problem);
  return largest + heldRows(problem) * pitch * 2 +
         warps * parts * static_cast<int64_t>(problem.accumulators());
}
int64_t fittingStages(const Problem &problem, int64_t depth, int64_t blocks, const TargetInfo &target) {
  constexpr int64_t ofSystem = 1024; // of each block
  const int64_t bytes = (target.sharedBytesPerBlock + ofSystem) / blocks - ofSystem;
  return (bytes - otherBytes(problem, depth) - staticBytes) / (warpsOf(problem) * stageBytes(problem, depth));
}

/// The fewest codes one after the other of a warp, and of as few the most blocks; none if A leaves no room.
Sharing chooseSharing(const Problem &problem, int64_t blocks, const TargetInfo &target) {
  // What adding up and the epilogue cost, in vectors of codes; part of it where another block multiplies
  // meanwhile. What a block without another takes longer.
  constexpr double perTurn = 1, perSharedTurn = 0.25, alone = 0.4;
  const int64_t tiles = *columnTiles(problem, tile).constant(), span = 4 * laneCodes(problem),
                warps = warpsOf(problem);
  Sharing best;
  double least = 0;
  for (int64_t pieces : {2, 1})
    for (int64_t kSplit = warps; kSplit >= 1; kSplit /= 2) {
      const int64_t depth = pieces * span, atOnce = warps / kSplit * target.multiprocessors,
                    turns = llvm::divideCeil(tiles, atOnce), ofBlock = llvm::divideCeil(turns, blocks),
                    steps = llvm::divideCeil(stepsOf(problem, depth), kSplit),
                    fitting = fittingStages(problem, depth, blocks, target);
      const double vectors = static_cast<double>(steps * pieces),
                   cost = blocks > 1 ? static_cast<double>(turns) * (vectors + perSharedTurn) +
                                           (turns % 2 ? alone * vectors : 0)
                                     : static_cast<double>(turns) * (vectors + perTurn);
      if (fitting < 2 || (best.depth && cost >= least))
        continue;
      least = cost;
      best = {blocks, depth, kSplit, std::min(fitting, std::max(int64_t(2), ofBlock * steps))};
    }
  return best;
}
Sharing chooseSharing(const Problem &problem, const TargetInfo &target) {
  if (productRows(problem) <= 8)
    if (Sharing two = chooseSharing(problem, 2, target); two.depth)
      return two;
  return chooseSharing(problem, 1, target);
}

bool takesEntry(const Problem &problem, const std::optional<ScaleOrZero> &entry,
                const std::optional<ScaleOrZero> &first, bool isZero) {
  if (entry.has_value() != first.has_value())
    return false;
  if (!entry)
    return true;
  if (bool(entry->literal) != bool(first->literal) || entry->type != first->type ||
      (isZero && isFloat(entry->type)))
    return false;
  const int64_t neighbours = neighboursPerScale(problem);
  return entry->literal || neighbours == 0 ||
         (entry->rowBlock == neighbours && entry->rowStrides.size() == 1 && entry->rowStrides[0] == Dim(1));
}
bool takesWeights(const Problem &problem, const Matmul &matmul) {
  const std::optional<Decode> &decode = matmul.b.decode, &first = problem.b.decode;
  return decode && decode->scale && matmul.b.rowStride == Dim(1) && matmul.b.type == problem.b.type &&
         matmul.b.packed == problem.b.packed && matmul.n.constant() &&
         takesEntry(problem, decode->scale, first->scale, false) &&
         takesEntry(problem, decode->zero, first->zero, true);
}
} // namespace

int64_t smallMCodesRows(const Problem &problem, const TargetInfo &target) {
  const std::optional<Decode> &decode = problem.b.decode;
  if (problem.routing || !problem.batch.empty() || problem.accumulators() > 2)
    return 0;
  if (!decode || !decode->scale || (decode->type != DType::BF16 && decode->type != DType::F16) ||
      problem.a.decode || problem.a.type != decode->type || byteSize(problem.b.type) != 1 ||
      (decode->scale->literal && neighboursPerScale(problem) != 0) || decode->scale->type == DType::F64 ||
      (isFloat(problem.b.type) && !target.has(Feature::F8Conversions)))
    return 0;
  if (!llvm::all_of(problem.matmuls, [&](const Matmul &matmul) { return takesWeights(problem, matmul); }))
    return 0;
  const int64_t neighbours = neighboursPerScale(problem), codes = laneCodes(problem), span = 4 * codes;
  if (neighbours % leastScaleDepth != 0 ||
      (neighbours != 0 && span % neighbours != 0 && neighbours % (2 * span) != 0) ||
      problem.k.constant().value_or(0) < span || !problem.k.knownMultipleOf(codes) ||
      (problem.prologue.empty() && !readsVectors(problem, true, 8, 8)) ||
      !readsVectors(problem, false, codes, codes))
    return 0;
  return problem.prologue.empty() ? mostRows : smallMCodesAlone;
}

bool isSmallMCodes(const Problem &problem, const TargetInfo &target) {
  return problem.leastRows >= 1 && problem.mostRows <= smallMCodesRows(problem, target) &&
         chooseSharing(problem, target).depth > 0;
}

/// Whether integers are multiplied, and the scale with the sum of 32 products.
static bool scalesSums(const Problem &problem, int64_t scaleDepth) {
  return codeBits(problem.b) == 4 && scaleDepth % 32 == 0 &&
         llvm::all_of(problem.matmuls, [](const Matmul &matmul) { return matmul.b.decode->unrounded; });
}

bool prefersSmallMCodes(const Problem &problem, const TargetInfo &target) {
  return problem.mostRows <= smallMCodesAlone && isSmallMCodes(problem, target) &&
         (!problem.prologue.empty() ||
          scalesSums(problem, scaleDepth(problem, chooseSharing(problem, target).depth)));
}

static int64_t blocksOf(const Problem &problem, const Sharing &sharing, const TargetInfo &target) {
  const int64_t sides = warpsOf(problem) / sharing.kSplit, tiles = *columnTiles(problem, tile).constant();
  return std::min<int64_t>(sharing.blocks * target.multiprocessors, (tiles + sides - 1) / sides);
}
int64_t smallMCodesWarps(const Problem &problem, const TargetInfo &target) {
  return warpsOf(problem) * blocksOf(problem, chooseSharing(problem, target), target);
}

KernelDraft emitSmallMCodes(const Region &region, const KernelContext &context, const Problem &problem) {
  const Sharing sharing = chooseSharing(problem, context.target);
  const int64_t warps = warpsOf(problem);
  GemmSource source(region, context, problem, "gemm_small_m_codes");
  source.setType("type", body::spelling(problem.a.type));
  source.set("rows", rowsAtOnce(problem) < 8 ? rowsAtOnce(problem) : productRows(problem));
  source.set("warps", warps);
  source.set("k_split", sharing.kSplit);
  source.set("depth", sharing.depth);
  source.set("stages", sharing.stages);
  const int64_t depth = scaleDepth(problem, sharing.depth);
  source.set("scale_depth", depth);
  source.set("scale_fits", scaleFits(problem));
  source.set("scales_sums", scalesSums(problem, depth));
  source.set("scale_words", wordsOf(problem, true, sharing.depth));
  source.set("zero_words", wordsOf(problem, false, sharing.depth));
  source.set("whole_steps", problem.k.knownMultipleOf(sharing.depth));
  source.set("whole_tiles", llvm::all_of(problem.matmuls, [](const Matmul &matmul) {
               return matmul.n.knownMultipleOf(tile);
             }));
  source.set("whole_words", hasWholeWords(problem));
  Sums sums{DType::F32, resultVector(problem, 4), /*readsAhead=*/true};
  if (problem.largest != Problem::Largest::None) {
    sums.partsOfRow = smallMCodesWarps(problem, context.target);
    sums.warps = warps;
  }
  source.set("vector", sums.width);
  source.set("weights_before_wait", readsCodesEarly(problem, context));
  if (context.mayLaunchEarly)
    source.set("launches_early", true);
  if (depth > 0)
    source.nameEntries();
  if (!problem.prologue.empty()) {
    const int64_t k = *problem.k.constant();
    source.set("prologue_k", k);
    source.computeRows(fmt::format("ComputedCodeRows<{}, {}, {}, {}>", body::spelling(problem.a.type),
                                   codeBits(problem.b), k, stepsOf(problem, sharing.depth) * sharing.depth),
                       {.held = 32, .ahead = 32});
  }
  KernelDraft draft =
      source.finish(sums, static_cast<uint32_t>(32 * warps), static_cast<uint32_t>(sharing.blocks),
                    /*takesPrologue=*/true);
  draft.launchesEarly = context.mayLaunchEarly;
  if (isFloat(problem.b.type))
    draft.kernel.features |= static_cast<uint32_t>(Feature::F8Conversions);
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(
      sharing.stages * warps * stageBytes(problem, sharing.depth) + otherBytes(problem, sharing.depth));
  draft.gridX = blocksOf(problem, sharing, context.target);
  return draft;
}

} // namespace fusion::matmul
