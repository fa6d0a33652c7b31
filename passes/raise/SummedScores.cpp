#include "passes/raise/SummedScores.h"

#include "passes/raise/KeyColumns.h"

#include "ir/dialect/Shapes.h"

using namespace mlir;

namespace fusion::raise {

/// Strips scales and views between the scores and their products; factors of rows if `takesFactors`.
static Scaled beforeProduct(Value value, bool takesFactors, Scores &scores, ShapeTable &shapes) {
  const bool isMerged = tensorType(value).getRank() == 3;
  Scaled found = withoutScale(value);
  auto goOn = [&](Value inner) {
    const double scale = found.scale;
    found = withoutScale(inner);
    found.scale *= scale;
  };
  while (takesFactors && !scores.byKey && !isMerged) {
    auto factor = matchScoreFactor(withoutFloatCasts(found.value), shapes);
    if (!factor)
      break;
    scores.factors.push_back(*factor);
    goOn(factor->scores);
  }
  if (Value inner = beforeSwap(withoutFloatCasts(found.value))) {
    scores.byKey = !scores.byKey;
    swapLastTwo(scores.heads);
    goOn(inner);
  }
  const bool mayStack = !scores.byKey && !scores.heads && !scores.windows;
  if (Value inner = beforeHeadsSwap(withoutFloatCasts(found.value)); inner && mayStack) {
    scores.headsAfterQueries = !scores.headsAfterQueries;
    goOn(inner);
  }
  if (auto reshape = withoutFloatCasts(found.value).getDefiningOp<nn::ReshapeOp>()) {
    Value inner = scores.headsAfterQueries ? Value() : beforeHeadsReshape(reshape, scores.heads, shapes);
    if (!inner && mayStack && tensorType(reshape).getRank() == 4) {
      std::optional<DimShape> stacked;
      inner = beforeStackedReshape(reshape, stacked, shapes);
      if (inner && scores.headsAfterQueries)
        std::swap((*stacked)[1], (*stacked)[2]);
      if (inner)
        scores.stacked = stacked;
    }
    if (inner)
      goOn(inner);
  }
  found.value = withoutFloatCasts(found.value);
  return found;
}

/// Keys [batch, 1, ..].
static bool hasOneHead(Value keys, ShapeTable &shapes) {
  const DimShape shape = shapes.of(keys);
  return shape.size() == 4 && shape[1] == Dim(1);
}

bool matchProducts(Value value, double scale, Scores &scores, ShapeTable &shapes, std::string &reason) {
  const Scaled whole = beforeProduct(value, true, scores, shapes);
  auto take = [&](const Scaled &scaled, const Scores &layout, StringRef what) {
    auto matmul = scaled.value.getDefiningOp<nn::MatmulOp>();
    if (!matmul) {
      reason = what.str() + " made by " + producerName(scaled.value) + ", not by nn.matmul";
      return false;
    }
    if (layout.headsAfterQueries && !layout.stacked && !hasOneHead(matmul.getB(), shapes)) {
      reason = "the scores are made of keys of each query";
      return false;
    }
    scores.products.push_back({matmul, scale * scaled.scale});
    return true;
  };
  auto sum = whole.value.getDefiningOp<nn::AddOp>();
  if (!sum)
    return take(whole, scores, "the scores are");
  scale *= whole.scale;
  Scores layouts[] = {scores, scores};
  for (unsigned i : {0u, 1u}) {
    const Scaled addend = beforeProduct(sum->getOperand(i), false, layouts[i], shapes);
    if (!take(addend, layouts[i], "a part of the scores' sum is"))
      return false;
  }
  if (layouts[0].byKey != layouts[1].byKey || layouts[0].heads != layouts[1].heads ||
      layouts[0].stacked != layouts[1].stacked ||
      layouts[0].headsAfterQueries != layouts[1].headsAfterQueries) {
    reason = "the scores sum two products of different layouts";
    return false;
  }
  scores.byKey = layouts[0].byKey;
  scores.heads = layouts[0].heads;
  scores.stacked = layouts[0].stacked;
  scores.headsAfterQueries = layouts[0].headsAfterQueries;
  return true;
}

/// Why x and y, of rank 4, cannot be concatenated along the last dim. Sizes that are not provably equal are
/// taken as equal, as the sum took them; one that may be 1 was broadcast.
static std::string unlike(Value x, Value y, StringRef name, ShapeTable &shapes) {
  if (elementType(x) != elementType(y))
    return "the scores sum two products of " + name.str() + " in " + typeName(x) + " and " + typeName(y);
  const DimShape left = shapes.of(x), right = shapes.of(y);
  for (size_t i = 0; i + 1 < left.size(); ++i)
    if (!(left[i] == right[i]) &&
        (left[i].isStatic() || right[i].isStatic() || nn::isOneOrNone(left[i]) || nn::isOneOrNone(right[i])))
      return "the scores sum two products of " + name.str() + " whose dim " + std::to_string(i) + " is " +
             left[i].str() + " and " + right[i].str();
  return {};
}

/// `key` with as many heads as `other`, if it has one for all.
static Value withHeadsOf(Value other, Value key, Raiser &raiser) {
  DimShape shape = raiser.shapes.of(key);
  const Dim heads = raiser.shapes.of(other)[1];
  if (!(shape[1] == Dim(1)) || heads == Dim(1))
    return key;
  shape[1] = heads;
  return nn::build<nn::ExpandOp>(
      raiser.rewriter, key.getLoc(), key,
      raiser.rewriter.getNamedAttr("shape", nn::dimsToAttr(raiser.rewriter.getContext(), shape)));
}

/// The second of two keys is the wider one.
static bool isWider(Value second, Value first, ShapeTable &shapes) {
  const Dim left = shapes.of(first).back(), right = shapes.of(second).back();
  return left.isStatic() && right.isStatic() && left.value() < right.value();
}

static Value concatenated(Value x, Value y, Raiser &raiser) {
  return nn::build<nn::ConcatOp>(raiser.rewriter, x.getLoc(), {x, y},
                                 raiser.rewriter.getNamedAttr("axis", raiser.rewriter.getI64IntegerAttr(3)));
}

std::optional<ScorePart> joinParts(ScorePart first, ScorePart second, Value value, Raiser &raiser,
                                   std::string &reason) {
  auto &b = raiser.rewriter;
  if (isSameView(second.key, value, raiser.shapes) ||
      (!isSameView(first.key, value, raiser.shapes) && isWider(second.key, first.key, raiser.shapes)))
    std::swap(first, second);
  first.key = withHeadsOf(second.key, first.key, raiser);
  second.key = withHeadsOf(first.key, second.key, raiser);
  reason = unlike(first.query, second.query, "queries", raiser.shapes);
  if (reason.empty())
    reason = unlike(first.key, second.key, "keys", raiser.shapes);
  if (reason.empty() && first.scale == 0)
    reason = "a part of the scores' sum is multiplied by 0";
  if (!reason.empty())
    return std::nullopt;
  if (first.scale != second.scale) {
    Value ratio =
        nn::buildScalar(b, second.query.getLoc(), elementType(second.query), second.scale / first.scale);
    second.query = nn::build<nn::MulOp>(b, second.query.getLoc(), {second.query, ratio});
  }
  Value key = joinedColumns(first.key, second.key, raiser);
  return ScorePart{concatenated(first.query, second.query, raiser),
                   key ? key : concatenated(first.key, second.key, raiser), first.scale};
}

} // namespace fusion::raise
