// Many rows by their experts' matrices on sm_90a: a kernel that puts the rows in order, and the products.
#include "codegen/schedule/ExpertMatmul.h"
#include "codegen/schedule/MatmulSource.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::experts {

using matmul::Problem;

namespace {
constexpr int64_t depth = 64, tileM = 128; // as in expert_sm90.cuh

/// Columns of C of a tile: the accumulators of a thread are at most 128.
int64_t tileColumns(const Problem &problem) { return problem.accumulators() > 1 ? 128 : 256; }

int64_t stageBytes(const Problem &problem) {
  return 2 * depth * (tileM + tileColumns(problem) * static_cast<int64_t>(problem.accumulators()));
}

int64_t stages(const Problem &problem, const TargetInfo &target) {
  constexpr int64_t most = 6, reserve = 4096; // alignment, and what is declared in the source
  return std::min(most, (target.sharedBytesPerBlock - reserve - 4 * problem.routing->experts) /
                            stageBytes(problem));
}

TensorMapArgument mapOf(const Problem &problem, const matmul::Matmul &matmul) {
  TensorMapArgument map;
  const auto bytes = static_cast<int64_t>(byteSize(matmul.b.type));
  map.byteOffset = matmul.b.offset * Dim(bytes);
  map.type = matmul.b.type;
  map.shape = {problem.routing->experts, matmul.n, problem.k};
  map.strides = {matmul.b.batchStrides[0], matmul.b.columnStride, 1};
  map.box = {1, static_cast<uint32_t>(tileColumns(problem)), depth};
  map.swizzle = TensorMapArgument::Swizzle::Bytes128;
  map.l2Promotion = TensorMapArgument::L2Promotion::Bytes256;
  return map;
}

Dim planElements(const Problem &problem) { return problem.m + Dim(problem.routing->experts + 1); }
} // namespace

bool takesSm90(const Problem &problem, const TargetInfo &target) {
  const std::optional<DType> type = matmul::tensorCoreType(problem);
  if (!target.has(Feature::Wgmma) || !target.has(Feature::Tma) || !type || problem.sideBySide() ||
      problem.accumulators() > 2 || problem.a.decode || problem.a.type != *type ||
      matmul::multipliesBytes(problem))
    return false;
  auto fits = [&](const matmul::Matmul &matmul) {
    return !matmul.b.decode && matmul.b.type == *type && matmul.b.rowStride == Dim(1) &&
           !(matmul.b.batchStrides[0] == Dim(0)) && matmul.b.columnStride.constant().value_or(8) > 0;
  };
  // A tile's rows and columns should be there.
  return llvm::all_of(problem.matmuls, fits) && problem.k.constant().value_or(0) >= depth &&
         problem.n.constant().value_or(0) >= 64 && matmul::readsVectors(problem, true, 8, 8) &&
         matmul::readsVectors(problem, false, 8, 8) && matmul::resultVector(problem, 2) == 2 &&
         stages(problem, target) >= 3;
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
                                     .threads = static_cast<uint32_t>(threads)});
  draft.gridX = problem.routing->experts;
  return draft;
}

KernelDraft emitSm90(const Region &region, const KernelContext &context) {
  constexpr int64_t threads = 384;
  auto analysed = matmul::analyseExperts(region, context);
  const Problem &problem = std::get<Problem>(analysed);
  matmul::GemmSource source(region, context, problem, "expert_sm90");
  const int64_t inFlight = stages(problem, context.target);
  source.setType("type", body::spelling(problem.a.type));
  source.set("tile_n", tileColumns(problem));
  source.set("stages", inFlight);
  source.set("wide", region.outputs.size() == 1 && byteSize(dtype(region.outputs[0])) == 2 &&
                         problem.n.knownMultipleOf(8));
  KernelDraft draft =
      source.finishExperts({DType::F32, 2}, static_cast<uint32_t>(threads), planElements(problem),
                           [&](const matmul::Matmul &matmul) { return mapOf(problem, matmul); });
  draft.kernel.schedule = "experts";
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(inFlight * stageBytes(problem) + 1024);
  draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma) | static_cast<uint32_t>(Feature::Tma);
  draft.gridX =
      Dim::min(Dim(context.target.multiprocessors),
               (problem.m.ceilDiv(tileM) + expertGroups(problem)) * problem.n.ceilDiv(tileColumns(problem)));
  return draft;
}

} // namespace fusion::experts
