// Pooling: extrema and means of windows, as extrema and sums of shifted inputs.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

#include <cmath>
#include <limits>
#include <utility>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// More elements of a window than this are not spelled one by one.
constexpr int64_t mostTaps = 512;

/// Windows over the dims behind batch and channels.
struct Windows {
  std::vector<int64_t> kernel, strides, dilations, pads;
  DimShape sizes;  ///< of the result
  DimShape beyond; ///< how far the last window reaches past the padding
  int64_t taps = 1;
  size_t rank() const { return kernel.size(); }
  bool isPadded() const {
    return llvm::any_of(pads, [](int64_t pad) { return pad != 0; }) ||
           llvm::any_of(beyond, [](const Dim &dim) { return dim != Dim(0); });
  }
};

/// Over an input of shape `x`, [batch, channels, sizes…].
std::optional<Windows> collect(NodeImporter &n, const DimShape &x) {
  Windows windows;
  windows.kernel = n.intsAttribute("kernel_shape");
  const size_t rank = windows.rank();
  windows.strides = n.intsAttribute("strides", std::vector<int64_t>(rank, 1));
  windows.dilations = n.intsAttribute("dilations", std::vector<int64_t>(rank, 1));
  windows.pads = n.intsAttribute("pads", std::vector<int64_t>(2 * rank, 0));
  const std::string automatic = n.stringAttribute("auto_pad", "NOTSET");
  const bool roundsUp = n.intAttribute("ceil_mode", 0) != 0;
  auto isPositive = [](int64_t value) { return value > 0; };
  if (rank == 0 || x.size() != rank + 2 || windows.strides.size() != rank ||
      windows.dilations.size() != rank || windows.pads.size() != 2 * rank ||
      !llvm::all_of(windows.strides, isPositive) || !llvm::all_of(windows.dilations, isPositive) ||
      !llvm::all_of(windows.kernel, isPositive) ||
      llvm::any_of(windows.pads, [](int64_t pad) { return pad < 0; }))
    n.fail("kernel_shape, strides, dilations or pads do not fit an input of " + shapeString(x));
  if (n.failed())
    return std::nullopt;
  for (size_t i = 0; i < rank; ++i) {
    if (windows.kernel[i] > mostTaps || (windows.taps *= windows.kernel[i]) > mostTaps) {
      n.fail("a window of more than " + Twine(mostTaps) + " elements");
      return std::nullopt;
    }
    const int64_t extent = (windows.kernel[i] - 1) * windows.dilations[i] + 1;
    if (automatic != "NOTSET") {
      auto pads = automaticPads(automatic, x[i + 2], extent, windows.strides[i]);
      if (!pads || !pads->first.isStatic() || !pads->second.isStatic()) {
        n.fail("auto_pad needs sizes that are numbers");
        return std::nullopt;
      }
      windows.pads[i] = pads->first.value();
      windows.pads[i + rank] = pads->second.value();
    }
    const Dim room = x[i + 2] + windows.pads[i] + windows.pads[i + rank] - extent;
    // A last window that begins in the padding at the end does not count.
    const Dim rounded = room.ceilDiv(windows.strides[i]) + 1;
    const Dim inside = (x[i + 2] + windows.pads[i]).ceilDiv(windows.strides[i]);
    const Dim size = roundsUp ? Dim::min(rounded, inside) : room.floorDiv(windows.strides[i]) + 1;
    windows.sizes.push_back(size);
    windows.beyond.push_back(roundsUp ? Dim::max((size - 1) * windows.strides[i] - room, Dim(0)) : Dim(0));
  }
  return windows;
}

/// x with `around` where windows reach past it.
Value padded(NodeImporter &n, const Windows &windows, Value x, double around) {
  if (n.failed())
    return {};
  DimShape low(windows.rank() + 2, Dim(0)), high = low;
  for (size_t i = 0; i < windows.rank(); ++i)
    low[i + 2] = windows.pads[i], high[i + 2] = windows.beyond[i] + windows.pads[i + windows.rank()];
  if (windows.isPadded())
    x = n.build<nn::PadOp>({x, n.scalar(NodeImporter::typeOf(x), around)},
                           {n.dims("low", low), n.dims("high", high)});
  return x;
}

/// How far element `tap` of a window lies behind the window's first, along each dim.
std::vector<int64_t> offsetsOf(const Windows &windows, int64_t tap) {
  std::vector<int64_t> offsets(windows.rank());
  for (size_t i = windows.rank(); i-- > 0; tap /= windows.kernel[i])
    offsets[i] = tap % windows.kernel[i] * windows.dilations[i];
  return offsets;
}

/// What element `tap` of each window meets.
Value met(NodeImporter &n, const Windows &windows, Value x, int64_t tap) {
  DimShape starts(windows.rank() + 2, Dim(0)), sizes = n.shapeOf(x);
  std::vector<int64_t> steps(sizes.size(), 1);
  for (auto [i, offset] : llvm::enumerate(offsetsOf(windows, tap))) {
    starts[i + 2] = offset;
    sizes[i + 2] = windows.sizes[i];
    steps[i + 2] = windows.strides[i];
  }
  return n.build<nn::SliceOp>(x, {n.dims("starts", starts), n.dims("sizes", sizes), n.ints("steps", steps)});
}

/// `Op` folded over what each element of a window meets; `around` lies outside of x.
template <class Op>
Value folded(NodeImporter &n, const Windows &windows, Value x, double around) {
  x = padded(n, windows, x, around);
  Value all;
  for (int64_t tap = 0; tap < windows.taps && !n.failed(); ++tap) {
    const Value part = met(n, windows, x, tap);
    all = all ? n.build<Op>({all, part}) : part;
  }
  return all;
}

/// The least number of a type.
double lowest(Type type) {
  const auto integer = llvm::dyn_cast<IntegerType>(type);
  if (!integer)
    return -std::numeric_limits<double>::infinity();
  return integer.isUnsigned() ? 0 : -std::ldexp(1.0, static_cast<int>(integer.getWidth()) - 1);
}

/// Where the largest element of each window lies: the first of equal ones, by its place among all elements of
/// x, the last dim counted first, or, behind batch and channels, the first one (`columns`).
Value placesOfLargest(NodeImporter &n, const Windows &windows, Value x, bool columns) {
  const DimShape shape = n.shapeOf(x);
  const size_t rank = windows.rank();
  const Type i64 = n.i64Type();
  auto number = [&](int64_t value) { return n.scalar(i64, static_cast<double>(value)); };
  std::vector<Dim> strides(rank, Dim(1));
  for (size_t i = 1; i < rank; ++i) {
    const size_t at = columns ? i : rank - 1 - i, from = columns ? i - 1 : rank - i;
    strides[at] = strides[from] * shape[from + 2];
  }
  // Along each dim where a window begins, which may be in the padding, and its first element inside.
  SmallVector<Value> begins;
  Value place;
  for (size_t i = 0; i < rank; ++i) {
    DimShape along(rank, Dim(1));
    along[i] = windows.sizes[i];
    Value begin =
        n.sub(n.mul(countFrom(n, 0, windows.sizes[i]), number(windows.strides[i])), number(windows.pads[i]));
    begin = n.reshape(begin, along);
    begins.push_back(begin);
    const Value outside = n.build<nn::MaxOp>({n.sub(number(0), begin), number(0)});
    const Value skipped =
        n.div(n.add(outside, number(windows.dilations[i] - 1)), number(windows.dilations[i]));
    const Value inside = n.add(begin, n.mul(skipped, number(windows.dilations[i])));
    const Value share = n.mul(inside, n.dimConstant({strides[i]}, {}, i64));
    place = place ? n.add(place, share) : share;
  }
  const double least = lowest(NodeImporter::typeOf(x));
  const Value all = padded(n, windows, x, least);
  Value best = n.scalar(NodeImporter::typeOf(x), least);
  for (int64_t tap = 0; tap < windows.taps && !n.failed(); ++tap) {
    Value here;
    for (auto [i, offset] : llvm::enumerate(offsetsOf(windows, tap))) {
      const Value share = n.mul(n.add(begins[i], number(offset)), n.dimConstant({strides[i]}, {}, i64));
      here = here ? n.add(here, share) : share;
    }
    const Value part = met(n, windows, all, tap);
    const Value isLarger = n.build<nn::GreaterOp>({part, best});
    place = n.build<nn::WhereOp>({isLarger, here, place});
    best = n.build<nn::WhereOp>({isLarger, part, best});
  }
  const Dim picture = product(ArrayRef<Dim>(shape).drop_front(2));
  DimShape outer(rank + 2, Dim(1));
  outer[0] = shape[0], outer[1] = shape[1];
  const Value before =
      n.mul(n.reshape(countFrom(n, 0, shape[0] * shape[1]), outer), n.dimConstant({picture}, {}, i64));
  return n.add(place, before);
}

void maxPool(NodeImporter &n) {
  const bool columns = n.intAttribute("storage_order", 0) != 0;
  auto windows = collect(n, n.shape(0));
  if (!windows)
    return;
  const Value x = n.operand(0);
  n.result(0, folded<nn::MaxOp>(n, *windows, x, lowest(n.inputType(0))));
  if (n.wants(1) && !n.failed())
    n.result(1, placesOfLargest(n, *windows, x, columns));
}

/// Means of the windows of x, [batch, channels, sizes…] of f32; padding counts, or the windows' own elements
/// do. Null where the node failed.
Value averaged(NodeImporter &n, Value x) {
  const bool countsPadding = n.intAttribute("count_include_pad", 0) != 0;
  auto windows = collect(n, n.shapeOf(x));
  if (!windows)
    return {};
  const Type f32 = n.f32Type();
  Value sum = folded<nn::AddOp>(n, *windows, x, 0);
  Value count = n.scalar(f32, static_cast<double>(windows->taps));
  if (windows->isPadded()) { // what the last window reaches past the padding never counts
    DimShape shape = n.shapeOf(x);
    shape[0] = shape[1] = 1;
    Windows counted = *windows;
    if (countsPadding)
      for (size_t i = 0; i < counted.rank(); ++i)
        for (size_t end : {i, i + counted.rank()})
          shape[i + 2] = shape[i + 2] + std::exchange(counted.pads[end], 0);
    count = folded<nn::AddOp>(n, counted, n.expand(n.scalar(f32, 1), shape), 0);
  }
  return n.div(sum, count);
}

void averagePool(NodeImporter &n) {
  n.result(0, n.cast(averaged(n, n.cast(n.operand(0), n.f32Type())), n.inputType(0)));
}

/// (sum of |x|^p)^(1/p) of each window, or of everything.
void normPool(NodeImporter &n, bool isGlobal) {
  const auto p = static_cast<double>(n.intAttribute("p", 2));
  if (!n.failed() && p < 1)
    n.fail("p is " + Twine(static_cast<int64_t>(p)));
  std::optional<Windows> windows = isGlobal ? std::nullopt : collect(n, n.shape(0));
  if (n.failed())
    return;
  const Type f32 = n.f32Type();
  Value size = n.build<nn::AbsOp>(n.cast(n.operand(0), f32));
  auto power = [&](Value x, double exponent) {
    return exponent == 1 ? x : n.build<nn::PowOp>({x, n.scalar(f32, exponent)});
  };
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < n.rank(0); ++i)
    axes.push_back(i);
  Value sum =
      isGlobal ? n.reduce(power(size, p), "sum", axes) : folded<nn::AddOp>(n, *windows, power(size, p), 0);
  n.result(0, n.cast(power(sum, 1 / p), n.inputType(0)));
}

/// Between codes of 8 bits, with the channels before the sizes or behind them.
void quantisedAverage(NodeImporter &n, bool isGlobal) {
  const bool channelsLast = n.intAttribute("channels_last", 0) != 0;
  Value x = dequantised(n, 0, 1, 2);
  if (!n.failed() && n.rankOf(x) < 3)
    return n.fail("an input of " + shapeString(n.shapeOf(x)) + " has no sizes behind batch and channels");
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < n.rank(0); ++i)
    axes.push_back(i);
  x = channelsLast ? channelsFirst(n, x) : x;
  Value y = isGlobal ? n.reduce(x, "mean", axes) : n.failed() ? Value() : averaged(n, x);
  n.result(0, quantised(n, channelsLast ? channelsBehind(n, y) : y, 3, 4));
}

void maxPoolOfChannelsLast(NodeImporter &n) {
  if (!n.failed() && n.rank(0) < 3)
    return n.fail("an input of " + shapeString(n.shape(0)) + " has no sizes between batch and channels");
  const Value x = channelsFirst(n, n.operand(0));
  auto windows = n.failed() ? std::nullopt : collect(n, n.shapeOf(x));
  if (windows)
    n.result(0, channelsBehind(n, folded<nn::MaxOp>(n, *windows, x, lowest(n.inputType(0)))));
}

void globalPool(NodeImporter &n, StringRef kind) {
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < n.rank(0); ++i)
    axes.push_back(i);
  n.result(0, n.reduce(n.operand(0), kind, axes));
}

} // namespace

void registerPooling(HandlerTable &table) {
  table.add("", "MaxPool", 1, 1, maxPool);
  table.add("", "AveragePool", 1, 1, averagePool);
  table.add("", "LpPool", 1, 1, [](NodeImporter &n) { normPool(n, false); });
  table.add("", "GlobalLpPool", 1, 1, [](NodeImporter &n) { normPool(n, true); });
  table.add("", "GlobalAveragePool", 1, 1, [](NodeImporter &n) { globalPool(n, "mean"); });
  table.add("", "GlobalMaxPool", 1, 1, [](NodeImporter &n) { globalPool(n, "max"); });
  table.add("com.microsoft", "NhwcMaxPool", 1, 1, maxPoolOfChannelsLast);
  table.add("com.microsoft", "QLinearAveragePool", 4, 5, [](NodeImporter &n) { quantisedAverage(n, false); });
  table.add("com.microsoft", "QLinearGlobalAveragePool", 4, 5,
            [](NodeImporter &n) { quantisedAverage(n, true); });
}

} // namespace fusion::onnx
