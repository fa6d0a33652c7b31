// Elementwise evaluation in chunks: operands are read through their broadcast into wide buffers, a kernel
// runs over them, and the result is rounded into place. Private to ir/reference.
#pragma once

#include "ir/base/Parallel.h"
#include "ir/reference/Support.h"

namespace fusion::reference {

inline constexpr int64_t chunkSize = 1024;

/// A tensor read as if it had a larger shape, as elements of type T.
template <class T>
class BroadcastReader {
public:
  /// The tensor must broadcast to `shape` and outlive the reader.
  BroadcastReader(const Tensor &tensor, const Shape &shape)
      : tensor(tensor), dense(tensor.size() == elementCount(shape)),
        view(shape, broadcastStrides(tensor.shape(), shape)) {}

  /// Elements [begin, begin + count), count <= chunkSize: in `buffer`, or in place where that is possible.
  const T *read(int64_t begin, int64_t count, T *buffer) const {
    size_t bytes = byteSize(tensor.type());
    if (dense) {
      if (tensor.type() == dtypeOfCpp<T>)
        return tensor.as<T>() + begin;
      loadElements(tensor, begin, count, buffer);
      return buffer;
    }
    if (tensor.type() == dtypeOfCpp<T>) {
      view.copy(tensor.data(), bytes, begin, count, buffer);
      return buffer;
    }
    alignas(64) char raw[chunkSize * sizeof(int64_t)];
    view.copy(tensor.data(), bytes, begin, count, raw);
    convert(tensor.type(), raw, dtypeOfCpp<T>, buffer, static_cast<size_t>(count));
    return buffer;
  }

private:
  const Tensor &tensor;
  bool dense;
  StridedView view;
};

/// Runs body(begin, count) over chunks of [0, size), in parallel.
template <class Body>
void forChunks(int64_t size, Body body) {
  parallelFor(size, 8 * chunkSize, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += chunkSize)
      body(at, std::min(chunkSize, end - at));
  });
}

/// The result of kernel(const T *, Out *, count) on every chunk; Out is T, or bool for conditions.
template <class T, class Out, class Kernel>
Tensor mapUnary(const Tensor &x, DType resultType, Kernel kernel) {
  Tensor result = Tensor::uninitialized(resultType, x.shape());
  BroadcastReader<T> reader(x, x.shape());
  forChunks(x.size(), [&](int64_t begin, int64_t count) {
    alignas(64) T input[chunkSize];
    alignas(64) Out output[chunkSize];
    kernel(reader.read(begin, count, input), output, count);
    if constexpr (std::is_same_v<Out, bool>)
      std::copy_n(output, count, result.as<bool>() + begin);
    else
      storeElements(result, begin, count, output);
  });
  return result;
}

/// The same for kernel(const T *, const T *, Out *, count), with broadcasting to `shape`.
template <class T, class Out, class Kernel>
Tensor mapBinary(const Tensor &lhs, const Tensor &rhs, const Shape &shape, DType resultType, Kernel kernel) {
  Tensor result = Tensor::uninitialized(resultType, shape);
  BroadcastReader<T> left(lhs, shape), right(rhs, shape);
  forChunks(result.size(), [&](int64_t begin, int64_t count) {
    alignas(64) T leftBuffer[chunkSize], rightBuffer[chunkSize];
    alignas(64) Out output[chunkSize];
    kernel(left.read(begin, count, leftBuffer), right.read(begin, count, rightBuffer), output, count);
    if constexpr (std::is_same_v<Out, bool>)
      std::copy_n(output, count, result.as<bool>() + begin);
    else
      storeElements(result, begin, count, output);
  });
  return result;
}

} // namespace fusion::reference
