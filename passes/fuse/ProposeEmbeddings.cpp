// embedding_norm: rows of tables, chosen by token ids, the scalar ops after them, and the norm of the result.
#include "passes/fuse/Grow.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

static bool choosesRows(nn::GatherOp gather) {
  const auto axis = static_cast<int64_t>(gather.getAxis());
  return tensorType(gather.getX()).getRank() == 2 && (axis == 0 || axis == -2);
}

/// An input, a weight or a constant, or a view of one.
static bool isGiven(Value value) {
  Operation *op = value.getDefiningOp();
  return !op || nn::isStored(op) || isBodyConstant(op) ||
         (op->hasTrait<nn::View>() && isGiven(op->getOperand(0)));
}

/// The ops that make `value` of rows of tables and of what is given; whether it is made so.
static bool collect(Value value, Operation *norm, OpSet &ops) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != norm->getBlock())
    return false;
  if (ops.contains(op))
    return true;
  if (auto gather = dyn_cast<nn::GatherOp>(op)) {
    if (choosesRows(gather))
      ops.insert(op);
    return choosesRows(gather);
  }
  if (!op->hasTrait<nn::Pointwise>() || op->getNumResults() != 1 || isBodyConstant(op))
    return false;
  bool found = false;
  for (Value operand : op->getOperands()) {
    const bool isMade = collect(operand, norm, ops);
    if (!isMade && !isGiven(operand))
      return false;
    found |= isMade;
  }
  if (found)
    ops.insert(op);
  return found;
}

Proposals proposeEmbeddingNorms(const ProposalContext &context) {
  Proposals proposals;
  for (Operation &op : context.block) {
    auto norm = dyn_cast<nn::Norm>(op);
    OpSet ops;
    if (!norm || !collect(op.getOperand(0), norm, ops))
      continue;
    Candidate candidate;
    candidate.pattern = "embedding_norm";
    candidate.root = norm;
    candidate.ops.assign(ops.begin(), ops.end());
    candidate.ops.push_back(norm);
    absorbWithin(candidate, context.found);
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

} // namespace fusion
