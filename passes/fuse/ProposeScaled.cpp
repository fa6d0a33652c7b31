// scaled_matmul, scaled_attention: a matmul of quantised operands, an attention over keys and values that are stored as
// codes. Their kernels decode what they read.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

/// A cast of 8-bit integers to i32.
static nn::CastOp widening(Value value) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  return cast && dtype(cast.getY()) == DType::I32 && isInteger(dtype(cast.getX())) &&
                 byteSize(dtype(cast.getX())) == 1
             ? cast
             : nn::CastOp();
}

SmallVector<Operation *> decodingOps(Value operand) {
  if (auto dequantize = operand.getDefiningOp<nn::DequantizeOp>())
    return {dequantize};
  if (auto cast = widening(operand))
    return {cast};
  auto sub = operand.getDefiningOp<nn::SubOp>();
  auto cast = sub ? widening(sub.getLhs()) : nn::CastOp();
  if (!cast)
    return {};
  SmallVector<Operation *> ops{cast, sub};
  if (auto zero = widening(sub.getRhs()); zero && zero->getBlock() == sub->getBlock() && zero != cast)
    ops.push_back(zero);
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ops;
}

Value encodedOperand(Value operand) {
  SmallVector<Operation *> ops = decodingOps(operand);
  if (ops.empty())
    return operand;
  if (auto sub = llvm::dyn_cast<nn::SubOp>(operand.getDefiningOp()))
    return widening(sub.getLhs()).getX();
  return operand.getDefiningOp()->getOperand(0);
}

/// The operands that the op's kernels decode themselves.
static OperandRange decodedOperands(Operation *op) {
  if (llvm::isa<nn::MatmulOp, nn::ExpertMatmulOp>(op))
    return op->getOperands().take_front(2);
  if (llvm::isa<nn::AttentionOp>(op))
    return op->getOperands().slice(1, 2); // keys and values
  return op->getOperands().take_front(0);
}

/// Whether all readers decode what they read themselves.
static bool isReadByDecodersOnly(Operation *op) {
  return llvm::all_of(op->getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    return llvm::is_contained(decodedOperands(user), use.get()) ||
           (llvm::isa<nn::CastOp, nn::SubOp>(user) && isReadByDecodersOnly(user));
  });
}

static bool hasCodes(Operation *op) {
  return llvm::any_of(decodedOperands(op), [](Value operand) { return !decodingOps(operand).empty(); });
}

Candidate withDecoding(const Candidate &candidate) {
  Candidate result = candidate;
  auto contains = [](ArrayRef<Operation *> ops, Operation *op) { return llvm::is_contained(ops, op); };
  for (Operation *op : candidate.ops) {
    for (Value operand : decodedOperands(op)) {
      SmallVector<Operation *> ops = decodingOps(operand);
      // From the operand up, so that an op is judged after its readers.
      for (Operation *decoding : llvm::reverse(ops)) {
        if (contains(result.ops, decoding) || contains(result.clones, decoding))
          continue;
        const bool readsMember = llvm::any_of(decoding->getOperands(), [&](Value value) {
          return value.getDefiningOp() && contains(candidate.ops, value.getDefiningOp());
        });
        if (readsMember)
          break;
        const bool isOwn = llvm::all_of(decoding->getUsers(),
                                        [&](Operation *user) { return contains(result.ops, user); });
        (isOwn ? result.ops : result.clones).push_back(decoding);
      }
    }
  }
  auto inOrder = [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); };
  llvm::sort(result.ops, inOrder);
  llvm::sort(result.clones, inOrder);
  llvm::copy_if(result.clones, std::back_inserter(result.replaced), isReadByDecodersOnly);
  return result;
}

template <class... Ops> static Proposals proposeScaled(const ProposalContext &context, llvm::StringRef pattern) {
  Proposals proposals;
  for (Operation &op : context.block) {
    if (!llvm::isa<Ops...>(op) || !hasCodes(&op))
      continue;
    Candidate candidate;
    candidate.pattern = pattern.str();
    candidate.root = &op;
    candidate.ops = {&op};
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

Proposals proposeScaledMatmuls(const ProposalContext &context) {
  return proposeScaled<nn::MatmulOp, nn::ExpertMatmulOp>(context, "scaled_matmul");
}

Proposals proposeScaledAttentions(const ProposalContext &context) {
  return proposeScaled<nn::AttentionOp>(context, "scaled_attention");
}

} // namespace fusion
