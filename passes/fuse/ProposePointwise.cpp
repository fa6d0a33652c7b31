// pointwise: what remains elementwise. Grown backwards from each op whose result is needed: a producer
// joins if the group is its only reader, if its result has the group's shape and may leave too, or as a clone
// if it is cheap. Small groups are joined in the end.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <set>

using namespace mlir;

namespace fusion {

namespace {
enum class Kind : uint8_t {
  Other, ///< not computed element by element
  View,  ///< only moves indices
  Light, ///< an instruction or two
  Heavy, ///< a function or a division: not worth computing twice
};

/// What computing one cheap element again costs, in bytes of memory traffic that take as long.
constexpr double lightBytes = 0.25;
/// The traffic that a launch is worth giving up for.
constexpr double duplicateBytes = 1 << 20;
constexpr size_t mostClones = 48;
/// Memory moves by as many.
constexpr uint64_t sectorBytes = 32;
/// In a group: a kernel has room for so many parameters, and longer ones gain nothing.
constexpr size_t mostMembers = 256, mostOperands = 512;

Kind kindOf(Operation *op) {
  if (op->hasTrait<nn::View>())
    return Kind::View;
  if (op->hasTrait<nn::Costly>())
    return Kind::Heavy;
  return op->hasTrait<nn::Pointwise>() || op->hasTrait<nn::Indexed>() ? Kind::Light : Kind::Other;
}

bool canClone(Operation *op) {
  return op->hasTrait<nn::Pointwise>() || kindOf(op) == Kind::View || llvm::isa<nn::IotaOp>(op);
}

/// How often an operand's element is computed for one element of `user`.
double evaluations(Operation *user, unsigned operand, const Traffic &traffic) {
  if (llvm::isa<nn::RopeOp>(user))
    return operand == 0 ? 2 : 1;
  if (auto gather = llvm::dyn_cast<nn::GatherNdOp>(user); gather && operand == 1)
    return static_cast<double>(tensorType(gather.getIndices()).getShape().back());
  if (llvm::isa<nn::ConcatOp>(user)) {
    double whole = traffic.elements(user->getResult(0));
    return whole > 0 ? traffic.elements(user->getOperand(operand)) / whole : 1;
  }
  return 1;
}

class PointwiseProposer {
public:
  explicit PointwiseProposer(const ProposalContext &context) : context(context), traffic(context.traffic) {
    for (Operation &op : context.block) {
      order[&op] = static_cast<unsigned>(ops.size());
      ops.push_back(&op);
    }
    dead.assign(ops.size(), false);
    assigned.assign(ops.size(), false);
  }

  Proposals run() {
    for (size_t index = ops.size(); index-- > 0;) {
      Operation *op = ops[index];
      if (assigned[index] || kind(op) == Kind::Other)
        continue;
      if (!isNeeded(op))
        dead[index] = true;
      else if (!context.oracle.isView(op))
        growFrom(op);
    }
    proposeJoined();
    llvm::erase_if(proposals.misses, [&](const Proposals::Miss &miss) { return assigned[order[miss.root]]; });
    for (Candidate &candidate : proposals.candidates)
      llvm::copy_if(candidate.clones, std::back_inserter(candidate.replaced),
                    [&](Operation *op) { return dead[order[op]]; });
    return std::move(proposals);
  }

private:
  enum class Role : uint8_t { Member, Clone };
  struct Entry {
    Role role;
    double evaluations;
  };

  bool isTaken(Operation *op) const { return context.taken && context.taken->contains(op); }
  Kind kind(Operation *op) const { return isTaken(op) ? Kind::Other : kindOf(op); }

  /// Whether someone still reads the op itself, outside the groups that hold a clone of it.
  bool isNeeded(Operation *op) {
    return inputs.contains(op) || llvm::any_of(op->getUsers(), [&](Operation *user) {
             return !dead[order[user]] && !assigned[order[user]];
           });
  }

  void growFrom(Operation *root) {
    group.clear();
    waiting.clear();
    clones = operands = 0;
    refusal.clear();
    shape = &traffic.shapes[root->getResult(0)];
    elements = traffic.elements(root->getResult(0));
    take(root, {Role::Member, elements});
    while (!waiting.empty()) {
      unsigned index = *waiting.begin();
      waiting.erase(waiting.begin());
      if (!group.contains(ops[index]))
        if (auto reason = whyNotTaken(ops[index]); reason && refusal.empty())
          refusal = *reason;
    }
    dropBoundaryViews();
    finish(root);
  }

  void take(Operation *op, Entry entry) {
    group[op] = entry;
    clones += entry.role == Role::Clone ? 1 : 0;
    operands += op->getNumOperands();
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp();
          producer && !nn::isStored(producer) && !llvm::isa<nn::DimConstantOp>(producer))
        waiting.insert(order[producer]);
  }

  /// Takes the producer of a member's operand, or says why it stays outside.
  std::optional<std::string> whyNotTaken(Operation *op) {
    const Kind kind = this->kind(op);
    const std::string name = shownName(op);
    if (kind == Kind::Other)
      return name + " is not computed element by element";
    if (assigned[order[op]])
      return name + " belongs to another group";
    if (group.size() >= mostMembers || operands + op->getNumOperands() > mostOperands)
      return name + " would be one op too many for a kernel";
    Value result = op->getResult(0);
    if (context.oracle.extendedInPlace(result))
      return name + " is written in place, by a kernel of its own";
    const double needed = evaluationsOf(op), own = traffic.elements(result);
    if (kind == Kind::Heavy && needed > own * 1.01)
      return llvm::formatv("{0} would be computed {1:F1} times for every element", name,
                           own > 0 ? needed / own : needed)
          .str();
    if (kind == Kind::Light &&
        (needed - own) * lightBytes > duplicateBytes + 2 * static_cast<double>(traffic.bytes(result)))
      return name + " would be computed again for too many elements";
    SmallVector<Operation *> outside = readersOutside(op);
    // A clone in a proposed group reads it, though no reader in the graph is left.
    const bool isRead = !outside.empty() || inputs.contains(op);
    const bool mayClone = clones < mostClones;
    if (isRead && mayClone && readsNothing(op)) {
      take(op, {Role::Clone, needed});
    } else if (!isRead ||
               (kind != Kind::View && traffic.shapes[result] == *shape && takeReaders(op, outside))) {
      take(op, {Role::Member, needed});
    } else if (mayClone && isCheapClone(op)) {
      take(op, {Role::Clone, needed});
    } else {
      return name + " has other readers and another shape or too much work to be cloned";
    }
    return std::nullopt;
  }

  double evaluationsOf(Operation *op) {
    Value result = op->getResult(0);
    double inPlace = 0, elsewhere = 0;
    for (OpOperand &use : result.getUses()) {
      auto user = group.find(use.getOwner());
      if (user == group.end())
        continue;
      const double count =
          user->second.evaluations * evaluations(use.getOwner(), use.getOperandNumber(), traffic);
      // Readers at the same index share the value.
      if (use.getOwner()->hasTrait<nn::Pointwise>() &&
          traffic.shapes[use.getOwner()->getResult(0)] == traffic.shapes[result])
        inPlace = std::max(inPlace, count);
      else
        elsewhere += count;
    }
    return inPlace + elsewhere;
  }

  SmallVector<Operation *> readersOutside(Operation *op) {
    llvm::SmallSetVector<Operation *, 8> outside;
    for (Operation *user : op->getUsers()) {
      auto entry = group.find(user);
      if (entry == group.end() || entry->second.role == Role::Clone)
        outside.insert(user);
    }
    return outside.takeVector();
  }

  /// Makes other readers of `op` members too, with the chains after them, so far as they have the group's
  /// shape; the result of `op` leaves the group for the rest. False, with nothing changed, if that is no
  /// legal group.
  bool takeReaders(Operation *op, ArrayRef<Operation *> outside) {
    llvm::SmallSetVector<Operation *, 8> extra;
    for (Operation *reader : outside)
      for (Operation *next = reader; next && canJoin(next) && extra.insert(next);) {
        next = next->hasOneUse() ? *next->getUsers().begin() : nullptr;
      }
    SmallVector<Operation *> set = members();
    set.push_back(op);
    SmallVector<Operation *> larger = set;
    llvm::append_range(larger, extra);
    if (isConvex(larger)) {
      for (Operation *reader : extra)
        take(reader, {Role::Member, elements});
      return true;
    }
    return isConvex(set);
  }

  bool canJoin(Operation *op) {
    return op->hasTrait<nn::Pointwise>() && !isTaken(op) && !assigned[order[op]] && !dead[order[op]] &&
           !group.contains(op) && traffic.shapes[op->getResult(0)] == *shape;
  }

  /// Whether reading the op's operands instead of its result costs no more traffic.
  bool isCheapClone(Operation *op) {
    if (!canClone(op) || kindOf(op) == Kind::Heavy)
      return false;
    if (kindOf(op) == Kind::View)
      return true;
    int64_t read = 0;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp(); !producer || !readsNothing(producer))
        read += traffic.bytes(operand);
    auto sectors = [](int64_t bytes) { return llvm::divideCeil(static_cast<uint64_t>(bytes), sectorBytes); };
    return sectors(read) <= sectors(traffic.bytes(op->getResult(0)));
  }

  /// Made of indices and constants only: positions and what is cheaply computed from them.
  bool readsNothing(Operation *op) {
    if (isBodyConstant(op))
      return true;
    auto [known, fresh] = nothingRead.try_emplace(op, false);
    if (!fresh)
      return known->second;
    bool result = canClone(op) && !isTaken(op) && kindOf(op) != Kind::Heavy &&
                  llvm::all_of(op->getOperands(), [&](Value operand) {
                    Operation *producer = operand.getDefiningOp();
                    return producer && readsNothing(producer);
                  });
    return nothingRead[op] = result;
  }

  SmallVector<Operation *> withRole(Role role) {
    SmallVector<Operation *> set;
    for (auto &[op, entry] : group)
      if (entry.role == role)
        set.push_back(op);
    llvm::sort(set, [&](Operation *a, Operation *b) { return order[a] < order[b]; });
    return set;
  }
  SmallVector<Operation *> members() { return withRole(Role::Member); }

  bool isConvex(SmallVector<Operation *> set) {
    llvm::sort(set, [&](Operation *a, Operation *b) { return order[a] < order[b]; });
    return !whyNotConvex(set, withRole(Role::Clone));
  }

  /// A view of what comes from outside is as good outside.
  void dropBoundaryViews() {
    SmallVector<Operation *> views;
    for (auto &[op, entry] : group)
      if (kindOf(op) == Kind::View && context.oracle.isView(op))
        views.push_back(op);
    llvm::sort(views, [&](Operation *a, Operation *b) { return order[a] < order[b]; });
    for (Operation *view : views)
      if (Operation *producer = view->getOperand(0).getDefiningOp(); !producer || !group.contains(producer))
        group.erase(view);
  }

  void finish(Operation *root) {
    Candidate candidate;
    candidate.pattern = "pointwise";
    candidate.root = root;
    candidate.ops = members();
    candidate.clones = withRole(Role::Clone);
    const auto kernels =
        llvm::count_if(group, [&](auto &entry) { return !context.oracle.isView(entry.first); });
    if (kernels < 2) {
      alone.push_back(std::move(candidate));
      proposals.misses.push_back(
          {root, shownName(root) + " stays alone: " +
                     (refusal.empty() ? "it reads nothing but inputs, weights and constants" : refusal)});
      return;
    }
    for (Operation *op : candidate.ops)
      assigned[order[op]] = true;
    for (auto &[op, entry] : group)
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp(); producer && !group.contains(producer))
          inputs.insert(producer);
    proposals.candidates.push_back(std::move(candidate));
  }

  /// Small groups and single ops that go together although they share nothing.
  void proposeJoined() {
    std::vector<Candidate> groups = proposals.candidates;
    llvm::copy_if(alone, std::back_inserter(groups), [&](const Candidate &candidate) {
      return llvm::none_of(candidate.ops, [&](Operation *op) { return assigned[order[op]]; });
    });
    std::vector<Candidate> joined = joinSmallGroups(context, groups);
    DenseSet<Operation *> members;
    for (const Candidate &candidate : joined)
      members.insert(candidate.ops.begin(), candidate.ops.end());
    for (Operation *op : members)
      assigned[order[op]] = true;
    llvm::erase_if(proposals.candidates,
                   [&](const Candidate &candidate) { return members.contains(candidate.root); });
    llvm::move(joined, std::back_inserter(proposals.candidates));
  }

  const ProposalContext &context;
  const Traffic &traffic;
  Proposals proposals;
  std::vector<Operation *> ops;
  DenseMap<Operation *, unsigned> order;
  std::vector<bool> dead;     ///< only clones of it are read
  std::vector<bool> assigned; ///< member of a proposed group
  DenseMap<Operation *, bool> nothingRead;
  DenseSet<Operation *> inputs; ///< ops that a proposed group reads
  std::vector<Candidate> alone; ///< views and one op that found no other

  // The group that grows.
  DenseMap<Operation *, Entry> group;
  std::set<unsigned, std::greater<>> waiting; ///< producers to look at, the last first
  size_t clones = 0, operands = 0;
  const DimShape *shape = nullptr;
  double elements = 0;
  std::string refusal; ///< why the first producer stayed outside
};
} // namespace

Proposals proposePointwise(const ProposalContext &context) { return PointwiseProposer(context).run(); }

} // namespace fusion
