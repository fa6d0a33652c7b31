#include "ir/dialect/Types.h"

#include "ir/dialect/Dialect.h"

using namespace mlir;

namespace fusion {

Type mlirType(MLIRContext *context, DType type) {
  Builder b(context);
  switch (type) {
  case DType::Bool: return b.getI1Type();
  case DType::I8: return b.getIntegerType(8);
  case DType::U8: return b.getIntegerType(8, false);
  case DType::I16: return b.getIntegerType(16);
  case DType::U16: return b.getIntegerType(16, false);
  case DType::I32: return b.getIntegerType(32);
  case DType::U32: return b.getIntegerType(32, false);
  case DType::I64: return b.getIntegerType(64);
  case DType::U64: return b.getIntegerType(64, false);
  case DType::F8E4M3: return Float8E4M3FNType::get(context);
  case DType::F8E5M2: return Float8E5M2Type::get(context);
  case DType::F16: return b.getF16Type();
  case DType::BF16: return b.getBF16Type();
  case DType::F32: return b.getF32Type();
  case DType::F64: return b.getF64Type();
  case DType::I4: return b.getIntegerType(4);
  case DType::U4: return b.getIntegerType(4, false);
  }
  llvm_unreachable("all types handled");
}

std::optional<DType> dtypeOf(Type type) {
  if (auto integer = llvm::dyn_cast<IntegerType>(type)) {
    bool isUnsigned = integer.isUnsigned();
    switch (integer.getWidth()) {
    case 1: return isUnsigned ? std::nullopt : std::optional(DType::Bool);
    case 4: return isUnsigned ? DType::U4 : DType::I4;
    case 8: return isUnsigned ? DType::U8 : DType::I8;
    case 16: return isUnsigned ? DType::U16 : DType::I16;
    case 32: return isUnsigned ? DType::U32 : DType::I32;
    case 64: return isUnsigned ? DType::U64 : DType::I64;
    default: return std::nullopt;
    }
  }
  if (llvm::isa<Float8E4M3FNType>(type)) return DType::F8E4M3;
  if (llvm::isa<Float8E5M2Type>(type)) return DType::F8E5M2;
  if (type.isF16()) return DType::F16;
  if (type.isBF16()) return DType::BF16;
  if (type.isF32()) return DType::F32;
  if (type.isF64()) return DType::F64;
  return std::nullopt;
}

DType dtype(Value value) { return *dtypeOf(elementType(value)); }

DenseElementsAttr toAttribute(MLIRContext *context, const Tensor &tensor) {
  auto type = RankedTensorType::get(tensor.shape(), mlirType(context, tensor.type()));
  if (tensor.type() == DType::Bool) {
    SmallVector<bool> values(tensor.as<uint8_t>(), tensor.as<uint8_t>() + tensor.size());
    return DenseElementsAttr::get(type, ArrayRef<bool>(values));
  }
  if (tensor.type() == DType::I4 || tensor.type() == DType::U4) {
    SmallVector<APInt> values;
    for (int64_t i = 0; i < tensor.size(); ++i)
      values.push_back(APInt(4, static_cast<uint64_t>(tensor.as<int8_t>()[i]) & 15));
    return DenseElementsAttr::get(type, values);
  }
  if (tensor.size() == 0)
    return DenseElementsAttr::get(type, ArrayRef<Attribute>{});
  return DenseElementsAttr::getFromRawBuffer(
      type, ArrayRef<char>(static_cast<const char *>(tensor.data()), tensor.bytes()));
}

Tensor toTensor(ElementsAttr attribute) {
  auto type = llvm::cast<RankedTensorType>(attribute.getType());
  DType element = *dtypeOf(type.getElementType());
  Tensor tensor = Tensor::uninitialized(element, Shape(type.getShape()));
  if (element == DType::Bool) {
    for (auto [index, value] : llvm::enumerate(attribute.getValues<bool>()))
      tensor.as<uint8_t>()[index] = value;
    return tensor;
  }
  if (element == DType::I4 || element == DType::U4) {
    for (auto [index, value] : llvm::enumerate(attribute.getValues<APInt>()))
      tensor.as<int8_t>()[index] =
          static_cast<int8_t>(element == DType::I4 ? value.getSExtValue() : value.getZExtValue());
    return tensor;
  }
  auto dense = llvm::cast<DenseElementsAttr>(attribute);
  ArrayRef<char> raw = dense.getRawData();
  if (tensor.size() == 0)
    return tensor;
  if (dense.isSplat()) {
    for (int64_t i = 0; i < tensor.size(); ++i)
      std::copy_n(raw.data(), byteSize(element), tensor.as<char>() + i * byteSize(element));
  } else {
    std::copy(raw.begin(), raw.end(), tensor.as<char>());
  }
  return tensor;
}

static std::optional<Attribute> singleElement(Value value) {
  auto constant = value.getDefiningOp<nn::ConstantOp>();
  if (!constant)
    return std::nullopt;
  auto dense = llvm::dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!dense || dense.getNumElements() == 0 || !dense.isSplat())
    return std::nullopt;
  return dense.getSplatValue<Attribute>();
}

static bool isUnsignedOrBool(IntegerAttr integer) {
  return integer.getType().isUnsignedInteger() || integer.getType().isInteger(1);
}

std::optional<double> constantScalar(Value value) {
  auto element = singleElement(value);
  if (!element)
    return std::nullopt;
  if (auto number = llvm::dyn_cast<FloatAttr>(*element))
    return number.getValueAsDouble();
  if (auto integer = llvm::dyn_cast<IntegerAttr>(*element))
    return isUnsignedOrBool(integer) ? static_cast<double>(integer.getValue().getZExtValue())
                                     : static_cast<double>(integer.getValue().getSExtValue());
  return std::nullopt;
}

std::optional<int64_t> constantInteger(Value value) {
  auto element = singleElement(value);
  auto integer = element ? llvm::dyn_cast<IntegerAttr>(*element) : IntegerAttr();
  if (!integer)
    return std::nullopt;
  return isUnsignedOrBool(integer) ? static_cast<int64_t>(integer.getValue().getZExtValue())
                                   : integer.getValue().getSExtValue();
}

std::string shownName(Operation *op) {
  if (auto group = llvm::dyn_cast<GroupOp>(op))
    return "the " + group.getPattern().str() + " group";
  return op->getName().getStringRef().str();
}

std::string locationName(Location location) {
  if (auto name = llvm::dyn_cast<NameLoc>(location))
    return name.getName().str();
  if (auto fused = llvm::dyn_cast<FusedLoc>(location))
    for (Location part : fused.getLocations())
      if (std::string name = locationName(part); !name.empty())
        return name;
  if (auto file = llvm::dyn_cast<FileLineColLoc>(location))
    return (file.getFilename().getValue() + ":" + Twine(file.getLine())).str();
  return {};
}

Location nodeLocation(MLIRContext *context, StringRef scope, StringRef node) {
  auto inner = NameLoc::get(StringAttr::get(context, node.empty() ? "unnamed" : node));
  if (scope.empty())
    return inner;
  return NameLoc::get(StringAttr::get(context, scope), inner);
}

} // namespace fusion
