#include "runtime/AlgorithmSelection.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/PlanJson.h"
#include "ir/base/BindSymbols.h"
#include "ir/base/Progress.h"
#include "runtime/AlternativePlan.h"
#include "runtime/ShapePlan.h"
#include "runtime/TypicalSizes.h"
#include "runtime/cuda/CublasLt.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

namespace fusion {
namespace {

/// Of buffers for a measurement, beside a program that is loaded already.
constexpr size_t mostBytes = size_t(1) << 30;

/// Microseconds that an alternative costs more in a run than alone, where the first one takes `time`. In a
/// run each launch overlaps the end of the one before it, so that a kernel of ours that does what several do
/// gains less than it does alone. Of long kernels that was not so: see benchmarks/notes-launch.md.
double moreInRuns(const Alternative &alternative, const Alternative &first, double time) {
  constexpr double ofLaunchSaved = 0.5, longTime = 30;
  const bool isOne = alternative.variant == otherKernelVariant && time < longTime &&
                     alternative.launches.size() < first.launches.size();
  return isOne ? ofLaunchSaved * static_cast<double>(first.launches.size() - alternative.launches.size()) : 0;
}

/// What the launches of a step are, but for the text of the kernels and which buffers they use.
std::string outline(const ProgramPlan &plan, const Step &step) {
  Step renamed = step;
  std::string text;
  std::map<BufferId, BufferId> numbers;
  for (Alternative &alternative : renamed.alternatives) {
    alternative.link = Alternative::Link::None; // which is not measured
    alternative.linked.reset();
    for (KernelLaunch &launch : alternative.launches) {
      launch.location.clear();
      for (KernelArgument &argument : launch.arguments)
        if (BufferId *buffer = bufferOf(argument)) {
          text += shapeString(plan.buffers[*buffer].shape);
          *buffer = numbers.try_emplace(*buffer, static_cast<BufferId>(numbers.size())).first->second;
        }
    }
  }
  return text + plan_json::stepJson(renamed);
}

/// What works on the memory of the target's kernels.
Result<const CublasLt *> libraryFor(const ExecutorOptions &options) {
  const bool emulates = options.target == ExecutorOptions::Target::Emulate;
  if (emulates && environmentVariable("FUSION_CUBLASLT").empty())
    return environment("kernels are emulated");
  Result<const CublasLt *> library = CublasLt::instance();
  if (library && (*library)->standsIn != emulates)
    return environment(emulates ? "kernels are emulated" : "cuBLASLt's stand-in works on the host");
  return library;
}

} // namespace

Result<std::string> forcedVariant() {
  const std::string text = environmentVariable("FUSION_MATMUL");
  if (text.empty() || text == kernelVariant || text == libraryVariant)
    return text;
  if (text == "other")
    return std::string(otherKernelVariant);
  return badInput(fmt::format("FUSION_MATMUL is kernel, other or library, not '{}'", text));
}

AlgorithmSelection::AlgorithmSelection(const ProgramPlan &plan, const ExecutorOptions &options)
    : plan(plan), options(options), times(options.target != ExecutorOptions::Target::Emulate) {
  makeBackend = [&options](std::span<const KernelPlan> kernels) {
    KernelCache cache(options.cacheFolder, options.warn);
    BackendKernels wanted{kernels, {}, {}, {}, &cache, /*mayTryAlgorithms=*/true};
    return options.target == ExecutorOptions::Target::Emulate ? makeEmulatedBackend(wanted)
                                                              : makeCudaBackend(options.ordinal, wanted);
  };
  std::map<std::string, uint32_t> kinds;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step &step = plan.steps[i];
    if (step.choice != Step::Choice::Measurement)
      continue;
    MeasuredStep made{i};
    made.kind = kinds.try_emplace(outline(plan, step), static_cast<uint32_t>(kinds.size())).first->second;
    for (const Alternative &alternative : step.alternatives) {
      std::vector<uint32_t> &when = made.when.emplace_back();
      for (const SizeRange &range : alternative.when)
        when.push_back(place(range.size));
      for (const KernelLaunch &launch : alternative.launches)
        if (plan.kernels[launch.kernel].matmul) {
          made.hasLibrary = true;
          for (size_t dim = 0; dim < dims; ++dim)
            made.sizes[dim] = place(std::get<ScalarArgument>(launch.arguments[3 + dim]).value);
        }
    }
    if (!made.hasLibrary) { // the other sizes are in the kernels' text
      made.sizes.fill(place(Dim(1)));
      const std::vector<Dim> sizes = sizesOf(step);
      for (size_t dim = 0; dim < std::min(dims, sizes.size()); ++dim)
        made.sizes[dim] = place(sizes[dim]);
    }
    measured.push_back(std::move(made));
  }
}

uint32_t AlgorithmSelection::place(const Dim &dim) {
  auto found = std::find(distinct.begin(), distinct.end(), dim);
  if (found == distinct.end())
    found = distinct.insert(distinct.end(), dim);
  return static_cast<uint32_t>(found - distinct.begin());
}

std::optional<AlgorithmSelection::Pending>
AlgorithmSelection::choiceAt(size_t index, const std::vector<int64_t> &values) const {
  const MeasuredStep &one = measured[index];
  const Step &step = plan.steps[one.step];
  const std::vector<uint32_t> fitting = candidates(step, [&](uint32_t i) {
    for (size_t j = 0; j < one.when[i].size(); ++j)
      if (!step.alternatives[i].when[j].holds(values[one.when[i][j]]))
        return false;
    return true;
  });
  if (fitting.size() < 2)
    return std::nullopt;
  Pending choice{{one.kind, {}}, index, fitting};
  for (size_t dim = 0; dim < dims; ++dim) {
    const int64_t value = values[one.sizes[dim]];
    if (value < 1 || value > INT32_MAX)
      return std::nullopt;
    choice.key.second[dim] = sizeClass(value);
  }
  return choice;
}

uint32_t AlgorithmSelection::choose(size_t step, std::span<const uint32_t> candidates) const {
  auto found = std::lower_bound(measured.begin(), measured.end(), step,
                                [](const MeasuredStep &one, size_t step) { return one.step < step; });
  if (found != measured.end() && found->step == step && !found->chosen.empty())
    for (uint32_t candidate : candidates)
      if (variantName(plan.steps[step].alternatives[candidate]) == found->chosen)
        return candidate;
  return candidates.front();
}

std::string AlgorithmSelection::variantOf(const Pending &one, size_t candidate) const {
  const Step &step = plan.steps[measured[one.index].step];
  return std::string(variantName(step.alternatives[one.candidates[candidate]]));
}

std::vector<int64_t> AlgorithmSelection::valuesAt(const SymbolValues &symbols) const {
  std::vector<int64_t> values;
  for (const Dim &dim : distinct) {
    Result<int64_t> value =
        dim.evaluate(symbols); // one that does not evaluate is an error of who plans the shapes
    values.push_back(value ? *value : 0);
  }
  return values;
}

Status AlgorithmSelection::decide(const SymbolValues &symbols, bool mayMeasure, const std::string &device,
                                  const std::function<void()> &compile) {
  const std::vector<int64_t> values = valuesAt(symbols);
  std::vector<std::optional<Pending>> open;
  std::vector<Pending> pending;
  for (size_t i = 0; i < measured.size(); ++i) {
    open.push_back(choiceAt(i, values));
    const bool isNew = open.back() && !decided.contains(open.back()->key) &&
                       std::none_of(pending.begin(), pending.end(),
                                    [&](const Pending &one) { return one.key == open.back()->key; });
    if (isNew)
      pending.push_back(*open.back());
  }
  if (!pending.empty()) {
    const SymbolValues typical = typicalSizes(plan, symbols);
    const std::vector<int64_t> typicalValues = valuesAt(typical);
    const auto others = std::partition(pending.begin(), pending.end(), [&](const Pending &one) {
      const std::optional<Pending> there = choiceAt(one.index, typicalValues);
      return there && there->candidates == one.candidates;
    });
    std::vector<Pending> asGiven(others, pending.end());
    pending.erase(others, pending.end());
    for (auto &&[some, sizes] : {std::pair(&pending, &typical), std::pair(&asGiven, &symbols)})
      if (!some->empty())
        if (Status status = settle(std::move(*some), {*sizes, mayMeasure, device, compile}); !status)
          return status;
  }
  ofLibrary = ofKernels = {};
  for (size_t i = 0; i < measured.size(); ++i) {
    auto found = open[i] ? decided.find(open[i]->key) : decided.end();
    measured[i].chosen = found != decided.end() ? found->second : "";
    if (!open[i])
      continue;
    const size_t step = measured[i].step;
    const std::string_view variant =
        variantName(plan.steps[step].alternatives[choose(step, open[i]->candidates)]);
    Count &count = measured[i].hasLibrary ? ofLibrary : ofKernels;
    ++count.choices;
    count.byLibrary += variant == libraryVariant;
    count.byOther += variant == otherKernelVariant;
  }
  return {};
}

Status AlgorithmSelection::settle(std::vector<Pending> pending, const Conditions &conditions) {
  Result<std::string> forced = forcedVariant();
  if (!forced)
    return forced.error();
  if (!forced->empty() && *forced != libraryVariant) {
    why = "FUSION_MATMUL is " + environmentVariable("FUSION_MATMUL");
    for (const Pending &one : pending)
      decided[one.key] = *forced;
    return {};
  }
  auto isLibrary = [this](const Pending &one, uint32_t candidate) {
    return variantName(plan.steps[measured[one.index].step].alternatives[candidate]) == libraryVariant;
  };
  auto ofLibraries = std::partition(pending.begin(), pending.end(), [&](const Pending &one) {
    return std::none_of(one.candidates.begin(), one.candidates.end(),
                        [&](uint32_t candidate) { return isLibrary(one, candidate); });
  });
  std::vector<Pending> kernels(pending.begin(), ofLibraries);
  pending.erase(pending.begin(), ofLibraries);
  Result<const CublasLt *> library = static_cast<const CublasLt *>(nullptr);
  if (!pending.empty())
    library = libraryFor(options);
  if (*forced == libraryVariant && !library)
    return Error{library.error().kind, "FUSION_MATMUL is library: " + library.error().message};
  if (!pending.empty())
    why = library ? "cuBLASLt " + (*library)->version() : library.error().message;
  if (!forced->empty() || !library) {
    for (Pending &one : pending) {
      decided[one.key] = *forced;
      std::erase_if(one.candidates, [&](uint32_t candidate) { return isLibrary(one, candidate); });
      if (forced->empty() && one.candidates.size() > 1)
        kernels.push_back(std::move(one));
    }
    pending.clear();
  }
  if (!kernels.empty())
    if (Status status = settleKernels(std::move(kernels), conditions, !forced->empty()); !status)
      return status;
  if (pending.empty() || !conditions.mayMeasure)
    return {}; // our kernels, this time
  if (!options.communicator || options.rank == 0)
    measure(pending, conditions, fmt::format("{}\ncuBLASLt {}", conditions.device, (*library)->version()));
  return options.communicator ? shareDecisions(pending) : Status();
}

Status AlgorithmSelection::settleKernels(std::vector<Pending> pending, const Conditions &conditions,
                                         bool isForced) {
  for (const Pending &one : pending)
    if (isForced || !times)
      decided[one.key].clear();
    else // the first, until they are measured
      decided.erase(one.key);
  if (isForced || !times || !conditions.mayMeasure)
    return {};
  if (!options.communicator || options.rank == 0)
    measure(pending, conditions, conditions.device);
  return options.communicator ? shareDecisions(pending) : Status();
}

void AlgorithmSelection::measure(std::vector<Pending> pending, const Conditions &conditions,
                                 const std::string &device) {
  KernelCache cache(options.cacheFolder, options.warn);
  auto decide = [&](const Pending &one, std::span<const double> times) {
    std::vector<double> inRuns(times.begin(), times.end());
    const Step &step = plan.steps[measured[one.index].step];
    for (size_t i = 0; i < inRuns.size(); ++i)
      inRuns[i] +=
          moreInRuns(step.alternatives[one.candidates[i]], step.alternatives[one.candidates[0]], times[0]);
    const auto best = std::min_element(inRuns.begin(), inRuns.end()) - inRuns.begin();
    decided[one.key] = best == 0 ? "" : variantOf(one, static_cast<size_t>(best));
  };
  std::vector<std::vector<ProgramPlan>> sets; ///< of each pending one, its candidates
  std::vector<std::string> keys;
  std::erase_if(pending, [&](const Pending &one) {
    const Step &step = plan.steps[measured[one.index].step];
    std::vector<ProgramPlan> set;
    std::string key = fmt::format("alternatives 2\n{}\n{}", device, fmt::join(one.key.second, " "));
    for (uint32_t candidate : one.candidates) {
      set.push_back(planOfAlternative(plan, step.alternatives[candidate]));
      key += "\n" + toJson(set.back());
    }
    key += "\n";
    key += deviceText();
    if (const std::optional<std::string> entry = cache.get(key)) {
      std::istringstream text(*entry);
      const std::vector<double> times{std::istream_iterator<double>(text), {}};
      if (times.size() == set.size()) {
        decide(one, times);
        return true;
      }
    }
    sets.push_back(std::move(set));
    keys.push_back(std::move(key));
    return false;
  });
  if (pending.empty())
    return;
  if (conditions.compile)
    conditions.compile();
  std::vector<const ProgramPlan *> plans;
  for (const std::vector<ProgramPlan> &set : sets)
    for (const ProgramPlan &candidate : set)
      plans.push_back(&candidate);
  std::optional<Progress> progress; // when the kernels are compiled, which shows its own
  MeasureOptions limits;
  limits.mostBytes = mostBytes;
  const std::vector<Result<double>> times =
      measurePlans(plans, conditions.symbols, makeBackend, limits, [&](size_t index) {
        if (!progress)
          progress.emplace("measuring matmuls", static_cast<int64_t>(plans.size()));
        progress->step(plans[index]->steps.front().alternatives.front().launches.front().location);
      });
  for (size_t i = 0, first = 0; i < pending.size(); first += sets[i++].size()) {
    std::vector<double> known;
    std::string entry;
    for (size_t j = first; j < first + sets[i].size(); ++j)
      if (times[j]) {
        known.push_back(*times[j]);
        entry += fmt::format("{}{:.4f}", entry.empty() ? "" : " ", *times[j]);
      } else {
        why += "; " + times[j].error().message;
        break;
      }
    if (known.size() == sets[i].size()) {
      decide(pending[i], known);
      cache.put(keys[i], entry + "\n");
    } else {
      decided[pending[i].key].clear();
    }
  }
}

Status AlgorithmSelection::shareDecisions(const std::vector<Pending> &pending) {
  std::string mine; ///< a candidate's number for each
  if (options.rank == 0)
    for (const Pending &one : pending) {
      size_t number = 0;
      for (size_t i = 1; i < one.candidates.size(); ++i)
        if (variantOf(one, i) == decided[one.key])
          number = i;
      mine += static_cast<char>('0' + number);
    }
  auto told = options.communicator->host().gather(mine);
  if (!told)
    return told.error();
  const std::string &answers = told->front();
  if (answers.size() != pending.size())
    return badInput("the ranks have different matmuls");
  for (size_t i = 0; i < pending.size(); ++i) {
    const auto number = static_cast<size_t>(answers[i] - '0');
    if (number >= pending[i].candidates.size())
      return badInput("the ranks have different matmuls");
    decided[pending[i].key] = number == 0 ? "" : variantOf(pending[i], number);
  }
  return {};
}

std::string AlgorithmSelection::text() const {
  std::string text;
  if (ofLibrary.choices > 0) {
    const std::string other =
        ofLibrary.byOther > 0 ? fmt::format(", {} of these by their other kernel", ofLibrary.byOther) : "";
    text = fmt::format("{} of {} matmuls of many rows by the library, {} by kernels{} ({})",
                       ofLibrary.byLibrary, ofLibrary.choices, ofLibrary.choices - ofLibrary.byLibrary, other,
                       why);
  }
  if (ofKernels.choices > 0)
    text += fmt::format("{}{} of {} matmuls by another kernel", text.empty() ? "" : "; ",
                        ofKernels.byOther, ofKernels.choices);
  return text;
}

} // namespace fusion
