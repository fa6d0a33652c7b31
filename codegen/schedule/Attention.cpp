// The attention schedule: chooses the kernel.
#include "codegen/schedule/AttentionTiles.h"
#include "codegen/schedule/Schedules.h"

namespace fusion {

namespace {

class AttentionSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "attention"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::AttentionOp>(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    if (auto reason = attention::refusal(region, context))
      return fusion::refusal(*reason);
    if (attention::Problem(region, context).isLatent()) {
      SchedulePlan plan{[&region](const KernelContext &context) {
        return attention::emitLatent(attention::Problem(region, context));
      }};
      plan.split = [&region, context] { return attention::latentAlternatives(region, context); };
      plan.batchInvariant = true; // then how many share the keys does not depend on the pairs
      return plan;
    }
    SchedulePlan plan{[&region](const KernelContext &context) { return emit(region, context, false); }};
    plan.batchInvariant = true; // by the number of queries of a sequence, not by that of sequences
    plan.split = [&region, context, emit = plan.emit] {
      const attention::Problem problem(region, context);
      std::vector<PlannedAlternative> all = alternativesWhere(attention::predicates(problem), region, emit);
      return problem.table ? withPagesByTma(std::move(all), region, context) : std::move(all);
    };
    return plan;
  }

private:
  static bool isFew(const attention::Problem &problem) {
    return !problem.isRagged && problem.mostQueries <= attention::decodeQueries(problem);
  }

  /// Beside kernels of many rows those in which TMA copies the pages, to be measured. None was timed; where
  /// nothing is, those without are taken, which read nothing behind the last key.
  static std::vector<PlannedAlternative> withPagesByTma(std::vector<PlannedAlternative> all,
                                                        const Region &region, const KernelContext &context) {
    std::vector<PlannedAlternative> others;
    for (const PlannedAlternative &one : all) {
      KernelContext within = context;
      within.when = one.when;
      const attention::Problem problem(region, within);
      if (isFew(problem) || !attention::copiesPagesByTma(problem))
        continue;
      auto emitter = [&region, when = one.when](KernelContext context) {
        context.when = when;
        return emit(region, context, true);
      };
      others.push_back({one.when, {}, {PlannedKernel{region, emitter}}, otherKernelVariant});
    }
    if (others.empty())
      return all;
    for (PlannedAlternative &one : all)
      one.variant = kernelVariant;
    llvm::append_range(all, std::move(others));
    return all;
  }

  static KernelDraft emit(const Region &region, const KernelContext &context, bool pagesByTma) {
    const attention::Problem problem(region, context);
    KernelDraft draft = isFew(problem) ? attention::emitDecode(problem)
                                       : attention::emitPrefill(problem, pagesByTma);
    draft.flops = problem.flops();
    return draft;
  }
};

} // namespace

const Schedule &attentionSchedule() {
  static const AttentionSchedule schedule;
  return schedule;
}

} // namespace fusion
