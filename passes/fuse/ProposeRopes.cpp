// qk_norm_rope where something stands between norm and rotation: the norm of all heads together, which are split and
// transposed afterwards (OLMo 2), or a cast; and where the norm follows the rotation (Hunyuan).
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

static bool isNormOfStaticRows(Operation *op) {
  if (!llvm::isa<nn::RmsNormOp, nn::LayerNormOp>(op))
    return false;
  auto type = tensorType(op->getOperand(0));
  return !type.isDynamicDim(type.getRank() - 1);
}

SmallVector<Operation *> normAhead(nn::RopeOp rope) {
  SmallVector<Operation *> ops;
  for (Value value = rope.getX(); value.hasOneUse();) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != rope->getBlock())
      return {};
    ops.push_back(op);
    if (llvm::isa<nn::RmsNormOp, nn::LayerNormOp>(op))
      return isNormOfStaticRows(op) ? ops : SmallVector<Operation *>();
    if (!llvm::isa<nn::ReshapeOp, nn::TransposeOp, nn::CastOp>(op))
      return {};
    value = op->getOperand(0);
  }
  return {};
}

Operation *normBehind(nn::RopeOp rope) {
  if (!rope->hasOneUse())
    return nullptr;
  OpOperand &use = *rope->use_begin();
  Operation *norm = use.getOwner();
  return use.getOperandNumber() == 0 && norm->getBlock() == rope->getBlock() && isNormOfStaticRows(norm) ? norm : nullptr;
}

nn::RopeOp rotationBehind(Value value) {
  Operation *op = value.getDefiningOp();
  if (op && llvm::isa<nn::RmsNormOp, nn::LayerNormOp>(op)) {
    auto rope = op->getOperand(0).getDefiningOp<nn::RopeOp>();
    return rope && normBehind(rope) == op ? rope : nn::RopeOp();
  }
  return llvm::dyn_cast_or_null<nn::RopeOp>(op);
}

/// The rotation that computes the value, or that comes last in the cache that it is.
static nn::RopeOp rotationOf(Value value) {
  if (auto concat = value.getDefiningOp<nn::ConcatOp>())
    value = concat->getOperands().back();
  return rotationBehind(value);
}

std::vector<Candidate> growRopes(const ProposalContext &context, ArrayRef<Candidate>) {
  std::vector<Candidate> grown;
  auto propose = [&](Operation *root, ArrayRef<nn::RopeOp> ropes) {
    Candidate candidate;
    candidate.pattern = "qk_norm_rope";
    candidate.root = root;
    bool apart = false; // where norm and rotation are neighbours, the patterns see them
    for (nn::RopeOp rope : ropes) {
      SmallVector<Operation *> ahead = normAhead(rope);
      Operation *behind = normBehind(rope);
      if (ahead.empty() && !behind)
        return;
      apart |= ahead.size() > 1 || behind;
      candidate.ops.push_back(rope);
      candidate.ops.append(ahead);
      if (behind)
        candidate.ops.push_back(behind);
    }
    if (apart)
      grown.push_back(std::move(candidate));
  };
  for (Operation &op : context.block) {
    if (auto rope = llvm::dyn_cast<nn::RopeOp>(op))
      propose(rope, rope);
    auto attention = llvm::dyn_cast<nn::AttentionOp>(op);
    if (!attention)
      continue;
    nn::RopeOp queries = rotationOf(attention->getOperand(0)), keys = rotationOf(attention->getOperand(1));
    if (queries && keys && queries != keys)
      propose(attention, {queries, keys});
  }
  return grown;
}

} // namespace fusion
