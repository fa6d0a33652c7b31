// The configuration of gemm_small_m: up to 64 rows on tensor cores, B straight from memory.
#include "codegen/schedule/MatmulSource.h"

namespace fusion::matmul {

namespace {
constexpr int64_t mostRows = 64, vector = 8; // elements along k that are multiplied at once, 16 bytes

/// The warps on a multiprocessor that keep its share of the memory busy.
constexpr int64_t busyWarps = 16;

int64_t bitsOf(const Operand &operand) {
  return operand.packed ? 4 : 8 * static_cast<int64_t>(byteSize(operand.type));
}

/// How B's columns and K are shared out. Measured on an H200, see benchmarks/notes-matmul.md.
struct Sharing {
  int64_t tiles = 1;  ///< of 16 columns, that a warp computes of each matmul
  int64_t warpsN = 1; ///< warps of a block side by side: they read the same rows of A at about the same time
  int64_t kSplit = 2; ///< warps that share out K
  int64_t stages = 2; ///< K steps whose loads a warp has in flight
  int64_t width() const { return 16 * tiles; }
  int64_t columns() const { return width() * warpsN; }
  int64_t threads() const { return 32 * warpsN * kSplit; }
};

/// How many groups of rows have blocks of their own: experts that are chosen.
int64_t groupsOfRows(const Problem &problem) {
  return problem.routing ? std::min(problem.mostRows, problem.routing->experts) : 1;
}

/// Rows of A are loaded when they are multiplied. Of experts with more than eight of them more warps, with
/// fewer loads of B on their way each, wait for that. Mixtral's products of 32 tokens on an H200: 494 µs
/// became 436, and 323 became 220.
bool waitsForRows(const Problem &problem) {
  const int64_t rows = rowsAtOnce(problem);
  return problem.routing && isKMajor(problem, false) && rows > 8 && rows <= 16 && !problem.b.decode;
}

/// All blocks should be on the GPU at once, with as many warps for each matmul.
Sharing chooseSharing(const Problem &problem, const TargetInfo &target) {
  const int64_t processors = target.multiprocessors;
  const bool kMajor = isKMajor(problem, false);
  const int64_t rows = rowsAtOnce(problem);
  const auto matmuls = static_cast<int64_t>(problem.accumulators());
  Sharing sharing;
  auto blocks = [&](int64_t columns) {
    return columnTiles(problem, columns).constant().value_or(processors) *
           problem.batchCount().constant().value_or(1) * groupsOfRows(problem);
  };
  const int64_t enough = processors * 9 / 10;
  // Registers of a thread, about: loads, accumulators, addresses.
  auto registers = [&] {
    const int64_t groups = (rows + 7) / 8, decoded = !kMajor || problem.b.decode ? 8 : 0;
    const int64_t loads = (kMajor ? 16 : 8) * sharing.stages + decoded + 4;
    return (groups > 2 ? 64 : 40) + 2 * groups + matmuls * sharing.tiles * (loads + 4 * groups);
  };
  auto fits = [&](int64_t kSplit) {
    return 32 * sharing.warpsN * kSplit * registers() <= target.registersPerMultiprocessor;
  };
  // Of more rows than a multiprocessor's L1 holds, warps side by side save what they would read from the L2.
  if (kMajor && rows > 16) {
    sharing.stages = 1;
    const int64_t each = (blocks(16) + processors - 1) / processors; // tiles of 16 columns
    if (matmuls == 1 && rows <= 32) {
      sharing.tiles = blocks(64) >= enough ? 2 : 1;
      sharing.warpsN = sharing.tiles;
      sharing.kSplit = sharing.tiles == 2 ? 4 : 8;
      if (sharing.tiles == 1)
        sharing.stages = 2;
    } else {
      const int64_t warps = rows > 32 ? 8 : busyWarps; // registers for the accumulators
      sharing.warpsN = each <= warps / 2 ? each : 4;
      sharing.kSplit = warps / sharing.warpsN;
    }
    while (sharing.kSplit > 1 && !fits(sharing.kSplit))
      --sharing.kSplit;
    return sharing;
  }
  if (!kMajor) // 128, 64 or 32 bytes of a line of 16-bit elements
    sharing.tiles = 4;
  else if (matmuls == 1)
    sharing.tiles = 2;
  const int64_t fewest = !kMajor ? std::max<int64_t>(1, 16 / bitsOf(problem.b)) : 1; // 4 bytes of a line
  while (sharing.tiles > fewest && (blocks(sharing.columns()) < enough || (rows > 16 && registers() > 240)))
    sharing.tiles /= 2;
  if (matmuls * sharing.tiles * (!kMajor && rows > 8 ? 2 : 1) > 4 || rows > 32)
    sharing.stages = 1;
  if (waitsForRows(problem)) {
    const int64_t steps = problem.k.constant().value_or(0) / 64, most = 8 / matmuls;
    while (sharing.kSplit < most && steps >= 2 * 8 * sharing.kSplit)
      sharing.kSplit *= 2;
    sharing.stages = 1;
    return sharing;
  }
  while (sharing.kSplit < busyWarps &&
         2 * sharing.kSplit * matmuls * blocks(sharing.columns()) <= processors * busyWarps) {
    if (fits(2 * sharing.kSplit))
      sharing.kSplit *= 2;
    else if (sharing.stages > 1)
      sharing.stages = 1;
    else
      break;
  }
  if (sharing.kSplit == 16 && kMajor && matmuls * sharing.tiles > 1) // enough is on its way
    sharing.stages = 1;
  return sharing;
}
} // namespace

int64_t smallMRows(const Problem &problem) {
  if (!problem.prologue.empty() || multipliesBytes(problem) || !tensorCoreType(problem))
    return 0;
  const DType type = *tensorCoreType(problem);
  auto fits = [&](const Operand &operand) {
    return operand.decode ? operand.decode->type == type && byteSize(operand.type) == 1
                          : operand.type == type;
  };
  if (problem.a.decode || !fits(problem.a) ||
      !llvm::all_of(problem.matmuls, [&](const Matmul &matmul) { return fits(matmul.b); }))
    return 0;
  const bool loadsCodes = isKMajor(problem, false) && problem.b.decode;
  const int64_t length = loadsCodes ? std::max(vector, 128 / bitsOf(problem.b)) : vector;
  return readsVectors(problem, true, vector, vector) && readsVectors(problem, false, length, length)
             ? mostRows
             : 0;
}

bool isSmallM(const Problem &problem) {
  // Quantised values of up to four rows are decoded faster where no matrix fragment needs their registers.
  const int64_t least = problem.b.decode && fewRows(problem) >= 4 ? 5 : 1;
  if (problem.routing)
    return rowsAtOnce(problem) <= smallMRows(problem);
  return problem.leastRows >= least && problem.mostRows <= smallMRows(problem);
}

KernelDraft emitSmallM(const Region &region, const KernelContext &context, const Problem &problem) {
  const Sharing sharing = chooseSharing(problem, context.target);
  const bool kMajor = isKMajor(problem, false);
  const auto matmuls = static_cast<int64_t>(problem.accumulators());
  const int64_t groups = (rowsAtOnce(problem) + 7) / 8;
  const int64_t depth =
      kMajor ? std::max<int64_t>(64, 512 / bitsOf(problem.b)) : 32; // of a step, as in gemm_small_m.cuh
  GemmSource source(region, context, problem, problem.routing ? "expert_small_m" : "gemm_small_m");
  source.setType("type", body::spelling(*tensorCoreType(problem)));
  source.set("row_tiles", groups);
  source.set("all_rows", !problem.routing && problem.leastRows >= 8 * groups);
  source.set("tiles", sharing.tiles);
  source.set("warps_n", sharing.warpsN);
  source.set("k_split", sharing.kSplit);
  source.set("stages", sharing.stages);
  source.set("whole_steps", problem.k.knownMultipleOf(depth));
  source.setWeightsBeforeWait();
  // Left to itself, the compiler spills a few registers of many to fit more blocks. Weights that are decoded
  // pay for that with two blocks a multiprocessor instead of three, from 33 rows on.
  const bool hasMany = problem.b.decode ? groups > 4
                                        : groups > 2 || waitsForRows(problem) || sharing.threads() == 512 ||
                                              (!kMajor && matmuls > 1);
  KernelDraft draft =
      source.finish({}, static_cast<uint32_t>(sharing.threads()), hasMany ? 1 : 0, /*takesPrologue=*/false);
  draft.gridX = columnTiles(problem, sharing.columns()) * problem.batchCount() * expertGroups(problem);
  return draft;
}

} // namespace fusion::matmul
