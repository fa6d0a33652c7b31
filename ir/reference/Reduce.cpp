// Reductions, running sums and softmax. Sums are taken in f64 (integers in 64 bits, which wrap as their own
// type does) and rounded to f32 before anything else happens to them: as good as an f32 sum can be.
#include "ir/base/Parallel.h"
#include "ir/reference/Support.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fusion::reference {
namespace {

enum class Kind : uint8_t { Mean, Sum, Max, Min, Prod, SumSquare, L1, L2 };

std::optional<Kind> kindNamed(llvm::StringRef name) {
  static constexpr std::pair<llvm::StringLiteral, Kind> kinds[] = {
      {"mean", Kind::Mean}, {"sum", Kind::Sum},   {"max", Kind::Max},
      {"min", Kind::Min},   {"prod", Kind::Prod}, {"sum_square", Kind::SumSquare},
      {"l1", Kind::L1},     {"l2", Kind::L2},
  };
  for (const auto &[known, kind] : kinds)
    if (known == name)
      return kind;
  return std::nullopt;
}

/// The values of row after row, in blocks: body(values, count).
constexpr int64_t blockSize = 2048;
template <class T, class Body>
void forBlocks(const Tensor &x, int64_t begin, int64_t count, Body body) {
  T block[blockSize];
  for (int64_t done = 0; done < count; done += blockSize) {
    int64_t length = std::min(blockSize, count - done);
    loadElements(x, begin + done, length, block);
    body(block, length);
  }
}

template <class T>
T extremeStart(Kind kind) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_floating_point_v<T>)
    return kind == Kind::Max ? -Limits::infinity() : Limits::infinity();
  else
    return kind == Kind::Max ? Limits::lowest() : Limits::max();
}

/// NaN wins.
template <class T>
T extreme(Kind kind, T best, T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(value) ? value : kind == Kind::Max ? largerOf(best, value) : smallerOf(best, value);
  else
    return kind == Kind::Max ? std::max(best, value) : std::min(best, value);
}

template <class T>
T reduceRow(const Tensor &x, int64_t begin, int64_t count, Kind kind) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
  if (kind == Kind::Max || kind == Kind::Min) {
    T best = extremeStart<T>(kind);
    forBlocks<T>(x, begin, count, [&](const T *values, int64_t length) {
      for (int64_t i = 0; i < length; ++i)
        best = best != best ? best : extreme(kind, best, values[i]);
    });
    return best;
  }
  Sum sum = kind == Kind::Prod ? 1 : 0;
  forBlocks<T>(x, begin, count, [&](const T *values, int64_t length) {
    switch (kind) {
    case Kind::Prod:
      for (int64_t i = 0; i < length; ++i)
        sum *= static_cast<Sum>(values[i]);
      return;
    case Kind::SumSquare:
    case Kind::L2:
      for (int64_t i = 0; i < length; ++i)
        sum += static_cast<Sum>(values[i]) * static_cast<Sum>(values[i]);
      return;
    case Kind::L1:
      for (int64_t i = 0; i < length; ++i)
        sum += values[i] < T(0) ? Sum(0) - static_cast<Sum>(values[i]) : static_cast<Sum>(values[i]);
      return;
    default:
      for (int64_t i = 0; i < length; ++i)
        sum += static_cast<Sum>(values[i]);
    }
  });
  T total = static_cast<T>(sum);
  if (kind == Kind::L2) {
    if constexpr (std::is_floating_point_v<T>)
      return std::sqrt(total);
    else
      return static_cast<T>(std::sqrt(static_cast<double>(total)));
  }
  if (kind == Kind::Mean) {
    if constexpr (std::is_floating_point_v<T>)
      return total / static_cast<T>(count);
    else
      return count == 0 ? T(0) : static_cast<T>(total / static_cast<T>(count));
  }
  return total;
}

Result<Tensors> reduce(const Call &call) {
  auto op = llvm::cast<nn::ReduceOp>(call.op);
  auto kind = kindNamed(op.getKind());
  if (!kind)
    return problem("unknown kind {}", op.getKind().str());
  const Tensor &x = call.operand(0);
  std::vector<bool> reduced(x.shape().size(), false);
  for (int64_t axis : op.getAxes()) {
    auto at = normalisedAxis(axis, x.rank());
    if (!at)
      return at.error();
    reduced[static_cast<size_t>(*at)] = true;
  }
  Shape shape, kept, gone;
  int64_t row = 1;
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (reduced[i]) {
      gone.push_back(static_cast<int64_t>(i));
      row *= x.shape()[i];
      if (op.getKeepdims())
        shape.push_back(1);
      continue;
    }
    kept.push_back(static_cast<int64_t>(i));
    shape.push_back(x.shape()[i]);
  }
  bool rowsLast = kept.empty() || gone.empty() || kept.back() < gone.front();
  kept.insert(kept.end(), gone.begin(), gone.end());
  Tensor rows = rowsLast ? x : transposed(x, kept);
  Tensor result = Tensor::uninitialized(call.resultType(), shape);
  dispatch(arithmeticOf(x.type()), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> values(static_cast<size_t>(result.size()));
    parallelFor(result.size(), grainFor(row), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        values[static_cast<size_t>(i)] = reduceRow<T>(rows, i * row, row, *kind);
    });
    // Integers narrower than 64 bits start from their own limits.
    if (row == 0 && std::is_integral_v<T> && (*kind == Kind::Max || *kind == Kind::Min)) {
      double limit = *kind == Kind::Max ? -std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::infinity();
      std::vector<double> limits(values.size(), limit);
      convert(DType::F64, limits.data(), result.type(), result.data(), limits.size());
      return;
    }
    storeElements(result, 0, result.size(), values.data());
  });
  return Tensors{result};
}

/// The first `count` places of a row, the largest element first.
template <class T> std::vector<int64_t> largestOf(std::span<const T> row, int64_t count) {
  std::vector<int64_t> places(row.size());
  std::iota(places.begin(), places.end(), 0);
  auto isNan = [](T value) { return value != value; };
  std::partial_sort(places.begin(), places.begin() + count, places.end(), [&](int64_t a, int64_t b) {
    const T x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
    if (isNan(x) != isNan(y))
      return isNan(x);
    return x > y || (!(y > x) && a < b);
  });
  places.resize(static_cast<size_t>(count));
  return places;
}

Result<Tensors> topK(const Call &call) {
  auto op = llvm::cast<nn::TopKOp>(call.op);
  auto axis = normalisedAxis(op.getAxis(), call.operand(0).rank());
  if (!axis)
    return axis.error();
  auto k = call.dims(op.getK());
  if (!k)
    return k.error();
  const Tensor rows = axisToBack(call.operand(0), *axis);
  const int64_t row = rows.shape().back(), count = k->front();
  if (count < 0 || count > row)
    return problem("k is {} of {}", count, row);
  Shape shape = rows.shape();
  shape.back() = count;
  std::vector<int64_t> best(static_cast<size_t>(elementCount(shape)));
  dispatch(arithmeticOf(rows.type()), [&](auto zero) {
    using T = decltype(zero);
    const int64_t number = row == 0 ? 0 : rows.size() / row;
    parallelFor(number, grainFor(row), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::vector<T> values;
        forBlocks<T>(rows, i * row, row, [&](const T *block, int64_t length) {
          values.insert(values.end(), block, block + length);
        });
        const std::vector<int64_t> places = largestOf<T>(values, count);
        std::copy(places.begin(), places.end(), best.begin() + i * count);
      }
    });
  });
  const Tensor indices = Tensor::of<int64_t>(DType::I64, shape, std::span<const int64_t>(best));
  return Tensors{axisFromBack(indices, *axis).convertedTo(call.resultType())};
}

Result<Tensors> limitGroups(const Call &call) {
  auto op = llvm::cast<nn::LimitGroupsOp>(call.op);
  const Tensor &x = call.operand(0);
  const int64_t row = x.shape().back(), groups = static_cast<int64_t>(op.getGroups()), size = row / groups;
  Tensor result = Tensor::uninitialized(call.resultType(), x.shape());
  auto run = [&](auto zero) {
    using T = decltype(zero);
    const T other = static_cast<T>(op.getOther().convertToFloat());
    parallelFor(x.size() / row, grainFor(row), [&](int64_t begin, int64_t end) {
      std::vector<T> values(static_cast<size_t>(row)), sums(static_cast<size_t>(groups));
      Tensor scores = Tensor::uninitialized(x.type(), {groups}); // which rounds the sums
      for (int64_t i = begin; i < end; ++i) {
        loadElements(x, i * row, row, values.data());
        for (int64_t group = 0; group < groups; ++group) {
          const std::span<const T> of(values.data() + group * size, static_cast<size_t>(size));
          double sum = 0;
          for (int64_t place : largestOf<T>(of, static_cast<int64_t>(op.getSummed())))
            sum += of[static_cast<size_t>(place)];
          sums[static_cast<size_t>(group)] = static_cast<T>(sum);
        }
        storeElements(scores, 0, groups, sums.data());
        loadElements(scores, 0, groups, sums.data());
        std::vector<T> limited(values.size(), other);
        for (int64_t group : largestOf<T>(sums, static_cast<int64_t>(op.getKept())))
          std::copy_n(values.begin() + group * size, size, limited.begin() + group * size);
        storeElements(result, i * row, row, limited.data());
      }
    });
  };
  if (x.size() != 0)
    x.type() == DType::F64 ? run(double{}) : run(float{});
  return Tensors{result};
}

Result<Tensors> argMax(const Call &call) {
  auto op = llvm::cast<nn::ArgMaxOp>(call.op);
  auto axis = normalisedAxis(op.getAxis(), call.operand(0).rank());
  if (!axis)
    return axis.error();
  Tensor rows = axisToBack(call.operand(0), *axis);
  int64_t row = rows.shape().back();
  Shape shape = call.operand(0).shape();
  if (op.getKeepdims())
    shape[static_cast<size_t>(*axis)] = 1;
  else
    shape.erase(shape.begin() + *axis);
  if (row == 0 && elementCount(shape) != 0)
    return problem("dim {} is empty and has no largest element", *axis);
  std::vector<int64_t> best(static_cast<size_t>(elementCount(shape)));
  dispatch(arithmeticOf(rows.type()), [&](auto zero) {
    using T = decltype(zero);
    parallelFor(static_cast<int64_t>(best.size()), grainFor(row), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T largest{};
        int64_t position = 0, at = -1;
        forBlocks<T>(rows, i * row, row, [&](const T *values, int64_t length) {
          for (int64_t j = 0; j < length; ++j, ++position)
            // The first NaN counts as the largest.
            if (at < 0 || values[j] > largest || (values[j] != values[j] && largest == largest)) {
              largest = values[j];
              at = position;
            }
        });
        best[static_cast<size_t>(i)] = at;
      }
    });
  });
  Tensor indices = Tensor::of<int64_t>(DType::I64, shape, std::span<const int64_t>(best));
  return Tensors{indices.convertedTo(call.resultType())};
}

Result<Tensors> cumSum(const Call &call) {
  auto op = llvm::cast<nn::CumSumOp>(call.op);
  auto axis = normalisedAxis(op.getAxis(), call.operand(0).rank());
  if (!axis)
    return axis.error();
  Tensor rows = axisToBack(call.operand(0), *axis);
  Tensor sums = Tensor::uninitialized(call.resultType(), rows.shape());
  int64_t row = rows.shape().back();
  if (rows.size() == 0)
    return Tensors{axisFromBack(sums, *axis)};
  bool exclusive = op.getExclusive(), reverse = op.getReverse();
  dispatch(arithmeticOf(rows.type()), [&](auto zero) {
    using T = decltype(zero);
    using Sum = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    parallelFor(rows.size() / row, grainFor(row), [&](int64_t begin, int64_t end) {
      std::vector<T> values(static_cast<size_t>(row));
      for (int64_t i = begin; i < end; ++i) {
        loadElements(rows, i * row, row, values.data());
        Sum sum = 0;
        for (int64_t j = 0; j < row; ++j) {
          T &value = values[static_cast<size_t>(reverse ? row - 1 - j : j)];
          Sum before = sum;
          sum += static_cast<Sum>(value);
          value = static_cast<T>(exclusive ? before : sum);
        }
        storeElements(sums, i * row, row, values.data());
      }
    });
  });
  return Tensors{axisFromBack(sums, *axis)};
}

template <class T>
void softmaxRow(T *values, int64_t count, bool logarithm) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < count; ++i)
    largest = largest != largest ? largest : extreme(Kind::Max, largest, values[i]);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    values[i] -= largest;
    T power = std::exp(values[i]);
    sum += power;
    if (!logarithm)
      values[i] = power;
  }
  T total = static_cast<T>(sum), shift = std::log(total);
  for (int64_t i = 0; i < count; ++i)
    values[i] = logarithm ? values[i] - shift : values[i] / total;
}

Result<Tensors> softmax(const Call &call) {
  auto op = llvm::cast<nn::SoftmaxOp>(call.op);
  auto axis = normalisedAxis(op.getAxis(), call.operand(0).rank());
  if (!axis)
    return axis.error();
  Tensor rows = axisToBack(call.operand(0), *axis);
  Tensor result = Tensor::uninitialized(call.resultType(), rows.shape());
  int64_t row = rows.shape().back();
  auto run = [&](auto zero) {
    using T = decltype(zero);
    parallelFor(rows.size() / row, grainFor(8 * row), [&](int64_t begin, int64_t end) {
      std::vector<T> values(static_cast<size_t>(row));
      for (int64_t i = begin; i < end; ++i) {
        loadElements(rows, i * row, row, values.data());
        softmaxRow(values.data(), row, op.getLog());
        storeElements(result, i * row, row, values.data());
      }
    });
  };
  if (rows.size() != 0)
    rows.type() == DType::F64 ? run(double{}) : run(float{});
  return Tensors{axisFromBack(result, *axis)};
}

} // namespace

llvm::ArrayRef<Entry> reduceEntries() {
  static constexpr Entry entries[] = {
      {"nn.reduce", reduce},
      {"nn.arg_max", argMax},
      {"nn.top_k", topK},
      {"nn.limit_groups", limitGroups},
      {"nn.cumsum", cumSum},
      {"nn.softmax", softmax},
  };
  return entries;
}

} // namespace fusion::reference
