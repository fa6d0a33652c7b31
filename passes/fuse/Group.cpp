// Ports, convexity and the commit of a group.
#include "passes/fuse/Candidate.h"

#include "ir/dialect/Types.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fusion {

bool Candidate::overlaps(const Candidate &other) const {
  return llvm::any_of(ops, [&](Operation *op) { return llvm::is_contained(other.ops, op); });
}

static SmallVector<Operation *> inBlockOrder(ArrayRef<Operation *> ops, ArrayRef<Operation *> clones) {
  SmallVector<Operation *> all(ops);
  all.append(clones.begin(), clones.end());
  llvm::sort(all, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return all;
}

SmallVector<Operation *> Candidate::body() const { return inBlockOrder(ops, clones); }

bool isBodyConstant(Operation *op) {
  if (llvm::isa<nn::DimConstantOp>(op))
    return true;
  auto constant = llvm::dyn_cast<nn::ConstantOp>(op);
  return constant && llvm::cast<RankedTensorType>(constant.getType()).getNumElements() <= 1;
}

GroupPorts portsOf(ArrayRef<Operation *> ops, ArrayRef<Operation *> clones) {
  DenseSet<Operation *> members(ops.begin(), ops.end()), inside = members;
  inside.insert(clones.begin(), clones.end());
  llvm::SetVector<Value> inputs;
  GroupPorts ports;
  for (Operation *op : inBlockOrder(ops, clones)) {
    for (Value operand : op->getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (!producer || (!inside.contains(producer) && !isBodyConstant(producer)))
        inputs.insert(operand);
    }
    if (!members.contains(op))
      continue;
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !members.contains(user); }))
        ports.outputs.push_back(result);
  }
  ports.inputs.assign(inputs.begin(), inputs.end());
  return ports;
}

namespace {
/// Ops between the first and last member that depend on a member but are none. `ops` is in the block's order.
SmallVector<Operation *> lateOps(ArrayRef<Operation *> ops) {
  DenseSet<Operation *> members(ops.begin(), ops.end());
  DenseSet<Operation *> late;
  SmallVector<Operation *> order;
  for (Operation *op = ops.front(); op != ops.back()->getNextNode(); op = op->getNextNode()) {
    if (members.contains(op))
      continue;
    bool depends = llvm::any_of(op->getOperands(), [&](Value operand) {
      Operation *producer = operand.getDefiningOp();
      return producer && (members.contains(producer) || late.contains(producer));
    });
    if (depends) {
      late.insert(op);
      order.push_back(op);
    }
  }
  return order;
}
} // namespace

std::optional<std::string> whyNotConvex(ArrayRef<Operation *> ops, ArrayRef<Operation *> clones) {
  for (Operation *op : ops)
    if (op->getBlock() != ops.front()->getBlock())
      return "the ops are not in one block";
  const SmallVector<Operation *> ordered = inBlockOrder(ops, {}); // a group before this may have moved some
  SmallVector<Operation *> late = lateOps(ordered);
  DenseSet<Operation *> lateSet(late.begin(), late.end());
  for (Operation *op : inBlockOrder(ops, clones))
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp(); producer && lateSet.contains(producer))
        return "not convex: " + shownName(op) + " reads " + shownName(producer) + " (" +
               locationName(producer->getLoc()) + "), which reads the group";
  return std::nullopt;
}

GroupOp commit(const Candidate &candidate) {
  const SmallVector<Operation *> ops = inBlockOrder(candidate.ops, {});
  GroupPorts ports = portsOf(ops, candidate.clones);
  SmallVector<Operation *> late = lateOps(ops);
  Operation *last = ops.back();
  // Late ops move after the place where the group will stand, in their order.
  Operation *after = last;
  for (Operation *op : late) {
    op->moveAfter(after);
    after = op;
  }
  OpBuilder builder(last);
  builder.setInsertionPointAfter(last);
  SmallVector<Type> resultTypes;
  for (Value output : ports.outputs)
    resultTypes.push_back(output.getType());
  auto group = GroupOp::create(builder, candidate.root->getLoc(), resultTypes, ports.inputs,
                               candidate.pattern, candidate.schedule);
  Block *body = builder.createBlock(&group.getBody());
  IRMapping captured;
  for (Value input : ports.inputs)
    captured.map(input, body->addArgument(input.getType(), input.getLoc()));
  builder.setInsertionPointToEnd(body);
  auto yield = YieldOp::create(builder, group.getLoc(), ports.outputs);

  DenseSet<Operation *> members(ops.begin(), ops.end());
  for (Operation *original : candidate.body()) {
    builder.setInsertionPoint(yield);
    Operation *op = original;
    if (members.contains(original)) {
      op->moveBefore(yield);
    } else {
      op = builder.clone(*original);
      captured.map(original->getResults(), op->getResults());
    }
    for (OpOperand &operand : op->getOpOperands()) {
      Operation *producer = operand.get().getDefiningOp();
      if (Value inside = captured.lookupOrNull(operand.get())) {
        operand.set(inside);
      } else if (producer && !members.contains(producer) && isBodyConstant(producer)) {
        builder.setInsertionPoint(op);
        Operation *copy = builder.clone(*producer);
        captured.map(producer->getResults(), copy->getResults());
        operand.set(copy->getResult(llvm::cast<OpResult>(operand.get()).getResultNumber()));
      }
    }
  }
  for (auto [output, result] : llvm::zip(ports.outputs, group.getResults()))
    output.replaceUsesWithIf(
        result, [&](OpOperand &use) { return use.getOwner() != yield && !members.contains(use.getOwner()); });
  return group;
}

void dissolve(GroupOp group) {
  Block &body = group.getBody().front();
  Operation *yield = body.getTerminator();
  for (auto [inside, outside] : llvm::zip(body.getArguments(), group.getInputs()))
    inside.replaceAllUsesWith(outside);
  for (Operation &op : llvm::make_early_inc_range(body.without_terminator()))
    op.moveBefore(group);
  for (auto [result, value] : llvm::zip(group.getResults(), yield->getOperands()))
    result.replaceAllUsesWith(value);
  group.erase();
}

} // namespace fusion
