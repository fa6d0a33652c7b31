// The configuration of gemm_sm100: many rows by tcgen05.
#include "codegen/schedule/MatmulRing.h"

using namespace mlir;

namespace fusion::matmul {

namespace {
constexpr uint32_t threads = 320;
constexpr int64_t reservedBytes = 1024; ///< what the source declares

bool multipliesIntegers(const Problem &problem) { return ringBytes(problem) && !isFloat(problem.a.type); }

int64_t stagesOf(const Problem &problem, const TargetInfo &target, int64_t width) {
  return ringStages(problem, target, width, reservedBytes);
}

/// Widths of a tile, of each accumulator, that the template takes, the widest first: of which shared memory
/// holds enough steps.
SmallVector<int64_t> widthsOf(const Problem &problem, const TargetInfo &target) {
  constexpr int64_t leastStages = 3;
  // Two tiles of sums have 512 columns of tensor memory. By depth, B lies in panels of 64 columns.
  const auto sums = static_cast<int64_t>(problem.accumulators());
  const int64_t step = isKMajor(problem, false) ? 32 : 64;
  SmallVector<int64_t> widths;
  for (int64_t width = 256 / sums; width >= 64; width -= step)
    if (stagesOf(problem, target, width) >= leastStages)
      widths.push_back(width);
  return widths;
}
} // namespace

std::optional<std::string> sm100Refusal(const Problem &problem, const TargetInfo &target) {
  if (!target.has(Feature::Tcgen05) || !target.has(Feature::Tma))
    return "the GPU has none";
  if (auto reason = typeRefusal(problem))
    return reason;
  if (scalesSteps(problem))
    return "scales differ along k";
  if (multipliesIntegers(problem) && !target.has(Feature::Tcgen05Integers))
    return "on this GPU it does not multiply integers";
  if (widthsOf(problem, target).empty())
    return "shared memory is too small";
  return rowsRefusal(problem);
}

SmallVector<int64_t> sm100Limits(const Problem &problem, const TargetInfo &target) {
  Problem many = problem;
  many.leastRows = many.mostRows = 128;
  if (sm100Refusal(many, target))
    return {};
  return {16, 128, 512, 2048}; // as of gemm_sm90
}

KernelDraft emitSm100(const Region &region, const KernelContext &context, const Problem &problem) {
  const int64_t width = chooseWidth(widthsOf(problem, context.target), problem, context.target),
                stages = stagesOf(problem, context.target, width);
  GemmSource source(region, context, problem, "gemm_sm100");
  setTiles(source, problem, width, stages);
  return finishTiles(source, problem, context.target, width, stages, threads,
                     multipliesIntegers(problem) ? Feature::Tcgen05 | Feature::Tcgen05Integers
                                                 : Feature::Tcgen05);
}

} // namespace fusion::matmul
