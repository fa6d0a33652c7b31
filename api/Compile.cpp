#include "api/Compilation.h"
#include "api/ExecutionBackend.h"
#include "api/Graph.h"
#include "api/Program.h"
#include "ir/base/BindSymbols.h"
#include "ir/dialect/Mesh.h"
#include "runtime/CompileKernels.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

/// A port of one rank becomes the whole graph's where the ranks have shards of it.
static void joinPorts(std::vector<Port> &ports, const std::vector<PortShard> &shards) {
  for (size_t i = 0; i < shards.size(); ++i)
    if (shards[i].shard) {
      Dim &divided = ports[i].shape[static_cast<size_t>(shards[i].shard->axis)];
      divided = divided * Dim(shards[i].shard->count);
    }
}

static bool isCut(const Graph &graph) {
  if (graph.implementation()->choice)
    return false;
  auto entry = entryFunction(graph.implementation()->module.get());
  return entry && (*entry)->hasAttr(nn::meshAttr);
}

Result<Program> compile(const Graph &graph, const CompileOptions &options) {
  auto variants = Variants::create(graph, options);
  if (!variants)
    return variants.error();
  auto program = std::make_shared<Program::Implementation>();
  program->inputs = graph.inputs();
  program->outputs = graph.outputs();
  if (isCut(graph)) { // it came with the ports of one rank
    joinPorts(program->inputs, (*variants)->first().inputs());
    joinPorts(program->outputs, (*variants)->first().outputs());
  }
  program->variants = std::move(*variants);
  return Program(std::move(program));
}

static std::vector<Port> localPorts(const std::vector<PortPlan> &plans) {
  std::vector<Port> ports;
  for (const PortPlan &plan : plans)
    ports.push_back({plan.name, plan.type, plan.shape});
  return ports;
}

Result<Program> Program::open(const std::string &folder, const CompileOptions &options) {
  auto bundle = readBundle(folder);
  if (!bundle)
    return bundle.error();
  if (options.kvCapacity != 0)
    return badInput(folder + ": the capacity of a bundle's caches was decided when it was compiled");
  if (options.batchInvariant)
    return badInput(folder +
                    ": whether a bundle's rows depend on each other was decided when it was compiled");
  if (!options.kernels.empty())
    return badInput(folder + ": the kernels of a bundle are compiled already; edit those of the graph");
  const int ranks = static_cast<int>(bundle->plan.ranks);
  if (options.tensorParallel != 1 && options.tensorParallel != ranks)
    return badInput(folder + ": was compiled for " + std::to_string(ranks) + " ranks, not " +
                    std::to_string(options.tensorParallel));
  auto backend = ExecutionBackend::create(options, ranks);
  if (!backend)
    return backend.error();
  auto program = std::make_shared<Implementation>();
  Report report(bundle->plan.report);
  program->inputs = localPorts(bundle->plan.inputs);
  program->outputs = localPorts(bundle->plan.outputs);
  if (Status status = (*backend)->open(folder, std::move(*bundle)); !status)
    return status.error();
  joinPorts(program->inputs, (*backend)->inputs());
  joinPorts(program->outputs, (*backend)->outputs());
  program->variants = std::make_unique<Variants>(std::move(*backend), std::move(report));
  return Program(std::move(program));
}

Status writeBundle(const Graph &graph, const CompileOptions &options, const std::string &folder) {
  Compilation compilation(graph, options, /*mayMeasure=*/true);
  auto plan = compilation.plan();
  if (!plan)
    return plan.error();
  KernelCache cache(options.cacheFolder.empty() ? KernelCache::defaultFolder() : options.cacheFolder);
  auto kernels = compileKernels(plan->kernels, options.target.arch, &cache);
  if (!kernels)
    return kernels.error();
  compilation.keepPlan();
  return writeBundle(folder, *plan, options.target.arch, *kernels);
}

Result<Explanation> explain(const Graph &graph, const CompileOptions &options, Emit what) {
  Compilation compilation(graph, options, /*mayMeasure=*/true);
  auto driver = compilation.lower();
  if (!driver)
    return driver.error();
  auto text = (*driver)->print(what);
  if (!text)
    return text.error();
  (void)(*driver)->plan(); // for the report; the graph may hold what no schedule takes
  return Explanation{(*driver)->report(), std::move(*text)};
}

Status writeKernels(const Graph &graph, const CompileOptions &options, const std::string &folder) {
  Compilation compilation(graph, options, /*mayMeasure=*/true);
  auto driver = compilation.lower();
  return driver ? (*driver)->writeKernels(folder) : Status(driver.error());
}

std::string KernelTrial::text() const {
  const std::string head = fmt::format("kernel {} from {} agrees with its body on {}", kernel, path, device);
  return edited > 0 ? fmt::format("{}: {:.2f} us, the original takes {:.2f} us\n", head, edited, original)
                    : head + "; no GPU to time it on\n";
}

Result<std::vector<KernelTrial>> tryKernels(const Graph &graph, const CompileOptions &options,
                                            const NamedTensors &inputs) {
  std::vector<PortShape> ports;
  for (const Port &port : graph.inputs())
    ports.push_back({port.name, port.type, port.shape});
  SymbolValues sizes;
  if (!inputs.empty()) {
    auto bound = bindSymbols(ports, inputs);
    if (!bound)
      return bound.error();
    sizes = std::move(*bound);
  }
  Compilation compilation(graph, options, /*mayMeasure=*/true);
  auto driver = compilation.lower();
  if (!driver)
    return driver.error();
  return (*driver)->tryKernels(sizes);
}

Status verifyFusions(const Graph &graph, const CompileOptions &options) {
  Compilation compilation(graph, options, /*mayMeasure=*/true);
  auto driver = compilation.lower(/*recordRewrites=*/true);
  return driver ? (*driver)->verify() : Status(driver.error());
}

} // namespace fusion
