// qkv_matmul: several products of one input in one kernel, side by side: queries, keys and values, or any others.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fusion {

namespace {
constexpr size_t mostProducts = 4;

/// The one reader of `value`, if it is an OpTy of `value` and a vector or scalar.
template <class OpTy>
OpTy readerWithRow(Value value) {
  auto op = value.hasOneUse() ? llvm::dyn_cast<OpTy>(*value.getUsers().begin()) : OpTy();
  if (!op || tensorType(op.getY()).getRank() != tensorType(value).getRank())
    return {};
  Value other = op.getLhs() == value ? op.getRhs() : op.getLhs();
  return tensorType(other).getRank() <= 1 ? op : OpTy();
}

/// Or a part of one, where it lies.
bool isWeight(Value value) {
  Operation *op = encodedOperand(value).getDefiningOp();
  if (auto slice = llvm::dyn_cast_or_null<nn::SliceOp>(op))
    op = slice.getX().getDefiningOp();
  return op && llvm::isa<nn::WeightOp, nn::ConstantOp>(op);
}
} // namespace

SmallVector<Operation *> stepsBehind(nn::MatmulOp matmul) {
  SmallVector<Operation *> steps;
  Value value = matmul.getY();
  if (isInteger(dtype(value)) && value.hasOneUse())
    if (auto cast = llvm::dyn_cast<nn::CastOp>(*value.getUsers().begin()))
      if (auto scaled = readerWithRow<nn::MulOp>(cast.getY())) {
        Value factor = scaled.getLhs() == cast.getY() ? scaled.getRhs() : scaled.getLhs();
        if (auto scales = factor.getDefiningOp<nn::MulOp>(); scales && factor.hasOneUse())
          steps.push_back(scales);
        steps.append({cast, scaled});
        value = scaled.getY();
      }
  if (auto bias = readerWithRow<nn::AddOp>(value))
    steps.push_back(bias);
  return steps;
}

Proposals proposeProducts(const ProposalContext &context) {
  Proposals proposals;
  llvm::MapVector<Value, SmallVector<nn::MatmulOp>> byInput;
  for (auto matmul : context.block.getOps<nn::MatmulOp>())
    if (isWeight(matmul.getB()))
      byInput[matmul.getA()].push_back(matmul);
  for (auto &[input, products] : byInput) {
    if (products.size() < 2) {
      proposals.misses.push_back({products.front(), "no other product reads the same input"});
      continue;
    }
    if (products.size() > mostProducts) {
      for (nn::MatmulOp product : products)
        proposals.misses.push_back({product, std::to_string(products.size()) + " products read one input, at most " +
                                                 std::to_string(mostProducts) + " go side by side"});
      continue;
    }
    Candidate candidate;
    candidate.pattern = "qkv_matmul";
    candidate.root = products.back();
    for (nn::MatmulOp product : products) {
      candidate.ops.push_back(product);
      candidate.ops.append(stepsBehind(product));
    }
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

} // namespace fusion
