// Which results of a sum over ranks stay scattered: the residual between kernels that each norm their own
// rows.
#include "codegen/ChooseSchedule.h"
#include "codegen/PlanBuilder.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

// All groups that pass such rows on have the same sizes and the same algorithms to choose from. So a run
// takes the same algorithm for all of them, and each rank reduces the same rows.
bool PlanBuilder::staysScattered(Value value, const ScatteredRows &made) {
  if (value.use_empty() || views.isInPlace(value))
    return false;
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (views.isView(user))
      return llvm::all_of(user->getResults(), [&](Value result) { return staysScattered(result, made); });
    auto group = llvm::dyn_cast<GroupOp>(user);
    const auto rows = group ? scatteredRows(group) : std::nullopt;
    return rows && rows->gathersRows && rows->rows == made.rows && rows->width == made.width &&
           rows->messageBytes == made.messageBytes && rows->inputs[use.getOperandNumber()];
  });
}

std::optional<ScatteredRows> PlanBuilder::scatteredRows(GroupOp group) {
  const llvm::SmallVector<bool> &flags = scatteredOutputs(group);
  if (flags.empty())
    return std::nullopt;
  const Region region = Region::of(group);
  const llvm::SmallVector<View> inputs = inputViews(region, views), targets = outputViews(region, views);
  KernelContext context = contextOf(inputs, targets);
  context.scattered = flags;
  context.gathersFullSizeRows = gathersFullSizeRows.value_or(true);
  auto planned = options.schedules.find(group.getSchedule())->plan(region, context);
  return planned && planned->scatteredRows ? planned->scatteredRows() : std::nullopt;
}

const llvm::SmallVector<bool> &PlanBuilder::scatteredOutputs(GroupOp group) {
  if (auto known = scattered.find(group); known != scattered.end())
    return *known->second;
  const Region region = Region::of(group);
  const llvm::SmallVector<View> inputs = inputViews(region, views), targets = outputViews(region, views);
  const KernelContext context = contextOf(inputs, targets);
  auto result = std::make_unique<llvm::SmallVector<bool>>();
  const Schedule *schedule = options.schedules.find(group.getSchedule());
  if (auto planned = schedule ? schedule->plan(region, context) : refusal("no schedule");
      planned && planned->scatteredRows)
    if (auto rows = planned->scatteredRows())
      for (auto [index, value] : llvm::enumerate(group.getResults()))
        result->push_back(rows->outputs[index] && staysScattered(value, *rows));
  return *(scattered[group] = std::move(result));
}

// A chain of residuals ends where the sum is not read any more, often before a norm that is as long as the
// sum. Its rows are gathered after the norm, too, if that lets other kernels of the chain gather less.
void PlanBuilder::chooseScattering() {
  if (gathersFullSizeRows)
    return;
  const bool gains = llvm::any_of(function.getBody().front(), [&](Operation &op) {
    auto group = llvm::dyn_cast<GroupOp>(op);
    const auto rows = group ? scatteredRows(group) : std::nullopt;
    return rows && rows->shorter;
  });
  gathersFullSizeRows = gains;
  if (!gains)
    scattered.clear();
}

} // namespace fusion
