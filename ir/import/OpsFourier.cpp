// Fourier transforms of a known length, as matmuls with cosines and sines; frames of a signal.
#include "ir/import/OpsShared.h"

#include <cmath>
#include <numbers>

using namespace mlir;

namespace fusion::onnx {

namespace {

constexpr int64_t longest = 2048;

/// [length, results * 2]: what each input gives to the real and the imaginary part of each result, times 1
/// and times i.
struct Tables {
  Value ofReal, ofImaginary;
};

Tables tables(NodeImporter &n, int64_t length, int64_t results, bool inverse) {
  Tensor real = Tensor::uninitialized(DType::F32, {length, results * 2}), imaginary = real.clone();
  const double sign = inverse ? 1 : -1, scale = inverse ? 1.0 / static_cast<double>(length) : 1.0;
  for (int64_t k = 0; k < length; ++k)
    for (int64_t i = 0; i < results; ++i) {
      const double angle =
          sign * 2 * std::numbers::pi * static_cast<double>(k * i % length) / static_cast<double>(length);
      const auto c = static_cast<float>(scale * std::cos(angle)),
                 s = static_cast<float>(scale * std::sin(angle));
      const int64_t at = (k * results + i) * 2;
      real.as<float>()[at] = c, real.as<float>()[at + 1] = s;
      imaginary.as<float>()[at] = -s, imaginary.as<float>()[at + 1] = c;
    }
  return {n.constant(real), n.constant(imaginary)};
}

/// x of [rows…, length, 1 or 2], in f32, to [rows…, results, 2].
Value transformed(NodeImporter &n, Value x, int64_t length, bool oneSided, bool inverse) {
  if (n.failed())
    return {};
  if (length < 1 || length > longest) {
    n.fail("a transform of " + Twine(length) + " elements: 1 to " + Twine(longest) + " are supported");
    return {};
  }
  const int64_t results = oneSided ? length / 2 + 1 : length, last = n.rankOf(x) - 1;
  const bool isComplex = n.shapeOf(x)[last] == Dim(2);
  DimShape rows = n.shapeOf(x);
  rows.pop_back();
  const Tables table = tables(n, length, results, inverse);
  Value y = n.build<nn::MatmulOp>({n.reshape(n.slice(x, last, 0, 1), rows), table.ofReal});
  if (isComplex)
    y = n.add(y, n.build<nn::MatmulOp>({n.reshape(n.slice(x, last, 1, 1), rows), table.ofImaginary}));
  DimShape shape = rows;
  shape.back() = results;
  shape.push_back(2);
  return n.reshape(y, shape);
}

/// The real signal of `length` elements of which x of [rows…, length / 2 + 1, 2] is the transform: [rows…,
/// length, 1].
Value realSignal(NodeImporter &n, Value x, int64_t length) {
  if (n.failed())
    return {};
  const int64_t half = length / 2 + 1, last = n.rankOf(x) - 1;
  if (length < 1 || length > longest || !(n.shapeOf(x)[last - 1] == Dim(half)) ||
      !(n.shapeOf(x)[last] == Dim(2))) {
    n.fail("half a transform of " + shapeString(n.shapeOf(x)) + " for " + Twine(length) + " elements");
    return {};
  }
  Tensor table = Tensor::uninitialized(DType::F32, {half * 2, length});
  for (int64_t k = 0; k < half; ++k)
    for (int64_t i = 0; i < length; ++i) {
      const double angle =
          2 * std::numbers::pi * static_cast<double>(k * i % length) / static_cast<double>(length);
      const double count = k == 0 || 2 * k == length ? 1 : 2; // the other half is its mirror image
      table.as<float>()[2 * k * length + i] =
          static_cast<float>(count * std::cos(angle) / static_cast<double>(length));
      table.as<float>()[(2 * k + 1) * length + i] =
          static_cast<float>(-count * std::sin(angle) / static_cast<double>(length));
    }
  DimShape rows = n.shapeOf(x);
  rows.pop_back();
  rows.back() = half * 2;
  const Value y = n.build<nn::MatmulOp>({n.reshape(x, rows), n.constant(table)});
  rows.back() = length;
  rows.push_back(1);
  return n.reshape(y, rows);
}

/// Cut to `length` elements of dim `axis`, or filled up with zeros.
Value ofLength(NodeImporter &n, Value x, int64_t axis, int64_t length) {
  if (n.failed())
    return {};
  const Dim have = n.shapeOf(x)[axis], missing = Dim(length) - have;
  if (missing == Dim(0))
    return x;
  if (!have.isStatic()) {
    n.fail("the size of dim " + Twine(axis) + " is '" + have.str() + "', not a number");
    return {};
  }
  if (missing.value() < 0)
    return n.slice(x, axis, 0, length);
  DimShape low(n.rankOf(x), Dim(0)), high = low;
  high[axis] = missing;
  return n.build<nn::PadOp>({x, n.scalar(NodeImporter::typeOf(x), 0)},
                            {n.dims("low", low), n.dims("high", high)});
}

/// From opset 20 the axis is an input.
void dft(NodeImporter &n) {
  const int64_t rank = n.rank(0);
  int64_t axis = n.opset() < 20 ? n.intAttribute("axis", 1) : -2;
  if (n.opset() >= 20 && n.has(2))
    if (auto given = n.requireConstants(2, "axis"); given.size() == 1)
      axis = given[0];
  axis = n.axis(axis, rank);
  const bool inverse = n.intAttribute("inverse", 0) != 0, oneSided = n.intAttribute("onesided", 0) != 0;
  if (n.failed())
    return;
  const DimShape shape = n.shape(0);
  if (rank < 2 || axis == rank - 1 || !(shape.back() == Dim(1) || shape.back() == Dim(2)))
    return n.fail("an input of " + shapeString(shape) + " and axis " + Twine(axis));
  const bool fromHalf = inverse && oneSided;
  if (!n.has(1) && !shape[axis].isStatic())
    return n.fail("the size of dim " + Twine(axis) + " is '" + shape[axis].str() + "', not a number");
  const std::vector<int64_t> given =
      n.has(1) ? n.requireConstants(1, "dft_length")
               : std::vector{fromHalf ? (shape[axis].value() - 1) * 2 : shape[axis].value()};
  if (given.size() != 1 || n.failed())
    return n.fail("dft_length is not one number");
  auto perm = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  std::swap(perm[axis], perm[rank - 2]);
  Value x = ofLength(n, n.cast(n.operand(0), n.f32Type()), axis, fromHalf ? given[0] / 2 + 1 : given[0]);
  x = n.transpose(x, perm);
  const Value y = fromHalf ? realSignal(n, x, given[0]) : transformed(n, x, given[0], oneSided, inverse);
  n.result(0, n.cast(n.transpose(y, perm), n.inputType(0)));
}

/// The frames of a signal [batch, samples, 1 or 2] times the window, transformed: [batch, frames, results,
/// 2].
void stft(NodeImporter &n) {
  const std::vector<int64_t> step = n.requireConstants(1, "frame_step");
  const bool oneSided = n.intAttribute("onesided", 1) != 0;
  const DimShape signal = n.shape(0);
  if (n.failed())
    return;
  const bool isGiven = n.has(3) || !n.has(2);
  const DimShape lengths = isGiven ? n.requireKnown(3, "frame_length") : n.shape(2);
  if (n.failed())
    return;
  if (lengths.size() != 1)
    return n.fail("the length of the frames is not one number");
  const Dim &length = lengths[0];
  if (step.size() != 1 || step[0] < 1 || !length.isStatic() || signal.size() < 2 || signal.size() > 3)
    return n.fail("a signal of " + shapeString(signal) + " and frames of '" + length.str() + "' elements");
  const Dim frames = (signal[1] - length).floorDiv(step[0]) + 1;
  const Value starts = n.mul(countFrom(n, 0, frames), n.scalar(n.i64Type(), static_cast<double>(step[0])));
  const Value places = n.add(n.reshape(starts, {frames, 1}), countFrom(n, 0, length));
  const Dim parts = signal.size() == 3 ? signal[2] : Dim(1);
  const Value samples = n.reshape(n.cast(n.operand(0), n.f32Type()), {signal[0], signal[1], parts});
  Value x = n.build<nn::GatherOp>({samples, places}, n.i64("axis", 1)); // [batch, frames, length, parts]
  if (n.has(2))
    x = n.mul(x, n.reshape(n.cast(n.operand(2), n.f32Type()), {length, 1}));
  n.result(0, n.cast(transformed(n, x, length.value(), oneSided, false), n.inputType(0)));
}

/// com.microsoft: of the last dim, half of the result.
void halfTransform(NodeImporter &n, bool inverse) {
  const DimShape shape = n.shape(0);
  if (n.intAttribute("signal_ndim", 1) != 1 || n.intAttribute("normalized", 0) != 0 ||
      n.intAttribute("onesided", 1) != 1)
    return n.fail("only onesided transforms of the last dim, not normalized, are supported");
  if (n.failed())
    return;
  const size_t behind = inverse ? 2 : 1; // the dim of the signal, from the end
  if (shape.size() < behind || !shape[shape.size() - behind].isStatic())
    return n.fail("an input of " + shapeString(shape) + ", whose length is not a number");
  const int64_t size = shape[shape.size() - behind].value();
  Value x = n.cast(n.operand(0), n.f32Type());
  DimShape rows = shape;
  if (inverse) {
    rows.pop_back();
    rows.back() = Dim(2 * (size - 1));
    x = n.reshape(realSignal(n, x, 2 * (size - 1)), rows);
  } else {
    rows.push_back(Dim(1));
    x = transformed(n, n.reshape(x, rows), size, true, false);
  }
  n.result(0, n.cast(x, n.inputType(0)));
}

/// Numbers that are pairs along the last dim; `conjugates` the second ones.
void complexProduct(NodeImporter &n, bool conjugates) {
  auto part = [&](unsigned index, int64_t which) {
    const DimShape shape = n.shape(index);
    if (!n.failed() && (shape.empty() || !(shape.back() == Dim(2))))
      n.fail("an input of " + shapeString(shape) + " does not end with real and imaginary parts");
    return n.slice(n.operand(index), -1, which, 1);
  };
  const Value a = part(0, 0), b = part(0, 1), c = part(1, 0), d = part(1, 1);
  const Value real = n.mul(a, c), crossed = n.mul(b, d), left = n.mul(a, d), right = n.mul(b, c);
  const Value imaginary = conjugates ? n.sub(right, left) : n.add(left, right);
  const Value first = conjugates ? n.add(real, crossed) : n.sub(real, crossed);
  n.result(0, n.failed() ? Value() : n.concat({first, imaginary}, n.rankOf(first) - 1));
}

/// The one number of an input that is known.
double onlyNumber(NodeImporter &n, unsigned index, StringRef what) {
  const auto value = n.constantScalar(index);
  if (!value)
    n.fail(what + " (input " + Twine(index) + ") is not one number that is known");
  return value.value_or(0);
}

/// Triangles that are as wide as the mel scale says.
void melWeightMatrix(NodeImporter &n) {
  constexpr double most = 1 << 20;
  const double bins = onlyNumber(n, 0, "num_mel_bins"), length = onlyNumber(n, 1, "dft_length"),
               rate = onlyNumber(n, 2, "sample_rate"), low = onlyNumber(n, 3, "lower_edge_hertz"),
               high = onlyNumber(n, 4, "upper_edge_hertz");
  const Type type = n.typeAttribute("output_datatype", n.f32Type());
  if (n.failed())
    return;
  const auto columns = static_cast<int64_t>(std::clamp(bins, 0.0, most)),
             rows = static_cast<int64_t>(std::clamp(length, 0.0, most)) / 2 + 1;
  if (!(bins >= 1 && length >= 1 && rate >= 1 && low >= 0 && high >= low) || bins > most || length > most ||
      columns * rows > (int64_t(1) << 24))
    return n.fail("num_mel_bins, dft_length, sample_rate or the edges are out of range");
  auto toMel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (toMel(high) - toMel(low)) / (bins + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < columns + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * step + toMel(low)) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(std::floor((length + 1) * hertz / rate)));
    if (!(edges.back() >= 0 && edges.back() < rows))
      return n.fail("upper_edge_hertz is beyond half of sample_rate");
  }
  Tensor table = Tensor::zeros(DType::F32, {rows, columns});
  auto *weights = table.as<float>();
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t lower = edges[static_cast<size_t>(i)], center = edges[static_cast<size_t>(i) + 1],
                  upper = edges[static_cast<size_t>(i) + 2];
    if (lower == center)
      weights[center * columns + i] = 1;
    for (int64_t j = lower; j <= center && lower < center; ++j)
      weights[j * columns + i] = static_cast<float>(j - lower) / static_cast<float>(center - lower);
    for (int64_t j = center; j < upper; ++j)
      weights[j * columns + i] = static_cast<float>(upper - j) / static_cast<float>(upper - center);
  }
  n.result(0, n.cast(n.constant(table), type));
}

} // namespace

void registerFourier(HandlerTable &table) {
  table.add("", "DFT", 1, 3, dft);
  table.add("", "STFT", 2, 4, stft);
  table.add("", "MelWeightMatrix", 5, 5, melWeightMatrix);
  table.add("com.microsoft", "Rfft", 1, 1, [](NodeImporter &n) { halfTransform(n, false); });
  table.add("com.microsoft", "Irfft", 1, 1, [](NodeImporter &n) { halfTransform(n, true); });
  table.add("com.microsoft", "ComplexMul", 2, 2, [](NodeImporter &n) { complexProduct(n, false); });
  table.add("com.microsoft", "ComplexMulConj", 2, 2, [](NodeImporter &n) { complexProduct(n, true); });
}

} // namespace fusion::onnx
