// DLPack's structs (github.com/dmlc/dlpack): those without a version, and the table of functions of
// version 1.
#pragma once

#include <cstdint>

extern "C" {
struct DLDevice {
  int32_t device_type, device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(DLManagedTensor *);
};

struct DLPackVersion {
  uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(DLManagedTensorVersioned *);
  uint64_t flags;
  DLTensor dl_tensor;
};
struct DLPackExchangeAPI {
  DLPackVersion version;
  DLPackExchangeAPI *prev_api;
  int (*managed_tensor_allocator)(DLTensor *, DLManagedTensorVersioned **, void *,
                                  void (*)(void *, const char *, const char *));
  int (*managed_tensor_from_py_object_no_sync)(void *, DLManagedTensorVersioned **);
  int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *, void **);
  int (*dltensor_from_py_object_no_sync)(void *, DLTensor *); // may be null
  int (*current_work_stream)(int32_t, int32_t, void **);
};
}
