#include "api/PlanTrials.h"

#include "codegen/plan/Print.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace fusion {

namespace {
constexpr double mostFlops = 1.5e10; ///< as mostTrialElements
constexpr int64_t manyRows = 64, mostRows = int64_t(1) << 32;

using Reaches = llvm::function_ref<bool(const TrialSizes &)>;

std::optional<TrialSizes> sizesWithin(const SizeRange &range, Reaches reaches) {
  auto among = [&](int64_t least, int64_t most) -> std::optional<TrialSizes> {
    for (int64_t rows = least; rows <= most; ++rows)
      for (const TrialSizes &sizes :
           {TrialSizes{1, rows}, TrialSizes{rows, 1}, TrialSizes{1, 2 * rows}, TrialSizes{1, 4 * rows},
            TrialSizes{1, 8 * rows}, TrialSizes{rows, rows}})
        if (reaches(sizes))
          return sizes;
    return std::nullopt;
  };
  // Past a tile's edge, where rows are many. What is not counted in rows may be reached by few.
  const int64_t first = range.least < manyRows ? range.least : std::min(range.most, range.least + 5);
  if (first < mostRows)
    if (auto sizes = among(first, std::min(range.most, first + manyRows)))
      return sizes;
  return among(1, 4 * manyRows);
}

std::optional<TrialSizes> sizesFor(const Predicate &when, Reaches reaches) {
  for (const SizeRange &range : when)
    if (auto sizes = sizesWithin(range, reaches))
      return sizes;
  for (int64_t few = 1; few <= manyRows / 4; ++few)
    for (int64_t many = 1; many <= 4 * manyRows; ++many)
      for (const TrialSizes &sizes : {TrialSizes{few, many}, TrialSizes{many, few}})
        if (reaches(sizes))
          return sizes;
  return std::nullopt;
}

/// Whether what the plan takes for equal is.
bool fits(const ProgramPlan &plan, const SymbolValues &symbols) {
  return llvm::all_of(plan.equalities, [&](const ProgramPlan::Equality &equality) {
    auto left = equality.left.evaluate(symbols), right = equality.right.evaluate(symbols);
    return left && right && *left == *right;
  });
}

TrialSizes alikeSizes(const ProgramPlan &plan, llvm::ArrayRef<PortShape> ports) {
  if (!fits(plan, trialSymbols(ports, equalSizes)))
    for (int64_t size = 1; size <= manyRows; ++size)
      if (fits(plan, trialSymbols(ports, {size, size})))
        return {size, size};
  return equalSizes;
}

void addSizesFor(const Alternative &alternative, const ProgramPlan &plan, llvm::ArrayRef<PortShape> ports,
                 bool usual, PlanTrials &trials) {
  auto reaches = [&](const TrialSizes &sizes) {
    const SymbolValues symbols = trialSymbols(ports, sizes);
    return llvm::all_of(alternative.when,
                        [&](const SizeRange &range) {
                          auto value = range.size.evaluate(symbols);
                          return value && range.holds(*value);
                        }) &&
           fits(plan, symbols);
  };
  auto areMany = [](const SizeRange &range) { return range.least >= manyRows; };
  if (llvm::any_of(trials.sizes, reaches) || (!usual && llvm::none_of(alternative.when, areMany)))
    return;
  const std::string when = conditionText(alternative);
  const std::optional<TrialSizes> sizes = sizesFor(alternative.when, reaches);
  if (!sizes) {
    trials.skipped.push_back(when + ": no sizes were found");
    return;
  }
  double flops = 0;
  for (const KernelLaunch &launch : alternative.launches)
    if (auto count = launch.flops.evaluate(trialSymbols(ports, *sizes)))
      flops += static_cast<double>(*count);
  const double elements = elementsOf(ports, *sizes);
  if (flops > mostFlops)
    trials.skipped.push_back(fmt::format("{}, which would take {:.0f} GFLOP", when, flops * 1e-9));
  else if (elements > mostTrialElements)
    trials.skipped.push_back(
        fmt::format("{}, which would take {:.0f} million elements", when, elements * 1e-6));
  else
    trials.sizes.push_back(*sizes);
}
} // namespace

double elementsOf(llvm::ArrayRef<PortShape> ports, const TrialSizes &sizes) {
  const SymbolValues symbols = trialSymbols(ports, sizes);
  double sum = 0;
  for (const PortShape &port : ports) {
    double elements = 1;
    for (const Dim &dim : port.shape)
      if (auto size = dim.evaluate(symbols))
        elements *= static_cast<double>(std::max<int64_t>(*size, 0));
    sum += elements;
  }
  return sum;
}

PlanTrials planTrials(const ProgramPlan &plan, llvm::ArrayRef<PortShape> ports, bool usual) {
  PlanTrials trials;
  trials.alike = alikeSizes(plan, ports);
  if (usual)
    trials.sizes.push_back(unequalSizes);
  for (const Step &step : plan.steps)
    for (const Alternative &alternative : step.alternatives)
      if (!alternative.when.empty())
        addSizesFor(alternative, plan, ports, usual, trials);
  return trials;
}

} // namespace fusion
