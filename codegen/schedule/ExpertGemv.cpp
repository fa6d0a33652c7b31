// The configuration of expert_gemv: the rows of a few tokens, each by its expert's matrix, with the sum over
// the slots in the same kernel.
#include "codegen/schedule/ExpertMatmul.h"
#include "codegen/schedule/MatmulSource.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::experts {

using matmul::Problem;

namespace {
constexpr int64_t lanes = 32, mostRows = 32; // mostRows as in expert_gemv.cuh
constexpr int64_t residentWarps = 16;        ///< on a multiprocessor
/// Loads of 16 bytes that a lane has in flight. Fewer leave registers for blocks of the next kernel, which
/// ask for their weights before this one has finished: that is faster where this one takes less than 50 µs or
/// so.
constexpr int64_t loadsIfShort = 8, loadsIfLong = 16, longBytes = 200 << 20;

/// What two blocks of a multiprocessor keep of A leaves most of the L1.
constexpr int64_t mostKeptBytes = 16 << 10;

int64_t vectorOf(const Problem &problem) { return 16 / static_cast<int64_t>(byteSize(problem.b.type)); }

/// What a warp computes at once.
struct Sharing {
  int64_t warps = 4, columns = 1, unroll = 1, kSplit = 1;
  int64_t residentBlocks() const { return residentWarps / warps; }
};

/// The steps along K of a warp.
int64_t stepsOf(const Problem &problem, int64_t kSplit) {
  return llvm::divideCeil(*problem.k.constant(), lanes * vectorOf(problem) * kSplit);
}

/// As many steps at once as divide all, or nearly so.
int64_t chooseUnroll(int64_t steps, int64_t most) {
  const int64_t parts = llvm::divideCeil(steps, std::max<int64_t>(most, 1));
  return llvm::divideCeil(steps, parts);
}

bool divides(const Problem &problem, int64_t columns) { return *problem.n.constant() % columns == 0; }

bool isLong(const Problem &problem) {
  return problem.mostRows * *problem.n.constant() * *problem.k.constant() *
             static_cast<int64_t>(problem.accumulators() * byteSize(problem.b.type)) >
         longBytes;
}

Sharing shareColumns(const Problem &problem) {
  const auto matmuls = static_cast<int64_t>(problem.accumulators());
  const int64_t loads = isLong(problem) ? loadsIfLong : loadsIfShort;
  Sharing sharing;
  sharing.warps = isLong(problem) ? 4 : 8;
  sharing.unroll = chooseUnroll(stepsOf(problem, 1), loads / matmuls);
  while (sharing.columns < 4 && 2 * sharing.columns * sharing.unroll * matmuls <= loads &&
         divides(problem, 2 * sharing.columns))
    sharing.columns *= 2;
  return sharing;
}

/// A block has all slots of its columns: all blocks should be on the GPU at once, and all slots too.
Sharing shareSlots(const Problem &problem, int64_t slots, const TargetInfo &target) {
  Sharing sharing;
  sharing.warps = slots > 4 ? 8 : 4;
  while (2 * sharing.kSplit * slots <= sharing.warps && stepsOf(problem, 2 * sharing.kSplit) > 1)
    sharing.kSplit *= 2;
  const int64_t resident = sharing.residentBlocks() * target.multiprocessors, n = *problem.n.constant();
  while (sharing.columns < 8 && divides(problem, 2 * sharing.columns) && n / sharing.columns > resident)
    sharing.columns *= 2;
  const int64_t loads = sharing.warps > 4 ? loadsIfShort : loadsIfLong;
  sharing.unroll = chooseUnroll(stepsOf(problem, sharing.kSplit), loads / sharing.columns);
  return sharing;
}

void configure(matmul::GemmSource &source, const Problem &problem, const Sharing &sharing) {
  source.set("warps", sharing.warps);
  source.set("k_split", sharing.kSplit);
  source.set("columns", sharing.columns);
  source.set("vector", vectorOf(problem));
  source.set("unroll", sharing.unroll);
  source.set("whole_steps",
             problem.k.knownMultipleOf(lanes * vectorOf(problem) * sharing.kSplit * sharing.unroll));
  source.setWeightsBeforeWait();
}
/// Whether the kernels compute the products of up to `mostTokens` tokens.
bool takes(const Problem &problem, int64_t mostTokens) {
  const std::optional<int64_t> slots =
      problem.rowDims.empty() ? std::nullopt : problem.rowDims.back().constant();
  if (!slots || *slots > mostRows || problem.leastRows < 1 || problem.mostRows > mostRows ||
      problem.mostRows > mostTokens * *slots || problem.sideBySide() || problem.a.decode ||
      problem.b.decode || matmul::gemvRows(problem) == 0 || !problem.k.constant() ||
      *problem.k.constant() == 0 || problem.n.constant().value_or(0) == 0)
    return false;
  return matmul::readsVectors(problem, true, vectorOf(problem), vectorOf(problem)) &&
         matmul::readsVectors(problem, false, vectorOf(problem), vectorOf(problem)) &&
         llvm::all_of(problem.matmuls, [&](const matmul::Matmul &matmul) {
           return !matmul.b.decode && matmul.b.type == problem.a.type;
         });
}
} // namespace

// Tokens choose the same expert now and then, and its matrix is read for each: from two tokens on that costs
// more than looking for its rows does, but, up to four, less than a kernel for the sum. Measured on an H200.
bool takesGemv(const Problem &problem) { return takes(problem, 1); }
bool takesGemvSum(const Problem &problem) { return takes(problem, mostSumTokens); }

KernelDraft emitGemv(const Region &region, const KernelContext &context, const Problem &problem) {
  const Sharing sharing = shareColumns(problem);
  matmul::GemmSource source(region, context, problem, "expert_gemv");
  configure(source, problem, sharing);
  // All rows are the same one of A, if that has no dim of slots: there is one token.
  if (problem.rowStrides.back() == Dim(0) && problem.a.offset == Dim(0) &&
      context.isIndependentOfPredecessor(problem.a.input) &&
      *problem.k.constant() * static_cast<int64_t>(byteSize(problem.a.type)) <= mostKeptBytes)
    source.set("kept_row", *problem.k.constant());
  const int64_t blocks = sharing.residentBlocks() - (isLong(problem) ? 1 : 0);
  KernelDraft draft =
      source.finish({}, static_cast<uint32_t>(sharing.warps * lanes), static_cast<uint32_t>(blocks),
                    /*takesPrologue=*/false);
  draft.gridX = Dim::min(Dim(blocks * context.target.multiprocessors),
                         (problem.m * (problem.n.floorDiv(sharing.columns))).ceilDiv(sharing.warps));
  return draft;
}

KernelDraft emitGemvSum(const Sum &sum, const Region &region, const KernelContext &context,
                        const Problem &problem) {
  const int64_t slots = *problem.rowDims.back().constant();
  const Sharing sharing = shareSlots(problem, slots, context.target);
  matmul::GemmSource source(region, context, problem, "expert_gemv_sum");
  configure(source, problem, sharing);
  source.set("slots", slots);
  body::KernelSource &kernel = source.kernel();
  kernel.include("expert_gemv.cuh");
  kernel.declare(kernel.config.text());
  SmallVector<std::string> arguments = source.operands();
  arguments.push_back(source.declareEpilogue("Products", sum.products, problem, /*handsOut=*/true));
  arguments.push_back(
      source.declareEpilogue("Epilogue", sum.rest, sumProblem(sum, context), /*handsOut=*/false));
  KernelDraft draft =
      kernel.finish({.schedule = "experts",
                     .code = fmt::format("  expert_gemv_sum<Config>({});\n", llvm::join(arguments, ", ")),
                     .name = source.kernelName(),
                     .threads = static_cast<uint32_t>(sharing.warps * lanes),
                     .residentBlocks = static_cast<uint32_t>(sharing.residentBlocks())});
  draft.gridX = problem.m.floorDiv(slots) * problem.n.floorDiv(sharing.columns);
  return draft;
}

} // namespace fusion::experts
