#include "api/Compilation.h"

#include "api/Graph.h"
#include "api/KernelFiles.h"
#include "api/PlanCache.h"
#include "ir/dialect/Mesh.h"

using namespace mlir;

namespace fusion {

Compilation::Compilation(const Graph &graph, CompileOptions wanted, bool mayMeasure)
    : graph(graph), options(std::move(wanted)), mayMeasure(mayMeasure),
      cache(options.cacheFolder.empty() ? KernelCache::defaultFolder() : options.cacheFolder) {}
Compilation::~Compilation() = default;

static Status checkOptions(const Graph::Implementation &source, const CompileOptions &options) {
  if (Status status = source.isOne(); !status)
    return status;
  if (options.tensorParallel < 1)
    return badInput("a graph cannot run on " + std::to_string(options.tensorParallel) + " ranks");
  if (options.kvCapacity < 0)
    return badInput("a capacity of " + std::to_string(options.kvCapacity) +
                    " positions for key/value caches");
  auto whole = entryFunction(source.module.get());
  if (auto cut = whole ? nn::ranksOf(*whole) : std::nullopt; cut && *cut != options.tensorParallel)
    return badInput(source.path + ": is cut for " + std::to_string(*cut) + " ranks, not " +
                    std::to_string(options.tensorParallel));
  return {};
}

Result<Driver *> Compilation::lower(bool recordRewrites) {
  if (driver)
    return driver.get();
  const Graph::Implementation &source = *graph.implementation();
  if (Status status = checkOptions(source, options); !status)
    return status.error();
  // The clone shares the graph's context, which therefore stays alive with it.
  result.context = std::shared_ptr<MLIRContext>(graph.implementation(), source.context.get());
  result.module = std::make_shared<OwningOpRef<ModuleOp>>(llvm::cast<ModuleOp>(source.module.get()->clone()));
  result.weightFolder = source.weightFolder;
  auto made = std::make_unique<Driver>(result.module->get(), source.path, options);
  if (recordRewrites)
    made->recordRewrites();
  if (Status status = made->lower(mayMeasure ? options.profit : ProfitMode::Model); !status)
    return status.error();
  auto entry = made->entry();
  if (!entry)
    return entry.error();
  result.entry = *entry;
  fusions = made->report();
  driver = std::move(made);
  return driver.get();
}

Result<LoweredGraph> Compilation::lowered() {
  if (auto made = lower(); !made)
    return made.error();
  return result;
}

Result<ProgramPlan> Compilation::plan() {
  if (planned)
    return *planned;
  auto plan = emittedPlan();
  if (!plan)
    return plan;
  if (Status status = replaceKernels(*plan, options.kernels); !status)
    return status.error();
  planned = *plan;
  return plan;
}

Result<ProgramPlan> Compilation::emittedPlan() {
  if (Status status = graph.implementation()->isOne(); !status)
    return status.error();
  std::string name = planKey(graph, options, mayMeasure);
  if (auto known = cachedPlan(cache, name)) {
    fusions = Report(known->report);
    return std::move(*known);
  }
  auto made = lower();
  if (!made)
    return made.error();
  auto planned = (*made)->plan();
  if (!planned)
    return planned.error();
  ProgramPlan plan = **planned;
  plan.model = graph.implementation()->path;
  fusions = (*made)->report();
  plan.report = fusions.json();
  fresh = plan;
  key = std::move(name);
  return plan;
}

void Compilation::keepPlan() {
  if (fresh)
    storePlan(cache, key, *fresh);
  fresh.reset();
}

} // namespace fusion
