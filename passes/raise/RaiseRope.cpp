#include "passes/Passes.h"
#include "passes/raise/Raise.h"
#include "passes/raise/RopeMatch.h"
#include "passes/raise/UnrotatedTokens.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISEROPE
#include "passes/Passes.h.inc"

namespace raise {
namespace {

/// The products and sums that `root` ends have root's type; x may have a narrower one.
void buildRope(Operation *root, const Rotation &rotation, Value x, Value cos, Value sin, Raiser &raiser) {
  auto &b = raiser.rewriter;
  Type compute = elementType(root->getResult(0));
  SmallVector<NamedAttribute> attributes = {
      b.getNamedAttr("interleaved", b.getBoolAttr(rotation.interleaved)),
      b.getNamedAttr("rotary_dim", b.getI64IntegerAttr(rotation.dim))};
  if (compute != elementType(x))
    attributes.push_back(b.getNamedAttr("compute", TypeAttr::get(compute)));
  raiser.replace(root, nn::build<nn::RopeOp>(b, root->getLoc(), {x, cos, sin}, attributes, compute));
}

/// `table`, which `product` multiplies with values that rotate, has `entries` of its own in the last dim and
/// gives the product no other shape than the values have.
bool isTable(nn::MulOp product, Value table, int64_t entries, ShapeTable &shapes) {
  const DimShape shape = shapes.of(table);
  return !shape.empty() && shape.back() == Dim(entries) && shapes.same(product, otherOperand(product, table));
}

/// What rotates, if `value` is that or an exact cast of it; or null.
Value uncastRotated(Value value, const Rotation &rotation, ShapeTable &shapes) {
  while (!isRotated(value, rotation, shapes)) {
    auto cast = value.getDefiningOp<nn::CastOp>();
    if (!cast || !isFloat(cast.getX()) || !isExactCast(elementType(cast.getX()), elementType(value)))
      return {};
    value = cast.getX();
  }
  return value;
}

/// The first sum that reads `product`, which others may read too.
nn::AddOp firstSum(Value product) {
  const SmallVector<Operation *> users = llvm::to_vector(product.getUsers()); // reverse() keeps no temporary
  for (Operation *user : llvm::reverse(users))
    if (auto add = llvm::dyn_cast<nn::AddOp>(user))
      return add;
  return {};
}

/// add(mul(x, cos), mul(rotated x, sin)), where x and what is rotated may be cast, exactly, after the
/// rotation.
void raiseRotated(Value rotated, const Rotation &rotation, Raiser &raiser) {
  for (Operation *user : llvm::to_vector(rotated.getUsers())) {
    if (auto cast = llvm::dyn_cast<nn::CastOp>(user);
        cast && isFloat(cast) && isExactCast(elementType(rotated), elementType(cast))) {
      raiseRotated(cast, rotation, raiser);
      continue;
    }
    if (user->hasTrait<OpTrait::IsTerminator>())
      continue; // the rotated halves leave the function too
    auto bySin = llvm::dyn_cast<nn::MulOp>(user);
    auto add = bySin ? firstSum(bySin) : nn::AddOp();
    Value sin = bySin ? otherOperand(bySin, rotated) : Value();
    Value other = add && sin ? otherOperand(add, bySin) : Value();
    auto byCos = other ? other.getDefiningOp<nn::MulOp>() : nn::MulOp();
    if (!byCos) {
      noteMiss(user, "rope", "the rotated halves do not meet x * cos in a sum with sin");
      continue;
    }
    Value factor = byCos.getLhs(), x = uncastRotated(factor, rotation, raiser.shapes);
    if (!x) {
      factor = byCos.getRhs();
      x = uncastRotated(factor, rotation, raiser.shapes);
    }
    if (!x) {
      noteMiss(add, "rope",
               "the values times cos, from " + producerName(byCos.getLhs()) +
                   ", are not those that are rotated");
      continue;
    }
    Value cos = otherOperand(byCos, factor);
    if (!cos || !isTable(byCos, cos, rotation.dim, raiser.shapes) ||
        !isTable(bySin, sin, rotation.dim, raiser.shapes)) {
      noteMiss(add, "rope",
               "cos or sin does not hold one entry for each of the " + std::to_string(rotation.dim) +
                   " rotated elements");
      continue;
    }
    raiser.rewriter.setInsertionPoint(add);
    buildRope(add, rotation, x, cos, sin, raiser);
  }
}

/// A product of one of a pair's elements with a table.
struct Product {
  nn::MulOp mul;
  PairElement element;
  Value table;
};
/// `asPairs`: elements and tables have a last dim of 1.
std::optional<Product> matchProduct(Value value, bool asPairs, ShapeTable &shapes) {
  const auto match = asPairs ? matchUnitElement : matchPairElement;
  auto mul = value.getDefiningOp<nn::MulOp>();
  if (!mul)
    return std::nullopt;
  if (auto element = match(mul.getLhs(), shapes))
    return Product{mul, *element, mul.getRhs()};
  if (auto element = match(mul.getRhs(), shapes))
    return Product{mul, *element, mul.getLhs()};
  return std::nullopt;
}

/// The table of a product without the last dim of 1 that it has `asPairs`; null if it is no table with `half`
/// entries.
Value tableOf(const Product &product, bool asPairs, int64_t half, Operation *root, Raiser &raiser) {
  if (!asPairs)
    return isTable(product.mul, product.table, half, raiser.shapes) ? product.table : Value();
  DimShape shape = raiser.shapes.of(product.table);
  if (shape.size() < 2 || !(shape[shape.size() - 2] == Dim(half)) ||
      !isTable(product.mul, product.table, 1, raiser.shapes))
    return {};
  shape.pop_back();
  return nn::buildReshape(raiser.rewriter, root->getLoc(), product.table, shape);
}

/// The elements 0, 2, 4, … of the last dim, then the others.
Value evenThenOdd(Value value, Location location, ShapeTable &shapes, OpBuilder &b) {
  const DimShape whole = shapes.of(value);
  DimShape pairs = whole;
  pairs.back() = *whole.back().dividedBy(2);
  pairs.push_back(2);
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, static_cast<int64_t>(pairs.size())));
  std::swap(order.back(), order[order.size() - 2]);
  auto reshape = [&](Value x, const DimShape &shape) -> Value {
    return nn::build<nn::ReshapeOp>(b, location, x,
                                    b.getNamedAttr("shape", nn::dimsToAttr(b.getContext(), shape)));
  };
  return reshape(nn::buildTranspose(b, location, reshape(value, pairs), order), whole);
}

// first = a cos - b sin, second = b cos + a sin; `interleaved`: the results, which alternate. Where a and b
// do and the results are halves, the elements are put in that order first. `asPairs`: all have a last dim
// of 1.
void raiseProducts(Value first, Value second, bool interleaved, bool asPairs, Operation *root,
                   Raiser &raiser) {
  auto sub = first.getDefiningOp<nn::SubOp>();
  auto add = second.getDefiningOp<nn::AddOp>();
  if (!sub || !add)
    return;
  const auto match = [&](Value value) { return matchProduct(value, asPairs, raiser.shapes); };
  auto aCos = match(sub.getLhs()), bSin = match(sub.getRhs());
  auto bCos = match(add.getLhs()), aSin = match(add.getRhs());
  if (!aCos || !bSin || !bCos || !aSin)
    return;
  auto rotation = pairUp(aCos->element, bSin->element);
  if (!rotation || (interleaved && !rotation->interleaved))
    return;
  auto same = [](const Product &left, const Product &right) {
    return left.element.source == right.element.source && left.element.start == right.element.start;
  };
  if (!same(*bCos, *bSin))
    std::swap(bCos, aSin);
  if (!same(*bCos, *bSin) || !same(*aSin, *aCos))
    return;
  int64_t half = rotation->dim / 2;
  raiser.rewriter.setInsertionPoint(root);
  const Value cos = tableOf(*aCos, asPairs, half, root, raiser),
              sin = tableOf(*bSin, asPairs, half, root, raiser);
  if (bCos->table != aCos->table || aSin->table != bSin->table || !cos || !sin) {
    noteMiss(root, "rope", "the halves are multiplied with different tables, or with tables of another size");
    return;
  }
  if (Operation *source = rotation->source.getDefiningOp();
      source && source->getBlock() == root->getBlock() && !source->isBeforeInBlock(root))
    return; // a slice that only later ops read
  Value x = rotatedValue(*rotation, root->getLoc(), raiser.shapes, raiser.rewriter);
  if (rotation->interleaved && !interleaved) {
    x = evenThenOdd(x, root->getLoc(), raiser.shapes, raiser.rewriter);
    rotation->interleaved = false;
  }
  buildRope(root, *rotation, x, cos, sin, raiser);
}

void raiseConcat(nn::ConcatOp concat, Raiser &raiser) {
  if (auto rotation = matchHalfRotation(concat, raiser.shapes))
    return raiseRotated(concat, *rotation, raiser);
  for (Operation *user : llvm::to_vector(concat->getUsers()))
    if (auto merge = llvm::dyn_cast<nn::ReshapeOp>(user))
      if (auto rotation = matchStackedRotation(merge, raiser.shapes))
        raiseRotated(merge, *rotation, raiser);
  auto pair = matchLastDimPair(concat);
  if (!pair)
    return;
  // The interleaved forms put pairs into a dim of their own and merge it with the last one.
  for (Operation *user : llvm::to_vector(concat->getUsers()))
    if (auto merge = llvm::dyn_cast<nn::ReshapeOp>(user)) {
      if (auto rotation = matchInterleavedRotation(merge, raiser.shapes))
        raiseRotated(merge, *rotation, raiser);
      else if (auto values = matchInterleave(merge, raiser.shapes))
        raiseProducts(values->first, values->second, true, false, merge, raiser);
      else if (auto parts = matchComplexParts(merge, raiser.shapes))
        raiseProducts(parts->first, parts->second, true, true, merge, raiser);
    }
  if (!concat->use_empty())
    raiseProducts(pair->first, pair->second, false, false, concat, raiser);
}

/// `value` in the shape that `reshape` gives; itself without one.
Value reshaped(Value value, nn::ReshapeOp reshape, PatternRewriter &rewriter) {
  return reshape ? nn::build<nn::ReshapeOp>(rewriter, reshape.getLoc(), value,
                                            rewriter.getNamedAttr("shape", reshape.getShapeAttr()))
                 : value;
}

// Pattern: rope(cast(x)) -> rope(x) {compute = type of the cast} where the cast is exact; also with a reshape
// between
struct CastOfInput : OpRewritePattern<nn::RopeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::RopeOp rope, PatternRewriter &rewriter) const override {
    auto reshape = rope.getX().getDefiningOp<nn::ReshapeOp>();
    const Value wide = reshape ? reshape.getX() : rope.getX();
    Value x = withoutExactCast(wide);
    if (x == wide)
      return failure();
    x = reshaped(x, reshape, rewriter);
    Type compute = rope.computeType();
    replaceByChanged(rewriter, rope, [&](nn::RopeOp changed) {
      changed.setComputeAttr(TypeAttr::get(compute));
      changed.getXMutable().assign(x);
    });
    return success();
  }
};

// Pattern: cast(rope(x)) -> rope(x) of the cast's type where the rope did not round beyond its compute type;
// also with a reshape between
struct CastOfResult : OpRewritePattern<nn::CastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::CastOp cast, PatternRewriter &rewriter) const override {
    auto reshape = cast.getX().getDefiningOp<nn::ReshapeOp>();
    if (reshape && !reshape->hasOneUse())
      return failure();
    auto rope = (reshape ? reshape.getX() : cast.getX()).getDefiningOp<nn::RopeOp>();
    if (!rope || !rope->hasOneUse() || !isFloat(cast) || elementType(rope) != rope.computeType() ||
        !isExactCast(elementType(rope.getX()), elementType(rope)))
      return failure();
    Value built = nn::build<nn::RopeOp>(rewriter, cast.getLoc(), rope->getOperands(), rope->getAttrs(),
                                        elementType(cast));
    replaceByNew(rewriter, cast, reshaped(built, reshape, rewriter));
    return success();
  }
};

// Pattern: concat(rope(slice(x, s, r)), slice(x, s + r, rest)) -> rope(slice(x, s, r + rest)) {rotary_dim =
// r}
struct PartialRotation : OpRewritePattern<nn::ConcatOp> {
  PartialRotation(MLIRContext *context, ShapeTable &shapes) : OpRewritePattern(context), shapes(shapes) {}
  LogicalResult matchAndRewrite(nn::ConcatOp concat, PatternRewriter &rewriter) const override {
    auto parts = matchLastDimPair(concat);
    auto rope = parts ? parts->first.getDefiningOp<nn::RopeOp>() : nn::RopeOp();
    auto rotated = rope ? matchLastDimSlice(rope.getX(), shapes) : std::nullopt;
    auto passed = rope ? matchLastDimSlice(parts->second, shapes) : std::nullopt;
    if (!rotated || !passed || rotated->source != passed->source || !rope->hasOneUse())
      return failure();
    int64_t dim = rope.getRotaryDim();
    if (rotated->size != dim || rotated->step != 1 || passed->start != rotated->start + dim ||
        passed->step != 1 || elementType(rope) != elementType(rotated->source)) {
      noteMiss(concat, "rope", "the parts beside the rotated ones do not follow them in the same tensor");
      return failure();
    }
    Rotation whole{rotated->source, rotated->start, dim + passed->size, rope.getInterleaved()};
    Value x = rotatedValue(whole, concat.getLoc(), shapes, rewriter);
    Value built = nn::build<nn::RopeOp>(rewriter, concat.getLoc(), {x, rope.getCos(), rope.getSin()},
                                        rope->getAttrs(), elementType(concat));
    replaceByNew(rewriter, concat, built);
    return success();
  }

private:
  ShapeTable &shapes;
};

// Pattern: rope(x, cast(cos), cast(sin)) -> rope(x, cos, sin) where the casts are exact
struct CastOfTables : OpRewritePattern<nn::RopeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::RopeOp rope, PatternRewriter &rewriter) const override {
    Value cos = withoutExactCast(rope.getCos()), sin = withoutExactCast(rope.getSin());
    if (cos == rope.getCos() && sin == rope.getSin())
      return failure();
    replaceByChanged(rewriter, rope, [&](nn::RopeOp changed) {
      changed->setOperands({rope.getX(), cos, sin});
    });
    return success();
  }
};

LogicalResult absorbIntoRopes(ModuleOp module, bool assumeFinite) {
  return forEachFunction(module, [&](func::FuncOp function, ShapeTable &shapes) {
    RewritePatternSet patterns(module.getContext());
    patterns.add<CastOfInput, CastOfResult, CastOfTables>(module.getContext());
    patterns.add<PartialRotation>(module.getContext(), shapes);
    if (assumeFinite)
      addUnrotatedTokens(patterns, shapes);
    return applyPatternsGreedily(function, std::move(patterns), greedyConfig(shapes));
  });
}

} // namespace
} // namespace raise

namespace {
struct RaiseRope : impl::RaiseRopeBase<RaiseRope> {
  using RaiseRopeBase::RaiseRopeBase;

  void runOnOperation() override {
    auto raiseAt = [](nn::ConcatOp op, raise::Raiser &raiser) { raise::raiseConcat(op, raiser); };
    if (failed(raise::separatePairs(getOperation())) ||
        failed(raise::forEachRoot<nn::ConcatOp>(getOperation(), raiseAt)) ||
        failed(raise::absorbIntoRopes(getOperation(), assumeFinite)))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
