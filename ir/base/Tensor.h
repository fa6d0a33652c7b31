// A row-major tensor in host or device memory; dense unless it is a view with gaps, such as a cache with room
// to grow.
#pragma once

#include "ir/base/DType.h"
#include "ir/base/Result.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fusion {

using Shape = std::vector<int64_t>;

/// Product of the dims; 1 for a scalar, 0 if a dim is 0.
int64_t elementCount(std::span<const int64_t> shape);
/// `2x16x128`, or `scalar`.
std::string shapeString(std::span<const int64_t> shape);

struct Device {
  enum class Kind : uint8_t { Host, Cuda } kind = Kind::Host;
  int ordinal = 0;
  friend bool operator==(const Device &, const Device &) = default;
};

/// Shares its storage when copied. `data` stays valid as long as one copy lives.
class Tensor {
public:
  Tensor() = default;
  /// Fresh host memory, 64-byte aligned, zero-filled.
  static Tensor zeros(DType type, Shape shape);
  /// Fresh host memory, 64-byte aligned, contents undefined.
  static Tensor uninitialized(DType type, Shape shape);
  /// Memory with another owner; `owner` is released with the last copy (may be null).
  static Tensor wrap(DType type, Shape shape, void *data, std::shared_ptr<void> owner, Device device = {});
  /// The same with gaps: element (i0, i1, …) is Σ ij * strides[j] elements after `data`.
  static Tensor wrapStrided(DType type, Shape shape, Shape strides, void *data, std::shared_ptr<void> owner,
                            Device device = {});
  /// Becomes what wrap() makes with the owner that it has: nothing is allocated or counted.
  void rewrap(DType type, std::span<const int64_t> shape, void *data, Device device);
  template <class T>
  static Tensor of(DType type, Shape shape, std::span<const T> values); // bytes are copied as they are

  DType type() const { return dtype; }
  const Shape &shape() const { return dims; }
  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t size() const { return elementCount(dims); }
  size_t bytes() const { return static_cast<size_t>(size()) * byteSize(dtype); }
  Device device() const { return place; }
  /// In elements; empty for a dense tensor.
  const Shape &strides() const { return gaps; }
  bool isDense() const { return gaps.empty(); }
  /// The same elements without gaps: itself, or a copy. Host tensors only.
  Tensor dense() const;
  /// The memory as runs without gaps, `pitch` bytes apart. Nothing if the gaps are not regular.
  struct Rows {
    size_t count = 0, bytes = 0, pitch = 0;
  };
  std::optional<Rows> rows() const;
  /// Keeps the memory alive.
  const std::shared_ptr<void> &storage() const { return memory; }
  void *data() { return memory.get(); }
  const void *data() const { return memory.get(); }
  template <class T>
  T *as() {
    return static_cast<T *>(data());
  }
  template <class T>
  const T *as() const {
    return static_cast<const T *>(data());
  }

  /// The same storage under another shape of the same element count. Dense tensors only.
  Tensor reshaped(Shape shape) const;
  Tensor clone() const;                 ///< host tensors only
  Tensor convertedTo(DType type) const; ///< host tensors only; same storage if the type is the same
  /// Host tensors only: all elements as f32 or i64 (integers exactly).
  std::vector<float> toFloats() const;
  std::vector<int64_t> toInts() const;

  friend void swap(Tensor &a, Tensor &b) noexcept {
    std::swap(a.dtype, b.dtype);
    a.dims.swap(b.dims);
    a.gaps.swap(b.gaps);
    a.memory.swap(b.memory);
    std::swap(a.place, b.place);
  }

private:
  DType dtype = DType::F32;
  Shape dims, gaps;
  std::shared_ptr<void> memory;
  Device place;
};

template <class T>
Tensor Tensor::of(DType type, Shape shape, std::span<const T> values) {
  Tensor tensor = uninitialized(type, std::move(shape));
  assert(values.size_bytes() == tensor.bytes());
  std::copy(values.begin(), values.end(), tensor.as<T>());
  return tensor;
}

/// How far `actual` is from `expected`; NaN-safe: an unexpected NaN makes both infinite.
struct Difference {
  double maxAbs = 0;     ///< largest |a - e|
  double relativeL2 = 0; ///< ‖a - e‖ / ‖e‖ (‖a‖ when ‖e‖ is 0)
  int64_t worstIndex = -1;
};
Result<Difference> compare(const Tensor &actual, const Tensor &expected);

} // namespace fusion
