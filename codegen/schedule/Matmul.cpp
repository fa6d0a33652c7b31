// The matmul schedule: one product, or several of one first operand, then scalar ops on their elements.
#include "codegen/schedule/MatmulProblem.h"
#include "codegen/schedule/Schedules.h"

namespace fusion {

namespace {
class MatmulSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "matmul"; }
  bool multiplies() const override { return true; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
    auto problem = matmul::analyse(region, context);
    if (auto *reason = std::get_if<std::string>(&problem))
      return *reason;
    return std::nullopt;
  }

  /// By the number of rows, where only a run knows it.
  std::vector<SizeRange> ranges(const Region &region, const KernelContext &context) const override {
    auto analysed = matmul::analyse(region, context);
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    if (problem.m.constant())
      return {};
    llvm::SmallVector<int64_t> limits = matmul::tileLimits(problem);
    for (int64_t rows : {1, 4, 8, 16, 32, 64})
      if (rows <= std::max(matmul::fewRows(problem), matmul::narrowRows(problem)))
        limits.push_back(rows);
    if (!problem.ahead.empty())
      limits.push_back(matmul::rowsAhead(problem));
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

  /// Many rows are normalised once, not by every block.
  std::optional<Steps> steps(const Region &region, const KernelContext &context) const override {
    auto analysed = matmul::analyse(region, context);
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    if (problem.ahead.empty() || problem.mostRows <= matmul::rowsAhead(problem))
      return std::nullopt;
    return matmul::stepsAhead(region, problem);
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    auto analysed = matmul::analyse(region, context);
    const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
    KernelDraft draft = matmul::isNarrow(problem)         ? matmul::emitNarrow(region, context, problem)
                        : matmul::isSkinny(problem)       ? matmul::emitSkinny(region, context, problem)
                        : matmul::isStrip(problem)        ? matmul::emitStrip(region, context, problem)
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
