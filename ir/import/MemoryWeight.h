// Weights that the caller has in memory.
#pragma once

#include "ir/base/MappedFile.h"
#include "ir/base/Tensor.h"

#include <memory>

namespace fusion::onnx {

/// The contents of an initialiser.
struct MemoryWeight {
  DType type = DType::F32;
  Shape shape;
  std::shared_ptr<MappedFile> bytes; ///< row-major; 4-bit elements two a byte
};

} // namespace fusion::onnx
