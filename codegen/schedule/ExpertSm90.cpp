// Many rows by their experts' matrices on sm_90a: a kernel that puts the rows in order, and the products.
#include "codegen/schedule/ExpertMatmul.h"
#include "codegen/schedule/MatmulRing.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::experts {

using matmul::Problem;

namespace {
int64_t stagesOf(const Problem &problem, const TargetInfo &target, int64_t width) {
  const int64_t reserved = 2048 + 4 * problem.routing->experts; // what the source declares
  return matmul::ringStages(problem, target, width, reserved);
}

TensorMapArgument mapOf(const Problem &problem, const matmul::Matmul &matmul, int64_t width) {
  TensorMapArgument map = matmul::mapOfB(problem, matmul, width);
  map.shape[0] = problem.routing->experts;
  map.strides[0] = matmul.b.batchStrides[0];
  return map;
}

/// Whether the matrices of an expert stay in the L2 beside those of the next: then a tile of rows is
/// multiplied by all columns, else a tile of columns by all rows.
bool columnsFirst(const Problem &problem, const TargetInfo &target) {
  const int64_t bytes =
      2 * *problem.n.constant() * *problem.k.constant() * static_cast<int64_t>(problem.accumulators());
  return 4 * bytes <= target.l2Bytes;
}

Dim planElements(const Problem &problem) { return problem.m + Dim(problem.routing->experts + 2); }
} // namespace

bool takesSm90(const Problem &problem, const TargetInfo &target) {
  auto isOne = [](const matmul::Matmul &matmul) { return matmul.b.batchStrides[0] == Dim(0); };
  return !matmul::ringRefusal(problem, target) && !matmul::ringBytes(problem) && !problem.sideBySide() &&
         llvm::none_of(problem.matmuls, isOne) && problem.k.constant() && problem.n.constant() &&
         matmul::readsVectors(problem, true, 8, 8) &&
         stagesOf(problem, target, 256 / static_cast<int64_t>(problem.accumulators())) >= 3;
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
  const int64_t width = matmul::ringWidths(region, problem).front(),
                stages = stagesOf(problem, context.target, width);
  matmul::setRing(source, problem, width, stages);
  source.set("columns_first", columnsFirst(problem, context.target));
  source.set("gathered", true);
  KernelDraft draft =
      source.finishExperts(matmul::ringSums(problem), matmul::ringThreads, planElements(problem),
                           [&](const matmul::Matmul &matmul) { return mapOf(problem, matmul, width); });
  draft.kernel.schedule = "experts";
  matmul::finishRing(draft, problem, width, stages, Feature::Wgmma);
  draft.gridX =
      Dim::min(Dim(context.target.multiprocessors),
               (problem.m.ceilDiv(matmul::ringRows) + expertGroups(problem)) * problem.n.ceilDiv(width));
  return draft;
}

} // namespace fusion::experts
