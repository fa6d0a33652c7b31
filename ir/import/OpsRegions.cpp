// Regions of pictures: RoiAlign and CropAndResize read between the elements, MaxRoiPool the largest of a
// window. All are gathers of rows, whose places and weights are computed.
#include "ir/import/OpsRegions.h"
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

bool fitsRegion(NodeImporter &n, ArrayRef<int64_t> sizes) {
  int64_t all = 1;
  for (int64_t size : sizes)
    if (size < 1 || size > mostRegionPlaces || (all *= size) > mostRegionPlaces) {
      n.fail("a region would have " + Twine(size) + " places, or too many in all");
      return false;
    }
  return !n.failed();
}

namespace {

bool isPicture(NodeImporter &n, ArrayRef<unsigned> vectors) {
  if (n.failed())
    return false;
  if (n.rank(0) != 4 || n.rank(1) != 2) {
    n.fail("an input of " + shapeString(n.shape(0)) + " and regions of " + shapeString(n.shape(1)));
    return false;
  }
  for (unsigned index : vectors)
    if (!n.failed() && n.rank(index) != 1)
      n.fail("input " + Twine(index) + " is of " + shapeString(n.shape(index)) + ", not a vector");
  if (!n.failed() && llvm::is_contained(n.shape(0), Dim(0)))
    n.fail("an input of " + shapeString(n.shape(0)) + " has no elements");
  return !n.failed();
}

/// What lies at the crossings of rows and columns of each region, weighed: [regions, ys, xs, channels].
/// `join` makes one of the four neighbours. Taps of y are [regions, ys], those of x [regions, xs].
Value sampled(Regions &r, Value rows, Value offset, const Dim &width, const Regions::Taps &ys,
              const Regions::Taps &xs, bool takesLargest) {
  NodeImporter &n = r.n;
  Value all;
  for (const Regions::Tap &y : ys)
    for (const Regions::Tap &x : xs) {
      if (n.failed())
        return {};
      const DimShape tall = n.shapeOf(y.index), wide = n.shapeOf(x.index);
      auto down = [&](Value value) { return n.reshape(value, {tall[0], tall[1], Dim(1)}); };
      auto across = [&](Value value) { return n.reshape(value, {wide[0], Dim(1), wide[1]}); };
      const Value place = n.add(n.add(n.mul(down(y.index), r.integer(width)), across(x.index)), offset);
      const Value weight = n.mul(down(y.weight), across(x.weight));
      if (n.failed())
        return {};
      DimShape column = n.shapeOf(weight);
      column.push_back(Dim(1));
      const Value part =
          n.mul(n.build<nn::GatherOp>({rows, place}, n.i64("axis", 0)), n.reshape(weight, column));
      all = !all ? part : takesLargest ? r.largest(all, part) : n.add(all, part);
    }
  return all;
}

void roiAlign(NodeImporter &n) {
  Regions r(n);
  const std::string mode = n.stringAttribute("mode", "avg"),
                    coordinates = n.stringAttribute("coordinate_transformation_mode",
                                                    n.opset() < 16 ? "output_half_pixel" : "half_pixel");
  const int64_t height = n.intAttribute("output_height", 1), width = n.intAttribute("output_width", 1),
                samples = n.intAttribute("sampling_ratio", 0);
  const double scale = n.floatAttribute("spatial_scale", 1);
  if (mode != "avg" && mode != "max")
    return n.fail("mode '" + mode + "' is neither avg nor max");
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel")
    return n.fail("coordinate_transformation_mode '" + coordinates + "' is not supported");
  if (!n.failed() && samples < 1)
    return n.fail("sampling_ratio 0, where the size of a region says how many samples it has, is not "
                  "supported: how many there are depends on run-time data");
  if (!isPicture(n, {2}) || !fitsRegion(n, {height, width, samples, samples}))
    return;
  const bool isAligned = coordinates == "half_pixel";
  const DimShape x = n.shape(0);
  const Dim regions = n.shape(1)[0];
  const Value boxes =
      n.sub(n.mul(n.cast(n.operand(1), n.f32Type()), r.number(scale)), r.number(isAligned ? 0.5 : 0));
  auto along = [&](int64_t column, int64_t bins, const Dim &size) {
    const Value start = r.columnOf(boxes, column);
    Value extent = n.sub(r.columnOf(boxes, column + 2), start);
    if (!isAligned)
      extent = r.largest(extent, r.number(1));
    const Value bin = n.div(extent, r.number(static_cast<double>(bins)));
    // Of sample s of bin b: start + b * bin + (s + 0.5) * bin / samples.
    const Value bin0 = n.mul(bin, n.reshape(r.counted(bins), {1, bins}));
    const Value within = n.div(n.mul(bin, n.reshape(n.add(r.counted(samples), r.number(0.5)), {1, samples})),
                               r.number(static_cast<double>(samples)));
    const Value place =
        n.add(n.reshape(n.add(start, bin0), {regions, bins, 1}), n.reshape(within, {regions, 1, samples}));
    const Value at = n.reshape(place, {regions, bins * samples});
    return r.clampedTaps(at, size, r.isWithin(at, -1, r.floated(size)));
  };
  const Value offset = n.reshape(r.batchOffset(n.operand(2), x[2], x[3]), {regions, 1, 1});
  const Value all = sampled(r, r.rowsOf(n.operand(0)), offset, x[3], along(1, height, x[2]),
                            along(0, width, x[3]), mode == "max");
  const Value split = n.reshape(all, {regions, height, samples, width, samples, x[1]});
  const Value y = n.reduce(split, mode == "max" ? "max" : "mean", {2, 4}, false);
  n.result(0, n.cast(n.transpose(y, {0, 3, 1, 2}), n.inputType(0)));
}

/// TensorFlow's: the corners of a box are the first and the last place.
void cropAndResize(NodeImporter &n) {
  Regions r(n);
  const std::string mode = n.stringAttribute("mode", "bilinear");
  const double outside = n.floatAttribute("extrapolation_value", 0);
  const std::vector<int64_t> sizes = n.requireConstants(3, "crop_size");
  if (mode != "bilinear" && mode != "nearest")
    return n.fail("mode '" + mode + "' is neither bilinear nor nearest");
  if (!n.failed() && sizes.size() != 2)
    return n.fail("crop_size has " + Twine(sizes.size()) + " entries");
  if (!isPicture(n, {2}) || !fitsRegion(n, sizes))
    return;
  const DimShape x = n.shape(0);
  const Dim regions = n.shape(1)[0];
  const Value boxes = n.cast(n.operand(1), n.f32Type());
  Value valid;
  auto along = [&](int64_t column, int64_t places, const Dim &size) -> Regions::Taps {
    const Value last = r.floated(size - 1), start = r.columnOf(boxes, column),
                end = r.columnOf(boxes, column + 2);
    Value at;
    if (places > 1) {
      const Value step = n.div(n.mul(n.sub(end, start), last), r.number(static_cast<double>(places - 1)));
      at = n.add(n.mul(start, last), n.mul(n.reshape(r.counted(places), {1, places}), step));
    } else {
      at = n.mul(n.mul(r.number(0.5), n.add(start, end)), last);
    }
    const Value inside = r.isWithin(at, 0, last);
    const DimShape shape = column == 0 ? DimShape{regions, places, 1, 1} : DimShape{regions, 1, places, 1};
    valid = valid ? r.both(valid, n.reshape(inside, shape)) : n.reshape(inside, shape);
    if (mode == "bilinear")
      return r.clampedTaps(at, size, inside);
    // Halves go away from zero.
    const Value near = r.least(r.largest(n.build<nn::FloorOp>(n.add(at, r.number(0.5))), r.number(0)), last);
    return {{n.cast(near, n.i64Type()), n.expand(r.number(1), {regions, places})}};
  };
  const auto ys = along(0, sizes[0], x[2]), xs = along(1, sizes[1], x[3]);
  const Value offset = n.reshape(r.batchOffset(n.operand(2), x[2], x[3]), {regions, 1, 1});
  Value y = sampled(r, r.rowsOf(n.operand(0)), offset, x[3], ys, xs, false);
  y = n.build<nn::WhereOp>({valid, y, r.number(outside)});
  n.result(0, n.cast(n.transpose(y, {0, 3, 1, 2}), n.inputType(0)));
}

/// Extrema of windows of 1, 2, 4, … elements along `axis`, one behind the other in a new dim 0: those past
/// the end stay as they are.
Value extremaOfPowers(NodeImporter &n, Value x, int64_t axis, int64_t size) {
  SmallVector<Value> levels = {x};
  for (int64_t length = 1; 2 * length <= size && !n.failed(); length *= 2) {
    const Value before = levels.back();
    const Value moved = n.concat(
        {n.slice(before, axis, length, size - length), n.slice(before, axis, size - length, length)}, axis);
    levels.push_back(n.build<nn::MaxOp>({before, moved}));
  }
  if (n.failed())
    return {};
  DimShape one = n.shapeOf(x);
  one.insert(one.begin(), Dim(1));
  for (Value &level : levels)
    level = n.reshape(level, one);
  return levels.size() == 1 ? levels.front() : n.concat(levels, 0);
}

/// The largest element of windows whose ends are data: of two windows of a power of two that cover each, as
/// extrema of all such windows are computed beforehand.
void maxRoiPool(NodeImporter &n) {
  Regions r(n);
  const std::vector<int64_t> bins = n.intsAttribute("pooled_shape");
  const double scale = n.floatAttribute("spatial_scale", 1);
  if (!n.failed() && bins.size() != 2)
    return n.fail("pooled_shape has " + Twine(bins.size()) + " entries");
  if (!isPicture(n, {}) || !fitsRegion(n, bins))
    return;
  const DimShape x = n.shape(0);
  const Dim regions = n.shape(1)[0];
  if (!x[2].isStatic() || !x[3].isStatic() || !(n.shape(1)[1] == Dim(5)))
    return n.fail("needs a height and a width that are numbers, and regions of five numbers, not " +
                  shapeString(x) + " and " + shapeString(n.shape(1)));
  const Value boxes = n.cast(n.operand(1), n.f32Type()), half = r.number(0.5), one = r.number(1);
  auto rounded = [&](int64_t column) { // halves away from zero
    const Value given = n.mul(r.columnOf(boxes, column), r.number(scale));
    return n.mul(n.build<nn::SignOp>(given), n.build<nn::FloorOp>(n.add(n.build<nn::AbsOp>(given), half)));
  };
  struct Windows {
    Value level, first, second, isEmpty; ///< [regions, bins]
  };
  auto along = [&](int64_t column, int64_t count, int64_t size) {
    const Value start = rounded(column), last = r.number(static_cast<double>(size));
    const Value extent = r.largest(n.add(n.sub(rounded(column + 2), start), one), one);
    const Value bin = n.div(extent, r.number(static_cast<double>(count)));
    const Value places = n.reshape(r.counted(count), {1, count});
    auto inside = [&](Value at) { return r.least(r.largest(n.add(at, start), r.number(0)), last); };
    const Value begin = inside(n.build<nn::FloorOp>(n.mul(places, bin)));
    const Value end = inside(n.build<nn::CeilOp>(n.mul(n.add(places, one), bin)));
    const Value length = n.sub(end, begin);
    // The largest power of two that is not longer than the window, and which one that is.
    Value level = r.number(0), power = one;
    for (int64_t candidate = 2; candidate <= size; candidate *= 2) {
      const Value takes = n.build<nn::GreaterEqualOp>({length, r.number(static_cast<double>(candidate))});
      power = n.build<nn::WhereOp>({takes, r.number(static_cast<double>(candidate)), power});
      level = n.add(level, n.cast(takes, n.f32Type()));
    }
    const Value latest = r.number(static_cast<double>(size - 1));
    auto index = [&](Value at) { return n.cast(r.least(r.largest(at, r.number(0)), latest), n.i64Type()); };
    return Windows{n.cast(level, n.i64Type()), index(begin), index(n.sub(end, power)),
                   n.build<nn::LessEqualOp>({length, r.number(0)})};
  };
  const int64_t height = x[2].value(), width = x[3].value();
  const Windows ys = along(2, bins[0], height), xs = along(1, bins[1], width);
  // [levels of width, levels of height, batch, channels, height, width], as rows of channels.
  const Value tall = extremaOfPowers(n, n.operand(0), 2, height);
  const Value all = extremaOfPowers(n, tall, 4, width);
  if (n.failed())
    return;
  const Dim levels = n.shapeOf(tall)[0], widthLevels = n.shapeOf(all)[0];
  const Value rows =
      n.reshape(n.transpose(all, {0, 1, 2, 4, 5, 3}), {widthLevels * levels * x[0] * x[2] * x[3], x[1]});
  auto down = [&](Value value) { return n.reshape(value, {regions, bins[0], 1}); };
  auto across = [&](Value value) { return n.reshape(value, {regions, 1, bins[1]}); };
  const Value entry = n.reshape(n.cast(r.columnOf(boxes, 0), n.i64Type()), {regions, 1, 1});
  Value table = n.add(n.mul(across(xs.level), r.integer(levels)), down(ys.level));
  table = n.add(n.mul(table, r.integer(x[0])), entry);
  Value y;
  for (Value down1 : {ys.first, ys.second})
    for (Value across1 : {xs.first, xs.second}) {
      Value place = n.add(n.mul(table, r.integer(x[2])), down(down1));
      place = n.add(n.mul(place, r.integer(x[3])), across(across1));
      const Value part = n.build<nn::GatherOp>({rows, place}, n.i64("axis", 0));
      y = y ? r.largest(y, part) : part;
    }
  const Value isEmpty =
      n.reshape(n.build<nn::OrOp>({down(ys.isEmpty), across(xs.isEmpty)}), {regions, bins[0], bins[1], 1});
  y = n.build<nn::WhereOp>({isEmpty, n.scalar(n.inputType(0), 0), y});
  n.result(0, n.transpose(y, {0, 3, 1, 2}));
}

} // namespace

void registerRegions(HandlerTable &table) {
  table.add("", "RoiAlign", 3, 3, roiAlign);
  table.add("", "MaxRoiPool", 2, 2, maxRoiPool);
  table.add("", "DeformConv", 3, 5, deformedConvolution);
  table.add("com.microsoft", "CropAndResize", 4, 4, cropAndResize);
}

} // namespace fusion::onnx
