// qkv_matmul: several products of one input in one kernel, side by side: queries, keys and values, or any others.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fusion {

namespace {
constexpr size_t mostProducts = 4;

/// The bias behind a product: the one reader, an add of a vector.
Operation *biasOf(nn::MatmulOp matmul) {
  Value product = matmul.getY();
  if (!product.hasOneUse())
    return nullptr;
  auto add = llvm::dyn_cast<nn::AddOp>(*product.getUsers().begin());
  if (!add || tensorType(add.getY()).getRank() != tensorType(product).getRank())
    return nullptr;
  Value other = add.getLhs() == product ? add.getRhs() : add.getLhs();
  return tensorType(other).getRank() <= 1 ? add.getOperation() : nullptr;
}

bool isWeight(Value value) {
  Operation *op = encodedOperand(value).getDefiningOp();
  return op && llvm::isa<nn::WeightOp, nn::ConstantOp>(op);
}
} // namespace

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
      if (Operation *bias = biasOf(product))
        candidate.ops.push_back(bias);
    }
    proposals.candidates.push_back(std::move(candidate));
  }
  return proposals;
}

} // namespace fusion
