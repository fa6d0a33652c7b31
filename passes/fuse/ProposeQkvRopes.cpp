// qkv_rope: what a layer does before its attention: the matmuls of queries, keys and values, with their
// biases, the rotations and the writes into the cache, and the norm, with its residual add, before them.
#include "passes/fuse/Propose.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fusion {

namespace {
using Ops = llvm::SmallSetVector<Operation *, 32>;

/// Matmuls by the last value of what belongs to them.
using Matmuls = llvm::DenseMap<Value, nn::MatmulOp>;

/// Adds the matmul that `value` shows, with what belongs to it and the views in between. Null if there is
/// none.
nn::MatmulOp takeMatmul(Value value, const Matmuls &matmuls, Ops &ops) {
  SmallVector<Operation *> views;
  nn::MatmulOp matmul = matmuls.lookup(value);
  while (!matmul) {
    Operation *op = value.getDefiningOp();
    if (!isa_and_nonnull<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp>(op))
      return nullptr;
    views.push_back(op);
    value = op->getOperand(0);
    matmul = matmuls.lookup(value);
  }
  ops.insert_range(views);
  ops.insert(matmul);
  for (Operation *step : matmulEpilogue(matmul))
    ops.insert(step);
  return matmul;
}

/// The norm that makes the first operand of matmuls, if one does.
Operation *normOf(Value rows) {
  Operation *op = rows.getDefiningOp();
  return isa_and_nonnull<nn::Norm>(op) && op->getResult(0) == rows ? op : nullptr;
}
} // namespace

Proposals proposeQkvRopes(const ProposalContext &context) {
  Proposals proposals;
  Matmuls matmuls;
  for (auto matmul : context.block.getOps<nn::MatmulOp>()) {
    const SmallVector<Operation *> epilogue = matmulEpilogue(matmul);
    matmuls[(epilogue.empty() ? matmul.getOperation() : epilogue.back())->getResult(0)] = matmul;
  }
  const Proposals writes = proposeCacheWrites(context);
  for (const Candidate &write : writes.candidates) {
    Ops ops;
    llvm::SmallSetVector<Value, 2> rows;
    for (Operation *op : write.ops)
      for (Value operand : op->getOperands())
        if (!llvm::is_contained(write.ops, operand.getDefiningOp()))
          if (nn::MatmulOp matmul = takeMatmul(operand, matmuls, ops))
            rows.insert(matmul.getA());
    if (rows.empty()) {
      proposals.misses.push_back({write.root, "no nn.matmul makes what is rotated"});
      continue;
    }
    ops.insert_range(write.ops);
    if (rows.size() > 1) {
      proposals.misses.push_back({write.root, "matmuls of different first operands make what is rotated",
                                  SmallVector<Operation *>(ops.begin(), ops.end())});
      continue;
    }
    Operation *norm = normOf(rows[0]);
    if (norm && isOfSumOverRanks(norm))
      norm = nullptr;
    auto sum = norm ? norm->getOperand(0).getDefiningOp<nn::AddOp>() : nn::AddOp();
    if (sum && context.traffic.shapes[sum.getLhs()] != context.traffic.shapes[sum.getRhs()])
      sum = {};
    for (SmallVector<Operation *> before : {SmallVector<Operation *>{}, {norm}, {norm, sum}}) {
      if (llvm::is_contained(before, nullptr))
        continue;
      Candidate candidate;
      candidate.pattern = "qkv_rope";
      candidate.root = write.root;
      candidate.unproven =
          "one kernel from the norm to the cache writes, for few rows of nn.matmul, is taken only where a "
          "measurement chooses between it and kernels of its parts";
      candidate.unmeasurable = "kernels of its parts are faster for other numbers of rows";
      candidate.ops.assign(ops.begin(), ops.end());
      candidate.ops.append(before);
      absorbWithin(candidate, context.found);
      proposals.candidates.push_back(std::move(candidate));
    }
  }
  return proposals;
}

} // namespace fusion
