// What pointwise ops compute for one element.
#pragma once

#include "ir/dialect/Dialect.h"
#include "ir/scalar/Graph.h"

#include "ir/dialect/ScalarFormula.h.inc"

namespace fusion::nn {

/// Whether the op works on single elements of its first operand and the others are scale and zero point, of
/// which one is for many elements: nn.quantize and nn.dequantize.
inline bool isRescale(mlir::Operation *op) {
  return llvm::isa<ScalarFormula>(op) && !op->hasTrait<Pointwise>();
}

/// Gives the ops of the dialect their formulas; the dialect calls it once for a context.
void attachFormulas(mlir::MLIRContext &context);

} // namespace fusion::nn
