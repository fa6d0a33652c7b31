// Resize along an axis of which a size is a symbol: which elements a result takes, and with which weights, is
// computed in the run.
#include "ir/import/OpsResize.h"

#include "ir/import/FloatSizes.h"
#include "ir/import/Graph.h"
#include "ir/import/OpsShared.h"

#include <cmath>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Scales are fractions with a denominator of at most this, so that f32 holds their products with sizes.
constexpr int64_t finest = 1024;

/// All floats are f32, and the operations those of onnxruntime in its order: where a result lies between two
/// elements, the nearest hangs on the last bit.
class Resampler {
public:
  Resampler(NodeImporter &node, const Sampling &how, const Dim &from, const Dim &to, AxisScale scale)
      : n(node), how(how), from(from), to(to), scale(scale) {}

  Value along(Value x, int64_t axis) {
    const Value place = places();
    if (how.antialias && how.mode != "nearest")
      return antialiased(x, axis, place);
    if (how.mode == "nearest")
      return n.build<nn::GatherOp>({x, n.cast(inside(nearest(place)), n.i64Type())}, n.i64("axis", axis));
    DimShape shape(n.rankOf(x), Dim(1));
    if (n.failed())
      return {};
    shape[axis] = to;
    Value sum;
    for (const Tap &tap : how.mode == "cubic" ? cubicTaps(place) : linearTaps(place)) {
      Value part =
          n.mul(n.build<nn::GatherOp>({x, n.cast(inside(tap.place), n.i64Type())}, n.i64("axis", axis)),
                n.reshape(tap.weight, shape));
      sum = sum ? n.add(sum, part) : part;
    }
    return sum;
  }

private:
  /// An element for each result: its place, a whole number, and its weight, both [to].
  struct Tap {
    Value place, weight;
  };

  /// Products with a table of [from, to], whose filter is wider where there are fewer results than inputs.
  Value antialiased(Value x, int64_t axis, Value place) {
    if (n.failed())
      return {};
    const Value inputs = n.reshape(n.cast(countFrom(n, 0, from), n.f32Type()), {from, Dim(1)});
    const Value narrow = n.build<nn::MinOp>({ratio(), number(1)});
    const Value distance = n.build<nn::AbsOp>(n.mul(n.sub(inputs, n.reshape(place, {Dim(1), to})), narrow));
    Value weights;
    if (how.mode == "cubic") {
      const Value isNear = n.build<nn::LessOp>({distance, number(1)}),
                  isFar = n.build<nn::LessOp>({distance, number(2)});
      weights = n.build<nn::WhereOp>({isFar, cubicWeight(distance, true), number(0)});
      weights = n.build<nn::WhereOp>({isNear, cubicWeight(distance, false), weights});
    } else {
      weights = n.build<nn::MaxOp>({n.sub(number(1), distance), number(0)});
    }
    weights = n.div(weights, n.reduce(weights, "sum", {0}));
    auto perm = llvm::to_vector(llvm::seq<int64_t>(0, n.rankOf(x)));
    std::swap(perm[axis], perm.back());
    return n.transpose(n.build<nn::MatmulOp>({n.transpose(x, perm), weights}), perm);
  }

  Value number(double value) { return n.scalar(n.f32Type(), value); }
  Value floated(const Dim &dim) { return n.cast(n.dimConstant(dim, {}, n.i64Type()), n.f32Type()); }
  Value floor(Value x) { return n.build<nn::FloorOp>(x); }
  Value inside(Value place) {
    return n.build<nn::MinOp>({n.build<nn::MaxOp>({place, number(0)}), n.sub(floated(from), number(1))});
  }

  /// Results for each input.
  Value ratio() { return scale ? number(*scale) : n.div(floated(to), floated(from)); }

  /// Where each result lies among the inputs.
  Value places() {
    const Value at = n.cast(countFrom(n, 0, to), n.f32Type());
    const std::string &mode = how.coordinates;
    const Value inputs = floated(from), results = floated(to);
    if (mode == "align_corners") {
      // `to` before it is rounded. One result lies at 0, whatever it is divided by.
      const Value exact = scale ? n.mul(number(*scale), inputs) : results;
      const Value gaps = n.build<nn::MaxOp>({n.sub(exact, number(1)), number(1.0 / (2 * finest))});
      return n.div(n.mul(at, n.sub(inputs, number(1))), gaps);
    }
    const Value each = ratio();
    if (mode == "asymmetric")
      return n.div(at, each);
    Value place = n.div(n.add(at, number(0.5)), each);
    if (mode == "tf_half_pixel_for_nn")
      return place;
    if (mode == "half_pixel_symmetric") {
      const Value lacking = n.sub(number(1), n.div(results, n.mul(each, inputs)));
      place = n.add(n.mul(n.mul(inputs, number(0.5)), lacking), place);
    }
    place = n.sub(place, number(0.5));
    if (mode == "pytorch_half_pixel")
      place = n.build<nn::WhereOp>({n.build<nn::GreaterOp>({results, number(1)}), place, number(0)});
    return place;
  }

  Value nearest(Value place) {
    if (how.rounding == "ceil")
      return n.build<nn::CeilOp>(place);
    const Value low = floor(place);
    if (how.rounding == "floor")
      return low;
    // What is this near to the middle is there, as onnxruntime has it: quotients of sizes are rounded.
    const Value past = n.sub(place, low), middle = number(0.5 + 1e-6);
    return n.add(low, how.rounding == "round_prefer_ceil" ? floor(n.add(past, middle))
                                                          : n.build<nn::CeilOp>(n.sub(past, middle)));
  }

  /// Places are inside first, so that a result past the ends is the element there, with a weight of 1.
  std::vector<Tap> linearTaps(Value place) {
    place = inside(place);
    const Value low = floor(place), past = n.sub(place, low);
    return {{low, n.sub(number(1), past)}, {n.add(low, number(1)), past}};
  }

  std::vector<Tap> cubicTaps(Value place) {
    const Value low = floor(place), past = n.sub(place, low);
    std::vector<Tap> taps;
    Value sum;
    for (int i = -1; i <= 2; ++i) {
      const Value distance = i > 0 ? n.sub(number(i), past) : i < 0 ? n.add(past, number(1)) : past;
      Tap tap{i == 0 ? low : n.add(low, number(i)), cubicWeight(distance, i < 0 || i > 1)};
      if (how.excludesOutside) {
        const Value isInside = n.build<nn::AndOp>({n.build<nn::GreaterEqualOp>({tap.place, number(0)}),
                                                   n.build<nn::LessOp>({tap.place, floated(from)})});
        tap.weight = n.build<nn::WhereOp>({isInside, tap.weight, number(0)});
        sum = sum ? n.add(sum, tap.weight) : tap.weight;
      }
      taps.push_back(tap);
    }
    for (Tap &tap : taps)
      tap.weight = sum ? n.div(tap.weight, sum) : tap.weight;
    return taps;
  }

  /// Of elements that are less than 1 away, or `far`, from 1 to 2.
  Value cubicWeight(Value distance, bool far) {
    const double a = how.cubic;
    auto polynomial = [&](double c3, double c2, double c1, double c0) {
      Value sum = n.add(n.mul(number(c3), distance), number(c2));
      sum = c1 == 0 ? n.mul(sum, distance) : n.add(n.mul(sum, distance), number(c1));
      return n.add(n.mul(sum, distance), number(c0));
    };
    return far ? polynomial(a, -5 * a, 8 * a, -4 * a) : polynomial(a + 2, -(a + 3), 0, 1);
  }

  NodeImporter &n;
  const Sampling &how;
  Dim from, to;
  AxisScale scale;
};

struct Quotient {
  Dim numerator, denominator;
};
/// What an entry of a vector of f32 is, where that is a quotient of sizes, or 1.
std::optional<Quotient> quotientAt(NodeImporter &n, Value value, int64_t entry) {
  while (Operation *op = value.getDefiningOp()) {
    auto type = llvm::cast<RankedTensorType>(value.getType());
    if (!type.hasStaticShape() || !type.getElementType().isF32())
      return std::nullopt;
    if (auto contents = n.owner().computed(value))
      return contents->toFloats()[static_cast<size_t>(entry)] == 1 ? std::optional(Quotient{1, 1})
                                                                   : std::nullopt;
    if (llvm::isa<nn::ReshapeOp>(op)) {
      value = op->getOperand(0);
    } else if (llvm::isa<nn::ConcatOp>(op) && type.getRank() == 1) {
      for (Value part : op->getOperands()) {
        value = part;
        auto given = llvm::cast<RankedTensorType>(part.getType());
        if (!given.hasStaticShape())
          return std::nullopt;
        if (entry < given.getNumElements())
          break;
        entry -= given.getNumElements();
      }
    } else if (llvm::isa<nn::DivOp>(op)) {
      const auto above = sizesThroughFloats(op->getOperand(0)), below = sizesThroughFloats(op->getOperand(1));
      const auto all = static_cast<size_t>(type.getNumElements());
      // Of numpy's broadcasting only one number for all.
      auto fits = [&](const std::optional<DimShape> &sizes) {
        return sizes && (sizes->size() == 1 || sizes->size() == all);
      };
      auto at = [&](const DimShape &sizes) {
        return sizes[sizes.size() == 1 ? 0 : static_cast<size_t>(entry)];
      };
      return fits(above) && fits(below) ? std::optional(Quotient{at(*above), at(*below)}) : std::nullopt;
    } else {
      break;
    }
  }
  return std::nullopt;
}

/// Elements repeated `times` in place: what the nearest of an integer scale are, whatever the size.
Value repeated(NodeImporter &n, Value x, int64_t axis, int64_t times) {
  DimShape apart = n.shapeOf(x), together = apart;
  apart.insert(apart.begin() + axis + 1, Dim(1));
  DimShape wide = apart;
  wide[axis + 1] = times;
  together[axis] = together[axis] * times;
  return n.reshape(n.expand(n.reshape(x, apart), wide), together);
}

bool isRepetition(double scale, const Sampling &how) {
  return how.mode == "nearest" && scale >= 1 && std::floor(scale) == scale &&
         ((how.coordinates == "asymmetric" && how.rounding == "floor") ||
          (how.coordinates != "align_corners" && how.coordinates != "asymmetric" &&
           how.rounding.starts_with("round")));
}

} // namespace

DimShape sizesOfScales(NodeImporter &node, unsigned input, ArrayRef<Dim> from) {
  const auto count = static_cast<int64_t>(from.size());
  if (!node.has(input) || node.shape(input) != DimShape{count})
    return {};
  const Value scales = node.operand(input);
  if (node.failed() || node.owner().computed(scales))
    return {};
  DimShape sizes;
  for (int64_t i = 0; i < count; ++i) {
    const auto quotient = quotientAt(node, scales, i);
    if (quotient && quotient->numerator == quotient->denominator)
      sizes.push_back(from[i]);
    else if (quotient && sameDim(node, quotient->denominator, from[i]))
      sizes.push_back(quotient->numerator);
    else
      return {};
  }
  return sizes;
}

Dim scaledSize(NodeImporter &node, int64_t axis, const Dim &from, double scale) {
  for (int64_t parts = 1; parts <= finest; parts *= 2)
    if (const double whole = scale * static_cast<double>(parts); whole == std::floor(whole))
      return (from * static_cast<int64_t>(whole)).floorDiv(parts);
  node.fail("dim " + Twine(axis) + " has '" + from.str() + "' elements and a scale of " +
            std::to_string(scale) + ", whose product is rounded: the size of the result needs --dim");
  return {};
}

Value resizedToSymbol(NodeImporter &node, Value x, int64_t axis, const Dim &to, AxisScale scale,
                      const Sampling &how) {
  if (node.failed())
    return {};
  const Dim from = node.shapeOf(x)[axis];
  if (scale ? *scale == 1 : sameDim(node, from, to))
    return x;
  if (from == Dim(0)) {
    node.fail("dim " + Twine(axis) + " has no elements");
    return {};
  }
  if (scale && isRepetition(*scale, how))
    return repeated(node, x, axis, static_cast<int64_t>(*scale));
  const bool reachesOutside = how.antialias && how.mode != "nearest" && !how.excludesOutside;
  if (reachesOutside || how.coordinates == "tf_crop_and_resize") {
    node.fail((reachesOutside ? "antialias without exclude_outside" : "tf_crop_and_resize") +
              Twine(" needs sizes that are numbers: dim ") + Twine(axis) + " goes from '" + from.str() +
              "' to '" + to.str() + "'");
    return {};
  }
  return Resampler(node, how, from, to, scale).along(x, axis);
}

} // namespace fusion::onnx
