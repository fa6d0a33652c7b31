// norm_matmul: a norm, with the residual add before it, and the matmuls that read it, for few rows: their
// biases go along, the activation of a gated pair, or what follows a single matmul.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fusion {

namespace {
using Ops = llvm::SmallSetVector<Operation *, 16>;

/// The matmuls that read the norm as their first operand only.
SmallVector<nn::MatmulOp> matmulsOf(Operation *norm) {
  SmallVector<nn::MatmulOp> matmuls;
  for (Operation *user : norm->getUsers())
    if (auto matmul = llvm::dyn_cast<nn::MatmulOp>(user);
        matmul && user->getBlock() == norm->getBlock() && matmul.getA() == norm->getResult(0) &&
        matmul.getB() != matmul.getA())
      matmuls.push_back(matmul);
  llvm::sort(matmuls, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return matmuls;
}

/// The matmuls with what follows them, as far as one kernel may compute it: the alternatives.
SmallVector<Ops> withEpilogues(ArrayRef<nn::MatmulOp> matmuls, const ProposalContext &context,
                               ArrayRef<Candidate> epilogues) {
  SmallVector<Ops> choices;
  Ops &biased = choices.emplace_back();
  for (nn::MatmulOp matmul : matmuls) {
    biased.insert(matmul);
    for (Operation *step : matmulEpilogue(matmul))
      biased.insert(step);
  }
  auto add = [&](const Candidate &candidate) {
    choices.emplace_back(candidate.ops.begin(), candidate.ops.end());
  };
  for (const Candidate &candidate : context.found)
    if (candidate.pattern == "gated_matmul" &&
        llvm::all_of(matmuls, [&](Operation *op) { return llvm::is_contained(candidate.ops, op); }))
      add(candidate);
  const Candidate *longest = nullptr;
  for (const Candidate &candidate : epilogues)
    if (matmuls.size() == 1 && candidate.root == matmuls[0] &&
        (!longest || candidate.ops.size() > longest->ops.size()))
      longest = &candidate;
  if (longest)
    add(*longest);
  return choices;
}
} // namespace

void absorbWithin(Candidate &candidate, ArrayRef<Candidate> found) {
  auto isWithin = [](const Candidate &part, ArrayRef<Operation *> whole) {
    return llvm::all_of(part.body(), [&](Operation *op) { return llvm::is_contained(whole, op); });
  };
  const SmallVector<Operation *> whole = withDecoding(candidate).body();
  SmallVector<const Candidate *> parts;
  for (const Candidate &part : found)
    if (isWithin(part, whole))
      parts.push_back(&part);
  for (const Candidate *part : parts)
    if (llvm::none_of(parts, [&](const Candidate *other) {
          return other->ops.size() > part->ops.size() && isWithin(*part, other->body());
        }))
      candidate.absorbed.push_back({part->root, part->pattern});
}

bool isOfSumOverRanks(Operation *norm) {
  Operation *rows = norm->getOperand(0).getDefiningOp();
  if (auto sum = llvm::dyn_cast_or_null<nn::AddOp>(rows))
    return sum.getLhs().getDefiningOp<nn::AllReduceOp>() || sum.getRhs().getDefiningOp<nn::AllReduceOp>();
  return llvm::isa_and_nonnull<nn::AllReduceOp>(rows);
}

Proposals proposeNormMatmuls(const ProposalContext &context) {
  Proposals proposals;
  std::optional<Proposals> epilogues;
  for (Operation &op : context.block) {
    if (!llvm::isa<nn::Norm>(op))
      continue;
    const SmallVector<nn::MatmulOp> matmuls = matmulsOf(&op);
    if (matmuls.empty())
      continue;
    if (isOfSumOverRanks(&op)) {
      proposals.misses.push_back({&op, "the norm belongs to the sum over ranks before it"});
      continue;
    }
    // A measurement is at one size, which says nothing of few rows, for which the kernel is one.
    const Dim rows = product(llvm::ArrayRef<Dim>(context.traffic.shapes[op.getResult(0)]).drop_back());
    const std::string unmeasurable =
        rows.constant() ? ""
                        : "the number of rows of the input is known in a run only (" + rows.str() +
                              "): whether it gains something depends on it";
    if (!epilogues)
      epilogues = proposeEpilogues(context);
    auto sum = op.getOperand(0).getDefiningOp<nn::AddOp>();
    const bool residual = sum && sum->getBlock() == op.getBlock() &&
                          context.traffic.shapes[sum.getLhs()] == context.traffic.shapes[sum.getRhs()];
    for (const Ops &ops : withEpilogues(matmuls, context, epilogues->candidates))
      for (bool withSum : {true, false}) {
        if (withSum && !residual)
          continue;
        Candidate candidate;
        candidate.pattern = "norm_matmul";
        candidate.root = &op;
        candidate.unproven =
            "every block computes the norm again before its first nn.matmul: taken only where a "
            "measurement shows that this is faster";
        candidate.unmeasurable = unmeasurable;
        candidate.ops.assign(ops.begin(), ops.end());
        candidate.ops.push_back(&op);
        if (withSum)
          candidate.ops.push_back(sum);
        const SmallVector<Operation *> whole = withDecoding(candidate).body();
        absorbWithin(candidate, context.found);
        if (matmuls.size() == 1 && llvm::any_of(epilogues->candidates, [&](const Candidate &part) {
              return part.root == matmuls[0] && llvm::all_of(part.ops, [&](Operation *op) {
                       return llvm::is_contained(whole, op);
                     });
            }))
          candidate.absorbed.push_back({matmuls[0], "matmul_epilogue"});
        proposals.candidates.push_back(std::move(candidate));
      }
  }
  return proposals;
}

} // namespace fusion
