#include "passes/raise/AttentionSinks.h"

#include "passes/raise/AttentionMatch.h"

#include <limits>

using namespace mlir;

namespace fusion::raise {

Value withoutLargest(Value value) {
  auto sub = withoutFloatCasts(value).getDefiningOp<nn::SubOp>();
  auto largest = sub ? withoutFloatCasts(sub.getRhs()).getDefiningOp<nn::ReduceOp>() : nn::ReduceOp();
  if (!largest || largest.getKind() != "max" || !largest.getKeepdims() || largest.getAxes().size() != 1 ||
      withoutFloatCasts(largest.getX()) != withoutFloatCasts(sub.getLhs()))
    return value;
  const int64_t rank = tensorType(sub).getRank(), axis = largest.getAxes()[0];
  return axis == -1 || axis == rank - 1 ? sub.getLhs() : value;
}

std::optional<Sink> matchSink(nn::SoftmaxOp softmax, ShapeTable &shapes) {
  auto parts = matchLastDimPair(withoutFloatCasts(withoutLargest(softmax.getX())));
  if (!parts || tensorType(softmax).getRank() != 4)
    return std::nullopt;
  auto isSink = [](Value value) { return tensorType(value).getDimSize(3) == 1; };
  const bool isFirst = isSink(parts->first) && !isSink(parts->second);
  if (!isFirst && !isSink(parts->second))
    return std::nullopt;
  Sink found;
  found.scores = isFirst ? parts->second : parts->first;
  found.sink = withoutFloatCasts(isFirst ? parts->first : parts->second);
  if (auto expand = found.sink.getDefiningOp<nn::ExpandOp>())
    found.sink = expand.getX();
  const DimShape scores = shapes.of(found.scores), sink = shapes.of(found.sink);
  if (sink.size() != 4 || !(sink[2] == Dim(1)) || !(sink[1] == scores[1]) ||
      !(sink[0] == Dim(1) || sink[0] == scores[0]))
    return std::nullopt;
  Value value = softmax;
  while (auto cast = onlyUserAs<nn::CastOp>(value)) {
    if (!isFloat(cast))
      break;
    value = cast;
  }
  auto slice = onlyUserAs<nn::SliceOp>(value);
  if (!slice || !(shapes.of(slice) == scores))
    return std::nullopt;
  for (auto [dim, start] : llvm::enumerate(nn::dimsFromAttr(slice.getStarts())))
    if (!(start == Dim(dim == 3 && isFirst ? 1 : 0)) || slice.getSteps()[dim] != 1)
      return std::nullopt;
  found.probabilities = slice;
  return found;
}

namespace {

class Builder {
public:
  Builder(const Sink &sink, Location location, Raiser &raiser)
      : sink(sink), location(location), raiser(raiser), b(raiser.rewriter),
        scores(raiser.shapes.of(sink.scores)) {}

  /// Keys j > i + (keys - queries) - window for query i.
  Value windowMask(int64_t window) {
    const Dim &queries = scores[2], &keys = scores[3];
    Value oldest =
        nn::buildReshape(b, location, count(keys - queries - Dim(window), queries), {queries, Dim(1)});
    return nn::build<nn::GreaterOp>(b, location, {count(0, keys), oldest});
  }

  Value both(Value mask, Value condition) {
    if (!mask)
      return condition;
    if (elementType(mask).isInteger(1))
      return nn::build<nn::AndOp>(b, location, {mask, condition});
    return nn::build<nn::WhereOp>(b, location, {condition, mask, scalar(elementType(mask), -infinity)});
  }

  Value withFront(Value x, int64_t axis, double number) {
    DimShape low(static_cast<size_t>(tensorType(x).getRank()), Dim(0)), high = low;
    low[static_cast<size_t>(axis)] = 1;
    return nn::build<nn::PadOp>(b, location, {x, scalar(elementType(x), number)},
                                {dims("low", low), dims("high", high)});
  }

  /// The sink's score and what `mask` says of the keys behind it.
  Value mask(Value mask) {
    const Type f32 = b.getF32Type();
    const DimShape shape = raiser.shapes.of(sink.sink);
    Value zeros = nn::build<nn::ExpandOp>(b, location, scalar(f32, 0),
                                          dims("shape", {shape[0], shape[1], Dim(1), scores[3]}));
    Value all = nn::build<nn::ConcatOp>(b, location, {asF32(sink.sink), zeros},
                                        b.getNamedAttr("axis", b.getI64IntegerAttr(3)));
    if (!mask)
      return all;
    const bool chooses = elementType(mask).isInteger(1);
    Value wide = withFront(mask, tensorType(mask).getRank() - 1, chooses ? 1 : 0);
    if (chooses)
      return nn::build<nn::WhereOp>(b, location, {wide, all, scalar(f32, -infinity)});
    return nn::build<nn::AddOp>(b, location, {asF32(wide), all});
  }

private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  Value scalar(Type type, double number) { return nn::buildScalar(b, location, type, number); }
  Value asF32(Value x) {
    return isF32(x) ? x : Value(nn::build<nn::CastOp>(b, location, x, {}, b.getF32Type()));
  }
  NamedAttribute dims(StringRef name, const DimShape &values) {
    return b.getNamedAttr(name, nn::dimsToAttr(b.getContext(), values));
  }
  /// first, first + 1, …
  Value count(const Dim &first, const Dim &size) {
    Value start = scalar(b.getI64Type(), 0);
    if (!(first == Dim(0)))
      start = nn::DimConstantOp::create(b, location, RankedTensorType::get({}, b.getI64Type()),
                                        nn::dimsToAttr(b.getContext(), {first}));
    return nn::build<nn::IotaOp>(b, location, {start, scalar(b.getI64Type(), 1)}, dims("size", {size}));
  }

  const Sink &sink;
  Location location;
  Raiser &raiser;
  IRRewriter &b;
  DimShape scores;
};

} // namespace

SinkOperands putSinkInFront(const Sink &sink, SinkOperands operands, int64_t window, Location location,
                            Raiser &raiser) {
  Builder builder(sink, location, raiser);
  if (window != 0)
    operands.mask = builder.both(operands.mask, builder.windowMask(window));
  return {builder.withFront(operands.keys, 2, 0), builder.withFront(operands.values, 2, 0),
          builder.mask(operands.mask)};
}

Sink withRank4(Sink sink, Raiser &raiser) {
  DimShape shape = raiser.shapes.of(sink.sink);
  const Dim heads = raiser.shapes.of(sink.scores)[1];
  const bool isOfEntries = shape.size() > 2 && !(shape.front() == Dim(1)) && shape[1] == heads;
  if (shape.size() != 4)
    sink.sink = nn::buildReshape(raiser.rewriter, sink.sink.getLoc(), sink.sink,
                                 {isOfEntries ? shape.front() : Dim(1), heads, Dim(1), Dim(1)});
  return sink;
}

} // namespace fusion::raise
