// The order of dims that the reader of an attention wants, written by the attention itself.
#include "ir/dialect/Types.h"
#include "passes/Match.h"
#include "passes/fuse/Propose.h"

using namespace mlir;

namespace fusion {

/// The only op that reads the value, or null.
Proposals proposeAttentionLayouts(const ProposalContext &context) {
  Proposals proposals;
  for (Operation &op : context.block) {
    if (!llvm::isa<nn::AttentionOp, nn::LinearAttentionOp>(op))
      continue;
    Operation *attention = &op;
    const Value result = op.getResult(0); // y of both
    Operation *reader = onlyUser(result);
    auto transpose = llvm::dyn_cast_if_present<nn::TransposeOp>(reader);
    if (!transpose) {
      proposals.misses.push_back(
          {attention,
           reader ? "the result is read by " + shownName(reader) + ", not nn.transpose"
                  : std::to_string(llvm::range_size(result.getUses())) +
                        " readers of the result, not one nn.transpose"});
      continue;
    }
    Candidate candidate;
    candidate.pattern = "attention_layout";
    candidate.root = attention;
    candidate.ops = {attention, transpose};
    if (const auto readers = llvm::range_size(transpose.getResult().getUses()); readers > 1) {
      proposals.misses.push_back(
          {attention, std::to_string(readers) + " readers of the transposed result, not one nn.reshape"});
      continue;
    }
    auto reshape = llvm::dyn_cast_if_present<nn::ReshapeOp>(onlyUser(transpose.getResult()));
    if (!reshape || context.oracle.isView(reshape)) {
      proposals.misses.push_back(
          {attention, "the transposed result is read where it lies: there is no copy to save"});
      continue;
    }
    candidate.ops.push_back(reshape);
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

} // namespace fusion
