#include "passes/raise/MaskMatch.h"

#include "passes/Positions.h"
#include "passes/raise/AttentionMatch.h"
#include "passes/raise/MaskArithmetic.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace fusion::raise {

namespace {

constexpr double maskedScore = -1e4;

/// where(c, 0, number) with a number that masks, as c and the number.
std::optional<MaskTerm> matchChoice(Value mask) {
  auto where = mask.getDefiningOp<nn::WhereOp>();
  if (!where)
    return std::nullopt;
  bool inverted = isConstant(where.getY(), 0);
  Value kept = inverted ? where.getY() : where.getX(), masked = inverted ? where.getX() : where.getY();
  if (!isConstant(kept, 0) || !isMaskedScore(masked))
    return std::nullopt;
  return MaskTerm{where.getCondition(), inverted, *constantScalar(masked)};
}

/// The same as the upper triangle of a number, which masks the keys from its diagonal on.
std::optional<MaskTerm> matchTriangle(Value mask, Raiser &raiser) {
  auto triangle = mask.getDefiningOp<nn::TriluOp>();
  if (!triangle || !triangle.getUpper())
    return std::nullopt;
  Value filled = triangle.getX();
  if (auto expand = filled.getDefiningOp<nn::ExpandOp>())
    filled = expand.getX();
  if (!isMaskedScore(filled))
    return std::nullopt;
  auto &b = raiser.rewriter;
  const Location location = mask.getLoc();
  auto count = [&](int64_t first, const Dim &size) {
    const Type type = b.getI64Type();
    return nn::build<nn::IotaOp>(b, location,
                                 {nn::buildScalar(b, location, type, static_cast<double>(first)),
                                  nn::buildScalar(b, location, type, 1)},
                                 b.getNamedAttr("size", nn::dimsToAttr(b.getContext(), {size})));
  };
  const DimShape shape = ArrayRef<Dim>(raiser.shapes.of(mask)).take_back(2);
  const Value keys = count(0, shape[1]);
  const Value last = nn::buildReshape(b, location, count(static_cast<int64_t>(triangle.getK()) - 1, shape[0]),
                                      {shape[0], Dim(1)});
  return MaskTerm{nn::build<nn::LessEqualOp>(b, location, {keys, last}), false, *constantScalar(filled)};
}

/// The same as a choice, or c cast to numbers: (1 - c) * number; or a reshape of either.
std::optional<MaskTerm> matchChoiceOrProduct(Value mask, Raiser &raiser) {
  if (auto choice = matchChoice(mask))
    return choice;
  if (auto triangle = matchTriangle(mask, raiser))
    return triangle;
  if (auto reshape = mask.getDefiningOp<nn::ReshapeOp>())
    if (auto choice = matchChoiceOrProduct(withoutFloatCasts(reshape.getX()), raiser);
        choice && raiser.shapes.same(choice->mask, reshape.getX())) {
      choice->mask = nn::buildReshape(raiser.rewriter, mask.getLoc(), choice->mask, raiser.shapes.of(mask));
      return choice;
    }
  auto number = matchIndicator(mask, raiser.shapes);
  if (!number || !isMaskedScore(number->factor) || std::isinf(number->factor))
    return std::nullopt;
  return MaskTerm{buildCondition(number->condition.negated(), mask.getLoc(), raiser), false, number->factor};
}

void addConjuncts(Value condition, SmallVector<Value> &parts) {
  if (auto both = condition.getDefiningOp<nn::AndOp>()) {
    addConjuncts(both.getLhs(), parts);
    addConjuncts(both.getRhs(), parts);
  } else {
    parts.push_back(condition);
  }
}

/// The scores that a mask is laid over.
struct Grid {
  Dim queries, keys;
  Dim diagonal() const { return keys - queries; }
};

/// Adds what `term`, over indices of `shape`, says; false if that is neither causal nor a window.
bool addTerm(Pattern &pattern, const Affine &term, const DimShape &shape, const Grid &grid) {
  size_t rank = shape.size();
  bool oneQuery = grid.queries == Dim(1);
  // A dim that is no number is that of the scores it is laid over, whatever its expression: a buffer sliced
  // to its first `seq` columns has `min(1024, seq)` of them.
  auto laidOver = [](const Dim &own, const Dim &dim) {
    return own == dim || (!own.isStatic() && !dim.isStatic());
  };
  if (rank < 1 || !laidOver(shape.back(), grid.keys) ||
      (!oneQuery && (rank < 2 || !laidOver(shape[rank - 2], grid.queries))))
    return false;
  const Dim diagonal = oneQuery ? shape.back() - Dim(1) : shape.back() - shape[rank - 2];
  int64_t key = term.steps[rank - 1];
  // With one query its index is 0, whatever the step.
  int64_t query = oneQuery ? -key : term.steps[rank - 2];
  for (size_t i = 0; i + 2 < rank; ++i)
    if (term.steps[i] != 0)
      return false;
  if (key == -1 && query == 1 && (term.base == grid.diagonal() || term.base == diagonal)) {
    pattern.causal = true;
    return true;
  }
  Dim window = term.base + grid.diagonal() + Dim(1);
  if (!window.isStatic())
    window = term.base + diagonal + Dim(1);
  if (key != 1 || query != -1 || !window.isStatic() || window.value() < 1)
    return false;
  pattern.window = pattern.window == 0 ? window.value() : std::min(pattern.window, window.value());
  return true;
}

} // namespace

bool isMaskedScore(double value) { return value <= maskedScore; }

bool isMaskedScore(Value value) {
  auto constant = constantScalar(value);
  return constant && isMaskedScore(*constant);
}

std::optional<MaskTerm> scaledAfter(MaskTerm term, double scale) {
  term.scale = scale;
  term.lowest *= scale;
  if (!term.isFloat() && !isMaskedScore(term.lowest))
    return std::nullopt;
  return term;
}

void applyScales(MutableArrayRef<MaskTerm> terms, Location location, Raiser &raiser) {
  auto &b = raiser.rewriter;
  for (MaskTerm &term : terms) {
    if (!term.isFloat() || term.scale == 1)
      continue;
    if (!isF32(term.mask))
      term.mask = nn::build<nn::CastOp>(b, location, term.mask, {}, b.getF32Type());
    Value factor = nn::buildScalar(b, location, b.getF32Type(), term.scale);
    term.mask = nn::build<nn::MulOp>(b, location, ValueRange{term.mask, factor});
    term.scale = 1;
  }
}

MaskTerm addedMask(Value mask, Type sum, Raiser &raiser) {
  constexpr double lowestF16 = -65504;
  if (sum.isF16())
    if (auto choice = matchChoiceOrProduct(mask, raiser); choice && choice->lowest == lowestF16)
      return *choice;
  return MaskTerm{mask};
}

MaskTerm asCondition(MaskTerm term) {
  if (term.isFloat())
    if (auto choice = matchChoice(term.mask); choice && std::isinf(choice->lowest))
      return *choice;
  return term;
}

Pattern takePattern(SmallVector<MaskTerm> &terms, const Dim &queries, const Dim &keys, Raiser &raiser) {
  Pattern pattern;
  Grid grid{queries, keys};
  Positions positions(raiser.shapes);
  SmallVector<MaskTerm> rest;
  for (const MaskTerm &given : terms) {
    if (given.isFloat() && isConstant(given.mask, 0))
      continue;
    MaskTerm term = given;
    if (term.isFloat())
      if (auto choice = matchChoiceOrProduct(term.mask, raiser))
        term = *choice;
    bool finite = !std::isinf(term.lowest);
    if (term.isFloat() || term.inverted ||
        (finite && (terms.size() != 1 || !grid.diagonal().knownNonNegative()))) {
      rest.push_back(given);
      continue;
    }
    SmallVector<Value> parts, unknown;
    addConjuncts(term.mask, parts);
    Pattern found = pattern;
    for (Value part : parts) {
      auto condition = positions.condition(part);
      DimShape shape = raiser.shapes.of(part);
      Pattern extended = found;
      bool known = condition && !condition->never &&
                   llvm::all_of(condition->terms,
                                [&](const Affine &affine) { return addTerm(extended, affine, shape, grid); });
      if (known)
        found = extended;
      else
        unknown.push_back(part);
    }
    if (unknown.size() == parts.size() || (finite && !unknown.empty())) {
      rest.push_back(given);
      continue;
    }
    pattern = found;
    if (unknown.empty())
      continue;
    Value condition = unknown.front();
    for (Value part : llvm::drop_begin(unknown))
      condition = nn::build<nn::AndOp>(raiser.rewriter, part.getLoc(), ValueRange{condition, part});
    rest.push_back({condition, false, term.lowest});
  }
  terms = rest;
  return pattern;
}

std::string assumptionsOf(ArrayRef<MaskTerm> masks, bool zeroedNan) {
  SmallVector<std::string> all;
  bool addedAfter = false;
  for (const MaskTerm &term : masks) {
    addedAfter |= term.isFloat();
    if (term.isFloat())
      continue;
    if (std::isinf(term.lowest)) {
      // where(c, s, -inf) hides what s is; several masks are one that is added to it.
      if (masks.size() > 1)
        all.push_back("scores are finite where several masks hide them");
      continue;
    }
    if (term.blended)
      all.push_back("scores are finite where a factor of 0 masks them");
    // where(c, s, L) and, in f16, s + L where L swallows s, are the same only for scores that L is far below.
    all.push_back(llvm::formatv("scores lie above the {0:F0} that masks them", term.lowest).str());
    if (addedAfter)
      all.push_back(llvm::formatv("masks added to scores do not outweigh the {0:F0}", term.lowest).str());
  }
  if (zeroedNan)
    all.push_back("scores are no NaN: rows of NaN become zeros only where all is masked");
  llvm::sort(all);
  all.erase(llvm::unique(all), all.end());
  return llvm::join(all, "; ");
}

Value buildMask(ArrayRef<MaskTerm> terms, Location location, Raiser &raiser) {
  auto &b = raiser.rewriter;
  Type f32 = b.getF32Type();
  Value condition, added;
  for (const MaskTerm &given : terms) {
    MaskTerm term = asCondition(given);
    if (term.isFloat()) {
      if (!added) {
        added = term.mask;
        continue;
      }
      auto widened = [&](Value value) {
        return isF32(value) ? value : Value(nn::build<nn::CastOp>(b, location, value, {}, f32));
      };
      added = nn::build<nn::AddOp>(b, location, ValueRange{widened(added), widened(term.mask)});
      continue;
    }
    if (std::isinf(term.lowest)) {
      Value keep = term.inverted ? Value(nn::build<nn::NotOp>(b, location, term.mask)) : term.mask;
      condition = condition ? Value(nn::build<nn::AndOp>(b, location, ValueRange{condition, keep})) : keep;
      continue;
    }
    // Added in f32, the lowest number swallows the score: what where(c, s, lowest) gives, wholly masked rows
    // too.
    Value zero = nn::buildScalar(b, location, f32, 0);
    Value lowest = nn::buildScalar(b, location, f32, std::numeric_limits<float>::lowest());
    Value number = nn::build<nn::WhereOp>(
        b, location, ValueRange{term.mask, term.inverted ? lowest : zero, term.inverted ? zero : lowest});
    if (added) {
      if (!isF32(added))
        added = nn::build<nn::CastOp>(b, location, added, {}, f32);
      number = nn::build<nn::AddOp>(b, location, ValueRange{added, number});
    }
    added = number;
  }
  if (!condition || !added)
    return condition ? condition : added;
  Value minusInfinity =
      nn::buildScalar(b, location, elementType(added), -std::numeric_limits<double>::infinity());
  return nn::build<nn::WhereOp>(b, location, ValueRange{condition, added, minusInfinity});
}

} // namespace fusion::raise
