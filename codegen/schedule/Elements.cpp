#include "codegen/schedule/Elements.h"

#include "codegen/ScalarCode.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fusion {

/// Bytes of constants that a kernel carries in its text.
static constexpr int64_t mostTableBytes = 4096;

static std::optional<int64_t> numberOf(StringRef text) {
  int64_t number;
  return text.getAsInteger(10, number) ? std::nullopt : std::optional(number);
}

static DType heldType(DType type) { return registerType(type) == "f32" ? DType::F32 : type; }

std::vector<std::string> constantLiterals(nn::ConstantOp op) {
  ElementsAttr value = op.getValue();
  DType type = dtype(op.getResult());
  if (value.isSplat() && value.getNumElements() > 0)
    value = DenseElementsAttr::get(RankedTensorType::get({}, value.getElementType()),
                                   value.getSplatValue<Attribute>());
  Tensor tensor = toTensor(value);
  std::vector<std::string> texts;
  if (type == DType::F64)
    for (int64_t i = 0; i < tensor.size(); ++i)
      texts.push_back(literal(type, tensor.as<double>()[i]));
  else if (isFloat(type))
    for (float number : tensor.toFloats())
      texts.push_back(literal(DType::F32, number));
  else
    for (int64_t number : tensor.toInts())
      texts.push_back(integerLiteral(type, number));
  return texts;
}

std::optional<std::string> ElementCode::refuses(Operation *op, const KernelContext &context) {
  if (auto constant = llvm::dyn_cast<nn::ConstantOp>(op)) {
    ElementsAttr value = constant.getValue();
    if (!llvm::isa<DenseElementsAttr>(value))
      return "a constant whose elements are not in the module";
    int64_t bytes =
        value.getNumElements() * static_cast<int64_t>(byteSize(heldType(dtype(constant.getResult()))));
    if (!value.isSplat() && bytes > mostTableBytes)
      return ("a constant of " + Twine(bytes) + " bytes inside the region").str();
    return std::nullopt;
  }
  if (isScalarOp(op) ||
      llvm::isa<nn::DimConstantOp, nn::IotaOp, nn::ReshapeOp, nn::TransposeOp, nn::ExpandOp, nn::SliceOp,
                nn::ConcatOp, nn::PadOp, nn::TriluOp, nn::GatherOp, nn::GatherElementsOp, nn::GatherNdOp,
                nn::RopeOp, nn::QuantizeOp, nn::DequantizeOp>(op))
    return std::nullopt;
  return (op->getName().getStringRef() + " is not computed element by element").str();
}

const std::string *ElementCode::find(const Key &key) const {
  for (const Known &block : known)
    if (auto found = block.find(key); found != block.end())
      return &found->second;
  return nullptr;
}

std::string ElementCode::local(StringRef type, StringRef stem, const Twine &expression) {
  std::string text = expression.str();
  Key key{nullptr, (type + " " + text).str()};
  if (const std::string *name = find(key))
    return *name;
  std::string name = writer.fresh(stem);
  writer.line("const " + type + " " + name + " = " + text + ";");
  known.back()[key] = name;
  return name;
}

std::string ElementCode::add(const std::string &a, const std::string &b) {
  auto x = numberOf(a), y = numberOf(b);
  if (x && y)
    return std::to_string(*x + *y);
  if (x == 0)
    return b;
  if (y == 0)
    return a;
  return local("i64", "i", a + " + " + b);
}

std::string ElementCode::multiply(const std::string &a, const std::string &b) {
  auto x = numberOf(a), y = numberOf(b);
  if (x && y)
    return std::to_string(*x * *y);
  if (x == 0 || y == 0)
    return "0";
  if (x == 1)
    return b;
  if (y == 1)
    return a;
  return local("i64", "i", a + " * " + b);
}

std::string ElementCode::choose(StringRef type, StringRef stem, const std::string &condition,
                                llvm::function_ref<std::string()> then,
                                llvm::function_ref<std::string()> otherwise) {
  std::string name = writer.fresh(stem);
  writer.line(type + " " + name + ";");
  auto branch = [&](llvm::function_ref<std::string()> body) {
    enterBlock();
    std::string result = body();
    writer.line(name + " = " + result + ";");
    leaveBlock();
  };
  writer.line("if (" + condition + ") {");
  branch(then);
  writer.line("} else {");
  branch(otherwise);
  writer.line("}");
  return name;
}

std::string ElementCode::value(Value value, const ElementIndex &index) {
  Key key{value.getAsOpaquePointer(), llvm::join(index, ",")};
  if (const std::string *name = find(key))
    return *name;
  std::string result;
  auto input = llvm::find(region.inputs, value);
  if (input != region.inputs.end()) {
    unsigned number = static_cast<unsigned>(input - region.inputs.begin());
    result = local(registerType(dtype(value)), "x",
                   loadElement(dtype(value), writer.input(number), writer.address(context.inputs[number], index)));
  } else {
    result = compute(value.getDefiningOp(), index);
  }
  known.back()[key] = result;
  return result;
}

std::string ElementCode::broadcastOperand(Value operand, const ElementIndex &index) {
  const DimShape &shape = context.shape(operand);
  ElementIndex place(index.end() - static_cast<ptrdiff_t>(shape.size()), index.end());
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i].knownAtMostOne())
      place[i] = "0";
  return value(operand, place);
}

std::string ElementCode::scalar(Operation *op, const ElementIndex &index) {
  llvm::SmallVector<std::string> operands;
  for (Value operand : op->getOperands())
    operands.push_back(broadcastOperand(operand, index));
  writer.comment(op);
  return local(registerType(dtype(op->getResult(0))), op->getName().stripDialect(),
               scalarExpression(op, operands));
}

std::string ElementCode::constant(Operation *op, const ElementIndex &index) {
  Value result = op->getResult(0);
  DType type = dtype(result);
  const DimShape &shape = context.shape(result);
  if (auto dims = llvm::dyn_cast<nn::DimConstantOp>(op)) {
    DimShape values = nn::dimsFromAttr(dims.getValues());
    auto text = [&](const Dim &dim) {
      if (dim.isStatic())
        return integerLiteral(type, dim.value());
      std::string size = writer.size(dim);
      return type == DType::I64 ? size : ("(" + sourceType(type) + ")" + size).str();
    };
    if (values.size() == 1)
      return text(values[0]);
    std::string linear = writer.address(shape, index), chain = text(values.back());
    for (size_t i = values.size() - 1; i-- > 0;)
      chain = "(" + linear + " == " + std::to_string(i) + " ? " + text(values[i]) + " : " + chain + ")";
    writer.comment(op);
    return local(sourceType(type), "dim", chain);
  }
  std::string &table = tables[op];
  if (table.empty()) {
    std::vector<std::string> texts = constantLiterals(llvm::cast<nn::ConstantOp>(op));
    if (texts.size() == 1)
      return texts[0];
    table = writer.table(heldType(type), texts);
  }
  return local(registerType(type), "c", table + "[" + writer.address(shape, index) + "]");
}

std::string ElementCode::iota(Operation *op, const ElementIndex &index) {
  DType type = dtype(op->getResult(0));
  std::string start = value(op->getOperand(0), {}), step = value(op->getOperand(1), {});
  writer.comment(op);
  if (isFloat(type)) {
    StringRef held = registerType(type);
    return local(held, "iota", rounded(type, start + " + " + step + " * (" + held.str() + ")" + index[0]));
  }
  return local(sourceType(type), "iota",
               "(" + sourceType(type) + ")((u64)" + start + " + (u64)" + step + " * (u64)" + index[0] + ")");
}

/// Dims are paired into runs of equal product, so that most indices pass as they are.
ElementIndex ElementCode::throughReshape(Operation *op, const ElementIndex &index) {
  const DimShape &from = context.shape(op->getResult(0)), &to = context.shape(op->getOperand(0));
  ElementIndex result(to.size(), "0");
  Key key{op, llvm::join(index, ",")};
  if (const std::string *names = find(key)) {
    llvm::SmallVector<StringRef> parts;
    StringRef(*names).split(parts, ',');
    return ElementIndex(parts.begin(), parts.begin() + to.size());
  }
  size_t i = from.size(), j = to.size(); // everything behind them is paired
  while (j > 0) {
    size_t fromEnd = i, toEnd = j;
    Dim left = i > 0 ? from[--i] : Dim(1), right = to[--j];
    while (!(left == right) && (i > 0 || j > 0)) {
      if (i > 0 && right.dividedBy(left)) {
        left = left * from[--i];
      } else if (j > 0 && left.dividedBy(right)) {
        right = right * to[--j];
      } else { // not in step: one run to the front
        while (i > 0)
          left = left * from[--i];
        while (j > 0)
          right = right * to[--j];
      }
    }
    if (fromEnd - i == 1 && toEnd - j == 1) {
      result[j] = to[j] == Dim(1) ? "0" : index[i];
      continue;
    }
    DimShape source(from.begin() + i, from.begin() + fromEnd), target(to.begin() + j, to.begin() + toEnd);
    std::string linear = writer.address(source, ElementIndex(index.begin() + i, index.begin() + fromEnd));
    if (!numberOf(linear) && linear.find(' ') != std::string::npos)
      linear = local("i64", "i", linear);
    auto parts = writer.delinearize(linear, target);
    std::copy(parts.begin(), parts.end(), result.begin() + j);
  }
  known.back()[key] = llvm::join(result, ",");
  return result;
}

ElementIndex ElementCode::throughSlice(Operation *op, const ElementIndex &index) {
  auto slice = llvm::cast<nn::SliceOp>(op);
  DimShape starts = nn::dimsFromAttr(slice.getStarts());
  ElementIndex result;
  for (size_t i = 0; i < index.size(); ++i) {
    std::string walked = multiply(index[i], writer.size(Dim(slice.getSteps()[i])));
    result.push_back(starts[i] == Dim(0) ? walked : add(writer.size(starts[i]), walked));
  }
  return result;
}

std::string ElementCode::compute(Operation *op, const ElementIndex &index) {
  if (isScalarOp(op))
    return scalar(op, index);
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<nn::ConstantOp, nn::DimConstantOp>([&](auto) { return constant(op, index); })
      .Case([&](nn::IotaOp) { return iota(op, index); })
      .Case([&](nn::ReshapeOp) { return value(op->getOperand(0), throughReshape(op, index)); })
      .Case([&](nn::SliceOp) { return value(op->getOperand(0), throughSlice(op, index)); })
      .Case([&](nn::ExpandOp) { return broadcastOperand(op->getOperand(0), index); })
      .Case([&](nn::TransposeOp transpose) {
        ElementIndex from(index.size());
        for (auto [to, dim] : llvm::enumerate(transpose.getPerm()))
          from[dim] = index[to];
        return value(op->getOperand(0), from);
      })
      .Case([&](nn::ConcatOp) { return concat(op, index); })
      .Case([&](nn::PadOp) { return pad(op, index); })
      .Case([&](nn::TriluOp) { return trilu(op, index); })
      .Case([&](nn::GatherOp) { return gather(op, index); })
      .Case([&](nn::GatherElementsOp) { return gatherElements(op, index); })
      .Case([&](nn::GatherNdOp) { return gatherNd(op, index); })
      .Case([&](nn::RopeOp) { return rope(op, index); })
      .Case([&](nn::QuantizeOp) { return quantize(op, index); })
      .Case([&](nn::DequantizeOp) { return dequantize(op, index); });
}

} // namespace fusion
