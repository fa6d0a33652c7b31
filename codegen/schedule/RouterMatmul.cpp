// The configuration of router_matmul: the choice of experts of few rows with the matmul that makes the
// scores.
#include "codegen/schedule/MatmulSource.h"
#include "codegen/schedule/Router.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::router {

using matmul::Problem;

namespace {
constexpr int64_t lanes = 32, warps = 16, cluster = 8; // the largest that every GPU with clusters has
constexpr int64_t mostRows = 8;   ///< each reads all weights: of more rows a kernel of its own is faster
constexpr int64_t mostLoads = 16; ///< of 16 bytes that a lane has in flight

int64_t vectorOf(const Problem &problem) { return 16 / static_cast<int64_t>(byteSize(problem.b.type)); }

/// Whether GemvWarp computes it.
bool isTaken(const Problem &problem) {
  const auto type = problem.a.type;
  return problem.matmuls.size() == 1 && problem.prologue.empty() && problem.batch.empty() &&
         !problem.a.decode && !problem.b.decode && problem.b.type == type && matmul::gemvRows(problem) > 0 &&
         problem.k.constant().value_or(0) > 0 && problem.n.constant().value_or(0) > 0 &&
         matmul::readsVectors(problem, true, vectorOf(problem), vectorOf(problem)) &&
         matmul::readsVectors(problem, false, vectorOf(problem), vectorOf(problem));
}
} // namespace

std::optional<SizeRange> rowsWithProduct(const Region &region, const KernelContext &context) {
  auto routes = analyseRoutes(region, context);
  auto analysed = matmul::analyse(*std::get<Routes>(routes).products, context);
  const Problem &problem = std::get<Problem>(analysed);
  if (!context.target.has(Feature::Clusters) || !isTaken(problem))
    return std::nullopt;
  if (std::optional<int64_t> rows = problem.m.constant(); rows && (*rows < 1 || *rows > mostRows))
    return std::nullopt;
  return SizeRange{problem.m, 1, mostRows};
}

KernelDraft emitWithProduct(const Region &region, const KernelContext &context) {
  auto found = analyseRoutes(region, context);
  const Routes &routes = std::get<Routes>(found);
  auto analysed = matmul::analyse(*routes.products, context);
  const Problem &problem = std::get<Problem>(analysed);
  matmul::GemmSource source(region, context, problem, "router_matmul");
  body::KernelSource &kernel = source.kernel();
  const int64_t n = *problem.n.constant(), step = lanes * vectorOf(problem);
  int64_t columns = 1, kSplit = 1;
  while (columns < 4 && n % (2 * columns) == 0 && n / columns > warps * cluster)
    columns *= 2;
  while (kSplit < warps && 2 * kSplit * (n / columns) <= warps * cluster &&
         2 * kSplit * step <= *problem.k.constant())
    kSplit *= 2;
  const int64_t steps = llvm::divideCeil(*problem.k.constant(), step * kSplit),
                unroll = llvm::divideCeil(steps, llvm::divideCeil(steps, mostLoads / columns));
  source.set("cluster", cluster);
  source.set("warps", warps);
  source.set("k_split", kSplit);
  source.set("columns", columns);
  source.set("vector", vectorOf(problem));
  source.set("unroll", unroll);
  source.set("whole_steps", problem.k.knownMultipleOf(step * kSplit * unroll));
  source.setWeightsBeforeWait();
  kernel.include("router_matmul.cuh");
  SmallVector<std::string> arguments = source.operands();
  arguments.push_back(source.declareEpilogue("Scores", *routes.products, problem, /*handsOut=*/true));
  RouterWriter writer(region, context, routes, kernel);
  writer.write(/*inMemory=*/false);
  arguments.push_back(kernel.body.instance());
  KernelDraft draft =
      kernel.finish({.schedule = "router",
                     .code = fmt::format("  router_matmul<Config>({});\n", llvm::join(arguments, ", ")),
                     .name = body::kernelName(region, context),
                     .threads = static_cast<uint32_t>(warps * lanes),
                     .residentBlocks = 1,
                     .clusterBlocks = static_cast<uint32_t>(cluster)});
  draft.gridX = problem.m * Dim(cluster);
  draft.flops = problem.m * problem.n * problem.k * Dim(2);
  return draft;
}

} // namespace fusion::router
