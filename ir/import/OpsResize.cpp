// Resize: along every axis a choice of elements, or weighted sums of some, which are a matmul with constant
// weights. Depth and space, one as the other.
#include "ir/import/OpsResize.h"

#include "ir/import/Graph.h"
#include "ir/import/OpsGridSample.h"
#include "ir/import/OpsShared.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Weights of an axis are not spelled beyond this many numbers.
constexpr int64_t mostWeights = int64_t(1) << 22;

/// One axis: `scale` is results for each input. `start` and `end`: the part that is taken, where that is
/// asked for.
struct Axis {
  int64_t from = 0, to = 0;
  double scale = 1, start = 0, end = 1;
  bool isWhole() const { return start == 0 && end == 1; }
};

/// Where result `i` lies among the inputs.
double coordinate(const std::string &mode, const Axis &axis, int64_t i) {
  const auto at = static_cast<double>(i), from = static_cast<double>(axis.from),
             to = static_cast<double>(axis.to);
  if (mode == "tf_crop_and_resize")
    return (from - 1) *
           (axis.to > 1 ? axis.start + at * (axis.end - axis.start) / (to - 1) : (axis.start + axis.end) / 2);
  const double exact = axis.scale * from; // `to` before it is rounded
  if (mode == "align_corners")
    return axis.to == 1 && exact == 1 ? 0 : at * (from - 1) / (exact - 1);
  if (mode == "asymmetric")
    return at / axis.scale;
  if (mode == "tf_half_pixel_for_nn")
    return (at + 0.5) / axis.scale;
  if (mode == "pytorch_half_pixel" && axis.to <= 1)
    return 0;
  double offset = 0;
  if (mode == "half_pixel_symmetric")
    offset = from / 2 * (1 - to / exact);
  return offset + (at + 0.5) / axis.scale - 0.5;
}

bool isKnownCoordinate(const std::string &mode) {
  return mode == "align_corners" || mode == "asymmetric" || mode == "tf_half_pixel_for_nn" ||
         mode == "pytorch_half_pixel" || mode == "half_pixel_symmetric" || mode == "half_pixel" ||
         mode == "tf_crop_and_resize";
}

int64_t nearest(const std::string &rounding, double x) {
  const double low = std::floor(x);
  if (rounding == "floor")
    return static_cast<int64_t>(low);
  if (rounding == "ceil")
    return static_cast<int64_t>(std::ceil(x));
  const bool up = rounding == "round_prefer_ceil" ? x - low >= 0.5 : x - low > 0.5;
  return static_cast<int64_t>(low) + (up ? 1 : 0);
}

double cubicWeight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// The weights of an axis as [inputs, results].
std::vector<float> weightsOf(const Sampling &how, const Axis &axis) {
  std::vector<float> weights(static_cast<size_t>(axis.from * axis.to), 0);
  const bool isCubic = how.mode == "cubic";
  const double narrow = how.antialias ? std::min(axis.scale, 1.0) : 1.0, support = (isCubic ? 2 : 1) / narrow;
  const bool leavesOut = how.excludesOutside && (isCubic || how.antialias);
  for (int64_t i = 0; i < axis.to; ++i) {
    const double x = coordinate(how.coordinates, axis, i);
    std::vector<double> column(static_cast<size_t>(axis.from), 0);
    double sum = 0;
    for (auto tap = static_cast<int64_t>(std::floor(x - support));
         tap <= static_cast<int64_t>(std::ceil(x + support)); ++tap) {
      const double distance = (static_cast<double>(tap) - x) * narrow;
      const double weight =
          isCubic ? cubicWeight(distance, how.cubic) : std::max(0.0, 1 - std::abs(distance));
      if (leavesOut && (tap < 0 || tap >= axis.from))
        continue;
      column[static_cast<size_t>(std::clamp<int64_t>(tap, 0, axis.from - 1))] += weight;
      sum += weight;
    }
    for (int64_t k = 0; k < axis.from; ++k)
      weights[static_cast<size_t>(k * axis.to + i)] =
          static_cast<float>(sum == 0 ? 0 : column[static_cast<size_t>(k)] / sum);
  }
  return weights;
}

Value alongAxis(NodeImporter &n, Value x, int64_t at, const Axis &axis, const Sampling &how) {
  if (n.failed() || (axis.from == axis.to && axis.scale == 1 && axis.isWhole()))
    return x;
  if (how.mode == "nearest") {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < axis.to; ++i)
      indices.push_back(
          std::clamp<int64_t>(nearest(how.rounding, coordinate(how.coordinates, axis, i)), 0, axis.from - 1));
    const Value index = n.constant(Tensor::of<int64_t>(DType::I64, {axis.to}, indices));
    return n.build<nn::GatherOp>({x, index}, n.i64("axis", at));
  }
  if (axis.to > mostWeights / axis.from) {
    n.fail("an axis from " + Twine(axis.from) + " to " + Twine(axis.to) + " elements has too many weights");
    return {};
  }
  const std::vector<float> numbers = weightsOf(how, axis);
  const Value weights = n.constant(Tensor::of<float>(DType::F32, {axis.from, axis.to}, numbers));
  auto perm = llvm::to_vector(llvm::seq<int64_t>(0, n.rankOf(x)));
  std::swap(perm[at], perm.back());
  return n.transpose(n.build<nn::MatmulOp>({n.transpose(x, perm), weights}), perm);
}

/// `value` where the part that is taken of an axis reaches past x.
Value withOutside(NodeImporter &n, Value x, int64_t at, const Axis &axis, const Sampling &how) {
  if (n.failed())
    return {};
  Tensor outside = Tensor::zeros(DType::Bool, {axis.to});
  bool isAny = false;
  for (int64_t i = 0; i < axis.to; ++i) {
    const double place = coordinate(how.coordinates, axis, i);
    const bool isOutside = place < 0 || place > static_cast<double>(axis.from - 1);
    outside.as<uint8_t>()[i] = isOutside ? 1 : 0;
    isAny |= isOutside;
  }
  if (!isAny)
    return x;
  DimShape along(n.rankOf(x), Dim(1));
  along[at] = axis.to;
  const Value value = n.scalar(NodeImporter::typeOf(x), how.outside);
  return n.build<nn::WhereOp>({n.reshape(n.constant(outside), along), value, x});
}

/// What an input of floats holds, if that is known; empty where it is not given or empty.
std::vector<double> floats(NodeImporter &n, unsigned index, StringRef what) {
  if (!n.has(index) || product(n.shape(index)) == Dim(0))
    return {};
  const Value given = n.operand(index);
  if (n.failed())
    return {};
  auto contents = n.owner().computed(given);
  if (!contents) {
    n.fail("the " + what + " (input " + Twine(index) + ") depends on run-time data");
    return {};
  }
  const std::vector<float> values = contents->toFloats();
  return {values.begin(), values.end()};
}

/// Sizes that keep the proportions of the input, no larger or no smaller than those asked for.
void keepProportions(const std::string &policy, MutableArrayRef<Axis> axes) {
  double scale = policy == "not_larger" ? std::numeric_limits<double>::infinity() : 0;
  for (const Axis &axis : axes) {
    const double own = static_cast<double>(axis.to) / static_cast<double>(axis.from);
    scale = policy == "not_larger" ? std::min(scale, own) : std::max(scale, own);
  }
  for (Axis &axis : axes) {
    axis.scale = scale;
    axis.to = static_cast<int64_t>(std::floor(scale * static_cast<double>(axis.from) + 0.5));
  }
}

/// `roi`: starts and ends of all axes, for tf_crop_and_resize.
void resized(NodeImporter &n, const Sampling &how, ArrayRef<int64_t> axes, ArrayRef<double> scales,
             ArrayRef<Dim> sizes, ArrayRef<double> roi = {}) {
  if (n.failed())
    return;
  const size_t count = scales.empty() ? sizes.size() : scales.size();
  if (count != axes.size() || count == 0)
    return n.fail(Twine(count) + " scales or sizes for " + Twine(axes.size()) + " axes");
  for (double scale : scales)
    if (!(scale > 0 && scale < static_cast<double>(mostWeights)))
      return n.fail("a scale is not a positive number, or too large");
  const Type type = n.inputType(0);
  const bool chooses = how.mode == "nearest";
  Value x = chooses ? n.operand(0) : n.cast(n.operand(0), n.f32Type());
  const DimShape shape = n.shape(0);
  SmallVector<Axis> known(count);
  for (size_t i = 0; i < count; ++i) {
    const Dim &from = shape[axes[i]];
    if (!roi.empty())
      known[i].start = roi[i], known[i].end = roi[i + count];
    if (!from.isStatic() || (scales.empty() && !sizes[i].isStatic()))
      continue;
    known[i].from = from.value();
    known[i].scale = scales.empty()
                         ? static_cast<double>(sizes[i].value()) / static_cast<double>(from.value())
                         : scales[i];
    known[i].to = scales.empty()
                      ? sizes[i].value()
                      : static_cast<int64_t>(std::floor(static_cast<double>(known[i].from) * scales[i]));
  }
  if (how.policy != "stretch") {
    if (llvm::any_of(known, [](const Axis &axis) { return axis.from == 0; }))
      return n.fail("keep_aspect_ratio_policy needs sizes that are numbers");
    keepProportions(how.policy, known);
  }
  for (size_t i = 0; i < count && !n.failed(); ++i) {
    if (known[i].to < 0 || known[i].to > mostWeights)
      return n.fail("dim " + Twine(axes[i]) + " would have " + Twine(known[i].to) + " elements");
    if (known[i].from > 0)
      x = alongAxis(n, x, axes[i], known[i], how);
    else if (!known[i].isWhole())
      return n.fail("a part is taken of dim " + Twine(axes[i]) + ", whose size is '" + shape[axes[i]].str() +
                    "', not a number");
    else if (scales.empty())
      x = resizedToSymbol(n, x, axes[i], sizes[i], {}, how);
    else
      x = resizedToSymbol(n, x, axes[i], scaledSize(n, axes[i], shape[axes[i]], scales[i]), scales[i], how);
  }
  for (size_t i = 0; i < count && !roi.empty() && !n.failed(); ++i)
    if (known[i].from > 0)
      x = withOutside(n, x, axes[i], known[i], how);
  n.result(0, chooses ? x : n.cast(x, type));
}

/// Opset 10 has neither roi nor sizes.
void resize(NodeImporter &n) {
  const bool isOld = n.opset() < 11;
  Sampling how;
  how.mode = n.stringAttribute("mode", "nearest");
  how.coordinates = n.stringAttribute("coordinate_transformation_mode", isOld ? "asymmetric" : "half_pixel");
  how.rounding = n.stringAttribute("nearest_mode", isOld ? "floor" : "round_prefer_floor");
  how.policy = n.stringAttribute("keep_aspect_ratio_policy", "stretch");
  how.antialias = n.intAttribute("antialias", 0) != 0;
  how.excludesOutside = n.intAttribute("exclude_outside", 0) != 0;
  how.cubic = n.floatAttribute("cubic_coeff_a", -0.75);
  how.outside = n.floatAttribute("extrapolation_value", 0);
  if (how.mode == "bilinear")
    how.mode = "linear";
  if (how.mode != "nearest" && how.mode != "linear" && how.mode != "cubic")
    return n.fail("mode '" + how.mode + "' is not supported");
  if (!isKnownCoordinate(how.coordinates))
    return n.fail("coordinate_transformation_mode '" + how.coordinates + "' is not supported");
  std::vector<int64_t> axes = n.intsAttribute("axes");
  for (int64_t &axis : axes)
    axis = n.axis(axis, n.rank(0));
  if (axes.empty())
    for (int64_t i = 0; i < n.rank(0); ++i)
      axes.push_back(i);
  const unsigned scalesAt = isOld ? 1 : 2;
  DimShape from;
  for (int64_t axis : axes)
    from.push_back(n.failed() ? Dim(0) : n.shape(0)[axis]);
  DimShape sizes = sizesOfScales(n, scalesAt, from);
  std::vector<double> scales;
  if (sizes.empty())
    scales = floats(n, scalesAt, "scale of each dim");
  if (sizes.empty() && scales.empty() && !isOld)
    sizes = n.requireKnown(3, "sizes");
  std::vector<double> roi;
  if (how.coordinates == "tf_crop_and_resize") {
    roi = floats(n, 1, "part that is taken");
    if (!n.failed() && (roi.size() != 2 * axes.size() || !llvm::all_of(roi, [](double value) {
                          return std::abs(value) < static_cast<double>(mostWeights);
                        })))
      return n.fail("roi (input 1) has " + Twine(roi.size()) + " entries, or too large ones, for " +
                    Twine(axes.size()) + " axes");
  }
  resized(n, how, axes, scales, sizes, roi);
}

void upsample(NodeImporter &n) {
  Sampling how;
  how.mode = n.stringAttribute("mode", "nearest");
  how.coordinates = "asymmetric";
  how.rounding = "floor";
  how.policy = "stretch";
  if (how.mode != "nearest" && how.mode != "linear")
    return n.fail("mode '" + how.mode + "' is not supported");
  DimShape sizes = sizesOfScales(n, 1, n.shape(0));
  std::vector<double> scales;
  if (n.opset() < 9)
    scales = n.floatsAttribute("scales");
  else if (sizes.empty())
    scales = floats(n, 1, "scale of each dim");
  resized(n, how, llvm::to_vector(llvm::seq<int64_t>(0, n.rank(0))), scales, sizes);
}

/// [batch, channels, height, width] with blocks of size x size, from the channels into the places or back.
void blocks(NodeImporter &n, bool toSpace) {
  const int64_t size = n.intAttribute("blocksize", 0);
  const std::string mode =
      n.stringAttribute("mode", "DCR"); // whether places in a block lie outside of channels
  const DimShape x = n.shape(0);
  if (n.failed())
    return;
  if (x.size() != 4 || size < 1 || (mode != "DCR" && mode != "CRD"))
    return n.fail("blocksize " + Twine(size) + ", mode '" + mode + "' and an input of " + shapeString(x));
  auto part = [&](const Dim &dim, int64_t by) { return dim.dividedBy(by); };
  const bool depthFirst = mode == "DCR";
  if (toSpace) {
    const auto channels = part(x[1], size * size);
    if (!channels)
      return n.fail("the channels do not divide into blocks");
    const DimShape split = depthFirst ? DimShape{x[0], size, size, *channels, x[2], x[3]}
                                      : DimShape{x[0], *channels, size, size, x[2], x[3]};
    const std::vector<int64_t> perm =
        depthFirst ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3};
    return n.result(0, n.reshape(n.transpose(n.reshape(n.operand(0), split), perm),
                                 {x[0], *channels, x[2] * size, x[3] * size}));
  }
  const auto height = part(x[2], size), width = part(x[3], size);
  if (!height || !width)
    return n.fail("the places do not divide into blocks");
  const Value split = n.reshape(n.operand(0), {x[0], x[1], *height, size, *width, size});
  const std::vector<int64_t> perm =
      depthFirst ? std::vector<int64_t>{0, 3, 5, 1, 2, 4} : std::vector<int64_t>{0, 1, 3, 5, 2, 4};
  n.result(0, n.reshape(n.transpose(split, perm), {x[0], x[1] * (size * size), *height, *width}));
}

} // namespace

void registerResizing(HandlerTable &table) {
  table.add("", "Resize", 1, 4, resize);
  table.add("", "Upsample", 1, 2, upsample);
  table.add("", "GridSample", 2, 2, gridSample);
  table.add("", "DepthToSpace", 1, 1, [](NodeImporter &n) { blocks(n, true); });
  table.add("", "SpaceToDepth", 1, 1, [](NodeImporter &n) { blocks(n, false); });
}

} // namespace fusion::onnx
