// row_reduction: softmax and reductions along the last dim that no other family takes, with the elementwise
// ops on the same rows before, between and after them.
#include "passes/fuse/Grow.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"
#include "passes/Match.h"

using namespace mlir;

namespace fusion {

namespace {
/// More would be registers of many values at a time.
constexpr size_t mostOps = 32;

class ReductionGrower {
public:
  ReductionGrower(const ProposalContext &context, Value rows)
      : context(context), rows(context.traffic.shapes[rows]) {}

  /// Along rows of more than one element.
  bool isReduction(Operation *op) const {
    if (!isFree(op) || rows.empty() || rows.back() == Dim(1))
      return false;
    const int64_t rank = static_cast<int64_t>(rows.size());
    auto isLast = [&](int64_t axis) { return axis == -1 || axis == rank - 1; };
    if (auto softmax = llvm::dyn_cast<nn::SoftmaxOp>(op))
      return isOfRows(softmax.getX()) && isLast(static_cast<int64_t>(softmax.getAxis()));
    auto reduce = llvm::dyn_cast<nn::ReduceOp>(op);
    return reduce && isFloat(reduce.getX()) && isOfRows(reduce.getX()) && reduce.getAxes().size() == 1 &&
           isLast(reduce.getAxes()[0]);
  }

  /// What computes the rows of `ops` and is read by nobody else. No path may leave the set and enter it
  /// again.
  void takeBefore(OpSet &ops) const {
    for (bool grows = true; grows && ops.size() < mostOps;) {
      grows = false;
      for (Operation *op : llvm::to_vector(ops))
        for (Value operand : op->getOperands())
          if (Operation *made = operand.getDefiningOp();
              made && !ops.contains(made) && (joins(made) || isBroadcast(made)) &&
              llvm::all_of(made->getUsers(), [&](Operation *user) { return ops.contains(user); }) &&
              isConvexWith(ops, made))
            grows |= ops.insert(made);
    }
  }
  /// What reads them, too.
  void takeAfter(OpSet &ops) const {
    for (bool grows = true; grows && ops.size() < mostOps;) {
      grows = false;
      for (Operation *op : llvm::to_vector(ops))
        for (Operation *user : op->getUsers())
          if (!ops.contains(user) && joins(user) && isConvexWith(ops, user)) {
            grows |= ops.insert(user);
            takeBefore(ops);
          }
    }
  }

private:
  bool isFree(Operation *op) const {
    return op->getBlock() == &context.block && !(context.taken && context.taken->contains(op));
  }
  bool isOfRows(Value value) const { return context.traffic.shapes[value] == rows; }
  /// With the last dim as 1, or without it.
  bool isPerRow(Value value) const {
    const DimShape &shape = context.traffic.shapes[value];
    return shape.size() + 1 == rows.size()
               ? llvm::ArrayRef<Dim>(shape) == llvm::ArrayRef<Dim>(rows).drop_back()
               : shape.size() == rows.size() && shape.back() == Dim(1) &&
                     llvm::ArrayRef<Dim>(shape).drop_back() == llvm::ArrayRef<Dim>(rows).drop_back();
  }
  bool isScalar(Operation *op) const {
    return isFree(op) && llvm::isa<nn::ScalarFormula>(op) && op->getNumResults() == 1 &&
           !context.oracle.extendedInPlace(op->getResult(0));
  }
  bool joins(Operation *op) const {
    return isReduction(op) || (isScalar(op) && (isOfRows(op->getResult(0)) || isPerRow(op->getResult(0))));
  }
  /// A cheap op on what several rows share, such as the cast of a mask: it is computed for each.
  bool isBroadcast(Operation *op) const {
    if (!isScalar(op) || op->hasTrait<nn::Costly>())
      return false;
    const DimShape &shape = context.traffic.shapes[op->getResult(0)];
    return shape.size() <= rows.size() &&
           llvm::all_of(llvm::zip_equal(shape, llvm::ArrayRef<Dim>(rows).take_back(shape.size())),
                        [](const auto &dims) {
                          return std::get<0>(dims) == std::get<1>(dims) || std::get<0>(dims) == Dim(1);
                        });
  }
  static bool isConvexWith(const OpSet &ops, Operation *added) {
    SmallVector<Operation *> all(ops.begin(), ops.end());
    all.push_back(added);
    llvm::sort(all, [](Operation *one, Operation *other) { return one->isBeforeInBlock(other); });
    return !whyNotConvex(all);
  }

  const ProposalContext &context;
  DimShape rows;
};
} // namespace

Proposals proposeReductions(const ProposalContext &context) {
  Proposals proposals;
  llvm::DenseSet<Operation *> seen;
  for (Operation &op : context.block) {
    if (!llvm::isa<nn::SoftmaxOp, nn::ReduceOp>(op) || seen.contains(&op))
      continue;
    const ReductionGrower grower(context, op.getOperand(0));
    if (!grower.isReduction(&op))
      continue;
    OpSet ops;
    ops.insert(&op);
    auto propose = [&] {
      if (ops.size() < 2)
        return;
      Candidate &candidate = proposals.candidates.emplace_back();
      candidate.pattern = "row_reduction";
      candidate.root = &op;
      candidate.ops.assign(ops.begin(), ops.end());
      llvm::sort(candidate.ops, [](Operation *one, Operation *other) { return one->isBeforeInBlock(other); });
    };
    grower.takeBefore(ops);
    propose();
    const size_t before = ops.size();
    grower.takeAfter(ops);
    if (ops.size() > before)
      propose();
    seen.insert(ops.begin(), ops.end());
  }
  return proposals;
}

} // namespace fusion
