// The matmul schedule: one matmul, or several of one first operand, a norm in front
// of few rows, and the scalar ops after them.
#include "codegen/schedule/MatmulProblem.h"
#include "codegen/schedule/Schedules.h"

namespace fusion {

namespace {
class MatmulSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "matmul"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::MatmulOp>(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto problem = matmul::analyse(region, context);
    if (auto *reason = std::get_if<std::string>(&problem))
      return refusal(*reason);
    SchedulePlan plan{[&region](const KernelContext &context) { return emit(region, context); }};
    plan.split = [&region, context] { return alternatives(region, context); };
    plan.multiplies = true;
    plan.batchInvariant = true; // one kernel for any number of rows, which adds along k in memory order
    return plan;
  }

private:
  /// By the number of rows, where only a run knows it.
  static std::vector<SizeRange> ranges(const Region &region, const KernelContext &context) {
    auto analysed = matmul::analyse(region, context);
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    if (problem.m.constant() || context.batchInvariant)
      return {};
    llvm::SmallVector<int64_t> limits = matmul::sm90Limits(problem, context.target);
    if (limits.empty())
      limits = matmul::tileLimits(problem);
    matmul::Problem plain = problem; // as it is for more rows than a prologue normalises
    plain.prologue.clear();
    limits.append(matmul::sm100Limits(plain, context.target));
    const int64_t swapped = matmul::swapABRows(plain, context.target),
                  few = std::max({matmul::fewRows(problem), matmul::smallMRows(problem),
                                  matmul::smallMCodesRows(plain, context.target)});
    int64_t quantised = swapsQuantised(plain, context.target);
    if (auto apart = matmul::combinedApart(region, context, problem)) {
      auto products = matmul::analyse(apart->first, plainOutputs(context));
      quantised = std::max(quantised, swapsQuantised(std::get<matmul::Problem>(products), context.target));
    }
    for (int64_t rows : {1, 4, 8, 16, 32, 64, 128})
      if ((rows >= 8 && rows <= swapped) || rows <= quantised ||
          (rows <= few && (!swapped || !problem.prologue.empty())))
        limits.push_back(rows);
    if (!problem.prologue.empty())
      limits.push_back(matmul::prologueRows(problem));
    llvm::sort(limits);
    std::vector<SizeRange> ranges;
    int64_t next = 1;
    for (int64_t limit : limits) {
      if (limit < next)
        continue;
      ranges.push_back({problem.m, next, limit});
      next = limit + 1;
    }
    if (!ranges.empty())
      ranges.push_back({problem.m, next, INT64_MAX});
    return ranges;
  }

  static KernelContext plainOutputs(const KernelContext &context) {
    KernelContext plain = context;
    plain.outputs = {};
    return plain;
  }

  /// Many rows are normalised once, not by every block: from some number of rows on a kernel of its own does
  /// it.
  static std::vector<PlannedAlternative> alternatives(const Region &region, const KernelContext &context) {
    auto emitter = [](const Region &of, bool takesOther = false) {
      return [of, takesOther](const KernelContext &context) { return emit(of, context, takesOther); };
    };
    std::vector<PlannedAlternative> all, others;
    std::optional<std::pair<PlannedKernel, Region>> split;
    for (const SizeRange &range : ranges(region, context)) {
      KernelContext within = context;
      within.when = range;
      auto analysed = matmul::analyse(region, within);
      const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
      if (!split && !problem.prologue.empty() && problem.mostRows > matmul::prologueRows(problem)) {
        auto [first, second] = matmul::splitPrologue(region, problem);
        auto norm = [first = first](const KernelContext &context) {
          return rowSchedule().plan(first, context)->emit(context);
        };
        const SizeRange larger{range.size, range.least, INT64_MAX};
        split.emplace(alternativesFor(larger, first, norm).front().kernels.front(), second);
      }
      const Region &last = split ? split->second : region;
      PlannedAlternative alternative = alternativesFor(range, last, emitter(last)).front();
      if (split)
        alternative.kernels.insert(alternative.kernels.begin(), split->first);
      all.push_back(std::move(alternative));
      matmul::Problem multiplied = problem;
      if (split)
        multiplied.prologue.clear();
      if (auto apart = inTwoKernels(range, region, within, problem)) {
        others.push_back(std::exchange(all.back(), std::move(*apart)));
      } else if (takesQuantised(problem, context.target)) {
        others.push_back(alternativesFor(range, region, emitter(region, true)).front());
      } else if (!matmul::sm100Refusal(multiplied, context.target)) {
        others.push_back(alternativesFor(range, last, emitter(last, true)).front());
        if (split)
          others.back().kernels.insert(others.back().kernels.begin(), split->first);
      }
    }
    if (all.empty())
      return forAnyNumberOfRows(region, context, emitter);
    return withOthers(std::move(all), std::move(others));
  }

  /// Quantised matmuls that are combined, of more rows than gemm_swap_codes combines and no more than it
  /// multiplies side by side.
  static std::optional<PlannedAlternative> inTwoKernels(llvm::ArrayRef<SizeRange> range, const Region &region,
                                                        const KernelContext &within,
                                                        const matmul::Problem &problem) {
    auto apart = takesQuantised(problem, within.target) ? std::nullopt
                                                        : matmul::combinedApart(region, within, problem);
    if (!apart)
      return std::nullopt;
    auto products = matmul::analyse(apart->first, plainOutputs(within));
    if (!takesQuantised(std::get<matmul::Problem>(products), within.target))
      return std::nullopt;
    PlannedAlternative alternative =
        alternativesFor(range, apart->first, [products = apart->first](const KernelContext &context) {
          return emit(products, context);
        }).front();
    alternative.kernels.push_back({apart->second, [rest = apart->second](const KernelContext &context) {
                                     return pointwiseSchedule().plan(rest, context)->emit(context);
                                   }});
    return alternative;
  }

  /// Where no ranges divide the numbers of rows. With batchInvariant a norm has a kernel of its own, as for
  /// many rows.
  template <class Emitter>
  static std::vector<PlannedAlternative>
  forAnyNumberOfRows(const Region &region, const KernelContext &context, const Emitter &emitter) {
    auto analysed = matmul::analyse(region, context);
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    if (context.batchInvariant && !problem.prologue.empty()) {
      auto [first, second] = matmul::splitPrologue(region, problem);
      auto norm = [first = first](const KernelContext &context) {
        return rowSchedule().plan(first, context)->emit(context);
      };
      return {{{}, {}, {{first, norm}, {second, emitter(second)}}}};
    }
    if (auto apart = context.batchInvariant ? std::nullopt : inTwoKernels({}, region, context, problem))
      return withOthers({std::move(*apart)}, alternativesFor({}, region, emitter(region)));
    std::vector<PlannedAlternative> others;
    if (takesQuantised(problem, context.target) ||
        (!context.batchInvariant && !matmul::sm100Refusal(problem, context.target)))
      others = alternativesFor({}, region, emitter(region, true));
    return withOthers(alternativesFor({}, region, emitter(region)), std::move(others));
  }

  /// With the kernels that take some of the sizes as well, as variants to be measured.
  static std::vector<PlannedAlternative> withOthers(std::vector<PlannedAlternative> all,
                                                    std::vector<PlannedAlternative> others) {
    if (others.empty())
      return all;
    for (PlannedAlternative &alternative : all)
      alternative.variant = kernelVariant;
    for (PlannedAlternative &alternative : others) {
      alternative.variant = otherKernelVariant;
      all.push_back(std::move(alternative));
    }
    return all;
  }

  /// The most rows for which quantised weights have a kernel by swapped operands beside the others: of codes,
  /// or of bytes that are multiplied as they are.
  static int64_t swapsQuantised(const matmul::Problem &problem, const TargetInfo &target) {
    return std::max(matmul::swapCodesRows(problem, target), matmul::swapBytesRows(problem, target));
  }
  /// Whether it takes all numbers of rows that there may be, and another kernel is not known to be faster.
  static bool takesQuantised(const matmul::Problem &problem, const TargetInfo &target) {
    return problem.leastRows >= 1 && problem.mostRows <= swapsQuantised(problem, target) &&
           !matmul::prefersSmallMCodes(problem, target);
  }
  /// Whether it is taken where nothing is measured: see docs/matrix-products.md.
  static bool prefersQuantised(const matmul::Problem &problem, const TargetInfo &target) {
    const bool isCodes = matmul::swapCodesRows(problem, target) > 0;
    return problem.leastRows > 4 && (isCodes || problem.mostRows <= 64);
  }

  /// `takesOther`: the kernel that is not taken where nothing is measured.
  static KernelDraft emit(const Region &region, const KernelContext &context, bool takesOther = false) {
    auto analysed = matmul::analyse(region, context);
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    const TargetInfo &target = context.target;
    if (takesQuantised(problem, target) && prefersQuantised(problem, target) != takesOther)
      return matmul::counted(matmul::swapCodesRows(problem, target) > 0
                                 ? matmul::emitSwapCodes(region, context, problem)
                                 : matmul::emitSwapAB(region, context, problem),
                             problem);
    if (takesOther && !matmul::sm100Refusal(problem, target))
      return matmul::counted(matmul::emitSm100(region, context, problem), problem);
    auto holds = [&](int64_t rows) { return problem.leastRows >= 1 && problem.mostRows <= rows; };
    KernelDraft draft =
        holds(matmul::swapABRows(problem, context.target)) ? matmul::emitSwapAB(region, context, problem)
        : matmul::isSmallMCodes(problem, target)           ? matmul::emitSmallMCodes(region, context, problem)
        : matmul::isSmallM(problem)                        ? matmul::emitSmallM(region, context, problem)
        : holds(matmul::gemvRows(problem))                 ? matmul::emitGemv(region, context, problem)
        : holds(matmul::gemvKnRows(problem))               ? matmul::emitGemvKn(region, context, problem)
        : !matmul::sm90Refusal(problem, context.target)    ? matmul::emitSm90(region, context, problem)
        : matmul::tensorCoreType(problem)                  ? matmul::emitMma(region, context, problem)
                                                           : matmul::emitFma(region, context, problem);
    return matmul::counted(std::move(draft), problem);
  }
};
} // namespace

const Schedule &matmulSchedule() {
  static const MatmulSchedule schedule;
  return schedule;
}

} // namespace fusion
