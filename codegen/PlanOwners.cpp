// What of a sum over ranks each rank keeps for itself: the residual between kernels that do their rows alone.
#include "codegen/PlanBuilder.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

// All groups that hand such rows on have the same sizes and the same forms to choose from, so that a run takes the same
// form, and the same owners, for all of them.
bool PlanBuilder::ownersAloneRead(Value value, const OwnedRows &made) {
  if (value.use_empty() || views.isInPlace(value))
    return false;
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (views.isView(user))
      return llvm::all_of(user->getResults(), [&](Value result) { return ownersAloneRead(result, made); });
    auto group = llvm::dyn_cast<GroupOp>(user);
    const auto owned = group ? ownedRows(group) : std::nullopt;
    return owned && owned->finished && owned->rows == made.rows && owned->width == made.width &&
           owned->messageBytes == made.messageBytes && owned->inputs[use.getOperandNumber()];
  });
}

std::optional<OwnedRows> PlanBuilder::ownedRows(GroupOp group) {
  const llvm::SmallVector<bool> &flags = ownerOnlyOutputs(group);
  if (flags.empty())
    return std::nullopt;
  const Region region = Region::of(group);
  const llvm::SmallVector<View> inputs = inputViews(region, views), targets = outputViews(region, views);
  KernelContext context{shapes, inputs, arch, nullptr, targets};
  context.ownerOnly = flags;
  context.equalReplies = equalReplies.value_or(true);
  return findSchedule(group.getSchedule())->ownedRows(region, context);
}

const llvm::SmallVector<bool> &PlanBuilder::ownerOnlyOutputs(GroupOp group) {
  if (auto known = ownerOnly.find(group); known != ownerOnly.end())
    return *known->second;
  const Region region = Region::of(group);
  const llvm::SmallVector<View> inputs = inputViews(region, views), targets = outputViews(region, views);
  const KernelContext context{shapes, inputs, arch, nullptr, targets};
  auto result = std::make_unique<llvm::SmallVector<bool>>();
  const Schedule *schedule = findSchedule(group.getSchedule());
  if (schedule && !schedule->refuses(region, context))
    if (auto owned = schedule->ownedRows(region, context))
      for (auto [index, value] : llvm::enumerate(group.getResults()))
        result->push_back(owned->outputs[index] && ownersAloneRead(value, *owned));
  return *(ownerOnly[group] = std::move(result));
}

// A chain of residuals ends where the sum is dead, often before a norm that is as long as the sum. Its owners finish that,
// too, if it lets others in the chain send less.
void PlanBuilder::findOwners() {
  if (equalReplies)
    return;
  const bool gains = llvm::any_of(function.getBody().front(), [&](Operation &op) {
    auto group = llvm::dyn_cast<GroupOp>(op);
    const auto owned = group ? ownedRows(group) : std::nullopt;
    return owned && owned->shorter;
  });
  equalReplies = gains;
  if (!gains)
    ownerOnly.clear();
}

} // namespace fusion
