#include "codegen/ChooseSchedule.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fusion {

std::string describeOp(Operation *op) {
  std::string name = op->getName().getStringRef().str();
  if (auto group = llvm::dyn_cast<GroupOp>(op))
    name += (" \"" + group.getPattern() + "\"").str();
  std::string where = locationName(op->getLoc());
  return where.empty() ? name : name + " at " + where;
}

llvm::SmallVector<View> inputViews(const Region &region, const Views &views) {
  llvm::SmallVector<View> result;
  for (Value input : region.inputs) {
    auto argument = llvm::dyn_cast<BlockArgument>(input);
    auto group = argument ? llvm::dyn_cast<GroupOp>(argument.getOwner()->getParentOp()) : GroupOp();
    result.push_back(views[group ? group.getInputs()[argument.getArgNumber()] : input]);
  }
  return result;
}

llvm::SmallVector<View> outputViews(const Region &region, const Views &views) {
  auto group = llvm::dyn_cast<GroupOp>(region.anchor);
  llvm::SmallVector<View> result;
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    const bool yielded = group && Value(output).getParentBlock() == &group.getBody().front();
    result.push_back(views[yielded ? Value(group.getResult(static_cast<unsigned>(index))) : output]);
  }
  return result;
}

/// True if a kernel would say some op again and again: ops that move elements read their operands at other
/// indices, and what two of them read is computed for each. Along a chain that doubles with every op.
static bool repeatsTooOften(const Region &region) {
  llvm::DenseMap<Value, llvm::SmallSet<size_t, 4>> indices; ///< by the ways from the outputs, as hashes
  for (Value output : region.outputs)
    indices[output].insert(0);
  const size_t most = 256 + 4 * region.ops.size();
  size_t computed = 0;
  for (Operation *op : llvm::reverse(region.ops)) {
    llvm::SmallSet<size_t, 4> own;
    for (Value result : op->getResults())
      for (size_t index : indices[result])
        own.insert(index);
    computed += own.size();
    if (computed > most)
      return true;
    const bool moves = llvm::isa<nn::ConcatOp, nn::SliceOp, nn::PadOp, nn::ReshapeOp, nn::TransposeOp,
                                 nn::ExpandOp, nn::GatherOp, nn::GatherElementsOp, nn::GatherNdOp>(op);
    for (OpOperand &operand : op->getOpOperands())
      for (size_t index : own) {
        const size_t way = llvm::hash_combine(index, op, operand.getOperandNumber());
        indices[operand.get()].insert(moves ? way : index);
      }
  }
  return false;
}

Result<SchedulePlan> planWith(const Schedule &schedule, const Region &region, const KernelContext &context) {
  if (region.ops.size() > 1 && repeatsTooOften(region))
    return refusal("ops that move elements read each other, so that the kernel doubles with every one");
  auto plan = schedule.plan(region, context);
  if (plan && context.batchInvariant && !plan->batchInvariant)
    return refusal(
        "what it computes for a row may depend on the number of rows, which --batch-invariant forbids");
  return plan;
}

Result<std::pair<const Schedule *, SchedulePlan>> firstSchedule(const Region &region,
                                                                const KernelContext &context) {
  llvm::SmallVector<std::string> reasons, others;
  for (const Schedule *schedule : context.schedules.inOrderFor(region)) {
    auto plan = planWith(*schedule, region, context);
    if (plan)
      return std::pair(schedule, std::move(*plan));
    (schedule->concerns(region) ? reasons : others)
        .push_back(schedule->name().str() + ": " + plan.error().message);
  }
  return refusal(llvm::join(reasons.empty() ? others : reasons, "; "));
}

Result<SchedulePlan> chooseSchedule(const Region &region, const KernelContext &context) {
  if (auto group = llvm::dyn_cast<GroupOp>(region.anchor)) {
    const Schedule *schedule = context.schedules.find(group.getSchedule());
    if (!schedule)
      return badInput(describeOp(group) + ": there is no schedule \"" + group.getSchedule().str() + "\"");
    auto plan = planWith(*schedule, region, context);
    return plan ? std::move(plan)
                : badInput(describeOp(group) + ": schedule " + schedule->name().str() +
                           " refuses it: " + plan.error().message);
  }
  auto first = firstSchedule(region, context);
  return first ? Result<SchedulePlan>(std::move(first->second))
               : badInput(describeOp(region.anchor) + ": no kernel computes it (" + first.error().message + ")");
}

} // namespace fusion
