// Quantisation and collectives.
#include "ir/reference/PointwiseEngine.h"

#include <cmath>
#include <limits>

namespace fusion::reference {
namespace {

/// Which entry of the scale belongs to an element.
class ScaleIndex {
public:
  static Result<ScaleIndex> create(const Shape &shape, const Tensor &scale, int64_t axis, int64_t block) {
    ScaleIndex index;
    if (scale.size() == 1)
      return index;
    auto at = normalisedAxis(axis, static_cast<int64_t>(shape.size()));
    if (!at)
      return at.error();
    auto dim = static_cast<size_t>(*at);
    Shape expected = {shape[dim]};
    if (block > 0) {
      expected = shape;
      expected[dim] = (shape[dim] + block - 1) / block;
    }
    if (scale.shape() != expected)
      return problem("the scale is {}, expected {}", shapeString(scale.shape()), shapeString(expected));
    index.single = false;
    index.size = shape[dim];
    index.inner = elementCount(std::span(shape).subspan(dim + 1));
    index.block = block > 0 ? block : 0;
    index.entries = expected[block > 0 ? dim : 0];
    return index;
  }
  /// Of the element at row-major position `i`.
  int64_t operator()(int64_t i) const {
    if (single)
      return 0;
    int64_t position = i / inner % size;
    return block == 0 ? position : (i / (inner * size) * entries + position / block) * inner + i % inner;
  }

private:
  bool single = true;
  int64_t size = 1, inner = 1, block = 0, entries = 1;
};

/// The integers of a type as an interval; nothing for types without one.
std::optional<std::pair<double, double>> integerLimits(DType type) {
  if (!isInteger(type))
    return std::nullopt;
  int bits = type == DType::I4 || type == DType::U4 ? 4 : static_cast<int>(8 * byteSize(type));
  if (isSignedInteger(type))
    return std::pair(-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1);
  return std::pair(0.0, std::ldexp(1.0, bits) - 1);
}

/// Quotients to elements of an integer type: round to even, add the zero point, saturate; NaN becomes 0.
/// Conversion saturates where a double cannot hold the limit.
void storeRounded(Tensor &result, int64_t begin, int64_t count, const float *quotients,
                  const float *zeroPoints) {
  auto limits = integerLimits(result.type());
  if (!limits) {
    storeElements(result, begin, count, quotients);
    return;
  }
  double values[chunkSize];
  for (int64_t i = 0; i < count; ++i) {
    double value = std::nearbyint(static_cast<double>(quotients[i])) + static_cast<double>(zeroPoints[i]);
    values[i] = std::isnan(value) ? 0 : std::clamp(value, limits->first, limits->second);
  }
  storeElements(result, begin, count, values);
}

std::vector<float> zeroPointsOf(const Call &call, int64_t count) {
  if (!call.hasOperand(2))
    return std::vector<float>(static_cast<size_t>(count), 0.0f);
  return call.operand(2).toFloats();
}

Status checkZeroPoint(const Call &call) {
  if (call.hasOperand(2) && call.operand(2).size() != call.operand(1).size())
    return problem("{} zero points for {} scales", call.operand(2).size(), call.operand(1).size());
  return {};
}

Result<Tensors> quantize(const Call &call) {
  auto op = llvm::cast<nn::QuantizeOp>(call.op);
  const Tensor &x = call.operand(0);
  auto index = ScaleIndex::create(x.shape(), call.operand(1), op.getAxis(), op.getBlockSize());
  if (!index)
    return index.error();
  if (Status fits = checkZeroPoint(call); !fits)
    return fits.error();
  Tensor result = Tensor::uninitialized(call.resultType(), x.shape());
  if (call.hasOperand(2) && isFloat(result.type()))
    return problem("{} takes no zero point", name(result.type()));
  std::vector<float> scales = call.operand(1).toFloats(),
                     zeroPoints = zeroPointsOf(call, call.operand(1).size());
  forChunks(x.size(), [&](int64_t begin, int64_t count) {
    float values[chunkSize], shifts[chunkSize];
    loadElements(x, begin, count, values);
    for (int64_t i = 0; i < count; ++i) {
      auto entry = static_cast<size_t>((*index)(begin + i));
      values[i] /= scales[entry];
      shifts[i] = zeroPoints[entry];
    }
    storeRounded(result, begin, count, values, shifts);
  });
  return Tensors{result};
}

Result<Tensors> dequantize(const Call &call) {
  auto op = llvm::cast<nn::DequantizeOp>(call.op);
  const Tensor &x = call.operand(0);
  auto index = ScaleIndex::create(x.shape(), call.operand(1), op.getAxis(), op.getBlockSize());
  if (!index)
    return index.error();
  if (Status fits = checkZeroPoint(call); !fits)
    return fits.error();
  Tensor result = Tensor::uninitialized(call.resultType(), x.shape());
  std::vector<float> scales = call.operand(1).toFloats();
  std::vector<double> zeroPoints(scales.size(), 0.0);
  if (call.hasOperand(2))
    loadElements(call.operand(2), 0, call.operand(2).size(), zeroPoints.data());
  forChunks(x.size(), [&](int64_t begin, int64_t count) {
    double values[chunkSize]; // the difference of integers is exact
    float scaled[chunkSize];
    loadElements(x, begin, count, values);
    for (int64_t i = 0; i < count; ++i) {
      auto entry = static_cast<size_t>((*index)(begin + i));
      scaled[i] = static_cast<float>(values[i] - zeroPoints[entry]) * scales[entry];
    }
    storeElements(result, begin, count, scaled);
  });
  return Tensors{result};
}

std::optional<float> quantizationLimit(DType type) {
  switch (type) {
  case DType::F8E4M3:
    return 448.0f;
  case DType::F8E5M2:
    return 57344.0f;
  case DType::I8:
    return 127.0f;
  default:
    return std::nullopt;
  }
}

Result<Tensors> dynamicQuantize(const Call &call) {
  auto op = llvm::cast<nn::DynamicQuantizeOp>(call.op);
  const Tensor &x = call.operand(0);
  auto limit = quantizationLimit(call.resultType());
  if (!limit)
    return problem("cannot quantise to {}", name(call.resultType()));
  int64_t row = x.shape().back(),
          group = op.getGroupSize() > 0 ? static_cast<int64_t>(op.getGroupSize()) : row;
  int64_t groups = op.getGroupSize() > 0 ? (row + group - 1) / group : 1;
  Shape scaleShape = x.shape();
  scaleShape.back() = groups;
  Tensor result = Tensor::uninitialized(call.resultType(), x.shape());
  Tensor scales = Tensor::uninitialized(call.resultType(1), scaleShape);
  parallelFor(scales.size(), grainFor(4 * group), [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(group));
    const float none[chunkSize] = {};
    for (int64_t i = begin; i < end; ++i) {
      int64_t first = i / groups * row + i % groups * group;
      int64_t count = std::min(group, row - i % groups * group);
      loadElements(x, first, count, values.data());
      float largest = 0;
      for (int64_t j = 0; j < count; ++j) {
        float magnitude = std::fabs(values[static_cast<size_t>(j)]);
        if (magnitude > largest || std::isnan(magnitude))
          largest = std::isnan(largest) ? largest : magnitude;
      }
      float scale = largest == 0 ? 1.0f : largest / *limit;
      storeElements(scales, i, 1, &scale);
      for (int64_t j = 0; j < count; ++j)
        values[static_cast<size_t>(j)] /= scale;
      for (int64_t j = 0; j < count; j += chunkSize)
        storeRounded(result, first + j, std::min(chunkSize, count - j), values.data() + j, none);
    }
  });
  return Tensors{result, scales};
}

Result<Tensors> allReduce(const Call &call) {
  const Tensor &x = call.operand(0);
  if (!call.options.allReduce)
    return Tensors{x.convertedTo(call.resultType())};
  auto sum = call.options.allReduce(x, llvm::cast<nn::AllReduceOp>(call.op).getGroup());
  if (!sum)
    return sum.error();
  return Tensors{sum->convertedTo(call.resultType())};
}

} // namespace

llvm::ArrayRef<Entry> quantizeEntries() {
  static constexpr Entry entries[] = {
      {"nn.quantize", quantize},
      {"nn.dequantize", dequantize},
      {"nn.dynamic_quantize", dynamicQuantize},
      {"nn.all_reduce", allReduce},
  };
  return entries;
}

} // namespace fusion::reference
