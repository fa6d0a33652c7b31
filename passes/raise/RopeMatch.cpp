#include "passes/raise/RopeMatch.h"

using namespace mlir;

namespace fusion::raise {

namespace {

/// x of neg(x), or of its spelling as x * -1 + 0, which differs in the sign of a zero; or null.
Value negated(Value value) {
  if (auto neg = value.getDefiningOp<nn::NegOp>())
    return neg.getX();
  if (auto add = value.getDefiningOp<nn::AddOp>())
    if (auto zero = matchAddConstant(add); zero && zero->constant == 0)
      value = zero->value;
  auto mul = value.getDefiningOp<nn::MulOp>();
  if (!mul)
    return {};
  for (auto [x, factor] : {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())})
    if (isConstant(factor, -1))
      return x;
  return {};
}

/// v of a reshape that only adds a dim of size 1 with `after` dims behind it, as exporters do before they
/// concatenate; or null.
Value withoutUnit(Value value, size_t after, ShapeTable &shapes) {
  auto reshape = value.getDefiningOp<nn::ReshapeOp>();
  if (!reshape)
    return {};
  DimShape from = shapes.of(reshape.getX()), to = shapes.of(reshape);
  if (to.size() <= after || !(to[to.size() - 1 - after] == Dim(1)))
    return {};
  to.erase(to.end() - 1 - after);
  return from == to ? Value(reshape.getX()) : Value();
}
Value withoutLastUnit(Value value, ShapeTable &shapes) { return withoutUnit(value, 0, shapes); }

/// x of a reshape that splits the last dim of x into pairs: [.., 2 h] to [.., h, 2]; or null.
Value beforePairing(Value value, ShapeTable &shapes) {
  auto reshape = value.getDefiningOp<nn::ReshapeOp>();
  if (!reshape)
    return {};
  DimShape from = shapes.of(reshape.getX()), to = shapes.of(reshape);
  if (to.size() != from.size() + 1 || !(to.back() == Dim(2)) || !(to[to.size() - 2] * Dim(2) == from.back()))
    return {};
  return std::equal(from.begin(), from.end() - 1, to.begin()) ? Value(reshape.getX()) : Value();
}

std::optional<PairElement> elementOf(Value x, int64_t index, ShapeTable &shapes) {
  const Dim last = shapes.of(x).back();
  if (!last.isStatic() || last.value() % 2)
    return std::nullopt;
  return PairElement{x, index, 2, last.value() / 2};
}

/// As matchLastDimSlice; also the slice of some rows of a value, as one of the slice of all of these rows: a
/// slice of a slice is one slice, and that of the rows is read as well.
std::optional<LastDimSlice> matchRowSlice(Value value, ShapeTable &shapes) {
  if (auto slice = matchLastDimSlice(value, shapes))
    return slice;
  auto slice = value.getDefiningOp<nn::SliceOp>();
  if (!slice)
    return std::nullopt;
  const DimShape starts = nn::dimsFromAttr(slice.getStarts()), sizes = nn::dimsFromAttr(slice.getSizes());
  if (starts.empty() || !starts.back().isStatic() || !sizes.back().isStatic())
    return std::nullopt;
  DimShape rowStarts = starts, rowSizes = sizes;
  SmallVector<int64_t> rowSteps(slice.getSteps());
  rowStarts.back() = Dim(0);
  rowSizes.back() = shapes.of(slice.getX()).back();
  rowSteps.back() = 1;
  for (Operation *user : slice.getX().getUsers())
    if (auto rows = llvm::dyn_cast<nn::SliceOp>(user);
        rows && nn::dimsFromAttr(rows.getStarts()) == rowStarts &&
        nn::dimsFromAttr(rows.getSizes()) == rowSizes && rows.getSteps() == ArrayRef<int64_t>(rowSteps))
      return LastDimSlice{rows, starts.back().value(), sizes.back().value(), slice.getSteps().back()};
  return std::nullopt;
}

/// Half 0 or 1 of x, where a reshape from [.., 2 h] to [.., 2, h] puts the halves into a dim of their own and
/// `slice` takes one of them, in the shape of `half` without that dim.
std::optional<PairElement> matchHalfInDim(Value value, const DimShape &half, ShapeTable &shapes) {
  auto slice = value.getDefiningOp<nn::SliceOp>();
  auto split = slice ? slice.getX().getDefiningOp<nn::ReshapeOp>() : nn::ReshapeOp();
  if (!split || half.empty() || !half.back().isStatic())
    return std::nullopt;
  DimShape halves = half, sizes = half, starts = nn::dimsFromAttr(slice.getStarts());
  halves.insert(halves.end() - 1, Dim(2));
  sizes.insert(sizes.end() - 1, Dim(1));
  DimShape whole = half;
  whole.back() = half.back() * Dim(2);
  const bool keepsSteps = llvm::all_of(slice.getSteps(), [](int64_t step) { return step == 1; });
  if (!keepsSteps || shapes.of(split) != halves || shapes.of(split.getX()) != whole ||
      shapes.of(slice) != sizes || !starts[starts.size() - 2].isStatic())
    return std::nullopt;
  const int64_t size = half.back().value();
  return PairElement{split.getX(), starts[starts.size() - 2].value() * size, 1, size};
}

/// Element 0 or 1 of the pairs in a dim of their own: by a gather, or by a slice that a reshape squeezes.
std::optional<PairElement> matchPairedElement(Value value, ShapeTable &shapes) {
  if (auto gather = value.getDefiningOp<nn::GatherOp>()) {
    int64_t axis = static_cast<int64_t>(gather.getAxis()), rank = tensorType(gather.getX()).getRank();
    auto index = constantInteger(gather.getIndices());
    Value x = beforePairing(gather.getX(), shapes);
    if (!x || !index || (axis != -1 && axis != rank - 1) || tensorType(gather.getIndices()).getRank() != 0 ||
        *index < -2 || *index > 1)
      return std::nullopt;
    return elementOf(x, *index < 0 ? *index + 2 : *index, shapes);
  }
  if (auto squeeze = value.getDefiningOp<nn::ReshapeOp>()) {
    if (auto half = matchHalfInDim(squeeze.getX(), shapes.of(squeeze), shapes))
      return half;
    auto slice = matchLastDimSlice(squeeze.getX(), shapes);
    Value x = slice ? beforePairing(slice->source, shapes) : Value();
    DimShape unit = shapes.of(squeeze);
    unit.push_back(Dim(1));
    if (x && slice->size == 1 && unit == shapes.of(squeeze.getX()))
      return elementOf(x, slice->start, shapes);
  }
  return std::nullopt;
}

/// neg below or above the reshape that adds the unit dim.
std::optional<PairElement> matchNegatedUnitElement(Value value, ShapeTable &shapes) {
  if (auto neg = value.getDefiningOp<nn::NegOp>())
    return matchUnitElement(neg.getX(), shapes);
  Value inner = withoutLastUnit(value, shapes);
  auto neg = inner ? inner.getDefiningOp<nn::NegOp>() : nn::NegOp();
  return neg ? matchPairElement(neg.getX(), shapes) : std::nullopt;
}

/// The reshape merges the last two dims [.., h, 2] of a concatenation.
std::optional<std::pair<Value, Value>> matchMergedPair(nn::ReshapeOp merge, ShapeTable &shapes) {
  auto pair = matchLastDimPair(merge.getX());
  DimShape from = shapes.of(merge.getX()), to = shapes.of(merge);
  if (!pair || from.size() != to.size() + 1 || !(from.back() == Dim(2)) ||
      !(from[from.size() - 2] * Dim(2) == to.back()) || !std::equal(to.begin(), to.end() - 1, from.begin()))
    return std::nullopt;
  return pair;
}

/// A gather or a slice takes the same element of each pair.
bool isTakenApart(nn::ReshapeOp paired, ShapeTable &shapes) {
  return llvm::any_of(paired->getUsers(), [&](Operation *user) {
    if (auto gather = llvm::dyn_cast<nn::GatherOp>(user))
      return tensorType(gather.getIndices()).getRank() == 0;
    auto slice = llvm::isa<nn::SliceOp>(user) ? matchLastDimSlice(user->getResult(0), shapes) : std::nullopt;
    return slice && slice->size == 1;
  });
}

/// The shape, with its last two dims merged, by way of which `reshape` makes or merges pairs; none where it
/// does nothing else, or has no pairs.
std::optional<DimShape> detourOfPairs(nn::ReshapeOp reshape, ShapeTable &shapes) {
  const DimShape from = shapes.of(reshape.getX()), to = shapes.of(reshape);
  const auto isPaired = [](const DimShape &shape) { return shape.size() > 1 && shape.back() == Dim(2); };
  const auto merged = [](DimShape shape) {
    shape.pop_back();
    shape.back() = shape.back() * Dim(2);
    return shape;
  };
  if (isPaired(to) && isTakenApart(reshape, shapes))
    return beforePairing(reshape, shapes) ? std::nullopt : std::optional(merged(to));
  if (isPaired(from) && matchLastDimPair(reshape.getX()) && merged(from) != to)
    return merged(from);
  return std::nullopt;
}

} // namespace

bool isRotated(Value value, const Rotation &rotation, ShapeTable &shapes) {
  if (value == rotation.source)
    return rotation.offset == 0 && shapes.of(value).back() == Dim(rotation.dim);
  auto slice = matchRowSlice(value, shapes);
  return slice && slice->source == rotation.source && slice->start == rotation.offset &&
         slice->size == rotation.dim && slice->step == 1;
}

Value rotatedValue(const Rotation &rotation, Location location, ShapeTable &shapes, OpBuilder &b) {
  if (isRotated(rotation.source, rotation, shapes))
    return rotation.source;
  DimShape sizes = shapes.of(rotation.source), starts(sizes.size(), Dim(0));
  starts.back() = Dim(rotation.offset);
  sizes.back() = Dim(rotation.dim);
  return nn::build<nn::SliceOp>(
      b, location, rotation.source,
      {b.getNamedAttr("starts", nn::dimsToAttr(b.getContext(), starts)),
       b.getNamedAttr("sizes", nn::dimsToAttr(b.getContext(), sizes)),
       b.getNamedAttr("steps", b.getDenseI64ArrayAttr(SmallVector<int64_t>(sizes.size(), 1)))});
}

std::optional<Rotation> pairUp(const PairElement &first, const PairElement &second) {
  if (first.source != second.source || first.half != second.half || first.step != second.step)
    return std::nullopt;
  if (first.step == 1 && second.start == first.start + first.half)
    return Rotation{first.source, first.start, 2 * first.half, false};
  if (first.step == 2 && second.start == first.start + 1)
    return Rotation{first.source, first.start, 2 * first.half, true};
  return std::nullopt;
}

static std::optional<Rotation> matchHalves(Value turned, Value first, ShapeTable &shapes) {
  const Value second = negated(turned);
  auto left = matchPairElement(first, shapes);
  auto right = second ? matchPairElement(second, shapes) : std::nullopt;
  auto squeeze = turned.getDefiningOp<nn::ReshapeOp>();
  if (const Value half = squeeze ? negated(squeeze.getX()) : Value())
    right = matchHalfInDim(half, shapes.of(squeeze), shapes);
  auto rotation = left && right ? pairUp(*left, *right) : std::nullopt;
  return rotation && !rotation->interleaved ? rotation : std::nullopt;
}

std::optional<Rotation> matchHalfRotation(Value value, ShapeTable &shapes) {
  auto pair = matchLastDimPair(value);
  return pair ? matchHalves(pair->first, pair->second, shapes) : std::nullopt;
}

std::optional<Rotation> matchStackedRotation(nn::ReshapeOp merge, ShapeTable &shapes) {
  auto concat = merge.getX().getDefiningOp<nn::ConcatOp>();
  DimShape stacked = shapes.of(merge.getX()), merged = shapes.of(merge);
  const int64_t rank = static_cast<int64_t>(stacked.size());
  if (!concat || concat.getParts().size() != 2 || rank < 2 || stacked.size() != merged.size() + 1)
    return std::nullopt;
  const int64_t axis = static_cast<int64_t>(concat.getAxis());
  if ((axis != -2 && axis != rank - 2) || !(stacked[rank - 2] * stacked[rank - 1] == merged.back()) ||
      !std::equal(merged.begin(), merged.end() - 1, stacked.begin()))
    return std::nullopt;
  Value turned = withoutUnit(concat.getParts()[0], 1, shapes),
        first = withoutUnit(concat.getParts()[1], 1, shapes);
  return turned && first ? matchHalves(turned, first, shapes) : std::nullopt;
}

std::optional<Rotation> matchInterleavedRotation(nn::ReshapeOp merge, ShapeTable &shapes) {
  auto pair = matchMergedPair(merge, shapes);
  if (!pair)
    return std::nullopt;
  auto second = matchNegatedUnitElement(pair->first, shapes), first = matchUnitElement(pair->second, shapes);
  auto rotation = first && second ? pairUp(*first, *second) : std::nullopt;
  return rotation && rotation->interleaved ? rotation : std::nullopt;
}

std::optional<PairElement> matchPairElement(Value value, ShapeTable &shapes) {
  auto slice = matchRowSlice(value, shapes);
  if (!slice)
    return matchPairedElement(value, shapes);
  if (slice->step != 1 && slice->step != 2)
    return std::nullopt;
  return PairElement{slice->source, slice->start, slice->step, slice->size};
}

std::optional<PairElement> matchUnitElement(Value value, ShapeTable &shapes) {
  if (Value element = withoutLastUnit(value, shapes))
    return matchPairElement(element, shapes);
  if (auto slice = matchLastDimSlice(value, shapes); slice && slice->size == 1)
    if (Value x = beforePairing(slice->source, shapes))
      return elementOf(x, slice->start, shapes);
  return std::nullopt;
}

std::optional<std::pair<Value, Value>> matchComplexParts(nn::ReshapeOp merge, ShapeTable &shapes) {
  auto pair = matchMergedPair(merge, shapes);
  if (!pair || !(shapes.of(pair->first).back() == Dim(1)) || !(shapes.of(pair->second).back() == Dim(1)))
    return std::nullopt;
  return pair;
}

std::optional<std::pair<Value, Value>> matchInterleave(nn::ReshapeOp merge, ShapeTable &shapes) {
  auto pair = matchMergedPair(merge, shapes);
  if (!pair)
    return std::nullopt;
  Value first = withoutLastUnit(pair->first, shapes), second = withoutLastUnit(pair->second, shapes);
  if (!first || !second)
    return std::nullopt;
  return std::pair(first, second);
}

LogicalResult separatePairs(ModuleOp module) {
  return forEachRoot<nn::ReshapeOp>(module, [](nn::ReshapeOp reshape, Raiser &raiser) {
    auto between = detourOfPairs(reshape, raiser.shapes);
    if (!between)
      return;
    auto &b = raiser.rewriter;
    b.setInsertionPoint(reshape);
    const auto shaped = [&](Value value, Attribute shape) -> Value {
      return nn::build<nn::ReshapeOp>(b, reshape.getLoc(), value, b.getNamedAttr("shape", shape));
    };
    Value first = shaped(reshape.getX(), nn::dimsToAttr(b.getContext(), *between));
    replaceByNew(b, reshape, shaped(first, reshape.getShapeAttr()));
  });
}

} // namespace fusion::raise
