// Groups of norms that no pattern says: several norms of one value, the norm of a branch before it is added,
// and a norm with what is computed from each element of its result.
#include "passes/fuse/Grow.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

// add(norm(branch), residual): OLMo 2, where no norm follows.
std::vector<Candidate> proposeBranchNorms(const ProposalContext &context, ArrayRef<Candidate>) {
  std::vector<Candidate> candidates;
  for (Operation &op : context.block) {
    auto norm = llvm::dyn_cast<nn::Norm>(op);
    if (!norm)
      continue;
    Value normal = norm->getResult(0);
    auto sum = normal.hasOneUse() ? llvm::dyn_cast<nn::AddOp>(*normal.getUsers().begin()) : nn::AddOp();
    auto type = tensorType(normal);
    if (!sum || type.isDynamicDim(type.getRank() - 1) || sum->getBlock() != norm->getBlock() ||
        producerBefore(normal, sum, context.traffic) != norm)
      continue;
    Candidate &candidate = candidates.emplace_back();
    candidate.pattern = "add_norm";
    candidate.root = norm;
    candidate.ops = {norm, sum};
  }
  return candidates;
}

Proposals proposeSiblingNorms(const ProposalContext &context) {
  Proposals proposals;
  for (auto &[value, norms] : siblingNorms(context.block, SIZE_MAX)) {
    if (norms.size() > mostSiblings) {
      proposals.misses.push_back({norms.back(),
                                  std::to_string(norms.size()) + " norms of one value, at most " +
                                      std::to_string(mostSiblings) + " go together",
                                  norms});
      continue;
    }
    Candidate candidate;
    candidate.pattern = "sibling_norms";
    candidate.root = norms.back();
    candidate.ops = norms;
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

// norm(x) * act(z), as gated linear attentions have it, and other scalar ops.
Proposals proposeNormEpilogues(const ProposalContext &context) {
  Proposals proposals;
  for (Operation &op : context.block) {
    auto norm = llvm::dyn_cast<nn::Norm>(op);
    if (!norm)
      continue;
    OpSet ops;
    ops.insert(norm);
    ScalarTail tail(context.traffic, norm->getResult(0), /*wholeRows=*/false);
    while (tail.next(ops)) {
      if (llvm::isa<nn::Quantize>(ops.back()))
        break; // norm_quant's; codes are what a matmul wants to read
      if (llvm::all_of(ops, [](Operation *each) { return llvm::isa<nn::Norm, nn::AddOp>(each); }))
        continue; // add_norm's
      Candidate &candidate = proposals.candidates.emplace_back();
      candidate.pattern = "norm_epilogue";
      candidate.root = norm;
      candidate.ops.assign(ops.begin(), ops.end());
    }
  }
  return proposals;
}

} // namespace fusion
