// Tensors to and from other libraries, without a copy: DLPack's C structs, version 0.8 and later 1.x in
// layout.
#pragma once

#include "ir/base/Result.h"
#include "ir/base/Tensor.h"

#include <cstdint>

// The names and layouts are DLPack's (github.com/dmlc/dlpack); whoever includes its header first uses that
// one.
#ifndef DLPACK_DLPACK_H_
extern "C" {
struct DLDevice {
  int32_t device_type; ///< 1: host, 2: CUDA, 3: page-locked host
  int32_t device_id;
};
struct DLDataType {
  uint8_t code; ///< 0: signed, 1: unsigned, 2: float, 4: bfloat, 6: bool, 10: f8 e4m3fn, 12: f8 e5m2
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; ///< in elements; null: dense, row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(DLManagedTensor *);
};
}
#endif

namespace fusion {

/// A view for another library, which calls its `deleter` when done. The storage lives as long as the view or
/// a copy of the tensor.
DLManagedTensor *toDLPack(const Tensor &tensor);
/// Takes the view over: its deleter runs with the last copy of the tensor. Errors (the view stays the
/// caller's): not dense and row-major, an element type or a device that this library has not.
Result<Tensor> fromDLPack(DLManagedTensor *view);
/// Makes `tensor` the view's memory, with the owner that it has. The same errors; then it stays as it is.
Status fromDLPack(const DLTensor &view, Tensor &tensor);

} // namespace fusion
