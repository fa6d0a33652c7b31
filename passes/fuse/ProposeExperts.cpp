// expert_matmul: the products of routed rows, those that read the same rows together, and what follows them:
// the activation of the gate, the routing weights and the sum over the slots.
#include "passes/fuse/Grow.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fusion {

namespace {
/// Products in one kernel: a gate and what it gates.
constexpr size_t mostProducts = 2;

class ExpertGrower {
public:
  ExpertGrower(const ProposalContext &context, ArrayRef<nn::ExpertMatmulOp> products)
      : context(context), root(products.front()), shape(context.traffic.shapes[root.getY()]) {
    for (nn::ExpertMatmulOp product : products) {
      ops.insert(product);
      takeSlices(product);
    }
  }

  void run(Proposals &proposals) {
    std::vector<Candidate> apart;    // gate and up are results of their own
    std::vector<Candidate> products; // without the sum over the slots
    auto take = [&](Candidate candidate) {
      if (portsOf(candidate.ops).outputs.size() > 1 && products.empty()) {
        apart.push_back(std::move(candidate));
        return;
      }
      if (!apart.empty()) // here they are combined
        preferTo(apart, candidate, "gate and up go with what combines them", proposals);
      products.insert(products.end(), apart.begin(), apart.end());
      apart.clear();
      products.push_back(std::move(candidate));
    };
    if (ops.size() > 1)
      take(candidate());
    while (Operation *next = nextScalar()) {
      ops.insert(next);
      take(candidate());
    }
    products.insert(products.end(), apart.begin(), apart.end()); // they never are
    std::vector<Candidate> sums;
    if (nn::ReduceOp sum = sumOverSlots()) {
      ops.insert(sum);
      sums.push_back(candidate());
      preferTo(products, sums.front(), "the products go with their sum over the slots", proposals);
      ScalarTail tail(context.traffic, sum.getY(), /*wholeRows=*/false);
      while (tail.next(ops))
        sums.push_back(candidate());
    }
    for (std::vector<Candidate> *group : {&products, &sums})
      llvm::append_range(proposals.candidates, *group);
    if (ops.size() == 1)
      proposals.misses.push_back({root, why});
  }

private:
  /// Gate and up in one matrix: parts of the product, if nobody reads the whole.
  void takeSlices(nn::ExpertMatmulOp product) {
    const bool areAll =
        !product->use_empty() && llvm::all_of(product->getUsers(), llvm::IsaPred<nn::SliceOp>);
    if (!areAll)
      return;
    for (Operation *user : product->getUsers()) {
      ops.insert(user);
      shape = context.traffic.shapes[user->getResult(0)];
    }
  }

  /// The first scalar op in the block that reads a product, or what was made of one.
  Operation *nextScalar() {
    Operation *next = nullptr;
    for (Operation *op : ops)
      for (Operation *user : op->getUsers()) {
        if (ops.contains(user))
          continue;
        if (why = whyNotScalar(user, op); !why.empty())
          continue;
        if (!next || user->isBeforeInBlock(next))
          next = user;
      }
    return next;
  }

  std::string whyNotScalar(Operation *user, Operation *of) const {
    if (user->hasTrait<OpTrait::IsTerminator>())
      return "the result is one of the function's";
    const std::string name = shownName(user);
    if (!llvm::isa<nn::ScalarFormula>(user) || nn::isRescale(user))
      return "the result is read by " + name + ", which is no scalar op";
    if (context.traffic.shapes[user->getResult(0)] != shape ||
        context.traffic.shapes[of->getResult(0)] != shape)
      return name + " has another shape than the product";
    return {};
  }

  /// The sum over the slots, if it is all that reads what the group makes.
  nn::ReduceOp sumOverSlots() const {
    nn::ReduceOp sum;
    for (Operation *op : ops)
      for (Operation *user : op->getUsers()) {
        if (ops.contains(user))
          continue;
        auto reduce = llvm::dyn_cast<nn::ReduceOp>(user);
        if (!reduce || (sum && sum != reduce))
          return {};
        sum = reduce;
      }
    if (!sum || sum.getKind() != "sum" || sum.getAxes().size() != 1)
      return {};
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t axis = sum.getAxes()[0];
    return axis == rank - 2 || axis == -2 ? sum : nn::ReduceOp();
  }

  /// Rows chosen as the experts are, which only the group reads.
  bool isBias(nn::GatherOp gather, ArrayRef<Operation *> members) const {
    return gather.getIndices() == nn::ExpertMatmulOp(root).getIndex() && gather.getAxis() == 0 &&
           tensorType(gather.getX()).getRank() == 2 && !llvm::is_contained(members, gather.getOperation()) &&
           llvm::all_of(gather->getUsers(), [&](Operation *user) { return ops.contains(user); });
  }

  /// The group as it is, with the biases of its experts.
  Candidate candidate() const {
    Candidate candidate;
    candidate.pattern = "expert_matmul";
    candidate.root = root;
    candidate.ops.assign(ops.begin(), ops.end());
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (auto gather = operand.getDefiningOp<nn::GatherOp>(); gather && isBias(gather, candidate.ops))
          candidate.ops.push_back(gather);
    llvm::sort(candidate.ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    return candidate;
  }

  /// A measurement is at one size. Parts of a group may be as fast there, but gate and up apart are slow at
  /// many rows, and products without their sum at one token, where one kernel computes both: where the larger
  /// group has a schedule, the smaller ones are no choice.
  void preferTo(std::vector<Candidate> &smaller, const Candidate &larger, StringRef reason,
                Proposals &proposals) const {
    if (smaller.empty() || !hasSchedule(larger))
      return;
    proposals.misses.push_back({root, (reason + ", for which there is a kernel").str()});
    smaller.clear();
  }

  bool hasSchedule(const Candidate &candidate) const {
    auto takes = [&](const Candidate &one) {
      return bool(context.oracle.schedule(one.body(), portsOf(one.ops, one.clones)));
    };
    return !whyNotConvex(candidate.ops) && (takes(withDecoding(candidate)) || takes(candidate));
  }

  const ProposalContext &context;
  nn::ExpertMatmulOp root;
  DimShape shape;
  OpSet ops;
  std::string why = "the result has no reader";
};
} // namespace

Proposals proposeExperts(const ProposalContext &context) {
  Proposals proposals;
  llvm::MapVector<std::pair<Value, Value>, SmallVector<nn::ExpertMatmulOp>> byRows;
  for (auto op : context.block.getOps<nn::ExpertMatmulOp>())
    byRows[{op.getX(), op.getIndex()}].push_back(op);
  for (auto &[rows, products] : byRows) {
    if (products.size() > 1 && products.size() <= mostProducts)
      ExpertGrower(context, products).run(proposals);
    else
      for (nn::ExpertMatmulOp product : products)
        ExpertGrower(context, product).run(proposals);
  }
  return proposals;
}

} // namespace fusion
