// Blocked matrix products in f32 on the host. No MLIR. Private to ir/reference.
#pragma once

#include "ir/base/DType.h"

#include <cstdint>
#include <span>

namespace fusion::reference {

/// Element (i, j) lies at `data` + (i * rowStride + j * columnStride) elements; one of the strides is 1.
struct MatrixView {
  const void *data;
  DType type;
  int64_t rowStride, columnStride;
};

/// target (rows × columns, row-major, dense) = a (rows × inner) · b (inner × columns).
struct GemmProblem {
  MatrixView a, b;
  int64_t rows, columns, inner;
  void *target;
  DType targetType;
};

/// The products have one shape. Floats of any width up to f32 with f32 accumulation and one rounding to the
/// target's type, or integers of one byte, summed exactly and wrapped to the target's type. Uses all threads.
void multiply(std::span<const GemmProblem> products);
/// The same on the calling thread.
void multiplySequentially(const GemmProblem &product);

} // namespace fusion::reference
