// The row schedule: ops that work along the last dim of a common set of rows.
#include "codegen/schedule/RowEmitter.h"
#include "codegen/schedule/Schedules.h"

namespace fusion {

namespace {
class RowSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "row"; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
    auto graph = row::buildGraph(region, context);
    if (auto *reason = std::get_if<std::string>(&graph))
      return *reason;
    auto layout = row::chooseLayout(std::get<row::Graph>(graph));
    if (auto *reason = std::get_if<std::string>(&layout))
      return *reason;
    return std::nullopt;
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    auto graph = row::buildGraph(region, context);
    const row::Graph &rows = std::get<row::Graph>(graph);
    auto layout = row::chooseLayout(rows);
    return row::Emitter(region, context, rows, std::get<row::Layout>(layout)).emit();
  }
};
} // namespace

const Schedule &rowSchedule() {
  static const RowSchedule schedule;
  return schedule;
}

} // namespace fusion
