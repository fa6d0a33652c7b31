#include "passes/fuse/Grow.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fusion {

namespace {
/// Ops of a side branch, such as the activated gate that a matmul is multiplied by.
constexpr unsigned mostSideOps = 4;
/// Ops that join before a group.
constexpr size_t mostBefore = 4;
/// Scalar ops that join after a group.
constexpr size_t mostAfter = 6;

/// Works on single elements of its first operand.
bool isScalarStep(Operation *op) { return llvm::isa<nn::ScalarFormula>(op); }

bool isNorm(Operation *op) { return llvm::isa_and_nonnull<nn::Norm>(op); }

/// A multiplication of vectors or scalars: cheaper to compute for every element than to launch a kernel for.
bool isRowFactor(Operation *op) {
  return llvm::isa<nn::MulOp>(op) && tensorType(op->getResult(0)).getRank() <= 1;
}
} // namespace

/// The scalar ops from the readers of `value` up to the one that they all lead to, in block order: an
/// activation that is spelled, such as x * sigmoid(2 * x). Empty where they do not meet.
static SmallVector<Operation *> joinedReaders(Value value, const Traffic &traffic) {
  constexpr size_t mostOps = 32;
  OpSet inside;
  SmallVector<Value> made{value};
  while (inside.size() < mostOps) {
    Operation *next = nullptr;
    for (Value each : made)
      for (Operation *user : each.getUsers()) {
        if (user->getBlock() != value.getParentBlock())
          return {};
        if (!inside.contains(user) && (!next || user->isBeforeInBlock(next)))
          next = user;
      }
    if (!next || next->hasTrait<OpTrait::IsTerminator>() || !isScalarStep(next) || nn::isRescale(next) ||
        next->getNumResults() != 1 || traffic.shapes[next->getResult(0)] != traffic.shapes[value])
      return {};
    inside.insert(next);
    const bool meet = llvm::all_of(made, [&](Value each) {
      return llvm::all_of(each.getUsers(), [&](Operation *user) { return inside.contains(user); });
    });
    if (meet && inside.size() > 1)
      return inside.takeVector();
    made.push_back(next->getResult(0));
  }
  return {};
}

bool ScalarTail::next(OpSet &ops) {
  if (value && !value.use_empty() && !llvm::all_equal(value.getUsers()))
    if (const SmallVector<Operation *> joined = joinedReaders(value, traffic); !joined.empty()) {
      for (Operation *op : joined) {
        takeSideBranch(op, ops);
        ops.insert(op);
      }
      value = joined.back()->getResult(0);
      return true;
    }
  Operation *step = value ? nextStep() : nullptr;
  if (!step)
    return false;
  takeSideBranch(step, ops);
  ops.insert(step);
  value = llvm::isa<nn::Quantize>(step) && step->getNumResults() > 1 ? Value() : step->getResult(0);
  return true;
}

Operation *ScalarTail::nextStep() {
  Operation *step = nullptr;
  for (Operation *user : value.getUsers()) {
    if (step && user != step) {
      why = "the result has " + std::to_string(llvm::range_size(value.getUses())) + " readers";
      return nullptr;
    }
    step = user;
  }
  if (!step) {
    why = "the result has no reader";
    return nullptr;
  }
  const std::string name = shownName(step);
  auto quantize = llvm::dyn_cast<nn::Quantize>(step);
  if (quantize && quantize.isDynamic()) {
    if (wholeRows)
      return step;
    why = name + " needs the largest element of whole rows, of which a block of a matmul has parts";
  } else if (nn::isRescale(step) && step->getOperand(0) != value) {
    why = "the result is a scale of " + name;
  } else if (step->hasTrait<OpTrait::IsTerminator>()) {
    why = "the result is one of the function's";
  } else if (!isScalarStep(step)) {
    why = "the result is read by " + name + ", which is no scalar op";
  } else if (traffic.shapes[step->getResult(0)] != traffic.shapes[value]) {
    why = name + " broadcasts the result";
  } else {
    return step;
  }
  return nullptr;
}

/// Scalar ops that only `step` reads and that have the value's shape; multiplications of scales, too.
void ScalarTail::takeSideBranch(Operation *step, OpSet &ops) const {
  for (Value operand : step->getOperands()) {
    SmallVector<Value> pending;
    if (operand != value)
      pending.push_back(operand);
    for (unsigned taken = 0; !pending.empty() && taken < mostSideOps;) {
      Value side = pending.pop_back_val();
      Operation *op = side.getDefiningOp();
      if (!op || !side.hasOneUse() || !op->hasTrait<nn::Pointwise>() || ops.contains(op) ||
          (traffic.shapes[side] != traffic.shapes[value] && !isRowFactor(op)))
        continue;
      ops.insert(op);
      ++taken;
      pending.append(op->operand_begin(), op->operand_end());
    }
  }
}

Operation *producerBefore(Value operand, Operation *sum, const Traffic &traffic) {
  Operation *producer = operand.getDefiningOp();
  if (!producer || producer->getBlock() != sum->getBlock() || !operand.hasOneUse())
    return nullptr;
  auto alike = [&](Value value) { return traffic.shapes[value] == traffic.shapes[sum->getResult(0)]; };
  if (isNorm(producer))
    return alike(operand) ? producer : nullptr;
  return llvm::isa<nn::AddOp>(producer) && llvm::all_of(producer->getOperands(), alike) ? producer : nullptr;
}

SmallVector<std::pair<Value, SmallVector<Operation *>>> siblingNorms(Block &block, size_t atMost) {
  llvm::MapVector<Value, SmallVector<Operation *>> norms;
  for (Operation &op : block)
    if (auto norm = llvm::dyn_cast<nn::Norm>(op); norm && !op.use_empty())
      norms[norm.getX()].push_back(norm);
  norms.remove_if([&](auto &entry) { return entry.second.size() < 2 || entry.second.size() > atMost; });
  return norms.takeVector();
}

namespace {
using Absorbed = SmallVector<std::pair<Operation *, std::string>>;

class Grower {
public:
  Grower(const ProposalContext &context, ArrayRef<Candidate> found) : context(context) {
    for (const Candidate &candidate : found)
      if (candidate.isUsers ||
          llvm::is_contained({"add_norm", "norm_quant", "add_norm_quant"}, candidate.pattern))
        seeds.push_back(&candidate);
  }

  std::vector<Candidate> run() {
    for (const Candidate *seed : seeds) {
      OpSet ops(seed->ops.begin(), seed->ops.end());
      Absorbed absorbed;
      takeBefore(ops, seed->isUsers, absorbed);
      propose(*seed, ops, absorbed);
      if (OpSet scaled = ops; takeScalarsBefore(scaled))
        propose(*seed, scaled, absorbed);
      if (seed->isUsers || seed->pattern == "add_norm") {
        growAfter(*seed, OpSet(seed->ops.begin(), seed->ops.end()), {});
        if (ops.size() > seed->ops.size())
          growAfter(*seed, ops, absorbed);
      }
    }
    for (auto &[value, norms] : siblingNorms(context.block, mostSiblings))
      growSideways(norms);
    return std::move(grown);
  }

private:
  void propose(const Candidate &seed, const OpSet &ops, Absorbed absorbed) {
    if (ops.size() == seed.ops.size())
      return;
    Candidate &candidate = grown.emplace_back();
    candidate.pattern = seed.pattern;
    candidate.root = seed.root;
    candidate.isUsers = seed.isUsers;
    candidate.ops.assign(ops.begin(), ops.end());
    candidate.absorbed = std::move(absorbed);
  }

  /// All that can join before the group. For a user's pattern also the residual add before a norm, whoever
  /// else reads it, and the norms around a rotation: the built-in families with those have names of their
  /// own.
  void takeBefore(OpSet &ops, bool isUsers, Absorbed &absorbed) const {
    size_t taken = 0;
    auto take = [&](Operation *producer) {
      if (!producer || taken == mostBefore || !ops.insert(producer))
        return;
      ++taken;
      if (isNorm(producer))
        absorbed.push_back({producer, "add_norm"});
    };
    for (size_t i = 0; i < ops.size() && taken < mostBefore; ++i) {
      if (llvm::isa<nn::AddOp>(ops[i]))
        for (Value operand : ops[i]->getOperands())
          take(producerBefore(operand, ops[i], context.traffic));
      if (!isUsers)
        continue;
      if (auto norm = llvm::dyn_cast<nn::Norm>(ops[i]))
        take(residualBefore(norm));
      if (auto rope = llvm::dyn_cast<nn::RopeOp>(ops[i])) {
        for (Operation *op : normBefore(rope))
          take(op);
        take(normAfter(rope));
      }
    }
  }

  /// The scalar ops that make an operand of an add, such as the factor of Granite's residuals. Whether there
  /// are any.
  bool takeScalarsBefore(OpSet &ops) const {
    const size_t before = ops.size();
    for (size_t i = 0; i < ops.size() && ops.size() < before + mostBefore; ++i) {
      if (!llvm::isa<nn::AddOp>(ops[i]) && i < before)
        continue;
      for (Value operand : ops[i]->getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (producer && producer->getBlock() == ops[i]->getBlock() && operand.hasOneUse() &&
            isScalarStep(producer) && !nn::isRescale(producer) &&
            context.traffic.shapes[operand] == context.traffic.shapes[ops[i]->getResult(0)])
          ops.insert(producer);
      }
    }
    return ops.size() > before;
  }

  /// The add of two tensors of one shape that the norm reads.
  Operation *residualBefore(nn::Norm norm) const {
    auto sum = norm.getX().getDefiningOp<nn::AddOp>();
    if (!sum || sum->getBlock() != norm->getBlock() ||
        context.traffic.shapes[sum.getLhs()] != context.traffic.shapes[sum.getRhs()])
      return nullptr;
    return sum;
  }

  /// The scalar ops after the root, each length a candidate.
  void growAfter(const Candidate &seed, OpSet ops, const Absorbed &absorbed) {
    if (!ops.contains(seed.root) || seed.root->getNumResults() != 1)
      return;
    if (!seed.isUsers) {
      takeAfter(seed.root->getResult(0), ops, [&] { propose(seed, ops, absorbed); });
      return;
    }
    ScalarTail tail(context.traffic, seed.root->getResult(0), /*wholeRows=*/true);
    for (size_t length = 0; length < mostAfter && tail.next(ops); ++length)
      propose(seed, ops, absorbed);
  }

  /// The scalar ops that follow the value, but no quantisation: groups with those have names of their own.
  void takeAfter(
      Value value, OpSet &ops, llvm::function_ref<void()> each = [] {}) const {
    OpSet longer = ops;
    ScalarTail tail(context.traffic, value, /*wholeRows=*/false);
    for (size_t length = 0;
         length < mostAfter && tail.next(longer) && !llvm::isa<nn::Quantize>(longer.back()); ++length) {
      ops = longer;
      each();
    }
  }

  /// The largest seed that holds the norm.
  const Candidate *seedOf(Operation *norm) const {
    const Candidate *best = nullptr;
    for (const Candidate *seed : seeds)
      if (llvm::is_contained(seed->ops, norm) && (!best || seed->ops.size() > best->ops.size()))
        best = seed;
    return best;
  }

  // n1 = norm(s, w1), n2 = norm(s, w2): the sum, if it is one, all norms, and their quantisations.
  void growSideways(ArrayRef<Operation *> norms) {
    OpSet ops;
    const Candidate *largest = nullptr;
    Absorbed absorbed;
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
      return; // the family sibling_norms is asked later
    llvm::erase(absorbed, std::pair(largest->root, largest->pattern));
    takeBefore(ops, largest->isUsers, absorbed);
    propose(*largest, ops, absorbed);
    OpSet withTails = ops;
    for (Operation *norm : norms)
      takeAfter(norm->getResult(0), withTails);
    if (withTails.size() > ops.size())
      propose(*largest, withTails, std::move(absorbed));
  }

  const ProposalContext &context;
  SmallVector<const Candidate *> seeds;
  std::vector<Candidate> grown;
};
} // namespace

std::vector<Candidate> growGroups(const ProposalContext &context, ArrayRef<Candidate> found) {
  return Grower(context, found).run();
}

} // namespace fusion
