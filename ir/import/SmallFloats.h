// Floats of 4 bits and powers of two, which files hold and no op computes with, decoded by ops.
#pragma once

#include "ir/import/TensorData.h"

#include "mlir/IR/Builders.h"

namespace fusion::onnx {

/// The narrowest type with all values of `code`; `stored` where there is none.
DType decodedType(DType stored, FloatCode code);
/// The values of codes, of `decodedType`; the codes themselves where there is no code.
mlir::Value decodedFloats(mlir::OpBuilder &builder, mlir::Location location, mlir::Value codes,
                          FloatCode code);

} // namespace fusion::onnx
