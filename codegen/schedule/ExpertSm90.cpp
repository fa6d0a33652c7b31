// Many rows by their experts' matrices on sm_90a: a kernel that puts the rows in order, and the products.
#include "codegen/schedule/ExpertMatmul.h"
#include "codegen/schedule/MatmulRing.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::experts {

using matmul::Problem;

namespace {
constexpr int64_t boxBytes = 64 * 128; ///< of B: 64 columns, 64 elements along k

/// What a block has in shared memory, as in expert_ring.cuh.
struct Ring {
  int64_t rows = 0; ///< of a tile
  int64_t stages = 0;
  static constexpr int64_t staged = 4 * boxBytes / 2; ///< bytes of results that wait
  int64_t bytes() const { return 1024 + stages * (4 * boxBytes + 128 * rows) + staged; }
};

/// The most rows that leave room for four steps, or three: a thread has registers for the sums of 160.
Ring ringOf(const Problem &problem, const TargetInfo &target) {
  const int64_t declared = 512 + 4 * problem.routing->experts; // by the kernel
  for (int64_t stages : {4, 3})
    for (int64_t rows = 160; rows >= 128; rows -= 8)
      if (const Ring ring{rows, stages}; ring.bytes() + declared <= target.sharedBytesPerBlock)
        return ring;
  return {};
}

/// Columns of C that a tile has.
int64_t tileColumns(const Problem &problem) { return 256 / static_cast<int64_t>(problem.accumulators()); }

TensorMapArgument mapOf(const Problem &problem, const matmul::Matmul &matmul) {
  TensorMapArgument map = matmul::mapOfB(problem, matmul, 64);
  map.shape[0] = problem.routing->experts;
  map.strides[0] = matmul.b.batchStrides[0];
  return map;
}

Dim planElements(const Problem &problem) { return problem.m + Dim(problem.routing->experts + 2); }
} // namespace

bool takesSm90(const Problem &problem, const TargetInfo &target) {
  auto isOne = [](const matmul::Matmul &matmul) { return matmul.b.batchStrides[0] == Dim(0); };
  return !matmul::ringRefusal(problem, target) && !matmul::ringBytes(problem) && !problem.sideBySide() &&
         llvm::none_of(problem.matmuls, isOne) && problem.k.constant() && problem.n.constant() &&
         matmul::readsVectors(problem, true, 8, 8) &&
         ringOf(problem, target).stages > 0;
}

KernelDraft emitPlan(const Region &region, const KernelContext &context) {
  constexpr int64_t threads = 1024;
  auto analysed = matmul::analyseExperts(region, context);
  const Problem &problem = std::get<Problem>(analysed);
  body::KernelSource source(region, context.inputs);
  source.config.set("threads", threads);
  source.include("expert_plan.cuh");
  source.declare(source.config.text());
  const std::string routing = matmul::declareRouting(source, problem);
  const std::string code =
      fmt::format("  expert_plan<Config>({}, {});\n", routing, source.scratch(planElements(problem), true));
  KernelDraft draft = source.finish({.schedule = "experts",
                                     .code = code,
                                     .name = fmt::format("expert_plan_{}", problem.routing->experts),
                                     .threads = static_cast<uint32_t>(threads),
                                     .residentBlocks = 1});
  draft.gridX = problem.routing->experts;
  return draft;
}

KernelDraft emitSm90(const Region &region, const KernelContext &context) {
  auto analysed = matmul::analyseExperts(region, context);
  const Problem &problem = std::get<Problem>(analysed);
  matmul::GemmSource source(region, context, problem, "expert_sm90");
  const Ring ring = ringOf(problem, context.target);
  const matmul::Sums sums = matmul::ringSums(problem);
  source.setType("type", body::spelling(problem.a.type));
  source.setType("result", body::spelling(sums.type));
  source.set("vector", sums.width);
  source.set("k_major", matmul::isKMajor(problem, false));
  source.set("tile_rows", ring.rows);
  source.set("stages", ring.stages);
  KernelDraft draft =
      source.finishExperts(sums, matmul::ringThreads, planElements(problem),
                           [&](const matmul::Matmul &matmul) { return mapOf(problem, matmul); });
  draft.kernel.schedule = "experts";
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(ring.bytes());
  draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma | Feature::Tma);
  draft.gridX = Dim::min(Dim(context.target.multiprocessors),
                         (problem.m.ceilDiv(ring.rows) + expertGroups(problem)) *
                             problem.n.ceilDiv(tileColumns(problem)));
  return draft;
}

} // namespace fusion::experts
