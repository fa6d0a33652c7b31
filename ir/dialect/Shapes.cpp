#include "ir/dialect/Dialect.h"
#include "ir/dialect/PossibleShape.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace fusion::nn {

bool isDimsAttr(Attribute attribute) {
  auto array = llvm::dyn_cast_or_null<ArrayAttr>(attribute);
  return array && llvm::all_of(array, [](Attribute entry) {
    if (auto text = llvm::dyn_cast<StringAttr>(entry))
      return bool(Dim::parse(text.getValue()));
    auto integer = llvm::dyn_cast<IntegerAttr>(entry);
    return integer && integer.getType().isSignlessInteger(64);
  });
}

DimShape dimsFromAttr(ArrayAttr attribute) {
  DimShape dims;
  for (Attribute entry : attribute) {
    if (auto text = llvm::dyn_cast<StringAttr>(entry))
      dims.push_back(*Dim::parse(text.getValue()));
    else
      dims.push_back(llvm::cast<IntegerAttr>(entry).getInt());
  }
  return dims;
}

ArrayAttr dimsToAttr(MLIRContext *context, ArrayRef<Dim> dims) {
  Builder builder(context);
  SmallVector<Attribute> entries;
  for (const Dim &dim : dims) {
    if (auto constant = dim.constant())
      entries.push_back(builder.getI64IntegerAttr(*constant));
    else
      entries.push_back(builder.getStringAttr(dim.str()));
  }
  return builder.getArrayAttr(entries);
}

RankedTensorType typeOf(ArrayRef<Dim> shape, Type elementType) {
  SmallVector<int64_t> dims;
  for (const Dim &dim : shape)
    dims.push_back(dim.constant().value_or(ShapedType::kDynamic));
  return RankedTensorType::get(dims, elementType);
}

/// Multiplies `elements` by a dim, unless that makes a shape impossible.
static bool isPossibleDim(int64_t size, int64_t &elements) {
  constexpr int64_t mostElements = int64_t(1) << 46;
  if (size < 0 || size > mostElements || (size > 0 && elements > mostElements / size))
    return false;
  elements *= size > 0 ? size : 1;
  return true;
}

bool isPossibleShape(ArrayRef<Dim> shape) {
  int64_t elements = 1;
  return llvm::all_of(
      shape, [&](const Dim &dim) { return !dim.isStatic() || isPossibleDim(dim.value(), elements); });
}

bool isPossibleShape(RankedTensorType type) {
  int64_t elements = 1;
  return llvm::all_of(type.getShape(), [&](int64_t size) {
    return ShapedType::isDynamic(size) || isPossibleDim(size, elements);
  });
}

bool isOneOrNone(const Dim &dim) { return !dim.isStatic() && dim.knownAtMostOne(); }

LogicalResult ShapeContext::fail(const Twine &text) {
  reason = text.str();
  return failure();
}

LogicalResult ShapeContext::requireEqual(const Dim &left, const Dim &right) {
  if (left == right)
    return success();
  if (left.isStatic() && right.isStatic())
    return fail("sizes " + Twine(left.value()) + " and " + Twine(right.value()) + " differ");
  recorded.push_back({left, right});
  return success();
}

LogicalResult ShapeContext::requireBroadcast(const Dim &dim, const Dim &wide) {
  if (dim == Dim(1))
    return success();
  if (!isOneOrNone(dim))
    return requireEqual(dim, wide);
  // How a slice [-wide:] of one element says min(1, wide).
  const Dim kept = Dim(1) - Dim::max(0, Dim(1) - wide);
  return dim == kept ? success() : requireEqual(dim, Dim::min(1, wide));
}

/// Of two sizes that are equal, the other is plainer: where `seq` is laid over a buffer's `min(1024, seq)`,
/// it is `seq`.
static bool isClamped(const Dim &dim) {
  const std::string text = dim.str();
  return text.find("min(") != std::string::npos || text.find("max(") != std::string::npos;
}

FailureOr<DimShape> ShapeContext::broadcast(ArrayRef<DimShape> shapes) {
  size_t rank = 0;
  for (const DimShape &shape : shapes)
    rank = std::max(rank, shape.size());
  DimShape result(rank, Dim(1));
  for (const DimShape &shape : shapes) {
    for (size_t i = 0; i < shape.size(); ++i) {
      Dim &into = result[rank - shape.size() + i];
      const Dim &dim = shape[i];
      if (dim == Dim(1) || dim == into)
        continue;
      if (into == Dim(1)) {
        into = dim;
        continue;
      }
      const bool widens = isOneOrNone(into);
      if (failed(widens ? requireBroadcast(into, dim) : requireBroadcast(dim, into))) {
        std::string left = into.str(), right = dim.str();
        (void)fail("cannot broadcast sizes " + Twine(left) + " and " + Twine(right));
        return failure();
      }
      if (dim.isStatic() || widens || (!into.isStatic() && isClamped(into) && !isClamped(dim)))
        into = dim;
    }
  }
  return result;
}

FailureOr<int64_t> ShapeContext::axis(int64_t value, int64_t rank) {
  int64_t normalised = value < 0 ? value + rank : value;
  if (normalised < 0 || normalised >= rank) {
    (void)fail("axis " + Twine(value) + " is out of range for rank " + Twine(rank));
    return failure();
  }
  return normalised;
}

DimShape shapeFromType(Value value) {
  auto type = llvm::cast<RankedTensorType>(value.getType());
  DimShape shape;
  for (auto [index, size] : llvm::enumerate(type.getShape())) {
    if (!ShapedType::isDynamic(size))
      shape.push_back(size);
    else
      shape.push_back(Dim::symbol(
          llvm::formatv("v{0:x}_{1}", reinterpret_cast<uintptr_t>(value.getAsOpaquePointer()), index).str()));
  }
  return shape;
}

LogicalResult verifyShapes(Operation *op) {
  SmallVector<DimShape> operands;
  for (Value operand : op->getOperands())
    operands.push_back(shapeFromType(operand));
  for (OpResult result : op->getResults())
    if (!isPossibleShape(llvm::cast<RankedTensorType>(result.getType())))
      return op->emitOpError() << "result " << result.getResultNumber() << " has the impossible type "
                               << result.getType();
  ShapeContext context(op, operands);
  if (failed(llvm::cast<ShapeInference>(op).inferShapes(context)))
    return op->emitOpError() << context.error();
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    auto declared = llvm::cast<RankedTensorType>(result.getType());
    const DimShape &inferred = context.resultShapes()[index];
    auto expected = typeOf(inferred, declared.getElementType());
    if (failed(verifyCompatibleShape(expected, declared)))
      return op->emitOpError() << "result " << index << " is " << declared << " but the operands give "
                               << expected;
  }
  return success();
}

} // namespace fusion::nn
