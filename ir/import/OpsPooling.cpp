// Pooling: extrema and means of windows, as extrema and sums of shifted inputs.
#include "ir/import/OpsShared.h"

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
  DimShape sizes; ///< of the result
  DimShape beyond; ///< how far the last window reaches past the padding
  int64_t taps = 1;
  size_t rank() const { return kernel.size(); }
  bool isPadded() const {
    return llvm::any_of(pads, [](int64_t pad) { return pad != 0; }) ||
           llvm::any_of(beyond, [](const Dim &dim) { return dim != Dim(0); });
  }
};

std::optional<Windows> collect(NodeImporter &n) {
  const DimShape x = n.shape(0);
  Windows windows;
  windows.kernel = n.intsAttribute("kernel_shape");
  const size_t rank = windows.rank();
  windows.strides = n.intsAttribute("strides", std::vector<int64_t>(rank, 1));
  windows.dilations = n.intsAttribute("dilations", std::vector<int64_t>(rank, 1));
  windows.pads = n.intsAttribute("pads", std::vector<int64_t>(2 * rank, 0));
  const std::string automatic = n.stringAttribute("auto_pad", "NOTSET");
  const bool roundsUp = n.intAttribute("ceil_mode", 0) != 0;
  if (n.intAttribute("storage_order", 0) != 0 || n.wants(1))
    n.fail("indices of the largest elements are not supported");
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

/// `Op` folded over what each element of a window meets; `around` lies outside of x.
template <class Op>
Value folded(NodeImporter &n, const Windows &windows, Value x, double around) {
  if (n.failed())
    return {};
  DimShape low(windows.rank() + 2, Dim(0)), high = low;
  for (size_t i = 0; i < windows.rank(); ++i)
    low[i + 2] = windows.pads[i], high[i + 2] = windows.beyond[i] + windows.pads[i + windows.rank()];
  if (windows.isPadded())
    x = n.build<nn::PadOp>({x, n.scalar(NodeImporter::typeOf(x), around)},
                           {n.dims("low", low), n.dims("high", high)});
  Value all;
  for (int64_t tap = 0; tap < windows.taps && !n.failed(); ++tap) {
    DimShape starts(windows.rank() + 2, Dim(0)), sizes = n.shapeOf(x);
    std::vector<int64_t> steps(sizes.size(), 1);
    int64_t rest = tap;
    for (size_t i = windows.rank(); i-- > 0; rest /= windows.kernel[i]) {
      starts[i + 2] = rest % windows.kernel[i] * windows.dilations[i];
      sizes[i + 2] = windows.sizes[i];
      steps[i + 2] = windows.strides[i];
    }
    Value part =
        n.build<nn::SliceOp>(x, {n.dims("starts", starts), n.dims("sizes", sizes), n.ints("steps", steps)});
    all = all ? n.build<Op>({all, part}) : part;
  }
  return all;
}

void maxPool(NodeImporter &n) {
  auto windows = collect(n);
  if (!windows)
    return;
  if (!llvm::isa<FloatType>(n.inputType(0)))
    return n.fail("integers are not supported");
  n.result(0, folded<nn::MaxOp>(n, *windows, n.operand(0), -std::numeric_limits<double>::infinity()));
}

/// Sums in f32; padding counts, or the windows' own elements do.
void averagePool(NodeImporter &n) {
  const bool countsPadding = n.intAttribute("count_include_pad", 0) != 0;
  auto windows = collect(n);
  if (!windows)
    return;
  const Type f32 = n.f32Type();
  Value sum = folded<nn::AddOp>(n, *windows, n.cast(n.operand(0), f32), 0);
  Value count = n.scalar(f32, static_cast<double>(windows->taps));
  if (windows->isPadded()) { // what the last window reaches past the padding never counts
    DimShape shape = n.shape(0);
    shape[0] = shape[1] = 1;
    Windows counted = *windows;
    if (countsPadding)
      for (size_t i = 0; i < counted.rank(); ++i)
        for (size_t end : {i, i + counted.rank()})
          shape[i + 2] = shape[i + 2] + std::exchange(counted.pads[end], 0);
    count = folded<nn::AddOp>(n, counted, n.expand(n.scalar(f32, 1), shape), 0);
  }
  n.result(0, n.cast(n.div(sum, count), n.inputType(0)));
}

/// (sum of |x|^p)^(1/p) of each window, or of everything.
void normPool(NodeImporter &n, bool isGlobal) {
  const auto p = static_cast<double>(n.intAttribute("p", 2));
  if (!n.failed() && p < 1)
    n.fail("p is " + Twine(static_cast<int64_t>(p)));
  std::optional<Windows> windows = isGlobal ? std::nullopt : collect(n);
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
  Value sum = isGlobal ? n.reduce(power(size, p), "sum", axes)
                       : folded<nn::AddOp>(n, *windows, power(size, p), 0);
  n.result(0, n.cast(power(sum, 1 / p), n.inputType(0)));
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
}

} // namespace fusion::onnx
