// GridSample as gathers of the elements around each point, weighed.
#include "ir/import/OpsGridSample.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

class GridSampler {
public:
  explicit GridSampler(NodeImporter &node) : n(node) {}

  void run() {
    if (!readAttributes())
      return;
    const Value x = n.operand(0);
    const DimShape shape = n.shape(0), points = n.shape(1);
    if (n.failed())
      return;
    const size_t spatial = shape.size() < 2 ? 0 : shape.size() - 2;
    if (spatial < 1 || points.size() != shape.size() ||
        !(points.back() == Dim(static_cast<int64_t>(spatial))))
      return n.fail("a grid of " + shapeString(points) + " does not fit to " + shapeString(shape));
    if (mode == Mode::Cubic && spatial != 2)
      return n.fail("mode cubic is for two dims");
    const Dim count = product(ArrayRef(points).drop_front().drop_back()),
              elements = product(ArrayRef(shape).drop_front(2));
    const Value grid = n.cast(n.reshape(n.operand(1), {points[0], count, points.back()}), n.f32Type());
    // [batch, elements, channels]
    const Value flat = n.transpose(n.reshape(x, {shape[0], shape[1], elements}), {0, 2, 1});
    // The grid names the last dim first.
    for (size_t i = 0; i < spatial; ++i)
      taps.push_back(tapsOf(n.slice(grid, 2, static_cast<int64_t>(spatial - 1 - i), 1), shape[2 + i]));
    std::vector<size_t> chosen(spatial, 0);
    Value sum;
    do {
      Value place, weight;
      for (size_t i = 0; i < spatial; ++i) {
        const Tap &tap = taps[i][chosen[i]];
        place = place ? n.add(n.mul(place, integer(shape[2 + i])), tap.index) : tap.index;
        weight = !tap.weight ? weight : weight ? n.mul(weight, tap.weight) : tap.weight;
      }
      Value part = n.cast(n.build<nn::GatherNdOp>({flat, place}, n.i64("batch_dims", 1)), n.f32Type());
      part = weight ? n.mul(part, weight) : part;
      sum = sum ? n.add(sum, part) : part;
    } while (!n.failed() && advance(chosen));
    if (n.failed())
      return;
    DimShape result = shape;
    std::copy(points.begin() + 1, points.end() - 1, result.begin() + 2);
    n.result(0, n.reshape(n.transpose(n.cast(sum, n.inputType(0)), {0, 2, 1}), result));
  }

private:
  enum class Mode : uint8_t { Nearest, Linear, Cubic };
  enum class Padding : uint8_t { Zeros, Border, Reflection };
  /// An element along one dim for each point, [batch, points, 1]; a weight that is null is 1.
  struct Tap {
    Value index, weight;
  };

  bool readAttributes() {
    const std::string how = n.stringAttribute("mode", n.opset() < 20 ? "bilinear" : "linear"),
                      outside = n.stringAttribute("padding_mode", "zeros");
    if (how == "nearest")
      mode = Mode::Nearest;
    else if (how == "linear" || how == "bilinear")
      mode = Mode::Linear;
    else if (how == "cubic" || how == "bicubic")
      mode = Mode::Cubic;
    else
      n.fail("mode '" + how + "' is not supported");
    if (outside == "zeros")
      padding = Padding::Zeros;
    else if (outside == "border")
      padding = Padding::Border;
    else if (outside == "reflection")
      padding = Padding::Reflection;
    else
      n.fail("padding_mode '" + outside + "' is not supported");
    corners = n.intAttribute("align_corners", 0) != 0;
    return !n.failed();
  }

  Value number(double value) { return n.scalar(n.f32Type(), value); }
  Value integer(const Dim &dim) { return n.dimConstant(dim, {}, n.i64Type()); }
  Value floated(const Dim &dim) { return n.cast(integer(dim), n.f32Type()); }
  Value clamped(Value x, const Dim &size) {
    return n.build<nn::MinOp>({n.build<nn::MaxOp>({x, number(0)}), floated(size - 1)});
  }
  /// Mirrored until it is between the ends.
  Value reflected(Value x, const Dim &size) {
    Value low = number(corners ? 0 : -0.5), range = floated(corners ? size - 1 : size),
          high = n.add(low, range);
    Value away = n.build<nn::AbsOp>(n.sub(x, low));
    Value turns = n.build<nn::FloorOp>(n.div(away, range));
    Value rest = n.sub(away, n.mul(turns, range));
    Value even =
        n.build<nn::EqualOp>({n.build<nn::FloorOp>(n.mul(turns, number(0.5))), n.mul(turns, number(0.5))});
    return n.build<nn::WhereOp>({even, n.add(low, rest), n.sub(high, rest)});
  }
  Value inside(Value x, const Dim &size) {
    if (padding == Padding::Zeros)
      return x;
    return padding == Padding::Border ? clamped(x, size) : reflected(x, size);
  }

  std::vector<Tap> tapsOf(Value given, const Dim &size) {
    Value x = corners ? n.mul(n.mul(n.add(given, number(1)), number(0.5)), floated(size - 1))
                      : n.mul(n.sub(n.mul(n.add(given, number(1)), floated(size)), number(1)), number(0.5));
    if (mode == Mode::Nearest)
      return {tap(inside(n.build<nn::RoundOp>(x), size), {}, size)};
    if (mode == Mode::Linear)
      x = inside(x, size);
    Value first = n.build<nn::FloorOp>(x), past = n.sub(x, first);
    if (mode == Mode::Linear)
      return {tap(first, n.sub(number(1), past), size), tap(n.add(first, number(1)), past, size)};
    std::vector<Tap> all;
    for (int i = -1; i <= 2; ++i)
      all.push_back(tap(n.add(first, number(i)),
                        cubic(n.build<nn::AbsOp>(n.sub(past, number(i))), i < 0 || i > 1), size));
    return all;
  }

  /// Of an element so far away: near ones are less than 1 away.
  Value cubic(Value distance, bool far) {
    constexpr double a = -0.75;
    auto polynomial = [&](double c3, double c2, double c1, double c0) {
      Value sum = n.add(n.mul(distance, number(c3)), number(c2));
      sum = n.add(n.mul(sum, distance), number(c1));
      return n.add(n.mul(sum, distance), number(c0));
    };
    return far ? polynomial(a, -5 * a, 8 * a, -4 * a) : polynomial(a + 2, -(a + 3), 0, 1);
  }

  Tap tap(Value place, Value weight, const Dim &size) {
    if (padding == Padding::Zeros) {
      Value within = n.build<nn::AndOp>(
          {n.build<nn::GreaterEqualOp>({place, number(0)}), n.build<nn::LessOp>({place, floated(size)})});
      weight = n.build<nn::WhereOp>({within, weight ? weight : number(1), number(0)});
    } else {
      place = inside(place, size);
    }
    return {n.cast(clamped(place, size), n.i64Type()), weight};
  }

  bool advance(std::vector<size_t> &chosen) const {
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (++chosen[i] < taps[i].size())
        return true;
      chosen[i] = 0;
    }
    return false;
  }

  NodeImporter &n;
  Mode mode = Mode::Linear;
  Padding padding = Padding::Zeros;
  bool corners = false;
  std::vector<std::vector<Tap>> taps; ///< of each dim
};

} // namespace

void gridSample(NodeImporter &node) { GridSampler(node).run(); }

} // namespace fusion::onnx
