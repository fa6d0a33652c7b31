// The schedule of nn.expert_matmul: one kernel for the products and the scalar ops after them, and one for
// the sum over the slots, where there is one. For a few tokens both are one kernel.
#include "codegen/schedule/ExpertMatmul.h"
#include "codegen/schedule/Schedules.h"

using namespace mlir;

namespace fusion {

using matmul::Problem;

namespace {
Problem problemOf(const Region &region, const KernelContext &context) {
  return std::get<Problem>(matmul::analyseExperts(region, context));
}

KernelDraft counted(const Problem &problem, KernelDraft draft) {
  draft.kernel.schedule = "experts";
  Dim columns = 0;
  for (const matmul::Matmul &matmul : problem.matmuls)
    columns = columns + matmul.n;
  draft.flops = problem.m * columns * problem.k * Dim(2);
  return draft;
}

KernelDraft emitProducts(const Region &region, const KernelContext &context) {
  const Problem problem = problemOf(region, context);
  return counted(problem, experts::takesGemv(problem)       ? experts::emitGemv(region, context, problem)
                          : matmul::isSmallM(problem)       ? matmul::emitSmallM(region, context, problem)
                          : matmul::tensorCoreType(problem) ? matmul::emitMma(region, context, problem)
                                                            : matmul::emitFma(region, context, problem));
}

/// The products and their sum over the slots, where one kernel computes them.
KernelDraft emitAll(const Region &region, const experts::Sum &sum, const KernelContext &context) {
  const Problem problem = problemOf(sum.products, context);
  return counted(problem, experts::emitGemvSum(sum, region, context, problem));
}

/// By the number of rows that are routed, where only a run knows it.
std::vector<SizeRange> ranges(const Problem &problem, const KernelContext &context) {
  if (problem.m.constant() || context.batchInvariant)
    return {};
  const int64_t experts = problem.routing->experts;
  SmallVector<int64_t> limits{experts};
  if (std::optional<int64_t> slots = problem.rowDims.back().constant())
    for (int64_t tokens : {experts::mostSumTokens, int64_t(1)})
      if (tokens * *slots < experts)
        limits.insert(limits.begin(), tokens * *slots);
  if (matmul::tensorCoreType(problem))
    for (int64_t share : {5, 10, 21, 42, 64}) // with half as many again: 8, 16, 32 and 64 rows of an expert
      limits.push_back(share * experts);
  std::vector<SizeRange> ranges;
  int64_t next = 1;
  for (int64_t limit : limits) {
    ranges.push_back({problem.m, next, limit});
    next = limit + 1;
  }
  ranges.push_back({problem.m, next, INT64_MAX});
  return ranges;
}

class ExpertSchedule : public Schedule {
public:
  StringRef name() const override { return "experts"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::ExpertMatmulOp>(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto found = experts::findSum(region, context);
    if (auto *reason = std::get_if<std::string>(&found))
      return refusal(*reason);
    auto &sum = std::get<std::optional<experts::Sum>>(found);
    const Region &products = sum ? sum->products : region;
    auto problem = matmul::analyseExperts(products, context);
    if (auto *reason = std::get_if<std::string>(&problem))
      return refusal(*reason);
    if (sum)
      if (auto reason = whyNoSum(*sum, std::get<Problem>(problem), context))
        return refusal(*reason);
    SchedulePlan plan{[products, region, sum](const KernelContext &context) {
      return isOneKernel(sum, context) ? emitAll(region, *sum, context) : emitProducts(products, context);
    }};
    plan.split = [region, context, sum] { return alternatives(region, context, sum); };
    plan.batchInvariant = true; // as of nn.matmul; an expert's rows lie in tiles of their own
    return plan;
  }

private:
  static std::vector<PlannedKernel> sm90(ArrayRef<SizeRange> range, const Region &products) {
    Region plan = products;
    plan.outputs.clear();
    auto planner = [products](const KernelContext &context) { return experts::emitPlan(products, context); };
    auto product = [products](const KernelContext &context) { return experts::emitSm90(products, context); };
    return {alternativesFor(range, plan, planner).front().kernels.front(),
            alternativesFor(range, products, product).front().kernels.front()};
  }

  static bool isOneKernel(const std::optional<experts::Sum> &sum, const KernelContext &context) {
    return sum && experts::takesGemvSum(problemOf(sum->products, context));
  }

  static std::optional<std::string> whyNoSum(const experts::Sum &sum, const Problem &problem,
                                             const KernelContext &context) {
    nn::ReduceOp op = sum.op;
    if (problem.sideBySide() || context.shape(op.getX()) != context.shape(problem.op.getY()))
      return std::string("a sum of something else than the products of nn.expert_matmul");
    SmallVector<View> inputs(context.inputs);
    inputs.push_back(View::contiguous(op.getX(), context.shape(op.getX())));
    KernelContext after = context;
    after.inputs = inputs;
    return experts::refusesRest(sum, after);
  }

  /// Rows of an expert from which on warpgroups multiply them, which read all matrices as fast as kernels for
  /// fewer rows do.
  static constexpr int64_t manyRows = 10;

  static std::vector<PlannedAlternative> alternatives(const Region &region, const KernelContext &context,
                                                      const std::optional<experts::Sum> &sum) {
    const Region &products = sum ? sum->products : region;
    auto emit = [products](const KernelContext &context) { return emitProducts(products, context); };
    std::vector<PlannedAlternative> all;
    const Problem problem = problemOf(products, context);
    auto whole = [region, sum](const KernelContext &context) { return emitAll(region, *sum, context); };
    auto addSum = [&](PlannedAlternative &alternative) {
      alternative.kernels.push_back(
          {sum->rest, [sum = *sum](const KernelContext &context) { return experts::emitSum(sum, context); }});
    };
    auto add = [&](ArrayRef<SizeRange> range, int64_t leastRows) {
      KernelContext within = context;
      within.when = range;
      if (isOneKernel(sum, within)) {
        all.push_back(alternativesFor(range, region, whole).front());
        return;
      }
      all.push_back(alternativesFor(range, products, emit).front());
      if (leastRows > manyRows * problem.routing->experts && experts::takesSm90(problem, context.target))
        all.back().kernels = sm90(range, products);
      if (sum)
        addSum(all.back());
    };
    for (const SizeRange &range : ranges(problem, context))
      add(range, range.least);
    if (all.empty())
      add({}, problem.leastRows);
    return all;
  }
};
} // namespace

const Schedule &expertSchedule() {
  static const ExpertSchedule schedule;
  return schedule;
}

} // namespace fusion
