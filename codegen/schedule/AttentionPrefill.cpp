// Configurations of the kernels of many rows: codegen/device/attention_prefill_*.cuh.
#include "codegen/schedule/AttentionBody.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

namespace {

/// Whether all rows of the operand can be read 16 bytes at a time.
bool readsVectors(const View &view) {
  constexpr int64_t length = 8;
  const auto outer = ArrayRef(view.strides).drop_back();
  return view.strides.back() == Dim(1) && view.shape.back().knownMultipleOf(length) &&
         view.offset.knownMultipleOf(length) &&
         llvm::all_of(llvm::zip(ArrayRef(view.shape).drop_back(), outer), [&](auto dim) {
           return std::get<0>(dim) == Dim(1) || std::get<1>(dim).knownMultipleOf(length);
         });
}

/// The reason why tensor cores cannot be used, or nothing.
std::optional<std::string> tensorCoreRefusal(const Problem &problem) {
  nn::AttentionOp op = problem.op;
  const DType type = dtype(op.getQ());
  if (type != DType::F16 && type != DType::BF16)
    return std::string(name(type)) + " has no matrix products";
  if (dtype(op.getK()) != type || dtype(op.getV()) != type || dtype(op.getY()) != type)
    return std::string("operands of several types");
  if (!problem.group.constant())
    return std::string("the number of heads that share keys is not static");
  for (auto [operand, what] :
       {std::pair(op.getQ(), "queries"), std::pair(op.getK(), "keys"), std::pair(op.getV(), "values")})
    if (!readsVectors(problem.view(operand)))
      return fmt::format("the {} cannot be read 16 bytes at a time", what);
  for (Operation *later : problem.region.ops)
    if (auto transpose = dyn_cast<nn::TransposeOp>(later); transpose && transpose.getPerm().back() != 3)
      return std::string("the result's rows do not lie side by side");
  return std::nullopt;
}

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

/// What one block works on.
struct Tiling {
  bool warpgroups = false; ///< wgmma, on sm_90a, else mma.sync
  int64_t warps = 4;
  int64_t rowTiles = 2;       ///< tiles of 16 rows that a warp has
  int64_t keys = 64;          ///< at a time
  int64_t residentBlocks = 1; ///< on a multiprocessor
  int64_t rows() const { return 16 * warps * rowTiles; }
};

/// As much as the registers of a thread take: of a 16 x 8 fragment of scores or accumulators it holds 4
/// elements. Of the two, warps with 32 rows are better: what they read of shared memory serves twice the
/// products.
Tiling chooseTiling(int64_t width, bool scaleOnly, const TargetInfo &target) {
  if (target.has(Feature::Wgmma))
    return {true, 8, 1, width > 128 || !scaleOnly ? 64 : 128, 1};
  if (width > 128) {
    // Blocks of 99 KiB of shared memory take half the rows.
    const bool isSmall = target.sharedBytesPerBlock < 160 << 10;
    return {false, isSmall ? 4 : 8, 1, scaleOnly ? 32 : 16, 1};
  }
  // Heads of 96 with larger tiles spill under some compilers.
  if (width > 80 && !scaleOnly)
    return {false, 8, 1, 32, 1};
  return {false, 4, 2, width > 80 || !scaleOnly ? 32 : 64, 2};
}

/// Elements from one row of a tile in shared memory to the next: PrefillShape in attention_prefill.cuh.
int64_t pitchOf(int64_t width, const Tiling &tiling) {
  return tiling.warpgroups ? llvm::alignTo(width, 64) : width + 8;
}

KernelDraft emitTensorCores(const Problem &problem) {
  constexpr double log2e = 1.4426950408889634;
  nn::AttentionOp op = problem.op;
  const int64_t depth = llvm::alignTo(problem.depth, 16), valueDepth = llvm::alignTo(problem.valueDepth, 16);
  // Scores with a cap or a mask are finished one by one. Else they stay q·k, which the exponent's factor
  // scales.
  const bool scaleOnly =
      !op.getMask() && op.getSoftcap().convertToDouble() <= 0 && op.getScale().convertToDouble() > 0;
  const Tiling tiling = chooseTiling(std::max(depth, valueDepth), scaleOnly, problem.context.target);
  KernelBuilder kernel(problem, tiling.warpgroups ? "prefill_sm90" : "prefill_mma",
                       {.batch = static_cast<bool>(op.getCausal()), .score = !scaleOnly});
  kernel.config("warps", tiling.warps);
  kernel.config("row_tiles", tiling.rowTiles);
  kernel.config("tile_keys", tiling.keys);
  kernel.config("scale_only", scaleOnly);
  kernel.config("exponent_scale",
                scaleOnly ? static_cast<double>(op.getScale().convertToFloat()) * log2e : log2e);
  const int64_t keyPitch = pitchOf(depth, tiling), valuePitch = pitchOf(valueDepth, tiling);
  KernelDraft draft =
      kernel.finish({tiling.rows(), tiling.warps, tiling.residentBlocks, 1,
                     2 * (tiling.rows() * keyPitch + 2 * tiling.keys * (keyPitch + valuePitch))});
  if (tiling.warpgroups)
    draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma);
  return draft;
}

} // namespace

KernelDraft emitPrefill(const Problem &problem) {
  const std::optional<std::string> reason = tensorCoreRefusal(problem);
  return reason ? emitFma(problem, *reason) : emitTensorCores(problem);
}

} // namespace fusion::attention
