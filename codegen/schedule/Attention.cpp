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

  std::vector<SizeRange> ranges(const Region &region, const KernelContext &context) const override {
    return attention::ranges(attention::Problem(region, context));
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    const attention::Problem problem(region, context);
    const bool isDecode = problem.mostQueries <= attention::decodeQueries(problem);
    KernelDraft draft = isDecode ? attention::decodesOnTensorCores(problem) ? attention::emitDecodeTensor(problem)
                                                                            : attention::emitDecodeFma(problem)
                        : attention::tensorRefusal(problem) ? attention::emitFma(problem)
                                                            : attention::emitTensor(problem);
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
