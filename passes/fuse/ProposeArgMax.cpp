// matmul_arg_max: a matmul, what is computed from each element of its result, and the place of the largest of
// each row.
#include "passes/fuse/Grow.h"

#include "ir/dialect/Dialect.h"

using namespace mlir;

namespace fusion {

Proposals proposeArgMaxes(const ProposalContext &context) {
  Proposals proposals;
  OpSet proposed;
  auto propose = [&](nn::MatmulOp matmul, const OpSet &ops) {
    for (Operation *user : ops.back()->getUsers()) {
      auto argMax = dyn_cast<nn::ArgMaxOp>(user);
      if (!argMax || argMax->getBlock() != &context.block || !proposed.insert(argMax))
        continue;
      Candidate candidate;
      candidate.pattern = "matmul_arg_max";
      candidate.root = argMax;
      candidate.ops.assign(ops.begin(), ops.end());
      candidate.ops.push_back(argMax);
      absorbWithin(candidate, context.found);
      if (ops.size() > 1)
        candidate.absorbed.push_back({matmul, "matmul_epilogue"});
      proposals.candidates.push_back(std::move(candidate));
    }
  };
  for (auto matmul : context.block.getOps<nn::MatmulOp>()) {
    OpSet ops;
    ops.insert(matmul);
    ScalarTail tail(context.traffic, matmul.getY(), /*wholeRows=*/false);
    do
      propose(matmul, ops);
    while (tail.next(ops));
  }
  for (auto argMax : context.block.getOps<nn::ArgMaxOp>())
    if (!proposed.contains(argMax))
      proposals.misses.push_back(
          {argMax, "what it looks at is no result of a matmul, or of scalar ops after one"});
  return proposals;
}

} // namespace fusion
