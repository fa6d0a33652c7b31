#include "api/Variants.h"

#include "api/Broadcasts.h"
#include "api/Compilation.h"
#include "api/ExecutionBackend.h"
#include "api/Graph.h"
#include "api/IndexLimits.h"
#include "ir/base/Progress.h"
#include "ir/dialect/Mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fusion {

struct Variants::Variant {
  std::string what; ///< "batch is 1 and broadcast to seq"; empty of the shared one
  std::vector<PortShape> ports;
  std::vector<DimEquality> equalities;
  Broadcasts broadcasts;
  std::vector<IndexLimit> indexLimits; ///< none of a bundle, nor of a graph that came as shards
  std::unique_ptr<Compilation> compilation; ///< until it is loaded
  std::unique_ptr<ExecutionBackend> backend; ///< from then on
  Report report;
  std::atomic<bool> isLoaded = false;
};

Variants::Variants(const CompileOptions &options, bool mayMeasure)
    : options(options), mayMeasure(mayMeasure) {}

Variants::Variants(std::unique_ptr<ExecutionBackend> loaded, Report report) {
  auto only = std::make_unique<Variant>();
  only->backend = std::move(loaded);
  only->report = std::move(report);
  only->isLoaded = true;
  last = shared = front = only.get();
  all.emplace(Ones(), std::move(only));
}

Variants::~Variants() = default;

Result<std::unique_ptr<Variants>> Variants::create(const Graph &graph, const CompileOptions &options) {
  auto backend = ExecutionBackend::create(options, options.tensorParallel);
  if (!backend)
    return backend.error();
  const std::optional<Error> whyNot = (*backend)->whyNotMeasured();
  if (whyNot && options.profit == ProfitMode::Measure)
    return *whyNot;
  std::unique_ptr<Variants> made(new Variants(options, /*mayMeasure=*/!whyNot));
  made->backend = std::move(*backend);
  auto shared = made->plan(graph);
  if (!shared)
    return shared.error();
  made->shared = made->front = shared->get();
  made->all.emplace(Ones(), std::move(*shared));
  if (const auto &source = graph.implementation()->source;
      source->canReadAgain() && !options.batchInvariant && made->shared->broadcasts.any() &&
      made->backend->another()) {
    made->source = source;
    made->backend->shareWeights();
  }
  if (!options.largestRun.empty()) {
    auto found = made->find(options.largestRun);
    if (!found)
      return found.error();
    made->front = *found;
  }
  if (Status status = made->load(*made->front); !status)
    return status.error();
  made->last = made->front;
  made->options.largestRun.clear();
  return made;
}

Result<std::unique_ptr<Variants::Variant>> Variants::plan(const Graph &graph) const {
  auto variant = std::make_unique<Variant>();
  for (const Port &port : graph.inputs())
    variant->ports.push_back({port.name, port.type, port.shape});
  variant->compilation = std::make_unique<Compilation>(graph, options, mayMeasure);
  const ExecutionBackend &any = backend ? *backend : *front->backend;
  auto equalities = any.equalities(*variant->compilation);
  if (!equalities)
    return equalities.error();
  variant->equalities = std::move(*equalities);
  variant->broadcasts = Broadcasts(variant->ports, variant->equalities);
  if (auto entry = entryFunction(graph.implementation()->module.get());
      entry && !(*entry)->hasAttr(nn::meshAttr))
    variant->indexLimits = indexLimits(*entry);
  return variant;
}

Result<Variants::Variant *> Variants::planned(const Ones &ones, const std::string &what) {
  auto known = [&]() -> std::optional<Variant *> {
    std::shared_lock lock(access);
    auto found = all.find(ones);
    return found == all.end() ? std::nullopt : std::optional(found->second.get());
  };
  if (auto found = known())
    return *found;
  std::lock_guard lock(making);
  if (auto found = known())
    return *found;
  if (all.size() > most)
    return badInput(fmt::format("{}: {}, and the program has {} variants for other such runs already; say so "
                                "before compiling: --dim={}=1",
                                source->path, what, most, fmt::join(ones, "=1,")));
  auto graph = source->whereOne(ones);
  auto made = graph ? plan(*graph) : Result<std::unique_ptr<Variant>>(graph.error());
  if (!made && made.error().kind != ErrorKind::BadInput)
    return made.error();
  if (made)
    (*made)->what = what;
  else
    note(fmt::format("variant: {}: there is none: {}", what, made.error().message));
  std::unique_lock writing(access);
  return all.emplace(ones, made ? std::move(*made) : nullptr).first->second.get();
}

Result<Variants::Variant *> Variants::find(const NamedTensors &inputs) {
  if (!source)
    return shared;
  Ones ones;
  std::string what;
  Variant *variant = shared;
  for (Ones more = shared->broadcasts.of(inputs); !more.empty(); more = variant->broadcasts.of(inputs)) {
    for (const std::string &symbol : more)
      what += (what.empty() ? "" : ", ") + variant->broadcasts.describe(symbol);
    ones.merge(more);
    auto next = planned(ones, what);
    if (!next)
      return next.error();
    if (!*next)
      return shared;
    variant = *next;
  }
  const bool fits =
      variant == shared || variant->isLoaded || bindSymbols(variant->ports, inputs, variant->equalities);
  return fits ? variant : shared;
}

Status Variants::load(Variant &variant) {
  std::lock_guard lock(making);
  if (variant.isLoaded)
    return {};
  if (!variant.what.empty())
    note(fmt::format("variant: {}: compiled for such runs", variant.what));
  auto own = backend ? std::move(backend) : front->backend->another();
  if (Status status = own->load(*variant.compilation); !status)
    return status;
  variant.backend = std::move(own);
  variant.report = variant.compilation->report();
  variant.compilation = nullptr;
  variant.isLoaded = true;
  return {};
}

Result<Variants::Chosen> Variants::choose(const NamedTensors &inputs, std::optional<void *> stream) {
  auto found = find(inputs);
  if (!found)
    return found.error();
  Variant &variant = **found;
  if (Status status = checkIndices(variant.indexLimits, variant.ports, inputs); !status)
    return status.error();
  if (!variant.isLoaded)
    if (Status status = load(variant); !status)
      return status.error();
  void *queue = stream.value_or(&variant);
  if (Status status = waitForOthers(&variant, queue); !status)
    return status.error();
  last = &variant;
  return Chosen(*this, variant, queue);
}

Status Variants::waitForOthers(const Variant *variant, void *queue) {
  std::lock_guard lock(queueing);
  for (size_t i = 0; i < queued.size();) {
    auto [other, stream] = queued[i];
    if (other == variant || stream == queue) { // which come one after the other
      ++i;
      continue;
    }
    if (Status status = other->backend->synchronize(); !status)
      return status;
    queued.erase(queued.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

Result<NamedTensors> Variants::fetch(const NamedTensors &tensors) {
  if (Status status = waitForOthers(front, front); !status)
    return status.error();
  return front->backend->fetch(tensors);
}

ExecutionBackend &Variants::first() const { return *front->backend; }
const Report &Variants::report() const { return front->report; }

RunStatistics Variants::statistics() const {
  const Variant *recent = last;
  RunStatistics sum = recent->backend->statistics();
  std::shared_lock lock(access);
  for (const auto &[ones, variant] : all) {
    if (!variant || !variant->isLoaded || variant.get() == recent)
      continue;
    const RunStatistics more = variant->backend->statistics();
    for (auto count : {&RunStatistics::runs, &RunStatistics::plans, &RunStatistics::updates,
                       &RunStatistics::speculated, &RunStatistics::evaluations, &RunStatistics::recordings,
                       &RunStatistics::replays, &RunStatistics::changedLaunches, &RunStatistics::weightBytes,
                       &RunStatistics::temporaryBytes, &RunStatistics::peakBytes, &RunStatistics::variants})
      sum.*count += more.*count;
  }
  return sum;
}

ExecutionBackend *Variants::Chosen::operator->() const { return variant.backend.get(); }

void Variants::Chosen::isQueued() const {
  std::lock_guard lock(owner.queueing);
  for (auto &[known, stream] : owner.queued)
    if (known == &variant) {
      stream = queue;
      return;
    }
  owner.queued.emplace_back(&variant, queue);
}

} // namespace fusion
