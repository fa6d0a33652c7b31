#include "api/Profit.h"

#include "api/Isolate.h"
#include "codegen/BuildPlan.h"
#include "codegen/device/Includes.h"
#include "ir/base/Progress.h"
#include "runtime/cuda/Session.h"

#include <fmt/format.h>

#include <charconv>

using namespace mlir;

namespace fusion {

namespace {
/// Without locations, so that the same ops elsewhere have the same text and kernels.
void forgetLocations(ModuleOp module) {
  Location nowhere = UnknownLoc::get(module.getContext());
  module->walk([&](Operation *op) {
    op->setLoc(nowhere);
    for (mlir::Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setLoc(nowhere);
  });
}

/// The ops as they are, each a kernel or a view.
OwningOpRef<ModuleOp> unfusedForm(const Candidate &candidate, const nn::SymbolicShapes &shapes) {
  GroupPorts ports = portsOf(candidate.ops);
  OwningOpRef<ModuleOp> module = isolate(candidate.ops, ports.inputs, ports.outputs, shapes);
  forgetLocations(*module);
  return module;
}

/// What time() keeps. Not by scanf, which reads numbers by the locale of the program around.
std::optional<ProfitOracle::Times> timesIn(const std::string &text) {
  ProfitOracle::Times times;
  const char *end = text.data() + text.size();
  auto first = std::from_chars(text.data(), end, times.fused);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ')
    return std::nullopt;
  auto second = std::from_chars(first.ptr + 1, end, times.unfused);
  return second.ec == std::errc() ? std::optional(times) : std::nullopt;
}

/// The group.
OwningOpRef<ModuleOp> fusedForm(const Candidate &candidate, const nn::SymbolicShapes &shapes) {
  GroupPorts ports = portsOf(candidate.ops, candidate.clones);
  Candidate whole;
  OwningOpRef<ModuleOp> module =
      isolate(candidate.body(), ports.inputs, ports.outputs, shapes, {}, &whole.ops);
  whole.root = whole.ops.back();
  whole.schedule = candidate.schedule;
  commit(whole);
  forgetLocations(*module);
  return module;
}

std::string textOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out);
  return text;
}

Result<ProgramPlan> planOf(ModuleOp module, const PlanOptions &options) {
  return buildPlan(*module.getOps<func::FuncOp>().begin(), options);
}

/// Only the symbols that the plan speaks of: others do not change its time.
std::string sizesText(const ProgramPlan &plan, const SymbolValues &sizes) {
  std::set<std::string> symbols;
  for (const PortPlan &port : plan.inputs)
    for (const Dim &dim : port.shape)
      symbols.merge(dim.symbols());
  std::string text;
  for (const std::string &symbol : symbols)
    if (auto size = sizes.find(symbol); size != sizes.end())
      text += fmt::format("{}={} ", symbol, size->second);
  return text;
}
} // namespace

/// Two forms of a candidate, not timed yet.
struct MeasuredProfit::Body {
  std::string text;
  std::string name; ///< for progress
  Result<ProgramPlan> fused, unfused;
  std::string key; ///< in the cache
};

std::vector<Result<ProfitOracle::Times>> MeasuredProfit::measure(ArrayRef<Candidate> candidates,
                                                                 const nn::SymbolicShapes &shapes,
                                                                 const SymbolValues &sizes) {
  std::string allSizes;
  for (const auto &[symbol, size] : sizes)
    allSizes += fmt::format("{}={} ", symbol, size);
  std::vector<std::string> texts;
  std::vector<Body> fresh;
  for (const Candidate &candidate : candidates) {
    if (llvm::any_of(candidate.ops, llvm::IsaPred<nn::AllReduceOp>)) {
      texts.push_back("collective");
      known.try_emplace(texts.back(), badInput("it waits for other ranks, and one GPU alone is measured"));
      continue;
    }
    auto fused = fusedForm(candidate, shapes), unfused = unfusedForm(candidate, shapes);
    texts.push_back(allSizes + textOf(*fused) + textOf(*unfused));
    if (!known.try_emplace(texts.back(), badInput("not measured")).second)
      continue;
    Body body{texts.back(), candidate.pattern, planOf(*fused, options), planOf(*unfused, options), {}};
    if (!body.fused || !body.unfused) {
      known.find(body.text)->second = body.fused ? body.unfused.error() : body.fused.error();
      continue;
    }
    body.key =
        fmt::format("profit 1\n{}\n{}\n{}\n{}\n{}\n{}", device, options.target, sizesText(*body.fused, sizes),
                    toJson(*body.fused), toJson(*body.unfused), deviceText());
    std::optional<std::string> entry = cache ? cache->get(body.key) : std::nullopt;
    if (std::optional<Times> times = entry ? timesIn(*entry) : std::nullopt)
      known.find(body.text)->second = *times;
    else
      fresh.push_back(std::move(body));
  }
  if (!fresh.empty())
    time(fresh, sizes);
  std::vector<Result<Times>> results;
  for (const std::string &text : texts)
    results.push_back(known.find(text)->second);
  return results;
}

void MeasuredProfit::time(std::vector<Body> &bodies, const SymbolValues &sizes) {
  std::vector<const ProgramPlan *> plans;
  for (const Body &body : bodies) {
    plans.push_back(&*body.fused);
    plans.push_back(&*body.unfused);
  }
  std::optional<Progress> progress; // when the kernels are compiled, which shows its own
  std::vector<Result<double>> times = measurePlans(plans, sizes, makeBackend, {}, [&](size_t index) {
    if (!progress)
      progress.emplace("measuring fusions", static_cast<int64_t>(bodies.size()));
    if (index % 2 == 0)
      progress->step(bodies[index / 2].name);
  });
  for (size_t i = 0; i < bodies.size(); ++i) {
    const Result<double> &fused = times[2 * i], &unfused = times[2 * i + 1];
    Result<Times> &result = known.find(bodies[i].text)->second;
    if (!fused || !unfused) {
      result = fused ? unfused.error() : fused.error();
      continue;
    }
    result = Times{*fused, *unfused};
    if (cache)
      cache->put(bodies[i].key, fmt::format("{:.4f} {:.4f}\n", *fused, *unfused));
  }
}

static Result<std::unique_ptr<ProfitOracle>> makeGpuProfit(const PlanOptions &options,
                                                           const std::string &cacheFolder) {
  const std::string &target = options.target;
  auto properties = cuda::deviceProperties(0);
  if (!properties)
    return properties.error();
  const Result<TargetInfo> wanted = TargetInfo::find(target);
  if (properties->arch() != target && !(wanted && wanted->runsOn(properties->major, properties->minor)))
    return environment(
        fmt::format("the GPU here is {} ({}), the target {}", properties->name, properties->arch(), target));
  auto cache =
      std::make_shared<KernelCache>(cacheFolder.empty() ? KernelCache::defaultFolder() : cacheFolder);
  auto makeBackend = [cache, context = std::shared_ptr<cuda::Session>()](
                         std::span<const KernelPlan> kernels) mutable {
    auto backend = makeCudaBackend(0, {kernels, {}, {}, {}, cache.get()});
    if (!context)
      context = cuda::keepContext(0);
    return backend;
  };
  return std::unique_ptr<ProfitOracle>(std::make_unique<MeasuredProfit>(
      fmt::format("{} ({})", properties->name, properties->arch()), options, makeBackend, cache));
}

Result<std::unique_ptr<ProfitOracle>> makeProfitOracle(ProfitMode mode, const PlanOptions &options,
                                                       const std::string &cacheFolder) {
  if (mode == ProfitMode::Model)
    return std::unique_ptr<ProfitOracle>();
  auto oracle = makeGpuProfit(options, cacheFolder);
  if (!oracle && mode == ProfitMode::Auto)
    return std::unique_ptr<ProfitOracle>();
  if (!oracle)
    return Error{oracle.error().kind, "fusions cannot be measured: " + oracle.error().message};
  return oracle;
}

} // namespace fusion
