// Rotations that no pattern says: qk_norm_rope where something stands between norm and rotation (the norm of
// all heads together, which are split and transposed afterwards, as in OLMo 2, or a cast) and where the norm
// follows the rotation (Hunyuan); pairs of rotations without an attention that shows that they belong
// together.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

static bool isNormOfStaticRows(Operation *op) {
  auto norm = llvm::dyn_cast<nn::Norm>(op);
  return norm && !tensorType(norm.getX()).isDynamicDim(tensorType(norm.getX()).getRank() - 1);
}

SmallVector<Operation *> normBefore(nn::RopeOp rope) {
  SmallVector<Operation *> ops;
  for (Value value = rope.getX(); value.hasOneUse();) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != rope->getBlock())
      return {};
    ops.push_back(op);
    if (llvm::isa<nn::Norm>(op))
      return isNormOfStaticRows(op) ? ops : SmallVector<Operation *>();
    if (!llvm::isa<nn::ReshapeOp, nn::TransposeOp, nn::CastOp>(op))
      return {};
    value = op->getOperand(0);
  }
  return {};
}

Operation *normAfter(nn::RopeOp rope) {
  if (!rope->hasOneUse())
    return nullptr;
  OpOperand &use = *rope->use_begin();
  Operation *norm = use.getOwner();
  return use.getOperandNumber() == 0 && norm->getBlock() == rope->getBlock() && isNormOfStaticRows(norm)
             ? norm
             : nullptr;
}

nn::RopeOp producingRotation(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto norm = llvm::dyn_cast_or_null<nn::Norm>(op)) {
    auto rope = norm.getX().getDefiningOp<nn::RopeOp>();
    return rope && normAfter(rope) == op ? rope : nn::RopeOp();
  }
  return llvm::dyn_cast_or_null<nn::RopeOp>(op);
}

/// The rotation that computes the value, or that comes last in the cache that it is.
static nn::RopeOp rotationOf(Value value) {
  if (auto concat = value.getDefiningOp<nn::ConcatOp>())
    value = concat->getOperands().back();
  return producingRotation(value);
}

std::vector<Candidate> proposeRopes(const ProposalContext &context, ArrayRef<Candidate>) {
  std::vector<Candidate> grown;
  auto propose = [&](Operation *root, ArrayRef<nn::RopeOp> ropes) {
    Candidate candidate;
    candidate.pattern = "qk_norm_rope";
    candidate.root = root;
    bool apart = false; // where norm and rotation are neighbours, the patterns see them
    for (nn::RopeOp rope : ropes) {
      SmallVector<Operation *> before = normBefore(rope);
      Operation *after = normAfter(rope);
      if (before.empty() && !after)
        return;
      apart |= before.size() > 1 || after;
      candidate.ops.push_back(rope);
      candidate.ops.append(before);
      if (after)
        candidate.ops.push_back(after);
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

// Queries and keys that are rotated alike, in a graph that ends with them or whose attention is an op of its
// own. Pattern: rope(x, cos, sin), rope(y, cos, sin), each with the norm before or after it.
std::vector<Candidate> proposeRotationPairs(const ProposalContext &context, ArrayRef<Candidate> found) {
  auto isPaired = [&](nn::RopeOp rope) {
    return llvm::any_of(found, [&](const Candidate &other) {
      return llvm::is_contained(other.ops, rope.getOperation()) &&
             llvm::count_if(other.ops, [](Operation *op) { return isa<nn::RopeOp>(op); }) > 1;
    });
  };
  SmallVector<nn::RopeOp> alone;
  std::vector<Candidate> candidates;
  for (auto rope : context.block.getOps<nn::RopeOp>()) {
    if (isPaired(rope) || tensorType(rope.getX()).isDynamicDim(tensorType(rope.getX()).getRank() - 1))
      continue;
    auto *first = llvm::find_if(alone, [&](nn::RopeOp other) {
      return other.getCos() == rope.getCos() && other.getSin() == rope.getSin() &&
             other.getRotaryDim() == rope.getRotaryDim() && other.getInterleaved() == rope.getInterleaved() &&
             elementType(other.getX()) == elementType(rope.getX());
    });
    if (first == alone.end()) {
      alone.push_back(rope);
      continue;
    }
    Candidate &candidate = candidates.emplace_back();
    candidate.root = *first;
    candidate.pattern = "rope";
    for (nn::RopeOp each : {*first, rope}) {
      SmallVector<Operation *> norms = normBefore(each);
      if (Operation *after = normAfter(each))
        norms.push_back(after);
      if (!norms.empty()) {
        candidate.pattern = "qk_norm_rope";
        if (each != *first)
          candidate.absorbed.push_back({each, "qk_norm_rope"});
      }
      candidate.ops.append(norms);
      candidate.ops.push_back(each);
    }
    alone.erase(first);
  }
  return candidates;
}

} // namespace fusion
