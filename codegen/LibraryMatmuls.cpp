#include "codegen/LibraryMatmuls.h"
#include "codegen/schedule/MatmulProblem.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

/// Fewer rows, or smaller matrices, are not worth a launch of their own for the matmul and one for the
/// remaining ops.
static constexpr int64_t leastRows = 16, leastColumns = 64;

/// The operand as a matrix; nothing if neither its rows nor its columns lie side by side.
static std::optional<LibraryOperand> matrixOf(const matmul::Operand &operand, const Dim &rowStride,
                                                      const DimShape &batch) {
  auto step = matmul::mergedStride(batch, operand.batchStrides);
  const bool rows = operand.columnStride == Dim(1);
  if (!step || (!rows && !(rowStride == Dim(1))))
    return std::nullopt;
  const Dim &leading = rows ? rowStride : operand.columnStride;
  if (leading == Dim(0)) // one row again and again
    return std::nullopt;
  return LibraryOperand{operand.input, operand.offset, leading, *step, !rows};
}

static bool takes(DType a, DType b, DType c) {
  switch (a) {
  case DType::F16:
  case DType::BF16:
    return b == a && (c == a || c == DType::F32);
  case DType::F32:
  case DType::F64:
    return b == a && c == a;
  default:
    return false;
  }
}

static bool isFewerThan(const Dim &size, int64_t least) { return size.constant().value_or(least) < least; }

static std::optional<std::string> whyNot(const matmul::Problem &problem) {
  if (!problem.prologue.empty())
    return std::string("the first operand is computed in the region");
  if (isFewerThan(problem.m, leastRows) || isFewerThan(problem.k, leastColumns))
    return std::string("few rows, or short ones");
  for (const matmul::Matmul &product : problem.matmuls) {
    const matmul::Product &op = product.op;
    if (problem.a.decode || product.b.decode)
      return std::string("a quantised operand");
    const DType a = problem.a.type, b = product.b.type, c = dtype(op.getY());
    if (!takes(a, b, c))
      return "a matmul of " + std::string(name(a)) + " and " + std::string(name(b)) + " to " +
             std::string(name(c));
    if (isFewerThan(product.n, leastColumns))
      return std::string("few columns");
  }
  return std::nullopt;
}

static SmallVector<unsigned> allOutputs(const Region &region) {
  return llvm::to_vector(llvm::seq(0u, static_cast<unsigned>(region.outputs.size())));
}

/// Outputs that a call writes, and which others are left to the remaining ops: those of one matmul, or of all
/// together.
static std::vector<SmallVector<unsigned>> placeOutputs(const Region &region, const matmul::Problem &problem,
                                                       LibraryMatmuls &split) {
  std::vector<SmallVector<unsigned>> left(problem.combined ? 1 : problem.matmuls.size());
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    const auto number = static_cast<unsigned>(index);
    auto direct = llvm::find_if(split.calls,
                                [&](MatmulCall &call) { return output == call.op.getY() && !call.output; });
    if (direct != split.calls.end()) {
      direct->output = number;
      continue;
    }
    for (auto [place, product] : llvm::enumerate(problem.matmuls))
      if (llvm::is_contained(product.outputs, number)) {
        left[problem.combined ? 0 : place].push_back(number);
        break;
      }
  }
  return left;
}

std::variant<LibraryMatmuls, std::string> splitMatmuls(const Region &region, const KernelContext &context,
                                                       const std::optional<Region> &multiplied) {
  auto analysed = matmul::analyse(multiplied ? *multiplied : region, context);
  if (auto *reason = std::get_if<std::string>(&analysed))
    return *reason;
  const matmul::Problem &problem = std::get<matmul::Problem>(analysed);
  if (auto reason = whyNot(problem))
    return *reason;
  for (auto [index, output] : llvm::enumerate(region.outputs))
    if (!context.output(static_cast<unsigned>(index), output).isContiguous())
      return std::string("a result in place in a larger buffer");
  LibraryMatmuls split;
  split.rows = {problem.m, leastRows, INT64_MAX};
  std::optional<Dim> rowStride = matmul::mergedStride(problem.rowDims, problem.rowStrides);
  if (!rowStride)
    return std::string("rows of the first operand that do not lie at regular distances");
  auto a = matrixOf(problem.a, *rowStride, problem.batch);
  SmallVector<Value> made;
  for (const matmul::Matmul &product : problem.matmuls) {
    auto b = matrixOf(product.b, product.b.rowStride, problem.batch);
    if (!a || !b)
      return std::string("an operand of which neither rows nor columns lie side by side");
    split.calls.push_back({cast<nn::MatmulOp>(product.op.op()), *a, *b, problem.m, product.n, problem.k,
                           problem.batchCount(), std::nullopt});
    made.push_back(product.op.getY());
  }
  const auto left = multiplied ? std::vector{allOutputs(region)} : placeOutputs(region, problem, split);
  for (const SmallVector<unsigned> &results : left) {
    if (results.empty())
      continue;
    auto remaining = remainingOpsOf(region, context, made, results);
    if (auto *reason = std::get_if<std::string>(&remaining))
      return "after the matmuls, " + *reason;
    split.remaining.push_back(std::get<RemainingOps>(std::move(remaining)));
  }
  return std::move(split);
}

bool remainsForAllSizes(const LibraryMatmuls &split, const KernelContext &context) {
  return llvm::all_of(split.remaining, [&](const RemainingOps &remaining) {
    KernelContext after = context;
    after.inputs = remaining.inputs;
    after.outputs = remaining.outputs;
    auto planned = remaining.schedule->plan(remaining.region, after);
    return planned && planned->alternatives(remaining.region).size() <= 1;
  });
}

} // namespace fusion
