// The attention schedule: chooses the kernel.
#include "codegen/schedule/AttentionProblem.h"
#include "codegen/schedule/Schedules.h"

namespace fusion {

namespace {

class AttentionSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "attention"; }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    if (auto reason = attention::refusal(region, context))
      return fusion::refusal(*reason);
    SchedulePlan plan{[&region](const KernelContext &context) { return emit(region, context); }};
    plan.batchInvariant = true; // by the number of queries of a sequence, not by that of sequences
    plan.split = [&region, context, emit = plan.emit] {
      return alternativesFor(attention::ranges(attention::Problem(region, context)), region, emit);
    };
    return plan;
  }

private:
  static KernelDraft emit(const Region &region, const KernelContext &context) {
    const attention::Problem problem(region, context);
    KernelDraft draft = !problem.isRagged && problem.mostQueries <= attention::decodeQueries(problem)
                            ? attention::emitDecode(problem)
                            : attention::emitPrefill(problem);
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
