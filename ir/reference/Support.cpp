#include "ir/reference/Support.h"

#include "ir/base/Parallel.h"

#include <cstring>

#include <fmt/ranges.h>

namespace fusion::reference {

Result<Shape> Call::dims(mlir::ArrayAttr attribute) const {
  Shape values;
  for (const Dim &dim : nn::dimsFromAttr(attribute)) {
    auto value = dim.evaluate(symbols);
    if (!value)
      return value.error();
    values.push_back(*value);
  }
  return values;
}

Arithmetic arithmeticOf(DType type) {
  if (type == DType::F64)
    return Arithmetic::Double;
  if (isFloat(type))
    return Arithmetic::Float;
  return isSignedInteger(type) ? Arithmetic::Signed : Arithmetic::Unsigned;
}

template <class T>
static void roundThrough(DType type, T *values, size_t count) {
  constexpr size_t blockSize = 512;
  alignas(64) char narrow[blockSize * sizeof(double)];
  for (size_t done = 0; done < count; done += blockSize) {
    size_t length = std::min(blockSize, count - done);
    convert(dtypeOfCpp<T>, values + done, type, narrow, length);
    convert(type, narrow, dtypeOfCpp<T>, values + done, length);
  }
}

void roundElements(DType type, float *values, size_t count) {
  if (type != DType::F32 && type != DType::F64)
    roundThrough(type, values, count);
}
void roundElements(DType type, double *values, size_t count) {
  if (type != DType::F64)
    roundThrough(type, values, count);
}

Result<Shape> broadcastShapes(llvm::ArrayRef<Shape> shapes) {
  size_t rank = 0;
  for (const Shape &shape : shapes)
    rank = std::max(rank, shape.size());
  Shape result(rank, 1);
  for (const Shape &shape : shapes)
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t &into = result[rank - shape.size() + i];
      if (shape[i] == 1 || shape[i] == into)
        continue;
      if (into != 1) {
        std::vector<std::string> all;
        for (const Shape &each : shapes)
          all.push_back(shapeString(each));
        return problem("shapes {} do not broadcast", fmt::format("{}", fmt::join(all, " and ")));
      }
      into = shape[i];
    }
  return result;
}

Shape stridesOf(const Shape &shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Shape broadcastStrides(const Shape &from, const Shape &to) {
  Shape strides(to.size(), 0), own = stridesOf(from);
  size_t shift = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i)
    strides[shift + i] = from[i] == 1 ? 0 : own[i];
  return strides;
}

StridedView::StridedView(const Shape &shape, const Shape &strides) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1)
      continue;
    if (!dims.empty() && steps.back() == strides[i] * shape[i]) {
      dims.back() *= shape[i];
      steps.back() = strides[i];
      continue;
    }
    dims.push_back(shape[i]);
    steps.push_back(strides[i]);
  }
  if (dims.empty()) {
    dims.push_back(1);
    steps.push_back(0);
  }
}

template <class Element>
void StridedView::copyAs(const Element *source, int64_t begin, int64_t count, Element *target) const {
  size_t last = dims.size() - 1;
  Shape index(dims.size());
  int64_t rest = begin, position = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = rest % dims[i];
    rest /= dims[i];
    position += index[i] * steps[i];
  }
  int64_t inner = dims[last], stride = steps[last];
  while (count > 0) {
    int64_t length = std::min(count, inner - index[last]);
    if (stride == 1)
      std::memcpy(target, source + position, static_cast<size_t>(length) * sizeof(Element));
    else if (stride == 0)
      std::fill_n(target, length, source[position]);
    else
      for (int64_t i = 0; i < length; ++i)
        target[i] = source[position + i * stride];
    target += length;
    count -= length;
    position -= index[last] * stride;
    index[last] = 0;
    for (size_t i = last; i-- > 0;) {
      position += steps[i];
      if (++index[i] < dims[i])
        break;
      position -= index[i] * steps[i];
      index[i] = 0;
    }
  }
}

void StridedView::copy(const void *source, size_t elementBytes, int64_t begin, int64_t count,
                       void *target) const {
  switch (elementBytes) {
  case 1:
    return copyAs(static_cast<const uint8_t *>(source), begin, count, static_cast<uint8_t *>(target));
  case 2:
    return copyAs(static_cast<const uint16_t *>(source), begin, count, static_cast<uint16_t *>(target));
  case 4:
    return copyAs(static_cast<const uint32_t *>(source), begin, count, static_cast<uint32_t *>(target));
  default:
    return copyAs(static_cast<const uint64_t *>(source), begin, count, static_cast<uint64_t *>(target));
  }
}

Tensor gatherStrided(const Tensor &source, int64_t offset, const Shape &strides, const Shape &shape) {
  Tensor result = Tensor::uninitialized(source.type(), shape);
  if (result.size() == 0)
    return result;
  StridedView view(shape, strides);
  size_t bytes = byteSize(source.type());
  const char *from = source.as<char>() + offset * static_cast<int64_t>(bytes);
  parallelFor(result.size(), grainFor(1), [&](int64_t begin, int64_t end) {
    view.copy(from, bytes, begin, end - begin, result.as<char>() + static_cast<size_t>(begin) * bytes);
  });
  return result;
}

Tensor transposed(const Tensor &source, llvm::ArrayRef<int64_t> perm) {
  Shape own = stridesOf(source.shape()), strides, shape;
  for (int64_t from : perm) {
    shape.push_back(source.shape()[static_cast<size_t>(from)]);
    strides.push_back(own[static_cast<size_t>(from)]);
  }
  return gatherStrided(source, 0, strides, shape);
}

Tensor axisToBack(const Tensor &source, int64_t axis) {
  if (axis == source.rank() - 1)
    return source;
  Shape perm;
  for (int64_t i = 0; i < source.rank(); ++i)
    if (i != axis)
      perm.push_back(i);
  perm.push_back(axis);
  return transposed(source, perm);
}

Tensor axisFromBack(const Tensor &source, int64_t axis) {
  if (axis == source.rank() - 1)
    return source;
  Shape perm;
  for (int64_t i = 0; i + 1 < source.rank(); ++i)
    perm.push_back(i);
  perm.insert(perm.begin() + axis, source.rank() - 1);
  return transposed(source, perm);
}

Result<int64_t> normalisedAxis(int64_t axis, int64_t rank) {
  int64_t normalised = axis < 0 ? axis + rank : axis;
  if (normalised < 0 || normalised >= rank)
    return problem("axis {} is out of range for rank {}", axis, rank);
  return normalised;
}

} // namespace fusion::reference
