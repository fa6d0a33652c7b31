// MLIR element types and fusion::DType.
#pragma once

#include "ir/base/DType.h"
#include "ir/base/Tensor.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

namespace fusion {

mlir::Type mlirType(mlir::MLIRContext *context, DType type);
/// Nothing for a type that no tensor here can have.
std::optional<DType> dtypeOf(mlir::Type elementType);
inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}
inline mlir::Type elementType(mlir::Value value) { return tensorType(value).getElementType(); }
/// The element type as a DType; every verified nn value has one.
DType dtype(mlir::Value value);

/// Host tensor ↔ elements attribute (bytes copied; i1 and i4 unpacked to one byte an element).
mlir::DenseElementsAttr toAttribute(mlir::MLIRContext *context, const Tensor &tensor);
Tensor toTensor(mlir::ElementsAttr attribute);

/// The one value of a constant scalar or single-element (or splat) tensor defined by nn.constant.
std::optional<double> constantScalar(mlir::Value value);
std::optional<int64_t> constantInteger(mlir::Value value);

/// `model.layers.0.input_layernorm` of the op's location: the outermost name; empty if unknown.
std::string locationName(mlir::Location location);
/// How messages name an op: "nn.add", or "the add_norm group".
std::string shownName(mlir::Operation *op);
/// The location of a graph node: its scope (module path) outside, its own name inside.
mlir::Location nodeLocation(mlir::MLIRContext *context, llvm::StringRef scope, llvm::StringRef node);

} // namespace fusion
