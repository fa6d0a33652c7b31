// latent_attention: an attention with large heads whose queries and keys lie in two tensors each, of which
// one is rotated. Its kernel reads both where they lie.
#include "ir/dialect/JoinedColumns.h"
#include "ir/dialect/Types.h"
#include "passes/MissLog.h"
#include "passes/fuse/Propose.h"

using namespace mlir;

namespace fusion {

SmallVector<Operation *> joiningOps(nn::AttentionOp attention) {
  constexpr int64_t largestHead = 256; // of kernels that read one tensor of keys
  SmallVector<Operation *> ops;
  if (tensorType(attention.getQ()).getShape().back() <= largestHead)
    return ops;
  for (Value operand : {attention.getQ(), attention.getK()})
    if (const auto joined = nn::matchJoinedColumns(operand))
      ops.push_back(joined->op);
  return ops;
}

Proposals proposeLatentAttentions(const ProposalContext &context) {
  Proposals proposals;
  for (auto attention : context.block.getOps<nn::AttentionOp>()) {
    if (joiningOps(attention).empty())
      continue;
    Candidate candidate;
    candidate.pattern = "latent_attention";
    candidate.isForOperands = true;
    candidate.root = attention;
    candidate.ops = {attention};
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

KeepsAttention keepsLatentAttention(ScheduleOracle &oracle) {
  struct Begun {
    func::FuncOp function;
    std::optional<nn::SymbolicShapes> shapes;
  };
  return [&oracle, begun = std::make_shared<Begun>()](nn::AttentionOp attention) {
    auto function = attention->getParentOfType<func::FuncOp>();
    if (begun->function != function) {
      auto shapes = nn::SymbolicShapes::compute(function);
      if (failed(shapes))
        return false;
      *begun = {function, std::move(*shapes)};
      oracle.begin(function, *begun->shapes);
    }
    Candidate candidate;
    candidate.ops = {attention};
    candidate = withDecoding(candidate);
    auto schedule = oracle.schedule(candidate.body(), portsOf(candidate.ops, candidate.clones));
    if (!schedule)
      noteMiss(attention, "latent_attention", schedule.error().message);
    return bool(schedule);
  };
}

} // namespace fusion
