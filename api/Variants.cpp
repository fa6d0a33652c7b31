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
  std::string what; ///< "batch is 1 and broadcast to seq"; empty of one for all runs
  std::vector<PortShape> ports;
  std::vector<DimEquality> equalities;
  Broadcasts broadcasts;
  std::vector<IndexLimit> indexLimits;       ///< none of a bundle, nor of a graph that came as shards
  std::unique_ptr<Compilation> compilation;  ///< until it is loaded
  std::unique_ptr<ExecutionBackend> backend; ///< from then on
  Report report;
  std::atomic<bool> isLoaded = false;
};

/// Those of one graph.
struct Variants::Family {
  std::string what;                             ///< of its shared one
  std::optional<Graph> graph;                   ///< until that is planned
  std::shared_ptr<const GraphSource> source;    ///< from then on; null: that is the only one
  std::map<Ones, std::unique_ptr<Variant>> all; ///< null: there can be none
  std::atomic<Variant *> shared = nullptr;      ///< the one of no ones
};

/// A family, the reason why there is none, or an input that decides between two.
struct Variants::Choice {
  std::optional<Family> family;
  std::optional<Error> refused;
  PortShape input;
  std::unique_ptr<Choice> sides[2];
};

Variants::Variants(const CompileOptions &options, bool mayMeasure)
    : options(options), mayMeasure(mayMeasure) {}

Variants::Variants(std::unique_ptr<ExecutionBackend> program, Report report)
    : choice(std::make_unique<Choice>()) {
  auto only = std::make_unique<Variant>();
  only->backend = std::move(program);
  only->report = std::move(report);
  only->isLoaded = true;
  last = front = choice->family.emplace().shared = only.get();
  loaded = {front};
  choice->family->all.emplace(Ones(), std::move(only));
}

Variants::~Variants() = default;

std::unique_ptr<Variants::Choice> Variants::choiceOf(const Graph &graph, const std::string &what) {
  auto made = std::make_unique<Choice>();
  const auto &between = graph.implementation()->choice;
  if (!between) {
    made->family.emplace().graph = graph;
    made->family->what = what;
    return made;
  }
  made->input = {between->input.name, between->input.type, between->input.shape};
  for (size_t value : {0, 1}) {
    if (between->refused[value]) {
      made->sides[value] = std::make_unique<Choice>();
      made->sides[value]->refused = between->refused[value];
      continue;
    }
    made->sides[value] =
        choiceOf(between->graphs[value],
                 fmt::format("{}{}{} is {}", what, what.empty() ? "" : ", ", between->input.name, value));
  }
  return made;
}

Result<std::unique_ptr<Variants>> Variants::create(const Graph &graph, const CompileOptions &wanted) {
  std::unique_ptr<Choice> choice = choiceOf(graph, "");
  CompileOptions options = wanted;
  Choice *taken = choice.get();
  // The one with a past, unless there is none or the largest run has contents that say otherwise.
  while (!taken->family && !taken->refused) {
    auto given = options.largestRun.find(taken->input.name);
    const bool isKnown = given != options.largestRun.end() && given->second.data() &&
                         given->second.size() == 1 && given->second.device().kind == Device::Kind::Host;
    const bool value = isKnown ? given->second.toInts().front() != 0 : !taken->sides[1]->refused;
    options.largestRun.erase(taken->input.name);
    taken = taken->sides[value].get();
  }
  if (taken->refused)
    return *taken->refused;
  auto backend = ExecutionBackend::create(options, options.tensorParallel);
  if (!backend)
    return backend.error();
  if (!choice->family && !(*backend)->another()) // one program cannot run both graphs
    return graph.implementation()->isOne().error();
  const std::optional<Error> whyNot = (*backend)->whyNotMeasured();
  if (whyNot && options.profit == ProfitMode::Measure)
    return *whyNot;
  std::unique_ptr<Variants> made(new Variants(options, /*mayMeasure=*/!whyNot));
  made->choice = std::move(choice);
  made->backend = std::move(*backend);
  auto first = options.largestRun.empty() ? made->sharedOf(*taken->family)
                                          : made->find(*taken->family, options.largestRun);
  if (!first)
    return first.error();
  made->last = made->front = *first;
  if (!made->choice->family || taken->family->source)
    made->backend->shareWeights();
  if (Status status = made->load(*made->front); !status)
    return status.error();
  made->options.largestRun.clear();
  return made;
}

Result<std::unique_ptr<Variants::Variant>> Variants::plan(const Graph &graph, const std::string &what) const {
  auto variant = std::make_unique<Variant>();
  variant->what = what;
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

Result<Variants::Variant *> Variants::sharedOf(Family &family) {
  if (Variant *shared = family.shared)
    return shared;
  std::lock_guard lock(making);
  if (Variant *shared = family.shared)
    return shared;
  auto made = plan(*family.graph, family.what);
  if (!made)
    return family.what.empty()
               ? made.error()
               : Error{made.error().kind, fmt::format("{} (where {})", made.error().message, family.what)};
  const auto &source = family.graph->implementation()->source;
  if (source->canReadAgain() && !options.batchInvariant && (*made)->broadcasts.any() &&
      (backend ? backend : front->backend)->another())
    family.source = source;
  family.graph.reset();
  std::unique_lock writing(access);
  Variant *shared = family.all.emplace(Ones(), std::move(*made)).first->second.get();
  family.shared = shared;
  return shared;
}

Result<Variants::Variant *> Variants::planned(Family &family, const Ones &ones, const std::string &what) {
  auto known = [&]() -> std::optional<Variant *> {
    std::shared_lock lock(access);
    auto found = family.all.find(ones);
    return found == family.all.end() ? std::nullopt : std::optional(found->second.get());
  };
  if (auto found = known())
    return *found;
  std::lock_guard lock(making);
  if (auto found = known())
    return *found;
  if (family.all.size() > most)
    return badInput(fmt::format("{}: {}, and the program has {} variants for other such runs already; say so "
                                "before compiling: --dim={}=1",
                                family.source->path, what, most, fmt::join(ones, "=1,")));
  auto graph = family.source->whereOne(ones);
  auto made = graph ? plan(*graph, what) : Result<std::unique_ptr<Variant>>(graph.error());
  if (!made && made.error().kind != ErrorKind::BadInput)
    return made.error();
  if (!made)
    note(fmt::format("variant: {}: there is none: {}", what, made.error().message));
  std::unique_lock writing(access);
  return family.all.emplace(ones, made ? std::move(*made) : nullptr).first->second.get();
}

Result<Variants::Variant *> Variants::find(Family &family, const NamedTensors &inputs) {
  auto shared = sharedOf(family);
  if (!shared || !family.source)
    return shared;
  Ones ones;
  std::string what = family.what;
  Variant *variant = *shared;
  for (Ones more = variant->broadcasts.of(inputs); !more.empty(); more = variant->broadcasts.of(inputs)) {
    for (const std::string &symbol : more)
      what += (what.empty() ? "" : ", ") + variant->broadcasts.describe(symbol);
    const size_t before = ones.size();
    ones.merge(more);
    auto next = planned(family, ones, what);
    if (!next)
      return next.error();
    if (!*next || ones.size() == before) // that one should know
      return shared;
    variant = *next;
  }
  const bool fits =
      variant == *shared || variant->isLoaded || bindSymbols(variant->ports, inputs, variant->equalities);
  return fits ? variant : *shared;
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
  std::unique_lock writing(access);
  loaded.push_back(&variant);
  variant.isLoaded = true;
  return {};
}

Result<Variants::Family *> Variants::familyOf(const NamedTensors &inputs, std::optional<NamedTensors> &rest,
                                              bool isOnStream) {
  Choice *at = choice.get();
  if (!at->family)
    rest = inputs;
  while (!at->family) {
    const std::string &name = at->input.name;
    NamedTensors one;
    if (auto found = inputs.find(name); found != inputs.end())
      one.insert(*found);
    if (auto bound = bindSymbols(std::span(&at->input, 1), one); !bound)
      return bound.error();
    if (one.begin()->second.device().kind != Device::Kind::Host) {
      if (isOnStream)
        return badInput(
            fmt::format("input {} decides which kernels are queued: it is given on the host", name));
      auto fetched = fetch(one);
      if (!fetched)
        return fetched.error();
      one = std::move(*fetched);
    }
    rest->erase(name);
    at = at->sides[one.begin()->second.toInts().front() != 0].get();
    if (at->refused)
      return *at->refused;
  }
  return &*at->family;
}

Result<Variants::Chosen> Variants::choose(const NamedTensors &inputs, std::optional<void *> stream) {
  std::optional<NamedTensors> rest;
  auto family = familyOf(inputs, rest, stream.has_value());
  if (!family)
    return family.error();
  const NamedTensors &own = rest ? *rest : inputs;
  auto found = find(**family, own);
  if (!found)
    return found.error();
  Variant &variant = **found;
  if (Status status = checkIndices(variant.indexLimits, variant.ports, own); !status)
    return status.error();
  if (!variant.isLoaded)
    if (Status status = load(variant); !status)
      return status.error();
  void *queue = stream.value_or(&variant);
  if (Status status = waitForOthers(&variant, queue); !status)
    return status.error();
  last = &variant;
  return Chosen(*this, variant, queue, inputs, std::move(rest));
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

bool Variants::decides(const Choice &at, const std::string &input) {
  return !at.family && !at.refused &&
         (at.input.name == input || decides(*at.sides[0], input) || decides(*at.sides[1], input));
}

Result<NamedTensors> Variants::place(const NamedTensors &tensors) {
  NamedTensors stay, move;
  for (const auto &[name, tensor] : tensors) {
    const bool isIndex = llvm::any_of(
        front->indexLimits, [&, &name = name](const IndexLimit &limit) { return limit.input == name; });
    (isIndex || decides(*choice, name) ? stay : move)[name] = tensor;
  }
  auto placed = front->backend->place(move);
  if (placed)
    placed->merge(stay);
  return placed;
}

ExecutionBackend &Variants::first() const { return *front->backend; }
const Report &Variants::report() const { return front->report; }

RunStatistics Variants::statistics() const {
  const Variant *recent = last;
  RunStatistics sum = recent->backend->statistics();
  std::shared_lock lock(access);
  for (const Variant *variant : loaded) {
    if (variant == recent)
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
