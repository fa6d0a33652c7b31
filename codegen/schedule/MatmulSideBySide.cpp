// Several matmuls of one A in one kernel.
#include "codegen/schedule/MatmulProblem.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace fusion::matmul {

/// Which matmuls `value` is computed from, as a mask.
static unsigned matmulsUpstream(const Region &region, const Problem &problem, Value value) {
  unsigned mask = 0;
  DenseSet<Operation *> seen;
  SmallVector<Value> pending{value};
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || !llvm::is_contained(region.ops, op) || !seen.insert(op).second)
      continue;
    auto found = llvm::find_if(problem.matmuls,
                               [&](const Matmul &matmul) { return matmul.op.getY().getDefiningOp() == op; });
    if (found == problem.matmuls.end())
      pending.append(op->operand_begin(), op->operand_end());
    else
      mask |= 1u << (found - problem.matmuls.begin());
  }
  return mask;
}

/// Two values that are the same elements of one input, or the same op on them.
static bool isSameOperand(const Region &region, const KernelContext &context, Value left, Value right) {
  if (left == right)
    return true;
  auto a = inputView(region, context, left), b = inputView(region, context, right);
  return a && b && a->first == b->first && a->second.shape == b->second.shape &&
         a->second.strides == b->second.strides && a->second.offset == b->second.offset;
}

/// One text decodes the elements of either; where the scales lie may differ.
static bool isDecodedAlike(const Operand &left, const Operand &right) {
  auto alike = [](const std::optional<ScaleOrZero> &a, const std::optional<ScaleOrZero> &b) {
    if (!a || !b)
      return a.has_value() == b.has_value();
    return !a->literal == !b->literal && a->type == b->type && a->packed == b->packed &&
           a->rowBlock == b->rowBlock && a->columnBlock == b->columnBlock;
  };
  if (!left.decode || !right.decode)
    return left.decode.has_value() == right.decode.has_value();
  return left.decode->type == right.decode->type && alike(left.decode->scale, right.decode->scale) &&
         alike(left.decode->zero, right.decode->zero);
}

static std::optional<std::string> whyNotOneKernel(const Region &region, const KernelContext &context,
                                                  const Problem &problem) {
  if (problem.matmuls.size() > 8)
    return std::string("more than eight matmuls");
  if (!problem.batch.empty())
    return std::string("several matmuls, in batches");
  const Product &first = problem.op;
  for (const Matmul &matmul : llvm::drop_begin(problem.matmuls)) {
    const Product &op = matmul.op;
    if (!isSameOperand(region, context, first.getA(), op.getA()) ||
        op.getTransposeA() != first.getTransposeA())
      return std::string("matmuls of different first operands");
    if (matmul.b.type != problem.b.type || matmul.b.packed != problem.b.packed)
      return std::string("second operands of different element types");
    if ((matmul.b.rowStride == Dim(1)) != (problem.b.rowStride == Dim(1)) ||
        (matmul.b.columnStride == Dim(1)) != (problem.b.columnStride == Dim(1)))
      return std::string("second operands of different layouts");
    if (!isDecodedAlike(matmul.b, problem.b))
      return std::string("second operands quantised in different ways");
  }
  return std::nullopt;
}

/// See Problem::result.
static DType resultOf(const Region &region, const Problem &problem) {
  const DType own = dtype(problem.op.getY());
  std::optional<DType> cast;
  for (const Matmul &matmul : problem.matmuls) {
    const Value y = matmul.op.getY();
    if (llvm::is_contained(region.outputs, y))
      return own;
    for (Operation *user : y.getUsers()) {
      const bool isCast = isa<nn::CastOp>(user) && llvm::is_contained(region.ops, user);
      if (!isCast || (cast && *cast != dtype(user->getResult(0))))
        return own;
      cast = dtype(user->getResult(0));
    }
  }
  return own == DType::F32 && cast && isFloat(*cast) && byteSize(*cast) == 2 ? *cast : own;
}

std::optional<std::string> arrangeMatmuls(const Region &region, const KernelContext &context,
                                          Problem &problem) {
  const bool several = problem.matmuls.size() > 1;
  if (several)
    if (auto reason = whyNotOneKernel(region, context, problem))
      return reason;
  problem.result = resultOf(region, problem);
  problem.narrow = llvm::all_of(region.outputs, [](Value output) { return byteSize(dtype(output)) <= 2; });
  SmallVector<unsigned> masks;
  for (Value output : region.outputs) {
    const bool isPrologue = llvm::is_contained(problem.prologue, output.getDefiningOp());
    if (isPrologue)
      problem.prologueOutputs.push_back(static_cast<unsigned>(masks.size()));
    masks.push_back(isPrologue ? 0u : several ? matmulsUpstream(region, problem, output) : 1u);
    problem.combined |= llvm::popcount(masks.back()) > 1;
  }
  if (problem.combined && problem.matmuls.size() > 2)
    return std::string("a result made from some of more than two matmuls");
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    if (llvm::is_contained(problem.prologueOutputs, index))
      continue;
    if (masks[index] == 0)
      return std::string("an output that no matmul reaches");
    for (auto [place, matmul] : llvm::enumerate(problem.matmuls)) {
      if (!problem.combined && !(masks[index] >> place & 1))
        continue;
      matmul.outputs.push_back(static_cast<unsigned>(index));
      const DimShape &shape = context.shape(matmul.op.getY());
      if (context.shape(output) != shape)
        return "an output of shape [" + shapeString(context.shape(output)) + "], the matmul has [" +
               shapeString(shape) + "]";
    }
  }
  if (problem.combined) {
    const Matmul &first = problem.matmuls[0], &second = problem.matmuls[1];
    const Product &left = first.op, &right = second.op;
    if (context.shape(left.getY()) != context.shape(right.getY()))
      return std::string("matmuls of different shapes in one result");
    if (first.b.rowStride != second.b.rowStride || first.b.columnStride != second.b.columnStride)
      return std::string("second operands of different strides in one result");
  }
  return std::nullopt;
}

Dim columnTiles(const Problem &problem, int64_t tileN) {
  Dim blocks = problem.n.ceilDiv(tileN);
  if (problem.sideBySide())
    for (const Matmul &matmul : llvm::drop_begin(problem.matmuls))
      blocks = blocks + matmul.n.ceilDiv(tileN);
  return blocks;
}

} // namespace fusion::matmul
