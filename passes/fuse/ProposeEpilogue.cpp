// matmul_epilogue: a matrix product and what is computed from each of its elements: bias, activation, residual, cast,
// quantisation, in any order.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {
/// Ops of a side branch, such as the activated gate that the product is multiplied by.
constexpr unsigned mostSideOps = 4;

/// A step on single elements of its first operand.
bool isScalarStep(Operation *op) {
  return op->hasTrait<nn::Pointwise>() || llvm::isa<nn::QuantizeOp, nn::DequantizeOp>(op);
}

class EpilogueProposer {
public:
  explicit EpilogueProposer(const ProposalContext &context) : context(context) {}

  Proposals run() {
    for (auto matmul : context.block.getOps<nn::MatmulOp>())
      propose(matmul);
    return std::move(proposals);
  }

private:
  void propose(nn::MatmulOp matmul) {
    const DimShape &shape = context.traffic.shapes[matmul.getY()];
    SmallVector<Operation *> ops{matmul};
    std::string reason;
    for (Value current = matmul.getY();;) {
      Operation *step = nextStep(current, shape, reason);
      if (!step)
        break;
      for (Value operand : step->getOperands())
        if (operand != current)
          takeSideBranch(operand, shape, ops);
      ops.push_back(step);
      Candidate candidate;
      candidate.pattern = "matmul_epilogue";
      candidate.root = matmul;
      candidate.ops = ops;
      proposals.candidates.push_back(std::move(candidate));
      current = step->getResult(0);
    }
    if (ops.size() == 1)
      proposals.misses.push_back({matmul, reason});
  }

  /// The only reader of `value`, if it works on the single elements of the product.
  Operation *nextStep(Value value, const DimShape &shape, std::string &reason) {
    Operation *step = nullptr;
    for (Operation *user : value.getUsers()) {
      if (step && user != step) {
        reason = "the product has " + std::to_string(llvm::range_size(value.getUses())) + " readers";
        return nullptr;
      }
      step = user;
    }
    if (!step) {
      reason = "nobody reads the product";
      return nullptr;
    }
    std::string name = shownName(step);
    if (llvm::isa<nn::DynamicQuantizeOp>(step)) {
      reason = "nn.dynamic_quantize needs the largest element of whole rows of the product, of which a block has parts";
      return nullptr;
    }
    if (llvm::isa<nn::QuantizeOp, nn::DequantizeOp>(step) && step->getOperand(0) != value) {
      reason = "the product is a scale of " + name;
      return nullptr;
    }
    if (!isScalarStep(step)) {
      reason = step->hasTrait<OpTrait::IsTerminator>() ? "the product is a result of the function"
                                                       : "the product is read by " + name + ", which is no scalar op";
      return nullptr;
    }
    if (context.traffic.shapes[step->getResult(0)] != shape) {
      reason = name + " broadcasts the product";
      return nullptr;
    }
    return step;
  }

  /// Scalar ops that only this epilogue reads and that have the product's shape; products of scales, too.
  void takeSideBranch(Value operand, const DimShape &shape, SmallVectorImpl<Operation *> &ops) {
    SmallVector<Value> pending{operand};
    for (unsigned taken = 0; !pending.empty() && taken < mostSideOps;) {
      Value value = pending.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (!op || !value.hasOneUse() || !op->hasTrait<nn::Pointwise>() || llvm::is_contained(ops, op) ||
          (context.traffic.shapes[value] != shape && !isRowFactor(op)))
        continue;
      ops.push_back(op);
      ++taken;
      pending.append(op->operand_begin(), op->operand_end());
    }
  }

  /// A product of vectors or scalars: cheaper to compute for every element than to launch a kernel for.
  static bool isRowFactor(Operation *op) {
    return llvm::isa<nn::MulOp>(op) && tensorType(op->getResult(0)).getRank() <= 1;
  }

  const ProposalContext &context;
  Proposals proposals;
};
} // namespace

Proposals proposeEpilogues(const ProposalContext &context) { return EpilogueProposer(context).run(); }

ArrayRef<Proposer> proposers() {
  static const Proposer all[] = {{"rope_kv_write", proposeCacheWrites, /*competes=*/true},
                                 {"qkv_matmul", proposeProducts, /*competes=*/true},
                                 {"norm_matmul", proposeNormMatmuls, /*competes=*/true},
                                 {"sibling_norms", proposeSiblingNorms},
                                 {"attention_layout", proposeAttentionLayouts},
                                 {"matmul_epilogue", proposeEpilogues},
                                 {"scaled_matmul", proposeScaledMatmuls},
                                 {"pointwise", proposePointwise}};
  return all;
}

} // namespace fusion
