// Keys and values made of codes of 8 bits with a scale for each column of a head, or of 4 bits, which
// nn.dequantize cannot say.
#pragma once

#include "ir/dialect/Dialect.h"

namespace fusion::nn {

struct ScaledCodes {
  mlir::Value codes, scale; ///< codes: of 4 bits their bytes, half as many columns
  bool packed = false;      ///< of 4 bits, two to a byte, the lower half first
  bool byHead = false, byColumn = false; ///< the dims of [batch, heads, rows, columns] that the scale has
  llvm::SmallVector<mlir::Operation *> ops; ///< in block order
};

/// Pattern: cast(cast(codes) * scale), of codes of i8 or f8 and a scale of f32, which broadcasts against
/// [batch, heads, rows, columns] and is one for the batch and all rows. The product is in f32; the outer cast
/// rounds it, and is left out where elements are f32. Codes of 4 bits are sub(cast(halves), 8), of the halves
/// of bytes of u8: reshape(concat(reshape(and(bytes, 15)), reshape(div(bytes, 16)))). Where sizes of their
/// outer dims are not static they are for the caller to compare.
std::optional<ScaledCodes> matchScaledCodes(mlir::Value elements);

} // namespace fusion::nn
