// Values of the file as values of the module: initialisers, known integers, symbolic shapes.
#include "ir/import/FloatSizes.h"
#include "ir/import/Graph.h"
#include "ir/import/SmallFloats.h"

#include "ir/reference/Reference.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Integer contents are looked into up to this many elements, and copied into the module up to `mostInline`.
constexpr int64_t mostKnown = 1024, mostInline = 65536, alwaysInline = 16;
/// Ops on constants are evaluated this far back.
constexpr int deepestFolding = 16;
/// Triangles of fewer rows stay constants.
constexpr int64_t smallestTriangle = 8;

bool isIndexType(DType type) { return type == DType::I64 || type == DType::I32 || type == DType::Bool; }

bool writeInline(const TensorInfo &info) {
  if (!info.place)
    return true;
  if (info.elements() <= alwaysInline)
    return true;
  return !info.external && isIndexType(info.type) && info.elements() <= mostInline;
}

} // namespace

std::string GraphValue::whyNoTensor() const {
  return isEmptyOptional ? "an optional that holds nothing" : sequence ? "a sequence of tensors" : "";
}

GraphValue *Scope::find(llvm::StringRef name) const {
  for (const Scope *scope = this; scope; scope = scope->parent)
    if (auto found = scope->values.find(name); found != scope->values.end())
      return found->second;
  return nullptr;
}

GraphValue *GraphImporter::newValue(std::string name) {
  storage.emplace_back();
  storage.back().name = std::move(name);
  return &storage.back();
}

Status GraphImporter::define(const std::string &name, GraphValue *value) {
  if (!current->values.try_emplace(name, value).second)
    return badInput(fmt::format("the name '{}' is defined twice", name));
  return {};
}

Result<GraphValue *> GraphImporter::fromTensor(const proto::TensorProto &tensor, std::string name) {
  auto info = tensors.describe(tensor);
  if (!info)
    return info.error();
  GraphValue *value = newValue(std::move(name));
  value->tensor = &tensor;
  value->element = mlirType(builder.getContext(), decodedType(info->type, info->code));
  value->shape = DimShape(info->shape.begin(), info->shape.end());
  value->info = std::move(*info);
  return value;
}

Result<const DimShape *> GraphImporter::known(GraphValue &value) {
  if (value.known)
    return &*value.known;
  if (value.value && llvm::isa<IntegerType>(value.element))
    if (auto contents = computed(value.value)) {
      std::vector<int64_t> integers = contents->toInts();
      value.known = DimShape(integers.begin(), integers.end());
      return &*value.known;
    }
  if (value.value && llvm::isa<IntegerType>(value.element) && !value.element.isInteger(1))
    if (auto sizes = sizesThroughFloats(value.value)) {
      value.known = std::move(*sizes);
      return &*value.known;
    }
  if (!value.tensor || value.info.code != FloatCode::None ||
      !(isInteger(value.info.type) || value.info.type == DType::Bool) || value.info.elements() > mostKnown)
    return static_cast<const DimShape *>(nullptr);
  auto contents = tensors.load(*value.tensor, value.info);
  if (!contents)
    return contents.error();
  std::vector<int64_t> integers = contents->toInts();
  value.known = DimShape(integers.begin(), integers.end());
  return &*value.known;
}

std::optional<Tensor> GraphImporter::computed(Value value) {
  Attribute contents = foldedConstant(value, deepestFolding);
  auto elements = llvm::dyn_cast_or_null<ElementsAttr>(contents);
  if (!elements)
    return std::nullopt;
  return toTensor(elements);
}

Attribute GraphImporter::foldedConstant(Value value, int depth) {
  auto type = llvm::dyn_cast<RankedTensorType>(value.getType());
  Operation *op = value.getDefiningOp();
  if (!op || !type || !type.hasStaticShape() || type.getNumElements() > mostKnown ||
      notConstant.contains(value))
    return {};
  if (auto constant = llvm::dyn_cast<nn::ConstantOp>(op))
    return constant.getValue();
  Attribute result;
  if (depth > 0 && op->getNumResults() == 1 && op->getNumOperands() > 0) {
    SmallVector<Attribute> operands;
    for (Value operand : op->getOperands())
      operands.push_back(foldedConstant(operand, depth - 1));
    if (llvm::all_of(operands, [](Attribute attribute) { return bool(attribute); })) {
      IRMapping mapping;
      SmallVector<Operation *> made;
      for (auto [operand, contents] : llvm::zip(op->getOperands(), operands))
        if (!mapping.contains(operand)) {
          Value constant = nn::buildConstant(builder, op->getLoc(), llvm::cast<ElementsAttr>(contents));
          mapping.map(operand, constant);
          made.push_back(constant.getDefiningOp());
        }
      made.push_back(builder.clone(*op, mapping));
      if (auto values = foldWithReference(made.back(), mostKnown))
        result = values->front();
      for (Operation *each : llvm::reverse(made))
        each->erase();
    }
  }
  if (!result)
    notConstant.insert(value);
  return result;
}

Result<Value> GraphImporter::materialise(GraphValue &value, Location location) {
  if (value.value)
    return value.value;
  if (std::string what = value.whyNoTensor(); !what.empty())
    return badInput(fmt::format("'{}' is {}, and a tensor is needed here", value.name, what));
  OpBuilder::InsertionGuard guard(builder);
  if (outermost)
    builder.restoreInsertionPoint(*outermost);
  if (value.tensor) {
    Location named =
        value.name.empty() ? location : Location(NameLoc::get(builder.getStringAttr(value.name)));
    auto mask = triangle(value, named);
    if (!mask)
      return mask.error();
    if (*mask) {
      value.value = *mask;
    } else if (writeInline(value.info)) {
      auto contents = tensors.load(*value.tensor, value.info);
      if (!contents)
        return contents.error();
      value.value = nn::buildConstant(builder, named, toAttribute(builder.getContext(), *contents));
    } else {
      Shape shape = value.info.shape;
      value.value = nn::WeightOp::create(
          builder, named, RankedTensorType::get(shape, mlirType(builder.getContext(), value.info.type)),
          value.name, value.info.place->path, static_cast<int64_t>(value.info.place->offset),
          static_cast<int64_t>(value.info.place->length));
    }
    value.value = decodedFloats(builder, named, value.value, value.info.code);
  } else {
    assert(value.known && "a value is built, an initialiser or known");
    std::vector<int64_t> shape;
    for (const Dim &dim : value.shape)
      shape.push_back(dim.value());
    value.value = buildKnown(*value.known, shape, value.element, location);
  }
  setShape(value.value, value.shape);
  return value.value;
}

Result<Value> GraphImporter::triangle(const GraphValue &value, Location location) {
  const Shape &shape = value.info.shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const bool isMask = value.info.type == DType::Bool || value.info.type == DType::U8;
  if (!isMask || value.info.code != FloatCode::None || rank < 2 || shape[rank - 1] < smallestTriangle ||
      shape[rank - 1] != shape[rank - 2] || value.info.elements() != shape[rank - 1] * shape[rank - 1])
    return Value();
  auto contents = tensors.load(*value.tensor, value.info);
  if (!contents)
    return contents.error();
  const int64_t size = shape[rank - 1];
  const auto *bytes = contents->as<uint8_t>();
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column < size; ++column)
      if (bytes[row * size + column] != (column <= row ? 1 : 0))
        return Value();
  Type index = builder.getI64Type();
  auto size64 = builder.getNamedAttr("size", nn::dimsToAttr(builder.getContext(), DimShape{Dim(size)}));
  Value zero = nn::buildScalar(builder, location, index, 0),
        one = nn::buildScalar(builder, location, index, 1);
  Value columns = nn::build<nn::IotaOp>(builder, location, ValueRange{zero, one}, size64);
  Value rows = nn::buildReshape(builder, location, columns, {Dim(size), Dim(1)});
  Value mask = nn::build<nn::LessEqualOp>(builder, location, ValueRange{columns, rows});
  if (value.info.type == DType::U8)
    mask = nn::build<nn::CastOp>(builder, location, mask, {}, value.element);
  return nn::buildReshape(builder, location, mask, value.shape);
}

Value GraphImporter::buildKnown(ArrayRef<Dim> values, ArrayRef<int64_t> shape, Type element,
                                Location location) {
  auto type = RankedTensorType::get(shape, element);
  Value result;
  if (llvm::all_of(values, [](const Dim &dim) { return dim.isStatic(); })) {
    SmallVector<APInt> integers;
    for (const Dim &dim : values)
      integers.push_back(APInt(element.getIntOrFloatBitWidth(), static_cast<uint64_t>(dim.value()),
                               /*isSigned=*/false, /*implicitTrunc=*/true));
    result = nn::buildConstant(builder, location, DenseElementsAttr::get(type, integers));
  } else {
    result = nn::DimConstantOp::create(builder, location, type, nn::dimsToAttr(builder.getContext(), values));
  }
  setShape(result, DimShape(shape.begin(), shape.end()));
  return result;
}

const DimShape &GraphImporter::shapeOf(Value value) const {
  static const DimShape none;
  auto found = shapes.find(value);
  return found == shapes.end() ? none : found->second;
}

void GraphImporter::learn(const Dim &left, const Dim &right) {
  if (!dataRows.mayEqual(left, right))
    return;
  Dim difference = resolve(left - right);
  // Solve for a symbol that occurs once, with coefficient 1 or -1: one that stands for an expression, or the
  // last by name, so that `batch` stays.
  std::set<std::string> names = difference.symbols();
  std::vector<std::string> symbols(names.rbegin(), names.rend());
  std::stable_partition(symbols.begin(), symbols.end(),
                        [&](const std::string &name) { return inputs.isFree(name); });
  for (auto symbol = symbols.begin(); symbol != symbols.end(); ++symbol) {
    Dim rest = difference.substitute({{*symbol, Dim(0)}});
    Dim coefficient = difference.substitute({{*symbol, Dim(1)}}) - rest;
    if (!(coefficient == Dim(1)) && !(coefficient == Dim(-1)))
      continue;
    if (!(rest + coefficient * Dim::symbol(*symbol) == difference))
      continue;
    Dim solution = Dim(0) - coefficient * rest;
    for (auto &[name, replacement] : replacements)
      replacement = replacement.substitute({{*symbol, solution}});
    replacements.insert_or_assign(*symbol, solution);
    return;
  }
}

std::string GraphImporter::verifyText(Operation *op) {
  std::string text;
  ScopedDiagnosticHandler handler(op->getContext(), [&](Diagnostic &diagnostic) {
    if (text.empty())
      text = diagnostic.str();
    return success();
  });
  if (succeeded(mlir::verify(op)))
    return {};
  return text.empty() ? "the op does not verify" : text;
}

} // namespace fusion::onnx
