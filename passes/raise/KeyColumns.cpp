#include "passes/raise/KeyColumns.h"

#include "ir/dialect/InPlace.h"

using namespace mlir;

namespace fusion::raise {

bool isSameView(Value x, Value y, ShapeTable &shapes) {
  if (x == y)
    return true;
  if (!shapes.same(x, y))
    return false;
  x = nn::behindReshapes(x);
  y = nn::behindReshapes(y);
  if (x == y)
    return true;
  Operation *left = x.getDefiningOp(), *right = y.getDefiningOp();
  return llvm::isa_and_nonnull<nn::TransposeOp, nn::SliceOp>(left) && right &&
         left->getName() == right->getName() && left->getAttrDictionary() == right->getAttrDictionary() &&
         isSameView(left->getOperand(0), right->getOperand(0), shapes);
}

/// What a reshape that leaves the last dim as it is reshapes, or the value itself.
static Value behindRows(Value x, ShapeTable &shapes) {
  while (auto reshape = x.getDefiningOp<nn::ReshapeOp>()) {
    const DimShape from = shapes.of(reshape.getX());
    if (from.empty() || !(from.back() == shapes.of(x).back()))
      break;
    x = reshape.getX();
  }
  return x;
}

/// The columns of a tensor that `x` is, as rows of another shape.
static std::optional<LastDimSlice> columnsOf(Value x, ShapeTable &shapes) {
  auto slice = matchLastDimSlice(behindRows(x, shapes), shapes);
  return slice && slice->step == 1 ? slice : std::nullopt;
}

/// `x` is `part`, as rows of another shape.
static bool isPartOfRows(Value x, Value part, ShapeTable &shapes) {
  x = behindRows(x, shapes);
  part = behindRows(part, shapes);
  return shapes.of(x).back().isStatic() && isSameView(x, part, shapes);
}

/// The shape of the dims ahead of the last, and another last one.
static DimShape withColumns(DimShape shape, const Dim &columns) {
  shape.back() = columns;
  return shape;
}

Value joinedColumns(Value x, Value y, Raiser &raiser) {
  const auto left = columnsOf(x, raiser.shapes), right = columnsOf(y, raiser.shapes);
  if (!left || !right || left->start != 0 || right->start != left->size ||
      !isSameView(left->source, right->source, raiser.shapes))
    return {};
  const Dim all(left->size + right->size);
  if (!(raiser.shapes.of(left->source).back() == all))
    return {};
  return nn::buildReshape(raiser.rewriter, x.getLoc(), left->source, withColumns(raiser.shapes.of(x), all));
}

/// The concatenation of x and y, each as rows of shape `shape`.
static nn::ConcatOp concatOfRows(Value x, Value y, const DimShape &shape, Raiser &raiser) {
  auto &b = raiser.rewriter;
  SmallVector<Value, 2> rows;
  for (Value part : {x, y})
    rows.push_back(
        nn::buildReshape(b, part.getLoc(), part, withColumns(shape, raiser.shapes.of(part).back())));
  return nn::build<nn::ConcatOp>(
      b, x.getLoc(), rows,
      b.getNamedAttr("axis", b.getI64IntegerAttr(static_cast<int64_t>(shape.size()) - 1)));
}

void shareColumns(Value &key, Value &value, Raiser &raiser) {
  const Value whole = behindRows(key, raiser.shapes);
  const auto parts = matchLastDimPair(whole);
  auto columns = columnsOf(value, raiser.shapes);
  if (parts && isPartOfRows(value, parts->first, raiser.shapes)) {
    const bool isOwn = whole != key && whole.hasOneUse() && key.hasOneUse();
    if (isOwn)
      key = concatOfRows(parts->first, parts->second, raiser.shapes.of(key), raiser);
    if (isOwn || whole == key) {
      const Value first = key.getDefiningOp<nn::ConcatOp>().getParts().front();
      if (isSameView(first, value, raiser.shapes))
        value = first;
      return;
    }
    columns = LastDimSlice{whole, 0, raiser.shapes.of(value).back().value(), 1};
  }
  const DimShape shape = raiser.shapes.of(key);
  if (!columns || columns->source == key || !(raiser.shapes.of(columns->source).back() == shape.back()) ||
      !isSameView(nn::behindReshapes(key), nn::behindReshapes(columns->source), raiser.shapes) ||
      withColumns(shape, Dim(columns->size)) != raiser.shapes.of(value))
    return;
  value =
      nn::buildColumns(raiser.rewriter, value.getLoc(), key, shape, Dim(columns->start), Dim(columns->size));
}

} // namespace fusion::raise
