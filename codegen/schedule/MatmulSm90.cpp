// The configuration of gemm_sm90: many rows by warpgroups.
#include "codegen/schedule/MatmulRing.h"

using namespace mlir;

namespace fusion::matmul {

namespace {
constexpr int64_t reservedBytes = 2048; ///< what the source declares
} // namespace

std::optional<std::string> sm90Refusal(const Problem &problem, const TargetInfo &target) {
  if (auto reason = ringRefusal(problem, target))
    return reason;
  return rowsRefusal(problem);
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
  const int64_t width = chooseWidth(ringWidths(region, problem), problem, context.target),
                stages = ringStages(problem, context.target, width, reservedBytes);
  GemmSource source(region, context, problem, "gemm_sm90");
  setRing(source, problem, width, stages);
  return finishTiles(source, problem, context.target, width, stages, ringThreads, Feature::Wgmma);
}

} // namespace fusion::matmul
