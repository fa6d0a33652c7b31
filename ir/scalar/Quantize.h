// What nn.quantize and nn.dequantize compute for one element. Used by pointwise kernels, rows, and
// operands and epilogues of matmuls.
#pragma once

#include "ir/scalar/Graph.h"

namespace fusion::scalar {

/// x / scale, rounded to `to`: to the nearest integer, shifted by the zero point if there is one, saturated;
/// or to a float type. The division is a Graph::quotient, so that elements of one scale share it.
Value quantized(Graph &graph, DType to, Value x, Value scale, Value zero = {});

/// (q - zero point) * scale, rounded to `to`.
Value dequantized(Graph &graph, DType to, Value q, Value scale, Value zero = {});

} // namespace fusion::scalar
