#include "codegen/BuildPlan.h"
#include "codegen/plan/Print.h"
#include "ir/reference/Reference.h"
#include "runtime/Bundle.h"
#include "runtime/api/Graph.h"
#include "runtime/api/PlanCache.h"
#include "runtime/api/Profit.h"
#include "runtime/api/Program.h"
#include "runtime/api/RankReference.h"
#include "runtime/cuda/Driver.h"
#include "runtime/cuda/Nvrtc.h"

using namespace mlir;

namespace fusion {

namespace {
/// The graph after normalise, raise and fuse, in a context of its own.
struct LoweredGraph {
  std::shared_ptr<MLIRContext> context;
  std::shared_ptr<OwningOpRef<ModuleOp>> module;
  func::FuncOp entry;
  Ledger ledger;
};

Result<LoweredGraph> lowerGraph(const Graph &graph, const CompileOptions &options, RunOn device) {
  const Graph::Implementation &source = *graph.implementation();
  if (options.tensorParallel < 1)
    return badInput("a graph cannot run on " + std::to_string(options.tensorParallel) + " ranks");
  if (options.kvCapacity < 0)
    return badInput("a capacity of " + std::to_string(options.kvCapacity) + " positions for key/value caches");
  auto whole = entryFunction(source.module.get());
  if (auto cut = whole ? (*whole)->getAttrOfType<IntegerAttr>(nn::ranksAttr) : IntegerAttr();
      cut && cut.getInt() != options.tensorParallel)
    return badInput(source.path + ": is cut for " + std::to_string(cut.getInt()) + " ranks, not " +
                    std::to_string(options.tensorParallel));
  LoweredGraph lowered;
  // The clone shares the graph's context, which therefore stays alive with it.
  lowered.context = std::shared_ptr<MLIRContext>(graph.implementation(), source.context.get());
  lowered.module = std::make_shared<OwningOpRef<ModuleOp>>(llvm::cast<ModuleOp>(source.module.get()->clone()));
  LowerOptions lowerOptions;
  lowerOptions.fuse = options.fuse;
  lowerOptions.fusions.disabled = options.disabledFusions;
  lowerOptions.patternFiles = options.patternFiles;
  lowerOptions.target = options.target.arch;
  lowerOptions.ranks = options.tensorParallel;
  lowerOptions.vocabulary = options.vocabularyParallel;
  lowerOptions.kvCapacity = options.kvCapacity;
  lowered.ledger.model = source.path;
  auto oracle = makeProfitOracle(options.fuse && device == RunOn::Cuda ? options.profit : ProfitMode::Model,
                                 options.target.arch, options.cacheFolder);
  if (!oracle)
    return oracle.error();
  lowerOptions.fusions.profit = oracle->get();
  if (Status status = lower(lowered.module->get(), lowerOptions, lowered.ledger); !status)
    return Error{status.error().kind, source.path + ": " + status.error().message};
  auto entry = entryFunction(lowered.module->get());
  if (!entry)
    return entry.error();
  lowered.entry = *entry;
  return lowered;
}

Result<ProgramPlan> planGraph(const Graph &graph, const LoweredGraph &lowered, const CompileOptions &options) {
  PlanOptions planOptions;
  planOptions.target = options.target.arch;
  planOptions.baseFolder = graph.implementation()->weightFolder;
  auto plan = buildPlan(lowered.entry, planOptions);
  if (!plan)
    return Error{plan.error().kind, graph.implementation()->path + ": " + plan.error().message};
  plan->model = graph.implementation()->path;
  plan->report = lowered.ledger.json();
  return plan;
}

std::string cacheFolder(const CompileOptions &options) {
  return options.cacheFolder.empty() ? KernelCache::defaultFolder() : options.cacheFolder;
}

/// A plan with its report, and where to keep them once the kernels are made too; no key if they came from there.
struct KeyedPlan {
  ProgramPlan plan;
  std::string key;
};

Result<KeyedPlan> findOrMakePlan(const Graph &graph, const CompileOptions &options, RunOn device, KernelCache &cache) {
  std::string key = planKey(graph, options, device);
  if (auto plan = cachedPlan(cache, key))
    return KeyedPlan{std::move(*plan), ""};
  auto lowered = lowerGraph(graph, options, device);
  if (!lowered)
    return lowered.error();
  auto plan = planGraph(graph, *lowered, options);
  if (!plan)
    return plan.error();
  return KeyedPlan{std::move(*plan), std::move(key)};
}

ExecutorOptions executorOptions(RunOn device, const CompileOptions &options) {
  ExecutorOptions executor;
  executor.target = device == RunOn::Cuda ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
  executor.cacheFolder = cacheFolder(options);
  return executor;
}

/// Makes what runs the plan: the kernels are compiled or loaded, the weights too.
Status makeExecutors(ProgramPlan plan, ExecutorOptions settings, Program::Implementation &program) {
  if (plan.ranks > 1) {
    auto place = launchedRank();
    if (!place)
      return place.error();
    if (*place && (*place)->ranks > 1) {
      auto process = RankProcess::join(std::move(plan), std::move(settings), **place);
      if (!process)
        return process.error();
      program.process = std::move(*process);
      return {};
    }
    auto group = RankGroup::create(std::move(plan), std::move(settings));
    if (!group)
      return group.error();
    program.group = std::move(*group);
    return {};
  }
  auto executor = Executor::create(std::move(plan), std::move(settings));
  if (!executor)
    return executor.error();
  program.executor = std::move(*executor);
  return {};
}

/// The interface of the whole graph.
std::vector<Port> wholePorts(const std::vector<PortPlan> &ports) {
  std::vector<Port> whole;
  for (const PortPlan &port : ports) {
    whole.push_back({port.name, port.type, port.shape});
    if (port.shard) {
      Dim &divided = whole.back().shape[static_cast<size_t>(port.shard->axis)];
      divided = divided * Dim(port.shard->pieces);
    }
  }
  return whole;
}

/// A graph that was cut before it came has the ports of one rank; `placed` says how they lie over the ranks.
template <class Placed>
void joinPorts(std::vector<Port> &ports, const std::vector<Placed> &placed) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (placed[i].shard) {
      Dim &divided = ports[i].shape[static_cast<size_t>(placed[i].shard->axis)];
      divided = divided * Dim(placed[i].shard->pieces);
    }
}

bool isCut(const Graph &graph) {
  auto entry = entryFunction(graph.implementation()->module.get());
  return entry && (*entry)->hasAttr(nn::ranksAttr);
}

RunOn resolve(RunOn device) {
  if (device != RunOn::Auto)
    return device;
  return cuda::deviceCount() > 0 ? RunOn::Cuda : RunOn::Cpu;
}
} // namespace

Target Target::current() {
  if (cuda::deviceCount() > 0)
    if (auto properties = cuda::deviceProperties(0))
      return {compilationArch("sm_" + std::to_string(properties->major * 10 + properties->minor))};
  return {};
}

Result<Program> compile(const Graph &graph, const CompileOptions &wanted) {
  CompileOptions options = wanted;
  RunOn device = resolve(options.device);
  if (options.tensorParallel > 1 && device != RunOn::Cpu) {
    auto place = launchedRank();
    if (!place)
      return place.error();
    // Each process plans for itself, and two measurements may decide differently.
    if (*place && (*place)->ranks > 1 && options.profit == ProfitMode::Measure)
      return badInput("fusions cannot be measured while ranks are processes: leave --profit out, or take one process");
    if (*place && (*place)->ranks > 1)
      options.profit = ProfitMode::Model;
  }
  if (device != RunOn::Cuda && options.profit == ProfitMode::Measure)
    return environment("fusions cannot be measured: the program does not run on a GPU");
  auto program = std::make_shared<Program::Implementation>();
  program->inputs = graph.inputs();
  program->outputs = graph.outputs();
  if (device == RunOn::Cpu) {
    auto lowered = lowerGraph(graph, options, device);
    if (!lowered)
      return lowered.error();
    program->report = Report(lowered->ledger.json());
    if (options.tensorParallel > 1) {
      auto group = RankReference::create(lowered->entry, graph.implementation()->weightFolder);
      if (!group)
        return group.error();
      auto shared = std::make_shared<RankReference>(std::move(*group));
      if (isCut(graph)) {
        joinPorts(program->inputs, shared->inputs());
        joinPorts(program->outputs, shared->outputs());
      }
      program->reference = [shared, keep = *lowered](const NamedTensors &inputs) { return shared->run(inputs); };
      return Program(std::move(program));
    }
    auto interpreter = Interpreter::create(lowered->entry, graph.implementation()->weightFolder);
    if (!interpreter)
      return interpreter.error();
    // The interpreter points into the module: both live in the same closure.
    auto shared = std::make_shared<Interpreter>(std::move(*interpreter));
    program->reference = [shared, keep = *lowered](const NamedTensors &inputs) { return shared->run(inputs); };
    return Program(std::move(program));
  }
  KernelCache cache(cacheFolder(options));
  auto found = findOrMakePlan(graph, options, device, cache);
  if (!found)
    return found.error();
  program->report = Report(found->plan.report);
  ProgramPlan plan = found->plan;
  if (isCut(graph)) {
    joinPorts(program->inputs, plan.inputs);
    joinPorts(program->outputs, plan.outputs);
  }
  if (Status status = makeExecutors(std::move(plan), executorOptions(device, options), *program); !status)
    return status.error();
  storePlan(cache, found->key, found->plan);
  return Program(std::move(program));
}

Result<Program> Program::open(const std::string &bundleFolder, const CompileOptions &options) {
  auto bundle = readBundle(bundleFolder);
  if (!bundle)
    return bundle.error();
  if (options.kvCapacity != 0)
    return badInput(bundleFolder + ": the capacity of a bundle's caches was decided when it was compiled");
  RunOn device = resolve(options.device);
  if (device == RunOn::Cpu)
    return environment(bundleFolder + ": a bundle holds kernels only; run it with a GPU or with device emulate");
  auto program = std::make_shared<Implementation>();
  program->report = Report(bundle->plan.report);
  if (options.tensorParallel != 1 && options.tensorParallel != bundle->plan.ranks)
    return badInput(bundleFolder + ": was compiled for " + std::to_string(bundle->plan.ranks) + " ranks, not " +
                    std::to_string(options.tensorParallel));
  program->inputs = wholePorts(bundle->plan.inputs);
  program->outputs = wholePorts(bundle->plan.outputs);
  ExecutorOptions executorSettings = executorOptions(device, options);
  executorSettings.cubins = std::move(bundle->cubins);
  executorSettings.cubinArch = bundle->arch;
  if (Status status = makeExecutors(std::move(bundle->plan), std::move(executorSettings), *program); !status)
    return status.error();
  return Program(std::move(program));
}

Status writeBundle(const Graph &graph, const CompileOptions &options, const std::string &folder) {
  KernelCache cache(cacheFolder(options));
  auto found = findOrMakePlan(graph, options, RunOn::Cuda, cache);
  if (!found)
    return found.error();
  auto kernels = compileKernels(found->plan.kernels, options.target.arch, &cache);
  if (!kernels)
    return kernels.error();
  storePlan(cache, found->key, found->plan);
  return writeBundle(folder, found->plan, options.target.arch, *kernels);
}

} // namespace fusion
