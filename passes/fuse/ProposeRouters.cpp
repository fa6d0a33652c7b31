// router: the choice of experts: nn.top_k with the softmax before it, the scores taken, and what makes
// weights of them; the matmul of the scores too. The choice may be by the scores and a bias of each expert,
// and from the best groups of experts.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {
/// Scalar ops that make weights of scores, at most.
constexpr size_t mostScalars = 4;

/// The sum of `value`, what is added to it, and the quotient by it; a softmax of it; nothing.
SmallVector<Operation *> normalisation(Value value) {
  SmallVector<Operation *> ops;
  nn::ReduceOp sum;
  nn::DivOp quotient;
  nn::AddOp shifted;
  for (Operation *user : value.getUsers()) {
    if (auto reduce = llvm::dyn_cast<nn::ReduceOp>(user))
      sum = reduce;
    if (auto div = llvm::dyn_cast<nn::DivOp>(user))
      quotient = div;
    if (llvm::isa<nn::SoftmaxOp>(user) && value.hasOneUse())
      return {user};
  }
  if (!sum || !quotient || quotient.getLhs() != value || llvm::range_size(value.getUses()) != 2)
    return ops;
  if (sum->hasOneUse())
    shifted = llvm::dyn_cast<nn::AddOp>(*sum->user_begin());
  if (shifted ? quotient.getRhs() == shifted.getResult() && shifted->hasOneUse()
              : quotient.getRhs() == sum.getY())
    ops.append({sum, quotient});
  if (shifted && !ops.empty())
    ops.insert(ops.begin() + 1, shifted);
  return ops;
}
/// The ops, one after the other, from a matmul to `scores`: itself, and scalar ops of what it makes and of
/// rows or numbers. Nobody else reads what is between. Empty if it is not made so.
SmallVector<Operation *> matmulBefore(Value scores) {
  SmallVector<Operation *> ops;
  for (size_t i = 0; i <= mostScalars; ++i) {
    Operation *op = scores.getDefiningOp();
    if (!op || (i > 0 && !scores.hasOneUse()))
      return {};
    ops.insert(ops.begin(), op);
    if (llvm::isa<nn::MatmulOp>(op))
      return ops;
    if (!llvm::isa<nn::ScalarFormula>(op))
      return {};
    const auto rank = tensorType(scores).getRank();
    Value made;
    for (Value operand : op->getOperands())
      if (tensorType(operand).getRank() == rank && !operand.getDefiningOp<nn::ConstantOp>()) {
        if (made)
          return {};
        made = operand;
      }
    if (!made)
      return {};
    scores = made;
  }
  return {};
}

/// What takes the scores at the places that `topK` finds, or null.
nn::GatherElementsOp takenOf(Value scores, nn::TopKOp topK) {
  for (Operation *user : scores.getUsers())
    if (auto gather = llvm::dyn_cast<nn::GatherElementsOp>(user);
        gather && gather.getX() == scores && gather.getIndices() == topK.getY())
      return gather;
  return {};
}

/// The choice, and what takes its scores.
struct Choice {
  nn::TopKOp topK;
  nn::LimitGroupsOp limit; ///< of the experts that are chosen from, or null
  nn::AddOp shift;         ///< the choice is by these, the weights are without; or null
  nn::GatherElementsOp taken;
  Value scores; ///< in front of both
};

/// Nothing where nobody takes the scores.
std::optional<Choice> choiceOf(nn::TopKOp topK) {
  Choice choice{topK, {}, {}, takenOf(topK.getX(), topK), topK.getX()};
  if (auto limit = topK.getX().getDefiningOp<nn::LimitGroupsOp>();
      limit && llvm::range_size(limit->getUses()) == (choice.taken ? 2 : 1)) {
    choice.limit = limit;
    choice.scores = limit.getX();
    if (!choice.taken)
      choice.taken = takenOf(choice.scores, topK);
  }
  auto add = choice.scores.getDefiningOp<nn::AddOp>();
  for (unsigned operand : {0u, 1u})
    if (!choice.taken && add && add->hasOneUse()) {
      choice.taken = takenOf(add->getOperand(operand), topK);
      choice.scores = choice.taken ? add->getOperand(operand) : choice.scores;
      choice.shift = choice.taken ? add : nn::AddOp();
    }
  return choice.taken ? std::optional(choice) : std::nullopt;
}

/// The candidates with the ops in front of the scores.
void proposeWithMatmul(Operation *topK, Value scores, ArrayRef<Operation *> routed, Proposals &proposals) {
  SmallVector<Operation *> ops = matmulBefore(scores);
  if (ops.empty())
    return;
  ops.append(routed.begin(), routed.end());
  Candidate candidate;
  candidate.pattern = "router";
  candidate.root = topK;
  candidate.ops.assign(ops.begin(), ops.end());
  proposals.candidates.push_back(std::move(candidate));
}
} // namespace

Proposals proposeRouters(const ProposalContext &context) {
  Proposals proposals;
  for (auto topK : context.block.getOps<nn::TopKOp>()) {
    const std::optional<Choice> choice = choiceOf(topK);
    if (!choice) {
      proposals.misses.push_back({topK, "nobody takes the scores that nn.top_k finds"});
      continue;
    }
    auto [_, limit, shift, taken, scores] = *choice;
    auto propose = [&](ArrayRef<Operation *> ops) {
      Candidate candidate;
      candidate.pattern = "router";
      candidate.root = topK;
      candidate.ops.assign(ops.begin(), ops.end());
      proposals.candidates.push_back(std::move(candidate));
    };
    SmallVector<Operation *> ops;
    const size_t readers = limit && taken.getX() == limit ? 1 : 2;
    if (auto softmax = scores.getDefiningOp<nn::SoftmaxOp>();
        softmax && llvm::range_size(scores.getUses()) == readers)
      ops.push_back(softmax);
    if (shift)
      ops.push_back(shift);
    if (limit)
      ops.push_back(limit);
    ops.append({topK, taken});
    propose(ops);
    Value weight = taken.getY();
    if (SmallVector<Operation *> more = normalisation(weight); !more.empty()) {
      ops.append(more);
      weight = more.back()->getResult(0);
      propose(ops);
    }
    for (size_t i = 0; i < mostScalars && weight.hasOneUse(); ++i) {
      Operation *op = *weight.user_begin();
      if (!llvm::isa<nn::ScalarFormula>(op) ||
          context.traffic.shapes[op->getResult(0)] != context.traffic.shapes[weight])
        break;
      ops.push_back(op);
      weight = op->getResult(0);
      propose(ops);
    }
    auto softmax = llvm::dyn_cast<nn::SoftmaxOp>(ops.front());
    if (softmax ? softmax.getX().hasOneUse() : llvm::range_size(scores.getUses()) == readers)
      proposeWithMatmul(topK, softmax ? softmax.getX() : scores, ops, proposals);
  }
  return proposals;
}

} // namespace fusion
