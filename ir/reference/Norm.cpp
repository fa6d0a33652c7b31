// Norms over the last dim and rotary embedding: the ops whose inner roundings the dialect spells out. Each
// product and sum has a loop of its own, so that no compiler contracts two of them into one rounding.
#include "ir/base/Parallel.h"
#include "ir/reference/Support.h"

#include <cmath>

namespace fusion::reference {
namespace {

template <class T>
std::vector<T> elementsOf(const Tensor &tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.size()));
  loadElements(tensor, 0, tensor.size(), values.data());
  return values;
}

/// Runs body(row values, count) on every row of x and stores what it leaves there.
template <class T, class Body>
Tensor mapRows(const Tensor &x, DType resultType, Body body) {
  Tensor result = Tensor::uninitialized(resultType, x.shape());
  if (x.size() == 0)
    return result;
  int64_t row = x.shape().back();
  parallelFor(x.size() / row, grainFor(4 * row), [&](int64_t begin, int64_t end) {
    std::vector<T> values(static_cast<size_t>(row));
    for (int64_t i = begin; i < end; ++i) {
      loadElements(x, i * row, row, values.data());
      body(values.data(), values.size());
      storeElements(result, i * row, row, values.data());
    }
  });
  return result;
}

/// Mean of the squares, summed in f64 from products in T and rounded to T.
template <class T>
T meanSquare(const T *values, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    T square = values[i] * values[i];
    sum += square;
  }
  return static_cast<T>(sum) / static_cast<T>(count);
}

template <class T>
void scaleBy(T *values, const T *factors, size_t count) {
  for (size_t i = 0; i < count; ++i)
    values[i] *= factors[i];
}

template <class T>
Result<Tensors> rmsNormIn(const Call &call) {
  auto op = llvm::cast<nn::RmsNormOp>(call.op);
  DType scaleType = *dtypeOf(op.scaleType());
  T eps = static_cast<T>(op.getEps().convertToFloat()),
    bias = static_cast<T>(op.getWeightBias().convertToFloat());
  std::vector<T> weight = elementsOf<T>(call.operand(1));
  for (T &value : weight)
    value += bias;
  roundElements(scaleType, weight.data(), weight.size());
  return Tensors{mapRows<T>(call.operand(0), call.resultType(), [&](T *values, size_t count) {
    T inverse = T(1) / std::sqrt(meanSquare(values, count) + eps);
    for (size_t i = 0; i < count; ++i)
      values[i] *= inverse;
    roundElements(scaleType, values, count);
    scaleBy(values, weight.data(), count);
  })};
}

template <class T>
Result<Tensors> layerNormIn(const Call &call) {
  auto op = llvm::cast<nn::LayerNormOp>(call.op);
  DType scaleType = *dtypeOf(op.scaleType());
  T eps = static_cast<T>(op.getEps().convertToFloat());
  std::vector<T> weight = elementsOf<T>(call.operand(1)), bias;
  roundElements(scaleType, weight.data(), weight.size());
  if (call.hasOperand(2)) {
    bias = elementsOf<T>(call.operand(2));
    roundElements(scaleType, bias.data(), bias.size());
  }
  return Tensors{mapRows<T>(call.operand(0), call.resultType(), [&](T *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
      sum += values[i];
    T mean = static_cast<T>(sum / static_cast<double>(count)); // of equal values exactly theirs
    for (size_t i = 0; i < count; ++i)
      values[i] -= mean;
    T inverse = T(1) / std::sqrt(meanSquare(values, count) + eps);
    for (size_t i = 0; i < count; ++i)
      values[i] *= inverse;
    roundElements(scaleType, values, count);
    scaleBy(values, weight.data(), count);
    roundElements(scaleType, values, count);
    for (size_t i = 0; i < bias.size(); ++i)
      values[i] += bias[i];
  })};
}

Status checkVectors(const Call &call) {
  for (unsigned i = 1; i < call.operands.size(); ++i)
    if (call.operand(i).size() != call.operand(0).shape().back())
      return problem("{} elements scale a last dim of {}", call.operand(i).size(),
                     call.operand(0).shape().back());
  return {};
}

Result<Tensors> rmsNorm(const Call &call) {
  if (Status fits = checkVectors(call); !fits)
    return fits.error();
  return call.operand(0).type() == DType::F64 ? rmsNormIn<double>(call) : rmsNormIn<float>(call);
}

Result<Tensors> layerNorm(const Call &call) {
  if (Status fits = checkVectors(call); !fits)
    return fits.error();
  return call.operand(0).type() == DType::F64 ? layerNormIn<double>(call) : layerNormIn<float>(call);
}

/// Rotates pairs: `first[i]` and `second[i]` by their own cos and sin.
template <class T>
class Rotation {
public:
  Rotation(DType computeType, size_t pairs) : type(computeType), left(pairs), right(pairs) {}

  /// target = C(C(a * cos) ± C(b * sin))
  void combine(const std::vector<T> &a, const std::vector<T> &cos, const std::vector<T> &b,
               const std::vector<T> &sin, bool subtract, std::vector<T> &target) {
    size_t count = left.size();
    for (size_t i = 0; i < count; ++i)
      left[i] = a[i] * cos[i];
    for (size_t i = 0; i < count; ++i)
      right[i] = subtract ? -(b[i] * sin[i]) : b[i] * sin[i];
    roundElements(type, left.data(), count);
    roundElements(type, right.data(), count);
    for (size_t i = 0; i < count; ++i)
      target[i] = left[i] + right[i];
    roundElements(type, target.data(), count);
  }

private:
  DType type;
  std::vector<T> left, right;
};

template <class T>
Result<Tensors> ropeIn(const Call &call, bool interleaved, size_t rotary, DType computeType) {
  const Tensor &x = call.operand(0);
  Tensor result = Tensor::uninitialized(call.resultType(), x.shape());
  if (x.size() == 0)
    return Tensors{result};
  Shape leading(x.shape().begin(), x.shape().end() - 1);
  int64_t width = x.shape().back(), rowCount = elementCount(leading);
  size_t half = rotary / 2;
  // Which row of the tables belongs to which row of x: row numbers, seen through the broadcast.
  auto rowsOf = [&](const Tensor &table) {
    Shape shape(table.shape().begin(), table.shape().end() - 1);
    std::vector<int64_t> numbers(static_cast<size_t>(elementCount(shape)));
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<int64_t>(i);
    Tensor seen = gatherStrided(Tensor::of<int64_t>(DType::I64, shape, std::span<const int64_t>(numbers)), 0,
                                broadcastStrides(shape, leading), leading);
    return seen;
  };
  Tensor cosRows = rowsOf(call.operand(1)), sinRows = rowsOf(call.operand(2));
  std::vector<T> cosTable = elementsOf<T>(call.operand(1)), sinTable = elementsOf<T>(call.operand(2));
  auto cosWidth = static_cast<size_t>(call.operand(1).shape().back());
  auto sinWidth = static_cast<size_t>(call.operand(2).shape().back());
  auto firstOf = [&](size_t pair) { return interleaved ? 2 * pair : pair; };
  auto secondOf = [&](size_t pair) { return interleaved ? 2 * pair + 1 : pair + half; };
  parallelFor(rowCount, grainFor(8 * width), [&](int64_t begin, int64_t end) {
    Rotation<T> rotation(computeType, half);
    std::vector<T> row(static_cast<size_t>(width)), a(half), b(half), first(half), second(half);
    std::vector<T> cosA(half), sinA(half), cosB(half), sinB(half);
    auto readTable = [&](const T *from, size_t entries, std::vector<T> &forA, std::vector<T> &forB) {
      for (size_t i = 0; i < half; ++i) {
        forA[i] = from[entries == half ? i : firstOf(i)];
        forB[i] = from[entries == half ? i : secondOf(i)];
      }
    };
    for (int64_t r = begin; r < end; ++r) {
      loadElements(x, r * width, width, row.data());
      readTable(cosTable.data() + static_cast<size_t>(cosRows.as<int64_t>()[r]) * cosWidth, cosWidth, cosA,
                cosB);
      readTable(sinTable.data() + static_cast<size_t>(sinRows.as<int64_t>()[r]) * sinWidth, sinWidth, sinA,
                sinB);
      for (size_t i = 0; i < half; ++i) {
        a[i] = row[firstOf(i)];
        b[i] = row[secondOf(i)];
      }
      rotation.combine(a, cosA, b, sinA, /*subtract=*/true, first);
      rotation.combine(b, cosB, a, sinB, /*subtract=*/false, second);
      for (size_t i = 0; i < half; ++i) {
        row[firstOf(i)] = first[i];
        row[secondOf(i)] = second[i];
      }
      storeElements(result, r * width, width, row.data());
    }
  });
  return Tensors{result};
}

Result<Tensors> rope(const Call &call) {
  auto op = llvm::cast<nn::RopeOp>(call.op);
  const Tensor &x = call.operand(0);
  int64_t rotary = op.getRotaryDim();
  if (x.shape().back() < rotary)
    return problem("rotary_dim {} is larger than the last dim {}", rotary, x.shape().back());
  Shape leading(x.shape().begin(), x.shape().end() - 1);
  for (unsigned i : {1u, 2u}) {
    const Shape &table = call.operand(i).shape();
    auto joint = broadcastShapes({Shape(table.begin(), table.end() - 1), leading});
    if (!joint || *joint != leading || (table.back() != rotary && table.back() != rotary / 2))
      return problem("a table of {} does not fit x of {}", shapeString(table), shapeString(x.shape()));
  }
  DType computeType = *dtypeOf(op.computeType());
  auto width = static_cast<size_t>(rotary);
  return x.type() == DType::F64 ? ropeIn<double>(call, op.getInterleaved(), width, computeType)
                                : ropeIn<float>(call, op.getInterleaved(), width, computeType);
}

} // namespace

llvm::ArrayRef<Entry> normEntries() {
  static constexpr Entry entries[] = {
      {"nn.rms_norm", rmsNorm},
      {"nn.layer_norm", layerNorm},
      {"nn.rope", rope},
  };
  return entries;
}

} // namespace fusion::reference
