#include "ir/base/Tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <new>
#include <unistd.h>

namespace fusion {

int64_t elementCount(std::span<const int64_t> shape) {
  uint64_t count = 1; // which may wrap: the size of no tensor that there is
  for (int64_t dim : shape)
    count *= static_cast<uint64_t>(dim);
  return static_cast<int64_t>(count);
}

std::string shapeString(std::span<const int64_t> shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

/// Whether so many bytes can be counted.
static bool isCountable(DType type, const Shape &shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    return true;
  int64_t bytes = static_cast<int64_t>(byteSize(type));
  for (int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes))
      return false;
  return true;
}

Tensor Tensor::uninitialized(DType type, Shape shape) {
  constexpr std::align_val_t alignment{64};
  Tensor tensor;
  tensor.dtype = type;
  tensor.dims = std::move(shape);
  // More than the machine has would be found out only when the system ends the process.
  static const size_t memory =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (!isCountable(type, tensor.dims) || tensor.bytes() > memory)
    throw std::bad_alloc();
  // A tensor without elements still has a unique, valid address.
  void *fresh = ::operator new(std::max<size_t>(tensor.bytes(), 64), alignment);
  tensor.memory = std::shared_ptr<void>(fresh, [](void *pointer) { ::operator delete(pointer, alignment); });
  return tensor;
}

Tensor Tensor::zeros(DType type, Shape shape) {
  Tensor tensor = uninitialized(type, std::move(shape));
  std::memset(tensor.data(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::wrap(DType type, Shape shape, void *data, std::shared_ptr<void> owner, Device device) {
  Tensor tensor;
  tensor.dtype = type;
  tensor.dims = std::move(shape);
  tensor.memory = std::shared_ptr<void>(std::move(owner), data);
  tensor.place = device;
  return tensor;
}

void Tensor::rewrap(DType type, std::span<const int64_t> shape, void *data, Device device) {
  dtype = type;
  dims.assign(shape.begin(), shape.end());
  gaps.clear();
  memory = std::shared_ptr<void>(std::move(memory), data);
  place = device;
}

Tensor Tensor::wrapStrided(DType type, Shape shape, Shape strides, void *data, std::shared_ptr<void> owner,
                           Device device) {
  assert(strides.size() == shape.size());
  Tensor tensor = wrap(type, std::move(shape), data, std::move(owner), device);
  tensor.gaps = std::move(strides);
  return tensor;
}

std::optional<Tensor::Rows> Tensor::rows() const {
  const size_t element = byteSize(dtype);
  if (isDense() || size() == 0)
    return Rows{1, bytes(), bytes()};
  size_t dim = dims.size();
  int64_t run = 1; // elements without gaps
  for (; dim > 0 && (dims[dim - 1] == 1 || gaps[dim - 1] == run); --dim)
    run *= dims[dim - 1];
  const size_t runBytes = static_cast<size_t>(run) * element;
  Rows result{1, runBytes, runBytes};
  int64_t next = 0; // the stride that the next outer dim must have
  for (; dim > 0; --dim) {
    if (dims[dim - 1] == 1)
      continue;
    if (next == 0)
      result.pitch = static_cast<size_t>(gaps[dim - 1]) * element;
    else if (gaps[dim - 1] != next)
      return std::nullopt;
    if (gaps[dim - 1] < run)
      return std::nullopt;
    next = gaps[dim - 1] * dims[dim - 1];
    result.count *= static_cast<size_t>(dims[dim - 1]);
  }
  return result;
}

static void gather(const Shape &dims, const Shape &strides, size_t dim, size_t element, const char *from,
                   char *&to) {
  if (dim == dims.size()) {
    std::memcpy(to, from, element);
    to += element;
    return;
  }
  for (int64_t i = 0; i < dims[dim]; ++i)
    gather(dims, strides, dim + 1, element, from + i * strides[dim] * static_cast<int64_t>(element), to);
}

Tensor Tensor::dense() const {
  assert(place.kind == Device::Kind::Host);
  if (isDense())
    return *this;
  Tensor result = uninitialized(dtype, dims);
  char *to = result.as<char>();
  if (auto regular = rows(); regular && size() > 0)
    for (size_t row = 0; row < regular->count; ++row)
      std::memcpy(to + row * regular->bytes, as<char>() + row * regular->pitch, regular->bytes);
  else
    gather(dims, gaps, 0, byteSize(dtype), as<char>(), to);
  return result;
}

Tensor Tensor::reshaped(Shape shape) const {
  assert(elementCount(shape) == size() && isDense());
  Tensor result = *this;
  result.dims = std::move(shape);
  return result;
}

Tensor Tensor::clone() const {
  assert(place.kind == Device::Kind::Host);
  if (!isDense())
    return dense();
  Tensor result = uninitialized(dtype, dims);
  if (bytes() != 0)
    std::memcpy(result.data(), data(), bytes());
  return result;
}

Tensor Tensor::convertedTo(DType type) const {
  assert(place.kind == Device::Kind::Host);
  if (type == dtype)
    return *this;
  Tensor result = uninitialized(type, dims);
  convert(dtype, dense().data(), type, result.data(), static_cast<size_t>(size()));
  return result;
}

std::vector<float> Tensor::toFloats() const {
  assert(place.kind == Device::Kind::Host);
  std::vector<float> values(static_cast<size_t>(size()));
  convert(dtype, dense().data(), DType::F32, values.data(), values.size());
  return values;
}

std::vector<int64_t> Tensor::toInts() const {
  assert(place.kind == Device::Kind::Host);
  std::vector<int64_t> values(static_cast<size_t>(size()));
  convert(dtype, dense().data(), DType::I64, values.data(), values.size());
  return values;
}

Result<Difference> compare(const Tensor &actual, const Tensor &expected) {
  if (actual.device().kind != Device::Kind::Host || expected.device().kind != Device::Kind::Host)
    return badInput("only tensors in host memory can be compared");
  if (actual.shape() != expected.shape())
    return badInput(fmt::format("the shapes differ: {} but {} was expected", shapeString(actual.shape()),
                                shapeString(expected.shape())));
  if (!actual.isDense() || !expected.isDense())
    return compare(actual.dense(), expected.dense());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr size_t blockSize = 4096;
  std::vector<double> left(blockSize), right(blockSize);
  const char *leftBytes = static_cast<const char *>(actual.data());
  const char *rightBytes = static_cast<const char *>(expected.data());
  size_t count = static_cast<size_t>(actual.size());
  Difference result;
  double sumDifference = 0, sumExpected = 0;
  for (size_t begin = 0; begin < count; begin += blockSize) {
    size_t length = std::min(blockSize, count - begin);
    convert(actual.type(), leftBytes + begin * byteSize(actual.type()), DType::F64, left.data(), length);
    convert(expected.type(), rightBytes + begin * byteSize(expected.type()), DType::F64, right.data(),
            length);
    for (size_t i = 0; i < length; ++i) {
      double a = left[i], e = right[i];
      bool bothNan = std::isnan(a) && std::isnan(e);
      // Equal infinities and expected NaNs agree, and must not drown the other elements in the norms.
      if (bothNan || (a == e && std::isinf(a)))
        continue;
      double difference = std::isnan(a) || std::isnan(e) ? infinity : std::fabs(a - e);
      sumDifference += difference * difference;
      sumExpected += std::isfinite(e) ? e * e : 0;
      if (difference > result.maxAbs) {
        result.maxAbs = difference;
        result.worstIndex = static_cast<int64_t>(begin + i);
      }
    }
  }
  result.relativeL2 =
      sumExpected > 0 ? std::sqrt(sumDifference) / std::sqrt(sumExpected) : std::sqrt(sumDifference);
  if (std::isnan(result.relativeL2)) // both norms overflowed
    result.relativeL2 = infinity;
  return result;
}

} // namespace fusion
