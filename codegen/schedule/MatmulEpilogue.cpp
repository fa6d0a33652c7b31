// The scalar ops behind the products, and the stores.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

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

std::optional<std::string> Epilogue::refuses(const Region &region, const KernelContext &context) {
  const llvm::SmallPtrSet<Operation *, 8> decoding = decodingOps(region);
  for (Operation *other : decoding)
    for (Operation *user : other->getUsers())
      if (llvm::is_contained(region.ops, user) && !decoding.contains(user) && !isa<nn::MatmulOp>(user))
        return (other->getName().getStringRef() + " of an operand is read by " + user->getName().getStringRef() +
                " too")
            .str();
  for (Value output : region.outputs)
    if (Operation *op = output.getDefiningOp(); op && decoding.contains(op))
      return (op->getName().getStringRef() + " of an operand is a result").str();
  for (Operation *other : region.ops) {
    if (decoding.contains(other))
      continue;
    if (isa<nn::ConstantOp, nn::MatmulOp>(other) || (isScalarOp(other) && other->getNumResults() == 1) ||
        isPlainQuantize(other, context))
      continue;
    if (!inputView(region, context, other->getResult(0)))
      return (other->getName().getStringRef() + " behind nn.matmul is no scalar op").str();
  }
  for (Operation *other : region.ops)
    if (isa<nn::ConstantOp>(other) && !constantScalar(other->getResult(0)))
      return std::string("a constant of several values inside the region");
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

void Epilogue::emit(const std::string &atLine, const std::string &atColumn, ArrayRef<std::string> sums,
                    size_t first) {
  known.clear();
  line = atLine;
  column = atColumn;
  for (auto [sum, product] : llvm::zip(sums, ArrayRef(problem.products).drop_front(first))) {
    op = product.op;
    const DType type = dtype(op.getY()), operandType = dtype(op.getA());
    std::string text = sum;
    if (isFloat(type))
      text = isFloat(operandType) ? rounded(type, sum) : rounded(type, "(f32)" + sum);
    else if (!isFloat(operandType))
      text = fmt::format("({})({}){}", registerType(type).str(),
                         sumType(operandType) == "u32" ? "i32" : "i64", sum);
    else
      text = fmt::format("convert<{}>({})", registerType(type).str(), sum);
    const std::string name = writer.fresh("e");
    writer.line(fmt::format("const {} {} = {};", registerType(type).str(), name, text));
    known[op.getY()] = name;
  }
  const bool hasColumn = tensorType(op.getB()).getRank() > 1;
  const std::string at =
      hasColumn ? fmt::format("{} * {} + {}", line, writer.size(problem.products[first].n), column) : line;
  for (unsigned index : problem.products[first].outputs) {
    const Value output = region.outputs[index];
    const std::string result = value(output);
    writer.line(storeElement(dtype(output), writer.output(index), at, result) + ";");
  }
}

} // namespace fusion::matmul
