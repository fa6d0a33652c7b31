// The attention schedule: chooses the kernel.
#include "codegen/schedule/AttentionProblem.h"
#include "codegen/schedule/Schedules.h"

namespace fusion {

namespace {

class AttentionSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "attention"; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
    return attention::refusal(region, context);
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    const attention::Problem problem(region, context);
    KernelDraft draft = attention::tensorRefusal(problem) ? attention::emitFma(problem) : attention::emitTensor(problem);
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
