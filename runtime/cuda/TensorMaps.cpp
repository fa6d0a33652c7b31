// Tensor maps as the driver encodes them.
#include "runtime/cuda/CudaBackend.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion::cuda {

/// CUtensorMapDataType; nothing for elements that a tensor map does not have.
static std::optional<int> typeNumber(DType type) {
  switch (type) {
  case DType::F16:
    return 6;
  case DType::F32:
    return 7;
  case DType::F64:
    return 8;
  case DType::BF16:
    return 9;
  case DType::I32:
    return 3;
  case DType::I64:
    return 5;
  default: // bytes, and words without a type of their own, as unsigned integers
    switch (byteSize(type)) {
    case 1:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    case 8:
      return 4;
    default:
      return std::nullopt;
    }
  }
}

Status CudaBackend::encodeTensorMap(const TensorMapArgument &map, std::span<const int64_t> extents,
                                    void *address, std::span<uint64_t, tensorMapWords> words) {
  constexpr int noInterleave = 0;
  constexpr int lastDriverToPatch = 13010; // CUDA 13.1
  constexpr int64_t smallTensor = 128 << 10;
  const size_t rank = map.box.size();
  if (std::ranges::count(extents.first(rank), 0) > 0) { // for which the driver has no descriptor
    std::ranges::fill(words, 0);
    return {};
  }
  uint64_t shape[5], strides[5];
  uint32_t box[5], elementStrides[5];
  const auto elementBytes = static_cast<int64_t>(byteSize(map.type));
  int64_t bytes = elementBytes;
  for (size_t i = 0; i < rank; ++i) {
    const size_t dim = rank - 1 - i;
    shape[i] = static_cast<uint64_t>(extents[dim]);
    bytes += (extents[dim] - 1) * extents[rank + dim] * elementBytes;
    if (i > 0)
      strides[i - 1] = static_cast<uint64_t>(extents[rank + dim] * elementBytes);
    box[i] = map.box[dim];
    elementStrides[i] = map.elementStrides.empty() ? 1 : map.elementStrides[dim];
  }
  const std::optional<int> type = typeNumber(map.type);
  if (!type)
    return badInput(fmt::format("a tensor map of {}", name(map.type)));
  session->activate();
  EncodedTensorMap encoded;
  const int code =
      driver.cuTensorMapEncodeTiled(&encoded, *type, static_cast<uint32_t>(rank), address, shape, strides,
                                    box, elementStrides, noInterleave, static_cast<int>(map.swizzle),
                                    static_cast<int>(map.l2Promotion), static_cast<int>(map.outOfBounds));
  if (code != 0)
    return driver.check(code, "encoding a tensor map");
  if (properties.driverVersion <= lastDriverToPatch && bytes < smallTensor)
    encoded.words[1] &= ~(uint64_t(1) << 21); // which these drivers set by mistake
  std::copy_n(encoded.words, tensorMapWords, words.begin());
  return {};
}

} // namespace fusion::cuda
