#include "runtime/ProductWays.h"

#include "codegen/device/Prelude.h"
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

/// One way of a group of launches as a plan of its own.
class WayPlan {
public:
  WayPlan(const ProgramPlan &whole, size_t begin, size_t end, ProductWay way) : whole(whole) {
    plan.target = whole.target;
    for (size_t i = begin; i < end; ++i)
      if (whole.launches[i].way == way)
        add(whole.launches[i]);
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
    launch.way = {};
    launch.location.clear();
    launch.ops.clear();
    launch.fusion.clear();
    for (KernelLaunch::Argument &argument : launch.arguments)
      if (argument.buffer) {
        const BufferId id = place(*argument.buffer);
        argument.buffer = id;
        (argument.written ? isMade : isRead)[id] = true;
      }
    plan.launches.push_back(std::move(launch));
  }

  BufferId place(BufferId id) {
    auto [found, isNew] = buffers.try_emplace(id, static_cast<BufferId>(plan.buffers.size()));
    if (isNew) {
      const BufferPlan &buffer = whole.buffers[id];
      plan.buffers.push_back({BufferPlan::Kind::Input, fmt::format("b{}", found->second), buffer.type, buffer.shape, {}});
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

/// What the launches of a group are, but for the text of the kernels.
std::string outline(const ProgramPlan &plan, size_t begin, size_t end) {
  std::string text;
  std::map<BufferId, size_t> numbers;
  for (size_t i = begin; i < end; ++i) {
    const KernelLaunch &launch = plan.launches[i];
    text += fmt::format("{} {} {} {}", launch.kernel, static_cast<int>(*launch.way), launch.ahead,
                        launch.when ? fmt::format("{} {} {}", launch.when->size.str(), launch.when->least, launch.when->most)
                                    : std::string());
    for (const KernelLaunch::Argument &argument : launch.arguments)
      text += argument.buffer ? fmt::format(" %{}+{} {}", numbers.try_emplace(*argument.buffer, numbers.size()).first->second,
                                            argument.byteOffset.str(), shapeString(plan.buffers[*argument.buffer].shape))
                              : " " + argument.value.str();
    text += "\n";
  }
  return text;
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

Result<std::optional<ProductWay>> forcedWay() {
  const std::string text = environmentVariable("FUSION_MATMUL");
  if (text.empty())
    return std::optional<ProductWay>();
  if (text == "kernel" || text == "library")
    return std::optional(text == "kernel" ? ProductWay::Kernel : ProductWay::Library);
  return badInput(fmt::format("FUSION_MATMUL is kernel or library, not '{}'", text));
}

ProductWays::ProductWays(const ProgramPlan &plan, const ExecutorOptions &options) : plan(plan), options(options) {
  makeBackend = [&options](std::span<const KernelPlan> kernels) {
    KernelCache cache(options.cacheFolder, options.warn);
    BackendKernels wanted{kernels, {}, {}, {}, &cache, /*mayTryAlgorithms=*/true};
    return options.target == ExecutorOptions::Target::Emulate ? makeEmulatedBackend(wanted)
                                                              : makeCudaBackend(options.ordinal, wanted);
  };
  std::map<std::string, uint32_t> kinds;
  for (size_t i = 0; i < plan.launches.size();) {
    const size_t end = plan.endOfProducts(i);
    if (end == i) {
      ++i;
      continue;
    }
    Group group{i, end};
    group.kind = kinds.try_emplace(outline(plan, i, end), static_cast<uint32_t>(kinds.size())).first->second;
    const KernelLaunch &product = *std::find_if(plan.launches.begin() + static_cast<ptrdiff_t>(i), plan.launches.end(),
                                                [&](const KernelLaunch &launch) { return plan.kernels[launch.kernel].product; });
    for (size_t dim = 0; dim < dims; ++dim)
      group.sizes[dim] = place(product.arguments[3 + dim].value);
    group.when = product.when;
    if (group.when)
      group.whenSize = place(group.when->size);
    groups.push_back(std::move(group));
    i = end;
  }
}

uint32_t ProductWays::place(const Dim &dim) {
  auto found = std::find(distinct.begin(), distinct.end(), dim);
  if (found == distinct.end())
    found = distinct.insert(distinct.end(), dim);
  return static_cast<uint32_t>(found - distinct.begin());
}

std::optional<ProductWays::Key> ProductWays::keyOf(const Group &group, const std::vector<int64_t> &values) const {
  if (group.when && !group.when->holds(values[group.whenSize]))
    return std::nullopt;
  Key key{group.kind, {}};
  for (size_t dim = 0; dim < dims; ++dim) {
    const int64_t value = values[group.sizes[dim]];
    if (value < 1 || value > INT32_MAX)
      return std::nullopt;
    key.second[dim] = sizeClass(value);
  }
  return key;
}

bool ProductWays::byLibrary(size_t begin) const {
  auto group = std::lower_bound(groups.begin(), groups.end(), begin,
                                [](const Group &group, size_t begin) { return group.begin < begin; });
  return group != groups.end() && group->begin == begin && group->byLibrary;
}

Status ProductWays::decide(const SymbolValues &symbols, bool mayMeasure, const std::string &device) {
  std::vector<int64_t> values;
  for (const Dim &dim : distinct) {
    Result<int64_t> value = dim.evaluate(symbols); // one that does not evaluate is an error of who plans the shapes
    values.push_back(value ? *value : 0);
  }
  std::vector<std::optional<Key>> keys;
  std::vector<Pending> pending;
  for (size_t i = 0; i < groups.size(); ++i) {
    keys.push_back(keyOf(groups[i], values));
    const bool isNew = keys.back() && !decided.contains(*keys.back()) &&
                       std::none_of(pending.begin(), pending.end(), [&](const Pending &one) { return one.key == *keys.back(); });
    if (isNew)
      pending.push_back({*keys.back(), i});
  }
  if (!pending.empty())
    if (Status status = settle(std::move(pending), symbols, mayMeasure, device); !status)
      return status;
  candidates = taken = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    auto found = keys[i] ? decided.find(*keys[i]) : decided.end();
    groups[i].byLibrary = found != decided.end() && found->second;
    candidates += keys[i].has_value();
    taken += groups[i].byLibrary;
  }
  return {};
}

Status ProductWays::settle(std::vector<Pending> pending, const SymbolValues &symbols, bool mayMeasure,
                           const std::string &device) {
  Result<std::optional<ProductWay>> forced = forcedWay();
  if (!forced)
    return forced.error();
  if (*forced == ProductWay::Kernel) {
    why = "FUSION_MATMUL is kernel";
    for (const Pending &one : pending)
      decided[one.key] = false;
    return {};
  }
  Result<const CublasLt *> library = libraryFor(options);
  if (*forced && !library)
    return Error{library.error().kind, "FUSION_MATMUL is library: " + library.error().message};
  why = library ? "cuBLASLt " + (*library)->version() : library.error().message;
  if (*forced || !library) {
    for (const Pending &one : pending)
      decided[one.key] = forced->has_value();
    return {};
  }
  if (!mayMeasure)
    return {}; // our kernels, this time
  if (!options.communicator || options.rank == 0)
    measure(pending, symbols, fmt::format("{}\ncuBLASLt {}", device, (*library)->version()));
  return options.communicator ? shareDecisions(pending) : Status();
}

void ProductWays::measure(std::vector<Pending> pending, const SymbolValues &symbols, const std::string &device) {
  KernelCache cache(options.cacheFolder, options.warn);
  std::vector<std::pair<ProgramPlan, ProgramPlan>> ways;
  std::vector<std::string> keys;
  std::erase_if(pending, [&](const Pending &one) {
    const Group &group = groups[one.group];
    ProgramPlan kernel = WayPlan(plan, group.begin, group.end, ProductWay::Kernel).plan,
                library = WayPlan(plan, group.begin, group.end, ProductWay::Library).plan;
    std::string key = fmt::format("products 1\n{}\n{}\n{}\n{}\n{}", device, fmt::join(one.key.second, " "), toJson(kernel),
                                  toJson(library), cudaPrelude());
    const std::optional<std::string> entry = cache.get(key);
    if (double ours = 0, theirs = 0; entry && std::sscanf(entry->c_str(), "%lf %lf", &ours, &theirs) == 2) {
      decided[one.key] = theirs < ours;
      return true;
    }
    ways.emplace_back(std::move(kernel), std::move(library));
    keys.push_back(std::move(key));
    return false;
  });
  if (pending.empty())
    return;
  std::vector<const ProgramPlan *> plans;
  for (const auto &[kernel, library] : ways)
    plans.insert(plans.end(), {&kernel, &library});
  std::optional<Progress> progress; // when the kernels are compiled, which shows its own
  MeasureOptions limits;
  limits.mostBytes = mostBytes;
  const std::vector<Result<double>> times = measurePlans(plans, symbols, makeBackend, limits, [&](size_t index) {
    if (!progress)
      progress.emplace("measuring matrix products", static_cast<int64_t>(pending.size()));
    if (index % 2 == 0)
      progress->step(plan.launches[groups[pending[index / 2].group].begin].location);
  });
  for (size_t i = 0; i < pending.size(); ++i) {
    const Result<double> &ours = times[2 * i], &theirs = times[2 * i + 1];
    const bool known = ours && theirs;
    decided[pending[i].key] = known && *theirs < *ours;
    if (known)
      cache.put(keys[i], fmt::format("{:.4f} {:.4f}\n", *ours, *theirs));
    else
      why += "; " + (ours ? theirs : ours).error().message;
  }
}

Status ProductWays::shareDecisions(const std::vector<Pending> &pending) {
  std::string mine;
  if (options.rank == 0)
    for (const Pending &one : pending)
      mine += decided[one.key] ? '1' : '0';
  auto told = options.communicator->host().gather(mine);
  if (!told)
    return told.error();
  if (told->front().size() != pending.size())
    return badInput("the ranks have different matrix products");
  for (size_t i = 0; i < pending.size(); ++i)
    decided[pending[i].key] = told->front()[i] == '1';
  return {};
}

std::string ProductWays::text() const {
  if (candidates == 0)
    return "";
  return fmt::format("{} of {} matrix products of many rows by the library, {} by kernels ({})", taken, candidates,
                     candidates - taken, why);
}

} // namespace fusion
