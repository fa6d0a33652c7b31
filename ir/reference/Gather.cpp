// Reading and writing by index. An index out of range reads the nearest valid element and writes nothing, as
// on the device. What is known before a run, Program::run refuses.
#include "ir/base/Parallel.h"
#include "ir/dialect/Scatter.h"
#include "ir/reference/Support.h"

#include <algorithm>
#include <cstring>

namespace fusion::reference {
namespace {

/// A negative index counts from the end.
int64_t nearestValid(int64_t index, int64_t size) {
  return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size - 1);
}

int64_t countOf(const Shape &shape, size_t begin, size_t end) {
  return elementCount(std::span(shape).subspan(begin, end - begin));
}

Result<Tensors> gather(const Call &call) {
  const Tensor &x = call.operand(0);
  std::vector<int64_t> indices = call.operand(1).toInts();
  auto axis = normalisedAxis(llvm::cast<nn::GatherOp>(call.op).getAxis(), x.rank());
  if (!axis)
    return axis.error();
  auto at = static_cast<size_t>(*axis);
  Shape shape(x.shape().begin(), x.shape().begin() + *axis);
  shape.insert(shape.end(), call.operand(1).shape().begin(), call.operand(1).shape().end());
  shape.insert(shape.end(), x.shape().begin() + *axis + 1, x.shape().end());
  Tensor result = Tensor::uninitialized(x.type(), shape);
  if (result.size() == 0)
    return Tensors{result};
  int64_t size = x.shape()[at];
  if (size == 0)
    return problem("dim {} is empty and has nothing to read", at);
  size_t slice = static_cast<size_t>(countOf(x.shape(), at + 1, x.shape().size())) * byteSize(x.type());
  auto count = static_cast<int64_t>(indices.size());
  int64_t slices = countOf(x.shape(), 0, at) * count;
  parallelFor(slices, grainFor(static_cast<int64_t>(slice)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t from = i / count * size + nearestValid(indices[static_cast<size_t>(i % count)], size);
      std::memcpy(result.as<char>() + static_cast<size_t>(i) * slice,
                  x.as<char>() + static_cast<size_t>(from) * slice, slice);
    }
  });
  return Tensors{result};
}

Result<Tensors> gatherElements(const Call &call) {
  const Tensor &x = call.operand(0), &where = call.operand(1);
  auto axis = normalisedAxis(llvm::cast<nn::GatherElementsOp>(call.op).getAxis(), x.rank());
  if (!axis)
    return axis.error();
  auto at = static_cast<size_t>(*axis);
  for (size_t i = 0; i < x.shape().size(); ++i)
    if (i != at && where.shape()[i] > x.shape()[i])
      return problem("the indices are {}, more than x has: {}", shapeString(where.shape()),
                     shapeString(x.shape()));
  Tensor result = Tensor::uninitialized(x.type(), where.shape());
  if (result.size() == 0)
    return Tensors{result};
  if (x.shape()[at] == 0)
    return problem("dim {} is empty and has nothing to read", at);
  std::vector<int64_t> indices = where.toInts();
  Shape strides = stridesOf(x.shape());
  size_t bytes = byteSize(x.type());
  parallelFor(result.size(), grainFor(8), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, from = 0;
      for (size_t d = strides.size(); d-- > 0;) {
        int64_t index = rest % where.shape()[d];
        rest /= where.shape()[d];
        if (d == at)
          index = nearestValid(indices[static_cast<size_t>(i)], x.shape()[d]);
        from += index * strides[d];
      }
      std::memcpy(result.as<char>() + static_cast<size_t>(i) * bytes,
                  x.as<char>() + static_cast<size_t>(from) * bytes, bytes);
    }
  });
  return Tensors{result};
}

Result<Tensors> gatherNd(const Call &call) {
  const Tensor &x = call.operand(0), &where = call.operand(1);
  auto batch = static_cast<size_t>(llvm::cast<nn::GatherNdOp>(call.op).getBatchDims());
  auto depth = static_cast<size_t>(where.shape().back());
  for (size_t i = 0; i < batch; ++i)
    if (x.shape()[i] != where.shape()[i])
      return problem("batch dim {} is {} and {}", i, x.shape()[i], where.shape()[i]);
  Shape shape(where.shape().begin(), where.shape().end() - 1);
  shape.insert(shape.end(), x.shape().begin() + static_cast<int64_t>(batch + depth), x.shape().end());
  Tensor result = Tensor::uninitialized(x.type(), shape);
  if (result.size() == 0)
    return Tensors{result};
  for (size_t d = 0; d < depth; ++d)
    if (x.shape()[batch + d] == 0)
      return problem("dim {} is empty and has nothing to read", batch + d);
  std::vector<int64_t> indices = where.toInts();
  size_t slice =
      static_cast<size_t>(countOf(x.shape(), batch + depth, x.shape().size())) * byteSize(x.type());
  int64_t tuples = countOf(where.shape(), 0, where.shape().size() - 1);
  int64_t tuplesPerBatch = tuples / countOf(where.shape(), 0, batch);
  parallelFor(tuples, grainFor(static_cast<int64_t>(slice)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t from = i / tuplesPerBatch;
      for (size_t d = 0; d < depth; ++d) {
        int64_t size = x.shape()[batch + d];
        from = from * size + nearestValid(indices[static_cast<size_t>(i) * depth + d], size);
      }
      std::memcpy(result.as<char>() + static_cast<size_t>(i) * slice,
                  x.as<char>() + static_cast<size_t>(from) * slice, slice);
    }
  });
  return Tensors{result};
}

Result<Tensors> scatterNd(const Call &call) {
  const Tensor &x = call.operand(0), &where = call.operand(1), &updates = call.operand(2);
  auto depth = static_cast<size_t>(where.shape().back());
  Shape expected(where.shape().begin(), where.shape().end() - 1);
  expected.insert(expected.end(), x.shape().begin() + static_cast<int64_t>(depth), x.shape().end());
  if (updates.shape() != expected || updates.type() != x.type())
    return problem("the updates are {} {}, expected {} {}", name(updates.type()),
                   shapeString(updates.shape()), name(x.type()), shapeString(expected));
  Tensor result = x.clone();
  std::vector<int64_t> indices = where.toInts();
  size_t slice = static_cast<size_t>(countOf(x.shape(), depth, x.shape().size())) * byteSize(x.type());
  int64_t tuples = countOf(where.shape(), 0, where.shape().size() - 1);
  for (int64_t i = 0; i < tuples; ++i) {
    int64_t to = 0;
    bool inside = true;
    for (size_t d = 0; d < depth; ++d) {
      int64_t size = x.shape()[d], given = indices[static_cast<size_t>(i) * depth + d];
      int64_t index = given < 0 ? given + size : given;
      inside &= index >= 0 && index < size;
      to = to * size + index;
    }
    if (inside && slice != 0)
      std::memcpy(result.as<char>() + static_cast<size_t>(to) * slice,
                  updates.as<char>() + static_cast<size_t>(i) * slice, slice);
  }
  return Tensors{result};
}

Result<Tensors> scatterReduce(const Call &call) {
  auto op = llvm::cast<nn::ScatterReduceOp>(call.op);
  const Tensor &x = call.operand(0), &where = call.operand(1), &updates = call.operand(2);
  const auto depth = static_cast<size_t>(where.shape().back());
  Shape expected(where.shape().begin(), where.shape().end() - 1);
  expected.insert(expected.end(), x.shape().begin() + static_cast<int64_t>(depth), x.shape().end());
  if (updates.shape() != expected || updates.type() != x.type())
    return problem("the updates are {} {}, expected {} {}", name(updates.type()),
                   shapeString(updates.shape()), name(x.type()), shapeString(expected));
  const std::vector<int64_t> indices = where.toInts();
  const int64_t slice = countOf(x.shape(), depth, x.shape().size()),
                tuples = countOf(where.shape(), 0, where.shape().size() - 1);
  Tensor result = Tensor::uninitialized(x.type(), x.shape());
  const llvm::StringRef kind = op.getKind();
  dispatch(arithmeticOf(x.type()), [&](auto zero) {
    using T = decltype(zero);
    using Wrapping = std::conditional_t<std::is_floating_point_v<T>, T, uint64_t>;
    auto reduced = [&](T a, T b) {
      if (kind == "add")
        return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
      if (kind == "mul")
        return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
      if (a != a || b != b)
        return a != a ? a : b;
      return (kind == "max" ? a < b : b < a) ? b : a;
    };
    std::vector<T> values(static_cast<size_t>(x.size())), added(static_cast<size_t>(slice));
    loadElements(x, 0, x.size(), values.data());
    for (int64_t i = 0; i < tuples; ++i) {
      int64_t to = 0;
      bool inside = true;
      for (size_t d = 0; d < depth; ++d) {
        const int64_t size = x.shape()[d], given = indices[static_cast<size_t>(i) * depth + d];
        const int64_t index = given < 0 ? given + size : given;
        inside &= index >= 0 && index < size;
        to = to * size + index;
      }
      if (!inside)
        continue;
      loadElements(updates, i * slice, slice, added.data());
      for (int64_t j = 0; j < slice; ++j) {
        T &value = values[static_cast<size_t>(to * slice + j)];
        value = reduced(value, added[static_cast<size_t>(j)]);
      }
    }
    storeElements(result, 0, x.size(), values.data());
  });
  return Tensors{result};
}

Result<Tensors> cacheWrite(const Call &call) {
  auto op = llvm::cast<nn::CacheWriteOp>(call.op);
  const Tensor &past = call.operand(0), &fresh = call.operand(1);
  auto axis = normalisedAxis(static_cast<int64_t>(op.getAxis()), past.rank());
  if (!axis)
    return axis.error();
  const auto at = static_cast<size_t>(*axis);
  Shape shape = past.shape(), placeShape = fresh.shape();
  const int64_t pastRows = shape[at], freshRows = placeShape[at];
  const int64_t rows = shape[at] = pastRows + (op.getGrows() ? freshRows : 0);
  std::fill(placeShape.begin() + static_cast<ptrdiff_t>(at) + 1, placeShape.end(), 1);
  const Tensor &given = call.operand(2);
  const std::vector<int64_t> places =
      gatherStrided(given, 0, broadcastStrides(given.shape(), placeShape), placeShape).toInts();
  Tensor result = Tensor::uninitialized(call.resultType(), shape);
  const int64_t caches = elementCount(std::span(shape).first(at));
  const size_t bytes =
      static_cast<size_t>(elementCount(std::span(shape).subspan(at + 1))) * byteSize(result.type());
  for (int64_t cache = 0; cache < caches; ++cache) {
    const int64_t *own = places.data() + cache * freshRows, start = freshRows ? own[0] : 0;
    for (int64_t i = 0; i < freshRows; ++i)
      if (own[i] != start + i)
        return problem("rows do not follow each other: {} is behind {}", own[i], own[i - 1]);
    for (int64_t row = 0; row < rows; ++row) {
      const bool isNew = row >= start && row - start < freshRows;
      char *target = result.as<char>() + static_cast<size_t>(cache * rows + row) * bytes;
      if (isNew)
        std::memcpy(target, fresh.as<char>() + static_cast<size_t>(cache * freshRows + row - start) * bytes,
                    bytes);
      else if (row < pastRows)
        std::memcpy(target, past.as<char>() + static_cast<size_t>(cache * pastRows + row) * bytes, bytes);
      else
        std::memset(target, 0, bytes);
    }
  }
  return Tensors{result};
}

} // namespace

llvm::ArrayRef<Entry> gatherEntries() {
  static constexpr Entry entries[] = {
      {"nn.gather", gather},
      {"nn.gather_elements", gatherElements},
      {"nn.gather_nd", gatherNd},
      {"nn.scatter_nd", scatterNd},
      {"nn.scatter_reduce", scatterReduce},
      {"nn.cache_write", cacheWrite},
  };
  return entries;
}

} // namespace fusion::reference
