#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

std::optional<std::pair<unsigned, View>> inputView(const Region &region, const KernelContext &context,
                                                   Value value) {
  for (auto [index, input] : llvm::enumerate(region.inputs))
    if (input == value)
      return std::pair(static_cast<unsigned>(index), context.inputs[index]);
  Operation *op = value.getDefiningOp();
  if (!op || !isa<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::ExpandOp>(op))
    return std::nullopt;
  auto source = inputView(region, context, op->getOperand(0));
  if (!source)
    return std::nullopt;
  std::optional<View> view = viewThrough(op, source->second, context.shapes);
  if (!view)
    return std::nullopt;
  return std::pair(source->first, std::move(*view));
}

std::optional<Dim> mergedStride(ArrayRef<Dim> shape, ArrayRef<Dim> strides) {
  std::optional<Dim> stride, next; // the innermost, and what the dim further out must have
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == Dim(1))
      continue;
    if (stride && strides[i] != *next)
      return std::nullopt;
    if (!stride)
      stride = strides[i];
    next = strides[i] * shape[i];
  }
  return stride ? *stride : Dim(0);
}

std::string sumType(DType operand) {
  if (operand == DType::F64)
    return "f64";
  if (isFloat(operand))
    return "f32";
  return byteSize(operand) == 1 ? "u32" : "u64";
}

/// The operand as [batch…, rows, columns]: rank 1 gets its missing dim, `transpose` swaps the last two.
static Operand makeOperand(unsigned input, DType type, View view, bool transpose, bool columnIfVector,
                           const DimShape &batch, Dim &rows, Dim &columns) {
  if (view.shape.size() == 1) {
    const size_t place = columnIfVector ? 1 : 0;
    view.shape.insert(view.shape.begin() + static_cast<ptrdiff_t>(place), Dim(1));
    view.strides.insert(view.strides.begin() + static_cast<ptrdiff_t>(place), Dim(0));
  } else if (transpose) {
    std::swap(view.shape.end()[-1], view.shape.end()[-2]);
    std::swap(view.strides.end()[-1], view.strides.end()[-2]);
  }
  Operand operand;
  operand.input = input;
  operand.type = type;
  operand.offset = view.offset;
  rows = view.shape.end()[-2];
  columns = view.shape.end()[-1];
  operand.rowStride = view.strides.end()[-2];
  operand.columnStride = view.strides.end()[-1];
  operand.batchStrides.assign(batch.size(), Dim(0));
  const size_t leading = view.shape.size() - 2;
  for (size_t i = 0; i < leading; ++i)
    if (view.shape[i] != Dim(1))
      operand.batchStrides[batch.size() - leading + i] = view.strides[i];
  return operand;
}

std::variant<Problem, std::string> analyse(const Region &region, const KernelContext &context) {
  Problem problem;
  for (Operation *op : region.ops)
    if (auto matmul = dyn_cast<nn::MatmulOp>(op))
      problem.products.push_back({matmul, {}, 1, {}});
  if (problem.products.empty())
    return std::string("no nn.matmul");
  problem.op = problem.products.front().op;
  auto a = inputView(region, context, problem.op.getA()), b = inputView(region, context, problem.op.getB());
  if (!a || !b)
    return std::string("an operand of nn.matmul is computed in the region");
  const DType typeA = dtype(problem.op.getA()), typeB = dtype(problem.op.getB());
  if (isFloat(typeA) != isFloat(typeB) || typeA == DType::Bool || typeB == DType::Bool ||
      (sumType(typeA) != sumType(typeB)))
    return "nn.matmul of " + std::string(name(typeA)) + " and " + std::string(name(typeB));
  if (auto reason = Epilogue::refuses(region, context))
    return *reason;

  const DimShape &result = context.shape(problem.op.getY());
  const size_t own = (a->second.shape.size() > 1 ? 1u : 0u) + (b->second.shape.size() > 1 ? 1u : 0u);
  problem.batch.assign(result.begin(), result.end() - static_cast<ptrdiff_t>(own));
  Dim kOfB = 0;
  problem.a = makeOperand(a->first, typeA, a->second, problem.op.getTransposeA(), false, problem.batch,
                          problem.m, problem.k);
  problem.b = makeOperand(b->first, typeB, b->second, problem.op.getTransposeB(), true, problem.batch, kOfB,
                          problem.n);
  problem.rowDims = {problem.m};
  problem.rowStrides = {problem.a.rowStride};
  if (!problem.batch.empty() &&
      llvm::all_of(problem.b.batchStrides, [](const Dim &stride) { return stride == Dim(0); })) {
    problem.folded = true;
    problem.rowDims = problem.batch;
    problem.rowDims.push_back(problem.m);
    problem.rowStrides = problem.a.batchStrides;
    problem.rowStrides.push_back(problem.a.rowStride);
    problem.m = product(problem.rowDims);
    problem.batch.clear();
    problem.a.batchStrides.clear();
    problem.b.batchStrides.clear();
  }
  problem.products.front().b = problem.b;
  problem.products.front().n = problem.n;
  for (Product &product : llvm::drop_begin(problem.products)) {
    auto view = inputView(region, context, product.op.getB());
    if (!view)
      return std::string("an operand of nn.matmul is computed in the region");
    if (tensorType(product.op.getB()).getRank() != 2 || tensorType(problem.op.getB()).getRank() != 2)
      return std::string("several products, and a second operand that is no matrix");
    product.b = makeOperand(view->first, dtype(product.op.getB()), view->second, product.op.getTransposeB(),
                            true, problem.batch, kOfB, product.n);
  }
  if (auto reason = arrangeProducts(region, context, problem))
    return *reason;
  if (std::optional<int64_t> rows = problem.m.constant()) {
    problem.leastRows = problem.mostRows = *rows;
  } else if (context.range && context.range->size == problem.m) {
    problem.leastRows = context.range->least;
    problem.mostRows = context.range->most;
  }
  return problem;
}

std::string scaled(KernelWriter &writer, const std::string &index, const Dim &stride) {
  if (stride == Dim(0) || index == "0")
    return "";
  return stride == Dim(1) ? index : fmt::format("{} * {}", index, writer.size(stride));
}

std::string sumOf(ArrayRef<std::string> terms) {
  std::string sum;
  for (const std::string &term : terms)
    if (!term.empty())
      sum += sum.empty() ? term : " + " + term;
  return sum.empty() ? "0" : sum;
}

Dim blockCount(const Problem &problem, int64_t tileM, int64_t tileN) {
  return problem.m.ceilDiv(tileM) * columnBlocks(problem, tileN) * problem.batchCount();
}

void emitBlockPlace(KernelWriter &writer, const Problem &problem, int64_t tileM, int64_t tileN) {
  const std::string rows = writer.size(problem.m.ceilDiv(tileM)),
                    columns = writer.size(problem.n.ceilDiv(tileN));
  writer.line("// Blocks that read the same columns of B are neighbours.");
  writer.line("const i64 block = block_x();");
  writer.line(fmt::format("const i64 rowStart = block % {} * {};", rows, tileM));
  if (problem.sideBySide()) {
    emitProductChoice(writer, problem, fmt::format("block / {}", rows), tileN);
    writer.line(fmt::format("const i64 columnStart = part * {};", tileN));
  } else {
    writer.line(fmt::format("const i64 columnStart = block / {} % {} * {};", rows, columns, tileN));
  }
  if (!problem.batch.empty())
    writer.line(fmt::format("const i64 z = block / ({} * {});", rows, columns));
}

void emitBases(KernelWriter &writer, const Problem &problem) {
  SmallVector<std::string> index;
  if (!problem.batch.empty())
    index = writer.delinearize("z", problem.batch);
  auto start = [&](const Operand &operand) {
    SmallVector<std::string> terms{operand.offset == Dim(0) ? "" : writer.size(operand.offset)};
    for (size_t i = 0; i < index.size(); ++i)
      terms.push_back(scaled(writer, index[i], operand.batchStrides[i]));
    return fmt::format("{} + {}", writer.input(operand.input), sumOf(terms));
  };
  auto declare = [&](const Operand &operand, const std::string &name, const std::string &value) {
    writer.line(fmt::format("const {} *{} = {};", sourceType(operand.type).str(), name, value));
  };
  declare(problem.a, "a", start(problem.a));
  if (!problem.sideBySide()) {
    for (auto [index, product] : llvm::enumerate(problem.products))
      declare(product.b, numbered("b", index), start(product.b));
    return;
  }
  SmallVector<std::string> starts;
  for (const Product &product : problem.products)
    starts.push_back(start(product.b));
  declare(problem.b, "b", chosen(starts));
}

std::string rowOffset(KernelWriter &writer, const Problem &problem, const std::string &row) {
  if (std::optional<Dim> stride = mergedStride(problem.rowDims, problem.rowStrides))
    return sumOf({scaled(writer, row, *stride)});
  SmallVector<std::string> index = writer.delinearize(row, problem.rowDims), terms;
  for (size_t i = 0; i < index.size(); ++i)
    terms.push_back(scaled(writer, index[i], problem.rowStrides[i]));
  return sumOf(terms);
}

void emitRows(KernelWriter &writer, const Problem &problem) {
  for (int64_t i = 0; i < problem.mostRows; ++i) {
    std::string row = std::to_string(i);
    if (i >= problem.leastRows) {
      writer.line(fmt::format("const i64 line{0} = {0} < {1} ? {0} : {1} - 1;", i, writer.size(problem.m)));
      row = fmt::format("line{}", i);
    }
    writer.line(fmt::format("const {} *row{} = a + {};", sourceType(problem.a.type).str(), i,
                            rowOffset(writer, problem, row)));
  }
}

std::string resultLine(KernelWriter &writer, const Problem &problem, const std::string &row) {
  return problem.batch.empty() ? row : fmt::format("(z * {} + {})", writer.size(problem.m), row);
}

} // namespace fusion::matmul
