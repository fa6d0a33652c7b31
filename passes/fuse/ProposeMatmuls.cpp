// qkv_matmul: several matmuls of one input in one kernel, side by side: queries, keys and values, or any
// others.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"
#include "passes/Match.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fusion {

namespace {
constexpr size_t mostMatmuls = 8; ///< what the schedule takes

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
bool isWeight(Value value) { return nn::isShardLeaf(encodedOperand(value).getDefiningOp()); }
} // namespace

SmallVector<Operation *> matmulEpilogue(nn::MatmulOp matmul) {
  SmallVector<Operation *> epilogue;
  Value value = matmul.getY();
  if (isInteger(dtype(value)) && value.hasOneUse())
    if (auto cast = llvm::dyn_cast<nn::CastOp>(*value.getUsers().begin()))
      if (auto scaled = readerWithRow<nn::MulOp>(cast.getY())) {
        Value factor = scaled.getLhs() == cast.getY() ? scaled.getRhs() : scaled.getLhs();
        if (auto scales = factor.getDefiningOp<nn::MulOp>(); scales && factor.hasOneUse())
          epilogue.push_back(scales);
        epilogue.append({cast, scaled});
        value = scaled.getY();
      }
  if (!epilogue.empty() && value.hasOneUse())
    if (auto cast = llvm::dyn_cast<nn::CastOp>(*value.getUsers().begin());
        cast && isFloat(dtype(cast.getY()))) {
      epilogue.push_back(cast);
      value = cast.getY();
    }
  const bool isScaledInteger = !epilogue.empty();
  if (auto bias = readerWithRow<nn::AddOp>(value)) {
    epilogue.push_back(bias);
    value = bias.getY();
    // PyTorch's addmm adds it in f32, and rounds once.
    if (auto cast = onlyUser(bias) ? llvm::dyn_cast<nn::CastOp>(onlyUser(bias)) : nn::CastOp();
        cast && dtype(value) == DType::F32 && isFloat(dtype(cast.getY()))) {
      epilogue.push_back(cast);
      value = cast.getY();
    }
  }
  // A number that all is multiplied by, such as the queries' scale.
  if (auto scaled = readerWithRow<nn::MulOp>(value);
      scaled && !isScaledInteger && isFloat(dtype(value)) && constantScalar(otherOperand(scaled, value))) {
    epilogue.push_back(scaled);
    value = scaled.getY();
  }
  // An activation that gates another matmul goes with the gate.
  if (Operation *activation = value.hasOneUse() ? *value.getUsers().begin() : nullptr;
      activation && activation->hasTrait<nn::Activation>() &&
      llvm::none_of(activation->getUsers(), [](Operation *user) { return llvm::isa<nn::MulOp>(user); }))
    epilogue.push_back(activation);
  return epilogue;
}

std::vector<Candidate> proposeGates(const ProposalContext &context, ArrayRef<Candidate>) {
  std::vector<Candidate> candidates;
  llvm::DenseMap<Value, nn::MatmulOp> matmuls; // by the result of their epilogue
  for (auto matmul : context.block.getOps<nn::MatmulOp>()) {
    const SmallVector<Operation *> epilogue = matmulEpilogue(matmul);
    matmuls[(epilogue.empty() ? matmul.getOperation() : epilogue.back())->getResult(0)] = matmul;
  }
  auto propose = [&](nn::MulOp gated, Value activated, Value other) {
    Operation *activation = activated.getDefiningOp();
    if (!activation || !activation->hasTrait<nn::Activation>())
      return;
    nn::MatmulOp gate = matmuls.lookup(activation->getOperand(0)), up = matmuls.lookup(other);
    if (!gate || !up || gate == up || gate.getA() != up.getA() ||
        gate.getY().getType() != up.getY().getType() || !isInteger(dtype(gate.getY())))
      return;
    Candidate &candidate = candidates.emplace_back();
    candidate.pattern = "gated_matmul";
    candidate.root = gated;
    for (nn::MatmulOp matmul : {gate, up}) {
      candidate.ops.push_back(matmul);
      candidate.ops.append(matmulEpilogue(matmul));
    }
    candidate.ops.append({activation, gated.getOperation()});
  };
  for (auto gated : context.block.getOps<nn::MulOp>()) {
    propose(gated, gated.getLhs(), gated.getRhs());
    propose(gated, gated.getRhs(), gated.getLhs());
  }
  return candidates;
}

/// Of the matmuls those that no candidate of `found` computes with the one that it gates.
static SmallVector<nn::MatmulOp> ungated(ArrayRef<nn::MatmulOp> matmuls,
                                         const llvm::DenseSet<Operation *> &gated) {
  SmallVector<nn::MatmulOp> others;
  llvm::copy_if(matmuls, std::back_inserter(others),
                [&](nn::MatmulOp matmul) { return !gated.contains(matmul); });
  return others;
}

// All of them, and those that are left where a gated pair becomes a kernel of its own.
Proposals proposeMatmuls(const ProposalContext &context) {
  Proposals proposals;
  llvm::MapVector<Value, SmallVector<nn::MatmulOp>> byInput;
  for (auto matmul : context.block.getOps<nn::MatmulOp>())
    if (isWeight(matmul.getB()))
      byInput[matmul.getA()].push_back(matmul);
  llvm::DenseSet<Operation *> gated;
  for (const Candidate &candidate : context.found)
    if (candidate.pattern == "gated_matmul")
      gated.insert_range(candidate.ops);
  auto propose = [&](ArrayRef<nn::MatmulOp> matmuls) {
    if (matmuls.size() < 2 || matmuls.size() > mostMatmuls)
      return false;
    Candidate candidate;
    candidate.pattern = "qkv_matmul";
    candidate.root = matmuls.back();
    for (nn::MatmulOp matmul : matmuls) {
      candidate.ops.push_back(matmul);
      candidate.ops.append(matmulEpilogue(matmul));
    }
    proposals.candidates.push_back(std::move(candidate));
    return true;
  };
  for (auto &[input, matmuls] : byInput) {
    bool isProposed = propose(matmuls);
    if (SmallVector<nn::MatmulOp> others = ungated(matmuls, gated); others.size() < matmuls.size())
      isProposed |= propose(others);
    if (isProposed)
      continue;
    if (matmuls.size() < 2) {
      proposals.misses.push_back({matmuls.front(), "no other matmul reads the same input"});
      continue;
    }
    for (nn::MatmulOp matmul : matmuls)
      proposals.misses.push_back({matmul,
                                  std::to_string(matmuls.size()) + " matmuls read one input, at most " +
                                      std::to_string(mostMatmuls) + " go side by side",
                                  {matmuls.begin(), matmuls.end()}});
  }
  return proposals;
}

} // namespace fusion
