// Queries and keys that are rotated alike meet in one kernel also where no attention shows that they belong
// together: in a graph that ends behind them, or whose attention is an op of its own.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

// Pattern: rope(x, cos, sin), rope(y, cos, sin), each with the norm in front of it or behind it.
std::vector<Candidate> growRotations(const ProposalContext &context, ArrayRef<Candidate> found) {
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
      SmallVector<Operation *> norms = normAhead(each);
      if (Operation *behind = normBehind(each))
        norms.push_back(behind);
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
