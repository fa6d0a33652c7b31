#include "passes/raise/UnrotatedTokens.h"

using namespace mlir;

namespace fusion::raise {

namespace {

/// Where `value` lies in `source` along `axis`, of which it takes all of the other dims; the end of it.
std::optional<Dim> endOfPart(Value value, Value source, size_t axis, const Dim &start, ShapeTable &shapes) {
  auto slice = value.getDefiningOp<nn::SliceOp>();
  if (!slice || slice.getX() != source)
    return std::nullopt;
  const DimShape starts = nn::dimsFromAttr(slice.getStarts()), sizes = nn::dimsFromAttr(slice.getSizes()),
                 whole = shapes.of(source);
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool isPart = i == axis ? starts[i] == start : starts[i] == Dim(0) && sizes[i] == whole[i];
    if (!isPart || slice.getSteps()[i] != 1)
      return std::nullopt;
  }
  return start + sizes[axis];
}

/// cos or sin with `fill` for `before` tokens ahead of its own and `after` behind them. Its token dim is the
/// one `fromEnd` from its last.
Value extended(Value table, size_t fromEnd, const Dim &tokens, const Dim &before, const Dim &after,
               double fill, ShapeTable &shapes, OpBuilder &b) {
  const Location location = table.getLoc();
  auto expand = [&](Value x, const DimShape &shape) -> Value {
    return nn::build<nn::ExpandOp>(b, location, x,
                                   b.getNamedAttr("shape", nn::dimsToAttr(b.getContext(), shape)));
  };
  DimShape shape = shapes.of(table);
  while (shape.size() <= fromEnd)
    shape.insert(shape.begin(), Dim(1));
  const size_t axis = shape.size() - 1 - fromEnd;
  table = nn::buildReshape(b, location, table, shape);
  if (!(shape[axis] == tokens)) {
    shape[axis] = tokens;
    table = expand(table, shape);
  }
  const Value filler = nn::buildScalar(b, location, elementType(table), fill);
  const auto fillers = [&](const Dim &size) -> SmallVector<Value, 1> {
    if (size == Dim(0))
      return {};
    shape[axis] = size;
    return {expand(filler, shape)};
  };
  SmallVector<Value> parts(fillers(before));
  parts.push_back(table);
  parts.append(fillers(after));
  return nn::build<nn::ConcatOp>(b, location, parts,
                                 b.getNamedAttr("axis", b.getI64IntegerAttr(static_cast<int64_t>(axis))));
}

struct UnrotatedTokens : OpRewritePattern<nn::ConcatOp> {
  UnrotatedTokens(MLIRContext *context, ShapeTable &shapes) : OpRewritePattern(context), shapes(shapes) {}
  LogicalResult matchAndRewrite(nn::ConcatOp concat, PatternRewriter &rewriter) const override {
    const int64_t rank = tensorType(concat).getRank();
    int64_t axis = static_cast<int64_t>(concat.getAxis());
    axis += axis < 0 ? rank : 0;
    nn::RopeOp rope;
    for (Value part : concat.getParts())
      if (auto found = part.getDefiningOp<nn::RopeOp>()) {
        if (rope || !found->hasOneUse())
          return failure();
        rope = found;
      }
    auto rotated = rope ? rope.getX().getDefiningOp<nn::SliceOp>() : nn::SliceOp();
    if (!rotated || axis == rank - 1 || elementType(rope) != elementType(rotated.getX()))
      return failure();
    const Value source = rotated.getX();
    Dim end = 0, before = 0, tokens = 0;
    for (Value part : concat.getParts()) {
      const bool turns = part == rope.getY();
      auto next = endOfPart(turns ? rope.getX() : part, source, static_cast<size_t>(axis), end, shapes);
      if (!next) {
        noteMiss(concat, "rope", "the tokens beside those that rotate are not the others of the same tensor");
        return failure();
      }
      if (turns) {
        before = end;
        tokens = *next - end;
      }
      end = *next;
    }
    const Dim all = shapes.of(source)[axis];
    if (!(end == all))
      return failure();
    const auto fromEnd = static_cast<size_t>(rank - 1 - axis);
    auto table = [&](Value x, double fill) {
      return extended(x, fromEnd, tokens, before, all - before - tokens, fill, shapes, rewriter);
    };
    const Value cos = table(rope.getCos(), 1), sin = table(rope.getSin(), 0);
    noteRaised(concat, "rope", "tokens that do not rotate are finite");
    replaceByNew(rewriter, concat,
                 nn::build<nn::RopeOp>(rewriter, concat.getLoc(), {source, cos, sin}, rope->getAttrs(),
                                       elementType(concat)));
    return success();
  }

private:
  ShapeTable &shapes;
};

} // namespace

void addUnrotatedTokens(RewritePatternSet &patterns, ShapeTable &shapes) {
  patterns.add<UnrotatedTokens>(patterns.getContext(), shapes);
}

} // namespace fusion::raise
