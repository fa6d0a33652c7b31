// The matmul schedule: one product, or several of one first operand, then scalar ops on their elements.
#include "codegen/schedule/MatmulProblem.h"
#include "codegen/schedule/Schedules.h"

namespace fusion {

namespace {
class MatmulSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "matmul"; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
    auto problem = matmul::analyse(region, context);
    if (auto *reason = std::get_if<std::string>(&problem))
      return *reason;
    return std::nullopt;
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    auto analysed = matmul::analyse(region, context);
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    KernelDraft draft = matmul::isSkinny(problem)         ? matmul::emitSkinny(region, context, problem)
                        : matmul::tensorCoreType(problem) ? matmul::emitTensorCore(region, context, problem)
                                                          : matmul::emitFma(region, context, problem);
    Dim columns = 0;
    for (const matmul::Product &product : problem.products)
      columns = columns + product.n;
    draft.flops = problem.m * columns * problem.k * problem.batchCount() * Dim(2);
    return draft;
  }
};
} // namespace

const Schedule &matmulSchedule() {
  static const MatmulSchedule schedule;
  return schedule;
}

} // namespace fusion
