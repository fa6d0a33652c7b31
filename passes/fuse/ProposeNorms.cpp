// Groups around norms that no pattern can say, as they have several roots or any number of ops: norms of one value, sums of
// more than two, norms of a branch before it is added.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fusion {

namespace {
/// Norms of one value that one kernel computes: beyond it they run out of registers.
constexpr size_t mostSiblings = 4;
/// Adds and norms ahead of the residual add.
constexpr size_t mostAhead = 4;

bool isNorm(Operation *op) { return llvm::isa_and_nonnull<nn::RmsNormOp, nn::LayerNormOp>(op); }

using Ops = llvm::SmallSetVector<Operation *, 8>;

/// Norms by what they normalise, where there is more than one.
llvm::MapVector<Value, SmallVector<Operation *>> siblingNorms(Block &block) {
  llvm::MapVector<Value, SmallVector<Operation *>> norms;
  for (Operation &op : block)
    if (isNorm(&op) && !op.use_empty())
      norms[op.getOperand(0)].push_back(&op);
  norms.remove_if([](auto &entry) { return entry.second.size() < 2; });
  return norms;
}

class NormGrower {
public:
  NormGrower(const ProposalContext &context, ArrayRef<Candidate> found) : context(context) {
    for (const Candidate &candidate : found)
      if (llvm::is_contained({"add_norm", "norm_quant", "add_norm_quant"}, candidate.pattern))
        seeds.push_back(&candidate);
  }

  std::vector<Candidate> run() {
    for (const Candidate *seed : seeds) {
      Ops ops(seed->ops.begin(), seed->ops.end());
      propose(*seed, ops, {});
    }
    for (auto &[value, norms] : siblingNorms(context.block))
      if (norms.size() <= mostSiblings)
        proposeSiblings(norms);
    for (Operation &op : context.block)
      if (isNorm(&op))
        proposeBranch(&op);
    return std::move(grown);
  }

private:
  /// `ops` with all that can go ahead of its adds, if that is more than the seed has.
  void propose(const Candidate &seed, Ops ops, SmallVector<std::pair<Operation *, std::string>> absorbed) {
    for (size_t i = 0, ahead = 0; i < ops.size() && ahead < mostAhead; ++i) {
      if (!llvm::isa<nn::AddOp>(ops[i]))
        continue;
      for (Value operand : ops[i]->getOperands())
        if (Operation *producer = aheadOf(operand, ops[i]); producer && ahead < mostAhead && ops.insert(producer)) {
          ++ahead;
          if (isNorm(producer))
            absorbed.push_back({producer, "add_norm"});
        }
    }
    if (ops.size() == seed.ops.size())
      return;
    Candidate candidate;
    candidate.pattern = seed.pattern;
    candidate.root = seed.root;
    candidate.ops.assign(ops.begin(), ops.end());
    candidate.absorbed = std::move(absorbed);
    grown.push_back(std::move(candidate));
  }

  /// What computes an operand of the sum, if it is an add or a norm of the sum's rows that nobody else reads.
  Operation *aheadOf(Value operand, Operation *sum) const {
    Operation *producer = operand.getDefiningOp();
    if (!producer || producer->getBlock() != sum->getBlock() || !operand.hasOneUse())
      return nullptr;
    auto alike = [&](Value value) { return context.traffic.shapes[value] == context.traffic.shapes[sum->getResult(0)]; };
    if (isNorm(producer))
      return alike(operand) ? producer : nullptr;
    return llvm::isa<nn::AddOp>(producer) && llvm::all_of(producer->getOperands(), alike) ? producer : nullptr;
  }

  /// The largest seed that holds the norm.
  const Candidate *seedOf(Operation *norm) const {
    const Candidate *best = nullptr;
    for (const Candidate *seed : seeds)
      if (llvm::is_contained(seed->ops, norm) && (!best || seed->ops.size() > best->ops.size()))
        best = seed;
    return best;
  }

  // n1 = norm(s, w1), n2 = norm(s, w2): the sum, if it is one, all norms, and the quantisations behind them.
  void proposeSiblings(ArrayRef<Operation *> norms) {
    Ops ops;
    const Candidate *largest = nullptr;
    SmallVector<std::pair<Operation *, std::string>> absorbed;
    for (Operation *norm : norms) {
      ops.insert(norm);
      for (const Candidate *seed : seeds)
        if (llvm::is_contained(seed->ops, norm))
          ops.insert(seed->ops.begin(), seed->ops.end());
      const Candidate *seed = seedOf(norm);
      if (!seed)
        continue;
      absorbed.push_back({seed->root, seed->pattern});
      if (!largest || seed->ops.size() > largest->ops.size())
        largest = seed;
    }
    if (!largest)
      return; // sibling_norms takes its turn later
    llvm::erase(absorbed, std::pair(largest->root, largest->pattern));
    propose(*largest, std::move(ops), std::move(absorbed));
  }

  // add(norm(branch), residual): OLMo 2, where no norm follows.
  void proposeBranch(Operation *norm) {
    Value normal = norm->getResult(0);
    auto sum = normal.hasOneUse() ? llvm::dyn_cast<nn::AddOp>(*normal.getUsers().begin()) : nn::AddOp();
    auto type = tensorType(normal);
    if (!sum || type.isDynamicDim(type.getRank() - 1) || sum->getBlock() != norm->getBlock() ||
        aheadOf(normal, sum) != norm)
      return;
    Candidate candidate;
    candidate.pattern = "add_norm";
    candidate.root = norm;
    candidate.ops = {norm, sum};
    grown.push_back(std::move(candidate));
  }

  const ProposalContext &context;
  SmallVector<const Candidate *> seeds;
  std::vector<Candidate> grown;
};
} // namespace

std::vector<Candidate> growNorms(const ProposalContext &context, ArrayRef<Candidate> found) {
  return NormGrower(context, found).run();
}

Proposals proposeSiblingNorms(const ProposalContext &context) {
  Proposals proposals;
  for (auto &[value, norms] : siblingNorms(context.block)) {
    if (norms.size() > mostSiblings) {
      proposals.misses.push_back({norms.back(), std::to_string(norms.size()) + " norms of one value, at most " +
                                                    std::to_string(mostSiblings) + " go together"});
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

} // namespace fusion
