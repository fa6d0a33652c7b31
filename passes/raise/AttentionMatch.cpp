#include "passes/raise/AttentionMatch.h"

#include "passes/raise/MaskArithmetic.h"
#include "passes/raise/SummedScores.h"
#include "passes/raise/ViewedMask.h"
#include "passes/raise/WindowMask.h"

#include <cmath>

using namespace mlir;

namespace fusion::raise {

namespace {

/// A factor that a mul or div applies; the other operand in `rest`.
std::optional<double> constantFactor(Operation *op, Value &rest) {
  if (auto mul = llvm::dyn_cast_or_null<nn::MulOp>(op)) {
    for (unsigned i : {1u, 0u})
      if (auto factor = constantScalar(mul->getOperand(i))) {
        rest = mul->getOperand(1 - i);
        return factor;
      }
  } else if (auto div = llvm::dyn_cast_or_null<nn::DivOp>(op)) {
    if (auto divisor = constantScalar(div.getRhs()); divisor && *divisor != 0) {
      rest = div.getLhs();
      return 1 / *divisor;
    }
  }
  return std::nullopt;
}

// mul(tanh(div(s, cap)), cap)
bool matchSoftcap(Value value, Value &inner, double &cap) {
  Value capped;
  auto factor = constantFactor(value.getDefiningOp(), capped);
  auto tanh = factor ? withoutFloatCasts(capped).getDefiningOp<nn::TanhOp>() : nn::TanhOp();
  if (!tanh)
    return false;
  Value argument;
  auto inverse = constantFactor(withoutFloatCasts(tanh.getX()).getDefiningOp(), argument);
  if (!inverse || std::abs(*factor * *inverse - 1) > 4 * constantTolerance(elementType(value)))
    return false;
  inner = argument;
  cap = *factor;
  return true;
}

/// For each dim of `to` the one of `from` that it is, -1 for a 1 that is inserted.
std::optional<SmallVector<int64_t>> insertedOnes(const DimShape &from, const DimShape &to) {
  SmallVector<int64_t> origins;
  size_t next = 0;
  for (const Dim &dim : to) {
    const bool kept = next < from.size() && dim == from[next];
    if (!kept && !(dim == Dim(1)))
      return std::nullopt;
    origins.push_back(kept ? static_cast<int64_t>(next++) : -1);
  }
  return next == from.size() ? std::optional(origins) : std::nullopt;
}

/// What masks leaves the scores their shape. Dims that are not provably equal were taken as equal when they
/// broadcast; one that may be 1 by itself is repeated.
bool keepsShape(const DimShape &scores, const DimShape &masked) {
  return scores.size() == masked.size() && llvm::all_of(llvm::zip(scores, masked), [](const auto &dims) {
           const auto &[own, result] = dims;
           return own == result || (!own.isStatic() && !result.isStatic() && !nn::isOneOrNone(own));
         });
}

/// Whether the scores are found through `value`, rather than a mask.
bool leadsToMatmul(Value value, ShapeTable &shapes, int depth = 8) {
  Operation *op = withoutFloatCasts(withoutScale(value).value).getDefiningOp();
  if (!op || depth == 0)
    return false;
  if (llvm::isa<nn::MatmulOp>(op))
    return true;
  if (auto where = llvm::dyn_cast<nn::WhereOp>(op))
    return (isMaskedScore(where.getY()) && leadsToMatmul(where.getX(), shapes, depth - 1)) ||
           (isMaskedScore(where.getX()) && leadsToMatmul(where.getY(), shapes, depth - 1));
  if (auto tanh = llvm::dyn_cast<nn::TanhOp>(op))
    return leadsToMatmul(tanh.getX(), shapes, depth - 1);
  if (auto blend = matchBlend(op->getResult(0), shapes))
    return leadsToMatmul(blend->scores, shapes, depth - 1);
  if (auto factor = matchScoreFactor(op->getResult(0), shapes))
    return leadsToMatmul(factor->scores, shapes, depth - 1);
  if (llvm::isa<nn::AddOp>(op))
    return leadsToMatmul(op->getOperand(0), shapes, depth - 1) ||
           leadsToMatmul(op->getOperand(1), shapes, depth - 1);
  if (Value inner = beforeSwap(op->getResult(0)))
    return leadsToMatmul(inner, shapes, depth - 1);
  if (Value inner = beforeHeadsSwap(op->getResult(0)))
    return leadsToMatmul(inner, shapes, depth - 1);
  if (auto reshape = llvm::dyn_cast<nn::ReshapeOp>(op)) {
    Heads heads;
    std::optional<DimShape> stacked;
    Value inner = beforeHeadsReshape(reshape, heads, shapes);
    if (!inner)
      inner = beforeStackedReshape(reshape, stacked, shapes);
    if (auto viewed = inner ? std::nullopt : matchViewedMask(reshape, shapes))
      inner = viewed->scores;
    return inner && leadsToMatmul(inner, shapes, depth - 1);
  }
  return false;
}

} // namespace

Value beforeHeadsReshape(nn::ReshapeOp reshape, Heads &heads, ShapeTable &shapes) {
  DimShape split = shapes.of(reshape.getX()), merged = shapes.of(reshape);
  if (split.size() < merged.size())
    std::swap(split, merged);
  if (split.size() != 4 || merged.size() != 3 || !(split[2] == merged[1]) || !(split[3] == merged[2]) ||
      (heads && *heads != split))
    return {};
  // A reshape keeps the number of elements: what is not proven of the first dims follows from the others.
  if (!(split[0] * split[1] == merged[0]) && (split[0].isStatic() || merged[0].isStatic()))
    return {};
  heads = split;
  return reshape.getX();
}

Value beforeStackedReshape(nn::ReshapeOp reshape, std::optional<DimShape> &stacked, ShapeTable &shapes) {
  DimShape split = shapes.of(reshape.getX()), merged = shapes.of(reshape);
  if (split.size() < merged.size())
    std::swap(split, merged);
  if (split.size() != 4 || merged.size() != 3 || !(split[0] == merged[0]) ||
      !(split[1] * split[2] == merged[1]) || !(split[3] == merged[2]) || (stacked && *stacked != split))
    return {};
  stacked = split;
  return reshape.getX();
}

Value beforeSwap(Value value) {
  auto transpose = value.getDefiningOp<nn::TransposeOp>();
  return transpose && swapsLastTwo(transpose.getPerm()) ? transpose.getX() : Value();
}

Value beforeHeadsSwap(Value value) {
  auto transpose = value.getDefiningOp<nn::TransposeOp>();
  return transpose && transpose.getPerm() == ArrayRef<int64_t>({0, 2, 1, 3}) ? transpose.getX() : Value();
}

void swapLastTwo(Heads &heads) {
  if (heads)
    std::swap((*heads)[2], (*heads)[3]);
}

Value swappedUser(Value value, Heads &heads, ShapeTable &shapes) {
  DimShape shape = shapes.of(value);
  const int64_t rank = static_cast<int64_t>(shape.size());
  if (rank < 2)
    return {};
  SmallVector<int64_t> origins = llvm::to_vector(llvm::seq<int64_t>(rank));
  if (auto split = onlyUserAs<nn::ReshapeOp>(value)) {
    auto inserted = insertedOnes(shape, shapes.of(split));
    if (!inserted)
      return {};
    origins = *inserted;
    value = split;
  }
  auto transpose = onlyUserAs<nn::TransposeOp>(value);
  if (!transpose)
    return {};
  SmallVector<int64_t> order;
  for (int64_t dim : transpose.getPerm())
    if (origins[dim] >= 0)
      order.push_back(origins[dim]);
  if (!swapsLastTwo(order))
    return {};
  std::swap(shape[rank - 1], shape[rank - 2]);
  Heads after = heads;
  swapLastTwo(after);
  Value result = transpose;
  if (static_cast<int64_t>(origins.size()) != rank) {
    auto join = onlyUserAs<nn::ReshapeOp>(transpose);
    if (!join)
      return {};
    result = join;
    if (shapes.of(join) != shape) {
      if (rank != 4 || shapes.of(join) != DimShape{shape[0] * shape[1], shape[2], shape[3]} ||
          (after && *after != shape))
        return {};
      after = shape;
    }
  }
  heads = after;
  return result;
}

Value buildSwapped(Value x, Raiser &raiser) {
  if (Value before = beforeSwap(x))
    return before;
  return nn::buildTranspose(raiser.rewriter, x.getLoc(), x, lastTwoSwapped(tensorType(x).getRank()));
}

Value withoutFloatCasts(Value value) {
  while (auto cast = value.getDefiningOp<nn::CastOp>()) {
    if (!isFloat(cast.getX()) || !isFloat(value))
      break;
    value = cast.getX();
  }
  return value;
}

Scaled withoutScale(Value value) {
  Scaled found{value};
  Value rest;
  while (true) {
    Value scaled = withoutFloatCasts(found.value);
    auto factor = constantFactor(scaled.getDefiningOp(), rest);
    // A constant of higher rank may broadcast the value; one number does not.
    if (!factor || tensorType(rest).getRank() != tensorType(scaled).getRank())
      break;
    found.scale *= *factor;
    found.value = rest;
  }
  // A cast that narrows what is not scaled is part of the value.
  found.value = withoutExactCast(found.value);
  return found;
}

/// Something that is laid over the scores: a sum, or a choice of a number that masks.
static bool isMask(Value value, ShapeTable &shapes) {
  Operation *op = value.getDefiningOp();
  if (auto where = llvm::dyn_cast_or_null<nn::WhereOp>(op))
    return isMaskedScore(where.getX()) || isMaskedScore(where.getY());
  return (llvm::isa_and_nonnull<nn::AddOp>(op) || matchBlend(value, shapes)) && leadsToMatmul(value, shapes);
}

std::optional<Scores> matchScores(Value input, bool byKey, Raiser &raiser, std::string &reason) {
  ShapeTable &shapes = raiser.shapes;
  Scores scores;
  scores.byKey = byKey;
  Value value = withoutFloatCasts(input);
  auto sameShape = [&](Value inner) { return keepsShape(shapes.of(inner), shapes.of(value)); };
  auto isMerged = [&] { return tensorType(value).getRank() == 3; };
  double scaleAfterMask = 1; // what the masked scores are multiplied by
  auto add = [&](MaskTerm term) {
    term.onMerged = isMerged();
    term.byKey = scores.byKey;
    auto scaled = scaledAfter(std::move(term), scaleAfterMask);
    if (scaled)
      scores.masks.push_back(*scaled);
    else
      reason = "the number that masks is no large negative one once it is scaled";
    return scaled.has_value();
  };
  // Masks, outermost first.
  while (true) {
    // A factor after a mask goes to both: s * (q kᵀ + mask) = s * q kᵀ + s * mask.
    if (Scaled scaled = withoutScale(value); scaled.scale > 0)
      if (Value masked = withoutFloatCasts(scaled.value); masked != value && isMask(masked, shapes)) {
        scaleAfterMask *= scaled.scale;
        value = masked;
        continue;
      }
    if (auto where = value.getDefiningOp<nn::WhereOp>()) {
      bool inverted = isMaskedScore(where.getX());
      Value inner = inverted ? where.getY() : where.getX(), masked = inverted ? where.getX() : where.getY();
      if (!isMaskedScore(masked) || !sameShape(inner)) {
        reason = isMaskedScore(masked)
                     ? "nn.where on the scores gives them another shape"
                     : "nn.where on the scores does not put a large negative number where it masks";
        return std::nullopt;
      }
      if (!add({where.getCondition(), inverted, *constantScalar(masked)}))
        return std::nullopt;
      value = withoutFloatCasts(inner);
      continue;
    }
    if (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
      if (Value inner = beforeHeadsReshape(reshape, scores.heads, shapes)) {
        value = withoutFloatCasts(inner);
        continue;
      }
    if (auto window = matchWindowMask(value, shapes);
        window && !scores.byKey && !scores.heads &&
        window->windows == scores.windows.value_or(window->windows)) {
      MaskTerm term{withoutFloatCasts(window->mask)};
      term.ofWindows = true;
      if (!add(term))
        return std::nullopt;
      scores.windows = window->windows;
      value = withoutFloatCasts(window->scores);
      continue;
    }
    if (auto viewed = matchViewedMask(value, shapes); viewed && leadsToMatmul(viewed->scores, shapes)) {
      if (!add(MaskTerm{withoutFloatCasts(buildViewedMask(*viewed, raiser))}))
        return std::nullopt;
      value = withoutFloatCasts(viewed->scores);
      continue;
    }
    if (Value inner = beforeSwap(value)) {
      scores.byKey = !scores.byKey;
      swapLastTwo(scores.heads);
      value = withoutFloatCasts(inner);
      continue;
    }
    if (auto blend = matchBlend(value, shapes)) {
      if (!sameShape(blend->scores)) {
        reason = "the condition that masks the scores gives them another shape";
        return std::nullopt;
      }
      MaskTerm term{buildCondition(blend->condition, value.getLoc(), raiser), false, blend->lowest};
      term.blended = true;
      if (!add(term))
        return std::nullopt;
      value = withoutFloatCasts(blend->scores);
      continue;
    }
    auto sum = value.getDefiningOp<nn::AddOp>();
    if (!sum)
      break;
    Value inner = sum.getLhs(), mask = sum.getRhs();
    const bool isLeft = leadsToMatmul(inner, shapes), isRight = leadsToMatmul(mask, shapes);
    if (isLeft && isRight)
      break; // a sum of products
    if (isRight)
      std::swap(inner, mask);
    if ((!isLeft && !isRight) || !sameShape(inner)) {
      reason = isLeft || isRight ? "the mask's nn.add gives the scores another shape"
                                 : "neither operand of the mask's nn.add leads to q kᵀ";
      return std::nullopt;
    }
    if (!add(addedMask(withoutFloatCasts(mask), elementType(sum), raiser)))
      return std::nullopt;
    value = withoutFloatCasts(inner);
  }
  Value capped;
  if (scaleAfterMask == 1 && matchSoftcap(value, capped, scores.softcap))
    value = capped;
  if (!matchProducts(value, scaleAfterMask, scores, shapes, reason))
    return std::nullopt;
  if (scores.byKey)
    swapLastTwo(scores.heads);
  return scores;
}

std::optional<Repeat> matchRepeat(Value value, ShapeTable &shapes) {
  DimShape whole = shapes.of(value);
  if (whole.size() != 4)
    return std::nullopt;
  // One head for all: expand of dim 1.
  if (auto expand = value.getDefiningOp<nn::ExpandOp>()) {
    DimShape from = shapes.of(expand.getX());
    if (from.size() == 4 && from[1] == Dim(1) && from[0] == whole[0] && from[2] == whole[2] &&
        from[3] == whole[3])
      return Repeat{expand.getX(), whole[1], false};
    return std::nullopt;
  }
  auto merge = value.getDefiningOp<nn::ReshapeOp>();
  auto expand = merge ? merge.getX().getDefiningOp<nn::ExpandOp>() : nn::ExpandOp();
  if (!expand)
    return std::nullopt;
  DimShape to = shapes.of(expand), from = shapes.of(expand.getX());
  if (to.size() != 5 || from.size() != 5 || !(from[2] == Dim(1)) || !(to[1] * to[2] == whole[1]) ||
      !(to[0] == whole[0]) || !(to[3] == whole[2]) || !(to[4] == whole[3]))
    return std::nullopt;
  for (size_t i : {0, 1, 3, 4})
    if (!(from[i] == to[i]))
      return std::nullopt;
  return Repeat{expand.getX(), to[2], true};
}

Value withoutRepeat(const Repeat &repeat, Raiser &raiser) {
  if (!repeat.hasGroupDim)
    return repeat.value;
  DimShape shape = raiser.shapes.of(repeat.value);
  shape.erase(shape.begin() + 2);
  if (auto unsqueeze = repeat.value.getDefiningOp<nn::ReshapeOp>())
    if (raiser.shapes.of(unsqueeze.getX()) == shape)
      return unsqueeze.getX();
  return nn::buildReshape(raiser.rewriter, repeat.value.getLoc(), repeat.value, shape);
}

} // namespace fusion::raise
