// DeformConv: a convolution whose taps are moved by data.
#include "ir/import/Graph.h"
#include "ir/import/OpsRegions.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Patches that are gathered, then a matmul.
class DeformedConvolution {
public:
  explicit DeformedConvolution(NodeImporter &node) : n(node), r(node) {}

  void run() {
    if (!collect())
      return;
    const Dim places = sizes[0] * sizes[1], perOffset = *x[1].dividedBy(offsetGroups);
    const Dim each = *x[1].dividedBy(groups);
    // Rows of the channels that share offsets, and for each tap and place the offsets: [batch * groups, taps,
    // 2, height, width].
    const Dim entries = x[0] * offsetGroups;
    const Value rows = r.rowsOf(n.reshape(n.operand(0), {entries, perOffset, x[2], x[3]}));
    const Value offsets =
        n.reshape(n.cast(n.operand(2), n.f32Type()), {entries, taps, 2, sizes[0], sizes[1]});
    const auto ys = taps2d(offsets, 0), xs = taps2d(offsets, 1);
    Value entry = n.reshape(countFrom(n, 0, entries), {entries, 1, 1, 1});
    entry = n.mul(entry, r.integer(x[2] * x[3]));
    Value patches;
    for (const Regions::Tap &y : ys)
      for (const Regions::Tap &over : xs) {
        const Value place = n.add(n.add(n.mul(y.index, r.integer(x[3])), over.index), entry);
        Value weight = n.mul(y.weight, over.weight);
        if (n.failed())
          return;
        DimShape column = n.shapeOf(weight);
        column.push_back(Dim(1));
        const Value part =
            n.mul(n.build<nn::GatherOp>({rows, place}, n.i64("axis", 0)), n.reshape(weight, column));
        patches = patches ? n.add(patches, part) : part;
      }
    if (n.has(4))
      patches = n.mul(patches,
                      n.reshape(n.cast(n.operand(4), n.f32Type()), {entries, taps, sizes[0], sizes[1], 1}));
    // [entries, taps, height, width, channels] as [batch, groups, channels * taps, places].
    const Value deep = n.transpose(n.reshape(patches, {entries, taps, places, perOffset}), {0, 3, 1, 2});
    const Value columns = n.reshape(deep, {x[0], groups, each * taps, places});
    const Value factors =
        n.reshape(n.cast(n.operand(1), n.f32Type()), {groups, *w[0].dividedBy(groups), each * taps});
    Value y = n.reshape(n.build<nn::MatmulOp>({factors, columns}), {x[0], w[0], sizes[0], sizes[1]});
    if (n.has(3))
      y = n.add(y, n.reshape(n.cast(n.operand(3), n.f32Type()), {w[0], 1, 1}));
    n.result(0, n.cast(y, n.inputType(0)));
  }

private:
  bool collect() {
    x = n.shape(0);
    w = n.shape(1);
    if (n.failed())
      return false;
    if (x.size() != 4 || w.size() != 4 || n.rank(2) != 4) {
      n.fail("an input of " + shapeString(x) + ", weights of " + shapeString(w) + " and offsets of " +
             shapeString(n.shape(2)) + ": only two dims behind the channels are supported");
      return false;
    }
    strides = n.intsAttribute("strides", {1, 1});
    dilations = n.intsAttribute("dilations", {1, 1});
    pads = n.intsAttribute("pads", {0, 0, 0, 0});
    groups = n.intAttribute("group", 1);
    offsetGroups = n.intAttribute("offset_group", 1);
    n.ignore({"kernel_shape"});
    auto isPositive = [](int64_t value) { return value > 0 && value < mostRegionPlaces; };
    auto isPad = [](int64_t value) { return value >= 0 && value < mostRegionPlaces; };
    if (n.failed() || strides.size() != 2 || dilations.size() != 2 || pads.size() != 4 || groups < 1 ||
        offsetGroups < 1 || !llvm::all_of(strides, isPositive) || !llvm::all_of(dilations, isPositive) ||
        !llvm::all_of(pads, isPad) || !w[2].isStatic() || !w[3].isStatic() || w[2] == Dim(0) ||
        w[3] == Dim(0) || !(x[1] == w[1] * groups) || !w[0].dividedBy(groups) ||
        !x[1].dividedBy(offsetGroups) || !x[1].dividedBy(groups) || llvm::is_contained(x, Dim(0))) {
      n.fail("group, offset_group, strides, dilations or pads do not fit an input of " + shapeString(x) +
             " and weights of " + shapeString(w));
      return false;
    }
    if (!fitsRegion(n, {w[2].value(), w[3].value()}))
      return false;
    taps = w[2].value() * w[3].value();
    for (size_t i = 0; i < 2; ++i) {
      const int64_t extent = (w[2 + i].value() - 1) * dilations[i] + 1;
      sizes.push_back((x[2 + i] + pads[i] + pads[i + 2] - extent).floorDiv(strides[i]) + 1);
    }
    const DimShape offsets = {x[0], Dim(offsetGroups * taps * 2), sizes[0], sizes[1]};
    for (auto [given, needed] : llvm::zip(n.shape(2), offsets)) {
      if ((n.owner().resolve(given - needed)).isStatic() && !sameDim(n, given, needed)) {
        n.fail("offsets of " + shapeString(n.shape(2)) + ", not " + shapeString(offsets));
        return false;
      }
      n.takeAsEqual(given, needed);
    }
    return !n.failed();
  }

  /// Neighbours along dim `i` for each tap and place, [entries, taps, height, width].
  Regions::Taps taps2d(Value offsets, int64_t i) {
    if (n.failed())
      return {};
    const DimShape shape = n.shapeOf(offsets);
    const Value moved = n.reshape(n.slice(offsets, 2, i, 1), {shape[0], shape[1], shape[3], shape[4]});
    const Value first = n.sub(
        n.mul(n.cast(countFrom(n, 0, sizes[i]), n.f32Type()), r.number(static_cast<double>(strides[i]))),
        r.number(static_cast<double>(pads[i])));
    std::vector<float> inKernel;
    for (int64_t tap = 0; tap < taps; ++tap)
      inKernel.push_back(
          static_cast<float>((i == 0 ? tap / w[3].value() : tap % w[3].value()) * dilations[i]));
    const Value steps = n.constant(Tensor::of<float>(DType::F32, {taps, 1, 1}, inKernel));
    const Value at = n.add(n.reshape(first, i == 0 ? DimShape{sizes[0], 1} : DimShape{1, sizes[1]}), steps);
    return r.zeroPaddedTaps(n.add(moved, at), x[2 + i]);
  }

  NodeImporter &n;
  Regions r;
  DimShape x, w, sizes;
  std::vector<int64_t> strides, dilations, pads;
  int64_t groups = 1, offsetGroups = 1, taps = 1;
};

} // namespace

void deformedConvolution(NodeImporter &node) { DeformedConvolution(node).run(); }

} // namespace fusion::onnx
