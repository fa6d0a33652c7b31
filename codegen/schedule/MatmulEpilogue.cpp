// The scalar ops behind the products, and the stores.
#include "codegen/schedule/MatmulProblem.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

/// A quantisation to bytes, or a dequantisation; scales that are more than one lie in memory.
static bool isRescale(Operation *op, const Region &region, const KernelContext &context) {
  if (!isa<nn::QuantizeOp, nn::DequantizeOp>(op))
    return false;
  const DType from = dtype(op->getOperand(0)), to = dtype(op->getResult(0));
  const DType codes = isa<nn::QuantizeOp>(op) ? to : from, numbers = isa<nn::QuantizeOp>(op) ? from : to;
  if (byteSize(codes) != 1 || codes == DType::I4 || codes == DType::U4 || numbers == DType::F64)
    return false;
  return llvm::all_of(op->getOperands().drop_front(), [&](Value operand) {
    return product(context.shape(operand)) == Dim(1) || inputView(region, context, operand);
  });
}

static std::string quantizeExpression(nn::QuantizeOp op, ArrayRef<std::string> operands) {
  const DType to = dtype(op.getY());
  const std::string quotient = fmt::format("{} / {}", operands[0], operands[1]);
  if (isFloat(to))
    return rounded(to, quotient);
  const std::string zero = operands.size() == 3 ? fmt::format(" + (f32){}", operands[2]) : "";
  return fmt::format("saturate_to_int<{}>(rint_({}){})", registerType(to).str(), quotient, zero);
}

static std::string dequantizeExpression(nn::DequantizeOp op, ArrayRef<std::string> operands) {
  const std::string zero = operands.size() == 3 ? fmt::format(" - (f32){}", operands[2]) : "";
  return rounded(dtype(op.getY()), fmt::format("((f32){}{}) * {}", operands[0], zero, operands[1]));
}

std::optional<std::string> Epilogue::refuses(const Region &region, const KernelContext &context,
                                             ArrayRef<Operation *> ahead) {
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
    if (decoding.contains(other) || llvm::is_contained(ahead, other))
      continue;
    if (isa<nn::ConstantOp, nn::MatmulOp>(other) || (isScalarOp(other) && other->getNumResults() == 1) ||
        isRescale(other, region, context))
      continue;
    if (isa<nn::DynamicQuantizeOp>(other))
      return std::string("nn.dynamic_quantize needs the largest element of whole rows, of which a block has parts");
    if (!inputView(region, context, other->getResult(0)))
      return (other->getName().getStringRef() + " behind nn.matmul is no scalar op").str();
  }
  for (Operation *other : region.ops)
    if (isa<nn::ConstantOp>(other) && !constantScalar(other->getResult(0)))
      return std::string("a constant of several values inside the region");
  return std::nullopt;
}

std::string Epilogue::scale(Operation *op, Value operand) {
  if (product(context.shape(operand)) == Dim(1))
    return value(operand);
  auto found = inputView(region, context, operand);
  auto attribute = [&](StringRef name, int64_t otherwise) {
    auto number = op->getAttrOfType<IntegerAttr>(name);
    return number ? number.getInt() : otherwise;
  };
  const size_t rank = context.shape(op->getResult(0)).size();
  const int64_t axis = attribute("axis", -1), block = attribute("block_size", 0);
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
  View view = found->second;
  if (block == 0) { // an entry for each index of the axis
    const Dim size = view.shape[0], stride = view.strides[0];
    view.shape.assign(rank, Dim(1));
    view.strides.assign(rank, Dim(0));
    view.shape[at] = size;
    view.strides[at] = stride;
  }
  return input(found->first, view, at, std::max<int64_t>(block, 1));
}

std::string Epilogue::input(unsigned index, const View &view, size_t axis, int64_t block) {
  const DimShape &result = context.shape(op.getY());
  const bool hasColumn = tensorType(op.getB()).getRank() > 1;
  DimShape strides(result.size(), Dim(0));
  for (size_t fromEnd = 0; fromEnd < view.shape.size() && fromEnd < result.size(); ++fromEnd)
    if (view.shape.end()[-1 - static_cast<ptrdiff_t>(fromEnd)] != Dim(1))
      strides.end()[-1 - static_cast<ptrdiff_t>(fromEnd)] =
          view.strides.end()[-1 - static_cast<ptrdiff_t>(fromEnd)];
  SmallVector<std::string> terms{view.offset == Dim(0) ? "" : writer.size(view.offset)};
  ArrayRef<Dim> leading = result, leadingStrides = strides;
  const bool inBlocks = block > 1 && axis < result.size();
  if (hasColumn) {
    const bool divided = inBlocks && axis + 1 == result.size();
    terms.push_back(scaled(writer, divided ? fmt::format("({} / {})", column, block) : column, strides.back()));
    leading = leading.drop_back();
    leadingStrides = leadingStrides.drop_back();
  }
  const bool dividesRows = inBlocks && axis < leading.size() && !(leadingStrides[axis] == Dim(0));
  std::optional<Dim> stride = dividesRows ? std::nullopt : mergedStride(leading, leadingStrides);
  if (stride) {
    terms.push_back(scaled(writer, line, *stride));
  } else {
    SmallVector<std::string> at = writer.delinearize(line, DimShape(leading.begin(), leading.end()));
    if (dividesRows)
      at[axis] = fmt::format("({} / {})", at[axis], block);
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
      const bool rescales = isa<nn::QuantizeOp, nn::DequantizeOp>(definition);
      for (auto [number, operand] : llvm::enumerate(definition->getOperands()))
        operands.push_back(rescales && number > 0 ? scale(definition, operand) : value(operand));
      writer.comment(definition);
      name = writer.fresh("e");
      auto quantize = dyn_cast<nn::QuantizeOp>(definition);
      auto dequantize = dyn_cast<nn::DequantizeOp>(definition);
      writer.line(fmt::format("const {} {} = {};", registerType(dtype(v)).str(), name,
                              quantize     ? quantizeExpression(quantize, operands)
                              : dequantize ? dequantizeExpression(dequantize, operands)
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
