#include "runtime/AlgorithmSelection.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/PlanJson.h"
#include "ir/base/BindSymbols.h"
#include "ir/base/Progress.h"
#include "runtime/ShapePlan.h"
#include "runtime/cuda/CublasLt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace fusion {
namespace {

/// Of buffers for a measurement, beside a program that is loaded already.
constexpr size_t mostBytes = size_t(1) << 30;

/// An alternative as a plan of its own.
class AlternativePlan {
public:
  AlternativePlan(const ProgramPlan &whole, const Alternative &alternative) : whole(whole) {
    plan.target = whole.target;
    for (const KernelLaunch &launch : alternative.launches)
      add(launch);
    for (size_t id = 0; id < plan.buffers.size(); ++id) {
      BufferPlan &buffer = plan.buffers[id];
      if (isMade[id] && isRead[id]) // between launches, or in place
        buffer.kind = BufferPlan::Kind::Temporary;
      else if (isMade[id])
        buffer.kind = BufferPlan::Kind::Output;
      else
        plan.inputs.push_back({buffer.name, buffer.type, buffer.shape, static_cast<BufferId>(id)});
    }
  }

  ProgramPlan plan;

private:
  void add(KernelLaunch launch) {
    auto [kernel, isNew] = kernels.try_emplace(launch.kernel, static_cast<uint32_t>(plan.kernels.size()));
    if (isNew)
      plan.kernels.push_back(whole.kernels[launch.kernel]);
    launch.kernel = kernel->second;
    launch.location.clear();
    launch.ops.clear();
    launch.fusion.clear();
    for (KernelArgument &argument : launch.arguments)
      if (BufferId *buffer = bufferOf(argument)) {
        *buffer = place(*buffer);
        (isWritten(argument) ? isMade : isRead)[*buffer] = true;
      }
    plan.add(std::move(launch));
  }

  BufferId place(BufferId id) {
    auto [found, isNew] = buffers.try_emplace(id, static_cast<BufferId>(plan.buffers.size()));
    if (isNew) {
      const BufferPlan &buffer = whole.buffers[id];
      plan.buffers.push_back(
          {BufferPlan::Kind::Input, fmt::format("b{}", found->second), buffer.type, buffer.shape, {}});
      isMade.push_back(false);
      isRead.push_back(false);
    }
    return found->second;
  }

  const ProgramPlan &whole;
  std::map<uint32_t, uint32_t> kernels;
  std::map<BufferId, BufferId> buffers;
  std::vector<bool> isMade, isRead;
};

/// What the launches of a step are, but for the text of the kernels and which buffers they use.
std::string outline(const ProgramPlan &plan, const Step &step) {
  Step renamed = step;
  std::string text;
  std::map<BufferId, BufferId> numbers;
  for (Alternative &alternative : renamed.alternatives)
    for (KernelLaunch &launch : alternative.launches) {
      launch.location.clear();
      for (KernelArgument &argument : launch.arguments)
        if (BufferId *buffer = bufferOf(argument)) {
          text += shapeString(plan.buffers[*buffer].shape);
          *buffer = numbers.try_emplace(*buffer, static_cast<BufferId>(numbers.size())).first->second;
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
  return badInput(fmt::format("FUSION_MATMUL is kernel or library, not '{}'", text));
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
      for (const Alternative &alternative : step.alternatives)
        if (!alternative.when.empty())
          made.sizes[0] = place(alternative.when.front().size);
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
  Pending choice{{one.kind, {}}, index, fitting[0], fitting[1]};
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
  return found != measured.end() && found->step == step && found->byOther ? candidates.back()
                                                                          : candidates.front();
}

Status AlgorithmSelection::decide(const SymbolValues &symbols, bool mayMeasure, const std::string &device) {
  std::vector<int64_t> values;
  for (const Dim &dim : distinct) {
    Result<int64_t> value =
        dim.evaluate(symbols); // one that does not evaluate is an error of who plans the shapes
    values.push_back(value ? *value : 0);
  }
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
  if (!pending.empty())
    if (Status status = settle(std::move(pending), symbols, mayMeasure, device); !status)
      return status;
  ofLibrary = ofKernels = {};
  for (size_t i = 0; i < measured.size(); ++i) {
    auto found = open[i] ? decided.find(open[i]->key) : decided.end();
    measured[i].byOther = found != decided.end() && found->second;
    Count &count = measured[i].hasLibrary ? ofLibrary : ofKernels;
    count.choices += open[i].has_value();
    count.byOther += measured[i].byOther;
  }
  return {};
}

Status AlgorithmSelection::settle(std::vector<Pending> pending, const SymbolValues &symbols, bool mayMeasure,
                                  const std::string &device) {
  Result<std::string> forced = forcedVariant();
  if (!forced)
    return forced.error();
  std::vector<Pending> kernels;
  std::erase_if(pending, [&](const Pending &one) {
    if (!measured[one.index].hasLibrary)
      kernels.push_back(one);
    return !measured[one.index].hasLibrary;
  });
  if (!kernels.empty())
    if (Status status = settleKernels(std::move(kernels), symbols, mayMeasure, device, !forced->empty());
        !status)
      return status;
  if (pending.empty())
    return {};
  if (*forced == kernelVariant) {
    why = "FUSION_MATMUL is kernel";
    for (const Pending &one : pending)
      decided[one.key] = false;
    return {};
  }
  Result<const CublasLt *> library = libraryFor(options);
  if (!forced->empty() && !library)
    return Error{library.error().kind, "FUSION_MATMUL is library: " + library.error().message};
  why = library ? "cuBLASLt " + (*library)->version() : library.error().message;
  if (!forced->empty() || !library) {
    for (const Pending &one : pending)
      decided[one.key] = !forced->empty();
    return {};
  }
  if (!mayMeasure)
    return {}; // our kernels, this time
  if (!options.communicator || options.rank == 0)
    measure(pending, symbols, fmt::format("{}\ncuBLASLt {}", device, (*library)->version()));
  return options.communicator ? shareDecisions(pending) : Status();
}

Status AlgorithmSelection::settleKernels(std::vector<Pending> pending, const SymbolValues &symbols,
                                         bool mayMeasure, const std::string &device, bool isForced) {
  if (isForced || !times) {
    for (const Pending &one : pending)
      decided[one.key] = false;
    return {};
  }
  if (!mayMeasure)
    return {};
  if (!options.communicator || options.rank == 0)
    measure(pending, symbols, device);
  return options.communicator ? shareDecisions(pending) : Status();
}

void AlgorithmSelection::measure(std::vector<Pending> pending, const SymbolValues &symbols,
                                 const std::string &device) {
  KernelCache cache(options.cacheFolder, options.warn);
  std::vector<std::pair<ProgramPlan, ProgramPlan>> pairs;
  std::vector<std::string> keys;
  std::erase_if(pending, [&](const Pending &one) {
    const Step &step = plan.steps[measured[one.index].step];
    ProgramPlan ours = AlternativePlan(plan, step.alternatives[one.ours]).plan,
                theirs = AlternativePlan(plan, step.alternatives[one.theirs]).plan;
    std::string key = fmt::format("alternatives 1\n{}\n{}\n{}\n{}\n{}", device,
                                  fmt::join(one.key.second, " "), toJson(ours), toJson(theirs), deviceText());
    const std::optional<std::string> entry = cache.get(key);
    if (double our = 0, their = 0; entry && std::sscanf(entry->c_str(), "%lf %lf", &our, &their) == 2) {
      decided[one.key] = their < our;
      return true;
    }
    pairs.emplace_back(std::move(ours), std::move(theirs));
    keys.push_back(std::move(key));
    return false;
  });
  if (pending.empty())
    return;
  std::vector<const ProgramPlan *> plans;
  for (const auto &[ours, theirs] : pairs)
    plans.insert(plans.end(), {&ours, &theirs});
  std::optional<Progress> progress; // when the kernels are compiled, which shows its own
  MeasureOptions limits;
  limits.mostBytes = mostBytes;
  const std::vector<Result<double>> times =
      measurePlans(plans, symbols, makeBackend, limits, [&](size_t index) {
        if (!progress)
          progress.emplace("measuring matmuls", static_cast<int64_t>(pending.size()));
        const Step &step = plan.steps[measured[pending[index / 2].index].step];
        if (index % 2 == 0)
          progress->step(step.alternatives.front().launches.front().location);
      });
  for (size_t i = 0; i < pending.size(); ++i) {
    const Result<double> &our = times[2 * i], &their = times[2 * i + 1];
    const bool known = our && their;
    decided[pending[i].key] = known && *their < *our;
    if (known)
      cache.put(keys[i], fmt::format("{:.4f} {:.4f}\n", *our, *their));
    else
      why += "; " + (our ? their : our).error().message;
  }
}

Status AlgorithmSelection::shareDecisions(const std::vector<Pending> &pending) {
  std::string mine;
  if (options.rank == 0)
    for (const Pending &one : pending)
      mine += decided[one.key] ? '1' : '0';
  auto told = options.communicator->host().gather(mine);
  if (!told)
    return told.error();
  if (told->front().size() != pending.size())
    return badInput("the ranks have different matmuls");
  for (size_t i = 0; i < pending.size(); ++i)
    decided[pending[i].key] = told->front()[i] == '1';
  return {};
}

std::string AlgorithmSelection::text() const {
  std::string text;
  if (ofLibrary.choices > 0)
    text = fmt::format("{} of {} matmuls of many rows by the library, {} by kernels ({})", ofLibrary.byOther,
                       ofLibrary.choices, ofLibrary.choices - ofLibrary.byOther, why);
  if (ofKernels.choices > 0)
    text += fmt::format("{}{} of {} quantised matmuls by their other kernel", text.empty() ? "" : "; ",
                        ofKernels.byOther, ofKernels.choices);
  return text;
}

} // namespace fusion
