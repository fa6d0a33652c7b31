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

bool isActivation(Operation *op) {
  return llvm::isa<nn::SiluOp, nn::GeluOp, nn::ReluOp, nn::SigmoidOp, nn::TanhOp>(op);
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
  if (!steps.empty() && value.hasOneUse())
    if (auto cast = llvm::dyn_cast<nn::CastOp>(*value.getUsers().begin()); cast && isFloat(dtype(cast.getY()))) {
      steps.push_back(cast);
      value = cast.getY();
    }
  if (auto bias = readerWithRow<nn::AddOp>(value)) {
    steps.push_back(bias);
    value = bias.getY();
  }
  // An activation that gates another product goes with the gate.
  if (Operation *activation = value.hasOneUse() ? *value.getUsers().begin() : nullptr;
      activation && isActivation(activation) &&
      llvm::none_of(activation->getUsers(), [](Operation *user) { return llvm::isa<nn::MulOp>(user); }))
    steps.push_back(activation);
  return steps;
}

std::vector<Candidate> growGates(const ProposalContext &context, ArrayRef<Candidate>) {
  std::vector<Candidate> candidates;
  llvm::DenseMap<Value, nn::MatmulOp> products; // by the value that their steps end in
  for (auto matmul : context.block.getOps<nn::MatmulOp>()) {
    const SmallVector<Operation *> steps = stepsBehind(matmul);
    products[(steps.empty() ? matmul.getOperation() : steps.back())->getResult(0)] = matmul;
  }
  auto propose = [&](nn::MulOp gated, Value activated, Value other) {
    Operation *activation = activated.getDefiningOp();
    if (!activation || !isActivation(activation))
      return;
    nn::MatmulOp gate = products.lookup(activation->getOperand(0)), up = products.lookup(other);
    if (!gate || !up || gate == up || gate.getA() != up.getA() || gate.getY().getType() != up.getY().getType() ||
        !isInteger(dtype(gate.getY())))
      return;
    Candidate &candidate = candidates.emplace_back();
    candidate.pattern = "gated_matmul";
    candidate.root = gated;
    for (nn::MatmulOp product : {gate, up}) {
      candidate.ops.push_back(product);
      candidate.ops.append(stepsBehind(product));
    }
    candidate.ops.append({activation, gated.getOperation()});
  };
  for (auto gated : context.block.getOps<nn::MulOp>()) {
    propose(gated, gated.getLhs(), gated.getRhs());
    propose(gated, gated.getRhs(), gated.getLhs());
  }
  return candidates;
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
