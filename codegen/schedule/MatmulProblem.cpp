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
    if (auto matmul = dyn_cast<nn::MatmulOp>(op)) {
      if (problem.op)
        return std::string("two matrix products");
      problem.op = matmul;
    }
  if (!problem.op)
    return std::string("no nn.matmul");
  auto a = inputView(region, context, problem.op.getA()), b = inputView(region, context, problem.op.getB());
  if (!a || !b)
    return std::string("an operand of nn.matmul is computed in the region");
  const DType typeA = dtype(problem.op.getA()), typeB = dtype(problem.op.getB());
  if (isFloat(typeA) != isFloat(typeB) || typeA == DType::Bool || typeB == DType::Bool ||
      (sumType(typeA) != sumType(typeB)))
    return "nn.matmul of " + std::string(name(typeA)) + " and " + std::string(name(typeB));
  if (auto reason = Epilogue::refuses(region, context, problem.op))
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
  return problem;
}

std::string scaled(KernelWriter &writer, const std::string &index, const Dim &stride) {
  if (stride == Dim(0) || index == "0")
    return "";
  return stride == Dim(1) ? index : fmt::format("{} * {}", index, writer.size(stride));
}

static std::string sumOf(ArrayRef<std::string> terms) {
  std::string sum;
  for (const std::string &term : terms)
    if (!term.empty())
      sum += sum.empty() ? term : " + " + term;
  return sum.empty() ? "0" : sum;
}

Dim blockCount(const Problem &problem, int64_t tileM, int64_t tileN) {
  return problem.m.ceilDiv(tileM) * problem.n.ceilDiv(tileN) * problem.batchCount();
}

void emitBlockPlace(KernelWriter &writer, const Problem &problem, int64_t tileM, int64_t tileN) {
  const std::string rows = writer.size(problem.m.ceilDiv(tileM)),
                    columns = writer.size(problem.n.ceilDiv(tileN));
  writer.line("// Blocks that read the same columns of B are neighbours.");
  writer.line("const i64 block = block_x();");
  writer.line(fmt::format("const i64 rowStart = block % {} * {};", rows, tileM));
  writer.line(fmt::format("const i64 columnStart = block / {} % {} * {};", rows, columns, tileN));
  if (!problem.batch.empty())
    writer.line(fmt::format("const i64 z = block / ({} * {});", rows, columns));
}

void emitBases(KernelWriter &writer, const Problem &problem) {
  SmallVector<std::string> index;
  if (!problem.batch.empty())
    index = writer.delinearize("z", problem.batch);
  auto base = [&](const Operand &operand, StringRef name) {
    SmallVector<std::string> terms{operand.offset == Dim(0) ? "" : writer.size(operand.offset)};
    for (size_t i = 0; i < index.size(); ++i)
      terms.push_back(scaled(writer, index[i], operand.batchStrides[i]));
    writer.line(fmt::format("const {} *{} = {} + {};", sourceType(operand.type).str(), name.str(),
                            writer.input(operand.input), sumOf(terms)));
  };
  base(problem.a, "a");
  base(problem.b, "b");
}

std::string rowOffset(KernelWriter &writer, const Problem &problem, const std::string &row) {
  if (std::optional<Dim> stride = mergedStride(problem.rowDims, problem.rowStrides))
    return sumOf({scaled(writer, row, *stride)});
  SmallVector<std::string> index = writer.delinearize(row, problem.rowDims), terms;
  for (size_t i = 0; i < index.size(); ++i)
    terms.push_back(scaled(writer, index[i], problem.rowStrides[i]));
  return sumOf(terms);
}

std::string resultLine(KernelWriter &writer, const Problem &problem, const std::string &row) {
  return problem.batch.empty() ? row : fmt::format("(z * {} + {})", writer.size(problem.m), row);
}

/// A quantisation with one scale for the whole tensor, to bytes.
static bool isPlainQuantize(Operation *op, const KernelContext &context) {
  auto quantize = dyn_cast<nn::QuantizeOp>(op);
  if (!quantize || byteSize(dtype(quantize.getY())) != 1 || dtype(quantize.getY()) == DType::I4 ||
      dtype(quantize.getY()) == DType::U4 || dtype(quantize.getX()) == DType::F64)
    return false;
  return llvm::all_of(op->getOperands().drop_front(),
                      [&](Value operand) { return product(context.shape(operand)) == Dim(1); });
}

static std::string quantizeExpression(nn::QuantizeOp op, ArrayRef<std::string> operands) {
  const DType to = dtype(op.getY());
  const std::string quotient = fmt::format("{} / {}", operands[0], operands[1]);
  if (isFloat(to))
    return rounded(to, quotient);
  const std::string zero = operands.size() == 3 ? fmt::format(" + (f32){}", operands[2]) : "";
  return fmt::format("saturate_to_int<{}>(rint_({}){})", registerType(to).str(), quotient, zero);
}

std::optional<std::string> Epilogue::refuses(const Region &region, const KernelContext &context,
                                             nn::MatmulOp op) {
  const DimShape &shape = context.shape(op.getY());
  for (Operation *other : region.ops) {
    if (other == op || isa<nn::ConstantOp>(other) || (isScalarOp(other) && other->getNumResults() == 1) ||
        isPlainQuantize(other, context))
      continue;
    if (!inputView(region, context, other->getResult(0)))
      return (other->getName().getStringRef() + " behind nn.matmul is no scalar op").str();
  }
  for (Operation *other : region.ops)
    if (isa<nn::ConstantOp>(other) && !constantScalar(other->getResult(0)))
      return std::string("a constant of several values inside the region");
  for (Value output : region.outputs)
    if (context.shape(output) != shape)
      return "an output of shape [" + shapeString(context.shape(output)) + "], the product has [" +
             shapeString(shape) + "]";
  return std::nullopt;
}

std::string Epilogue::input(unsigned index, const View &view) {
  const DimShape &result = context.shape(op.getY());
  const bool hasColumn = tensorType(op.getB()).getRank() > 1;
  DimShape strides(result.size(), Dim(0));
  for (size_t fromEnd = 0; fromEnd < view.shape.size() && fromEnd < result.size(); ++fromEnd)
    if (view.shape.end()[-1 - static_cast<ptrdiff_t>(fromEnd)] != Dim(1))
      strides.end()[-1 - static_cast<ptrdiff_t>(fromEnd)] =
          view.strides.end()[-1 - static_cast<ptrdiff_t>(fromEnd)];
  SmallVector<std::string> terms{view.offset == Dim(0) ? "" : writer.size(view.offset)};
  ArrayRef<Dim> leading = result, leadingStrides = strides;
  if (hasColumn) {
    terms.push_back(scaled(writer, column, strides.back()));
    leading = leading.drop_back();
    leadingStrides = leadingStrides.drop_back();
  }
  if (std::optional<Dim> stride = mergedStride(leading, leadingStrides)) {
    terms.push_back(scaled(writer, line, *stride));
  } else {
    SmallVector<std::string> at = writer.delinearize(line, DimShape(leading.begin(), leading.end()));
    for (size_t i = 0; i < at.size(); ++i)
      terms.push_back(scaled(writer, at[i], leadingStrides[i]));
  }
  const DType type = dtype(region.inputs[index]);
  const std::string name = writer.fresh("e");
  writer.line(fmt::format("const {} {} = {};", registerType(type).str(), name,
                          loadElement(type, writer.input(index), sumOf(terms))));
  return name;
}

std::string Epilogue::value(Value v) {
  if (auto found = known.find(v); found != known.end())
    return found->second;
  std::string name;
  if (auto view = inputView(region, context, v)) {
    name = input(view->first, view->second);
  } else {
    Operation *definition = v.getDefiningOp();
    if (isa<nn::ConstantOp>(definition)) {
      name = literal(dtype(v), *constantScalar(v));
    } else {
      SmallVector<std::string> operands;
      for (Value operand : definition->getOperands())
        operands.push_back(value(operand));
      writer.comment(definition);
      name = writer.fresh("e");
      auto quantize = dyn_cast<nn::QuantizeOp>(definition);
      writer.line(fmt::format("const {} {} = {};", registerType(dtype(v)).str(), name,
                              quantize ? quantizeExpression(quantize, operands)
                                       : scalarExpression(definition, operands)));
    }
  }
  known[v] = name;
  return name;
}

void Epilogue::emit(const std::string &atLine, const std::string &atColumn, const std::string &product) {
  known.clear();
  line = atLine;
  column = atColumn;
  const DType type = dtype(op.getY()), operandType = dtype(op.getA());
  std::string text = product;
  if (isFloat(type))
    text = isFloat(operandType) ? rounded(type, product) : rounded(type, "(f32)" + product);
  else if (!isFloat(operandType))
    text = fmt::format("({})({}){}", registerType(type).str(), sumType(operandType) == "u32" ? "i32" : "i64",
                       product);
  else
    text = fmt::format("convert<{}>({})", registerType(type).str(), product);
  const std::string name = writer.fresh("e");
  writer.line(fmt::format("const {} {} = {};", registerType(type).str(), name, text));
  known[op.getY()] = name;
  const bool hasColumn = tensorType(op.getB()).getRank() > 1;
  const std::string at = hasColumn ? fmt::format("{} * {} + {}", line, writer.size(problem.n), column) : line;
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    const std::string result = value(output);
    writer.line(storeElement(dtype(output), writer.output(static_cast<unsigned>(index)), at, result) + ";");
  }
}

} // namespace fusion::matmul
