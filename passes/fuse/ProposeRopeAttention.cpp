// rope_attention: the cache writes of an attention, and its rotations if it has any, with the attention and
// the order in which it writes its result.
#include "passes/fuse/Propose.h"

#include "ir/dialect/AttentionSink.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

/// Why the attention's own kernel does not make what these ops make; nothing if it may.
static std::optional<std::string> refusal(nn::AttentionOp attention, const Candidate &write) {
  if (llvm::any_of(write.ops, llvm::IsaPred<nn::ScatterNdOp>))
    return std::string("new keys and values go to slots of pages, which may be another entry's");
  const Value queries = attention.getQ();
  if (!llvm::is_contained(write.ops, queries.getDefiningOp())) // they are read as they are
    return std::nullopt;
  for (Operation *user : queries.getUsers())
    if (user != attention)
      return ("the rotated queries are read by " + user->getName().getStringRef() + " too").str();
  return std::nullopt;
}

/// What stands between the caches and the attention, whose kernel does it as it reads them.
static SmallVector<Operation *> readingOps(nn::AttentionOp attention) {
  const std::optional<nn::AttentionSink> sink = nn::matchAttentionSink(attention);
  SmallVector<Operation *> ops;
  for (Value operand :
       {sink ? sink->keys : Value(attention.getK()), sink ? sink->values : Value(attention.getV())})
    ops.append(decodingOpsOfKeys(operand));
  if (sink)
    ops.append(sink->ops);
  return ops;
}

Proposals proposeRopeAttentions(const ProposalContext &context) {
  Proposals proposals;
  const Proposals writes = proposeCacheWrites(context), layouts = proposeAttentionLayouts(context);
  for (const Candidate &write : writes.candidates) {
    auto attention = dyn_cast<nn::AttentionOp>(write.root);
    if (!attention)
      continue;
    Candidate candidate;
    candidate.pattern = "rope_attention";
    candidate.root = attention;
    candidate.ops = write.ops;
    for (Operation *op : readingOps(attention))
      if (!llvm::is_contained(candidate.ops, op))
        candidate.ops.push_back(op);
    candidate.ops.push_back(attention);
    for (const Candidate &layout : layouts.candidates)
      if (layout.root == attention)
        candidate.ops.append(layout.ops.begin() + 1, layout.ops.end());
    if (auto reason = refusal(attention, write)) {
      proposals.misses.push_back({attention, *reason, candidate.ops});
      continue;
    }
    candidate.choosesInRuns = !context.traffic.shapes[attention.getQ()][2].constant();
    if (candidate.choosesInRuns)
      candidate.unproven =
          "one kernel, for few new positions, is taken only where a measurement chooses between "
          "it and kernels of its parts, unless their number is known";
    absorbWithin(candidate, context.found);
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

} // namespace fusion
