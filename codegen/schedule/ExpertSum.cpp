// The sum over the slots of nn.expert_matmul.
#include "codegen/schedule/ExpertMatmul.h"
#include "codegen/schedule/MatmulSource.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::experts {

using matmul::Problem, matmul::Product;

/// The ops that `value` is computed from, in order.
static SmallVector<Operation *> opsBefore(const Region &region, Value value) {
  llvm::DenseSet<Value> needed{value};
  SmallVector<Operation *> ops;
  for (Operation *op : llvm::reverse(region.ops))
    if (llvm::any_of(op->getResults(), [&](Value result) { return needed.contains(result); })) {
      needed.insert(op->operand_begin(), op->operand_end());
      ops.push_back(op);
    }
  std::reverse(ops.begin(), ops.end());
  return ops;
}

std::variant<std::optional<Sum>, std::string> findSum(const Region &region, const KernelContext &context) {
  Sum sum;
  for (Operation *op : region.ops)
    if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
      if (sum.op)
        return std::string("more than one nn.reduce");
      sum.op = reduce;
    }
  if (!sum.op)
    return std::optional<Sum>();
  const Value summed = sum.op.getX();
  const auto rank = static_cast<int64_t>(context.shape(summed).size());
  const ArrayRef<int64_t> axes = sum.op.getAxes();
  if (sum.op.getKind() != "sum" || axes.size() != 1 || rank < 2 || (axes[0] != rank - 2 && axes[0] != -2) ||
      !isFloat(dtype(summed)) || dtype(summed) == DType::F64)
    return std::string("nn.reduce that is no sum over the slots of nn.expert_matmul");
  sum.products.anchor = sum.rest.anchor = region.anchor;
  sum.products.pattern = sum.rest.pattern = region.pattern;
  sum.products.inputs = sum.rest.inputs = region.inputs;
  sum.products.ops = opsBefore(region, summed);
  sum.products.outputs = {summed};
  sum.rest.inputs.push_back(summed);
  sum.rest.outputs = region.outputs;
  for (Operation *op : region.ops) {
    const bool before = llvm::is_contained(sum.products.ops, op);
    if (!before || isa<nn::ConstantOp, nn::DimConstantOp>(op))
      sum.rest.ops.push_back(op);
    else if (op != summed.getDefiningOp())
      for (Operation *user : op->getUsers())
        if (llvm::is_contained(region.ops, user) && !llvm::is_contained(sum.products.ops, user))
          return (op->getName().getStringRef() + " is read before and after the sum over slots").str();
  }
  if (!summed.getDefiningOp() || !llvm::is_contained(region.ops, summed.getDefiningOp()))
    return std::string("a sum of nothing that the region computes");
  for (Value output : region.outputs)
    if (!llvm::is_contained(sum.rest.ops, output.getDefiningOp()) ||
        context.shape(output) != context.shape(sum.op.getY()))
      return std::string("a result beside the sum over slots");
  return std::optional<Sum>(std::move(sum));
}

Problem sumProblem(const Sum &sum, const KernelContext &context) {
  Problem problem;
  matmul::Matmul product;
  nn::ReduceOp op = sum.op;
  product.op = Product(op.getY());
  product.n = context.shape(op.getY()).back();
  for (unsigned output = 0; output < sum.rest.outputs.size(); ++output)
    product.outputs.push_back(output);
  problem.n = product.n;
  problem.op = product.op;
  problem.matmuls.push_back(std::move(product));
  const DimShape &shape = context.shape(op.getY());
  problem.m = fusion::product(DimShape(shape.begin(), shape.end() - 1));
  return problem;
}

std::optional<std::string> refusesRest(const Sum &sum, const KernelContext &context) {
  return matmul::epilogueRefuses(sum.rest, context, nn::ReduceOp(sum.op).getOperation());
}

KernelDraft emitSum(const Sum &sum, const KernelContext &context) {
  constexpr int64_t threads = 256;
  nn::ReduceOp op = sum.op;
  const Problem problem = sumProblem(sum, context);
  const DType type = dtype(op.getX());
  const auto last = static_cast<unsigned>(sum.rest.inputs.size() - 1);
  const int64_t vector = matmul::resultVector(problem, 16 / static_cast<int64_t>(byteSize(type)));
  const DimShape &shape = context.shape(op.getX());
  body::KernelSource source(sum.rest, context.inputs);
  source.config.set("vector", vector);
  source.config.set("threads", threads);
  source.config.set("unroll", int64_t(8));
  source.include("expert_sum.cuh");
  source.declare(source.config.text());
  body::Functor functor(source, "Epilogue");
  matmul::EpilogueWriter(sum.rest, context, problem, functor, {DType::F32, vector}).write(0);
  source.declare(functor.text());
  const std::string code =
      fmt::format("  expert_sum<Config>({}, {}, {}, {}, {});\n", source.input(last), source.size(problem.m),
                  source.size(shape.end()[-2]), source.size(problem.n), functor.instance());
  KernelDraft draft = source.finish({.schedule = "experts",
                                     .code = code,
                                     .name = body::kernelName(sum.rest, context),
                                     .threads = static_cast<uint32_t>(threads)});
  draft.gridX = (problem.m * problem.n).ceilDiv(threads * vector);
  return draft;
}

} // namespace fusion::experts
