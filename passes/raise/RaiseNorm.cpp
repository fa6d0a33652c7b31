#include "passes/Passes.h"
#include "passes/raise/BatchNormRows.h"
#include "passes/raise/NormAbsorb.h"
#include "passes/raise/NormTail.h"

#include <cmath>

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISENORM
#include "passes/Passes.h.inc"

namespace raise {
namespace {

/// mean(source^2) + eps over the last dim.
struct MeanSquare {
  Value source;
  float eps = 0;
  std::string assumes; ///< of x, as noteRaised() says it
};

/// x - mean(x), where `value` is the variance of x by mean(x^2) - mean(x)^2, or the larger of that and 0;
/// else null.
Value matchVariance(Value value) {
  if (auto max = value.getDefiningOp<nn::MaxOp>())
    for (auto [variance, zero] :
         {std::pair(max.getLhs(), max.getRhs()), std::pair(max.getRhs(), max.getLhs())})
      if (isConstant(zero, 0))
        value = variance;
  auto difference = value.getDefiningOp<nn::SubOp>();
  auto squares = difference ? difference.getLhs().getDefiningOp<nn::ReduceOp>() : nn::ReduceOp();
  auto ofMean = difference ? difference.getRhs().getDefiningOp<nn::SquareOp>() : nn::SquareOp();
  auto square =
      squares && isLastDimMean(squares) ? squares.getX().getDefiningOp<nn::SquareOp>() : nn::SquareOp();
  if (!square || !ofMean || !isF32(square))
    return {};
  for (Operation *user : ofMean.getX().getUsers())
    if (auto centred = llvm::dyn_cast<nn::SubOp>(user); centred && matchCentred(centred) == square.getX())
      return centred;
  return {};
}

std::optional<MeanSquare> matchMeanSquare(Value value) {
  MeanSquare found;
  if (auto offset = matchAddConstant(value)) {
    found.eps = static_cast<float>(offset->constant);
    value = offset->value;
  }
  if (Value centred = matchVariance(value)) {
    found.source = centred;
    found.assumes =
        "mean(x^2) - mean(x)^2 is the variance, which is computed of x - mean(x) here: the difference "
        "cancels where the mean is large beside it";
    return found;
  }
  auto reduce = value.getDefiningOp<nn::ReduceOp>();
  auto square =
      reduce && isLastDimMean(reduce) ? reduce.getX().getDefiningOp<nn::SquareOp>() : nn::SquareOp();
  if (!square)
    return std::nullopt;
  found.source = square.getX();
  return found;
}

/// Whether statistics in the type of `input` are taken for those in f32, and what that assumes.
bool takesStatistics(Value input, bool assumeFinite, std::string &assumes) {
  Type type = elementType(input);
  if (type.isF32())
    return true;
  if (!assumeFinite || !(type.isF16() || type.isBF16()))
    return false;
  assumes = "squares and their mean are finite in " + typeName(input) +
            ", to which the graph rounds them; here they are computed in f32";
  return true;
}

/// Raises the norm whose normalised value `scaled` is: source * rsqrt(..) or source / sqrt(..).
void raiseScaled(Operation *scaled, const MeanSquare &stats, Raiser &raiser, bool assumeFinite) {
  Value centred = matchCentred(stats.source);
  StringRef name = centred ? "layer_norm" : "rms_norm";
  Value input = centred ? centred : stats.source;
  std::string assumes = stats.assumes;
  if (!takesStatistics(input, assumeFinite, assumes))
    return noteMiss(scaled, name, "statistics are computed in " + typeName(input) + ", not in f32");
  if (!raiser.shapes.same(scaled->getResult(0), input))
    return noteMiss(scaled, name, "the normalised value has another shape than the input");
  Tail tail = walkTail(scaled, bool(centred), raiser.shapes);
  if (!tail.weight)
    if (SmallVector<Tail> tails = walkTails(scaled, bool(centred), raiser.shapes); !tails.empty()) {
      for (const Tail &each : tails)
        buildNorm(each, input, stats.eps, bool(centred), raiser, assumes);
      return;
    }
  if (!tail.weight && !scaled->getResult(0).hasOneUse())
    for (Operation *user : scaled->getResult(0).getUsers())
      if (auto mul = llvm::dyn_cast<nn::MulOp>(user))
        if (Value other = otherOperand(mul, scaled->getResult(0));
            other && isRowOf(other, mul, raiser.shapes))
          noteMiss(mul, name, "the normalised value is used more than once: its weight stays outside");
  buildNorm(tail, input, stats.eps, bool(centred), raiser, std::move(assumes));
}

/// The inverse deviation, or its product with a weight over the last dim.
struct Gain {
  Value value;
  Value weight; ///< null if there is none
};

SmallVector<Gain> gainsOf(nn::RsqrtOp inverse, Value like, ShapeTable &shapes) {
  SmallVector<Gain> gains = {{inverse, {}}};
  for (Operation *user : inverse->getUsers())
    if (auto mul = llvm::dyn_cast<nn::MulOp>(user))
      if (Value weight = otherOperand(mul, inverse); weight && isRowOf(weight, like, shapes))
        gains.push_back({mul, weight});
  return gains;
}

bool isProductOf(Value value, Value left, Value right) {
  auto mul = value.getDefiningOp<nn::MulOp>();
  return mul &&
         ((mul.getLhs() == left && mul.getRhs() == right) || (mul.getLhs() == right && mul.getRhs() == left));
}

/// `value` is -mean * gain.
bool isNegatedShift(Value value, Value mean, Value gain) {
  if (auto neg = value.getDefiningOp<nn::NegOp>())
    return isProductOf(neg.getX(), mean, gain);
  auto mul = value.getDefiningOp<nn::MulOp>();
  Value other = mul ? otherOperand(mul, gain) : Value();
  auto neg = other ? other.getDefiningOp<nn::NegOp>() : nn::NegOp();
  return neg && neg.getX() == mean;
}

/// Matches what x * gain is added to: -mean * gain, or bias - mean * gain; false if it is something else.
bool matchShift(Value value, Value mean, Value gain, Value &bias) {
  if (isNegatedShift(value, mean, gain))
    return true;
  if (auto sub = value.getDefiningOp<nn::SubOp>(); sub && isProductOf(sub.getRhs(), mean, gain)) {
    bias = sub.getLhs();
    return true;
  }
  if (auto add = value.getDefiningOp<nn::AddOp>())
    for (auto [shift, rest] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())})
      if (isNegatedShift(shift, mean, gain)) {
        bias = rest;
        return true;
      }
  return false;
}

/// What the norm replaces if `scaled` is a product with `gain`: source * (r * weight) [+ bias], or, where the
/// source is centred, x * gain + (bias - mean * gain), as tf.nn.batch_normalization writes it.
std::optional<Tail> matchGained(nn::MulOp scaled, const Gain &gain, const MeanSquare &stats,
                                ShapeTable &shapes) {
  Tail tail{scaled, elementType(scaled), gain.weight, {}};
  Value centred = matchCentred(stats.source), other = otherOperand(scaled, gain.value);
  if (centred && other == centred) {
    Operation *sum = onlyUser(scaled);
    Value mean = stats.source.getDefiningOp<nn::SubOp>().getRhs();
    auto sub = llvm::dyn_cast_or_null<nn::SubOp>(sum);
    if (!(sub && sub.getLhs() == scaled && isProductOf(sub.getRhs(), mean, gain.value))) {
      Value shift = llvm::isa_and_nonnull<nn::AddOp>(sum) ? otherOperand(sum, scaled) : Value();
      if (!shift || !matchShift(shift, mean, gain.value, tail.bias))
        return std::nullopt;
    }
    tail.root = sum;
  } else if (!gain.weight || other != stats.source) {
    return std::nullopt;
  }
  if (tail.bias && !isRowOf(tail.bias, stats.source, shapes))
    return std::nullopt;
  if (centred && !tail.bias)
    if (Value bias = rowOperand<nn::AddOp>(tail.root->getResult(0), shapes)) {
      tail.bias = bias;
      tail.root = onlyUser(tail.root->getResult(0));
    }
  return tail;
}

/// Raises the norms in which the inverse deviation meets the weight before the value. In f32 the products may
/// associate otherwise; narrower types round between them, so that they are left alone.
bool raiseGained(nn::RsqrtOp inverse, const MeanSquare &stats, Raiser &raiser) {
  if (!isF32(stats.source))
    return false;
  Value centred = matchCentred(stats.source), input = centred ? centred : stats.source;
  llvm::SmallPtrSet<Operation *, 4> replaced;
  for (const Gain &gain : gainsOf(inverse, input, raiser.shapes))
    for (Operation *user : llvm::to_vector(gain.value.getUsers())) {
      auto scaled = replaced.contains(user) ? nn::MulOp() : llvm::dyn_cast<nn::MulOp>(user);
      auto tail = scaled ? matchGained(scaled, gain, stats, raiser.shapes) : std::nullopt;
      if (!tail || !raiser.shapes.same(tail->root->getResult(0), input))
        continue;
      replaced.insert(tail->root);
      buildNorm(*tail, input, stats.eps, bool(centred), raiser, stats.assumes);
    }
  return !replaced.empty();
}

/// Raises what multiplies by the inverse deviation, or divides by the deviation, the value that the
/// statistics are of. Whether there is any.
template <class ScaleOp>
bool raiseUsers(Value deviation, const MeanSquare &stats, Raiser &raiser, bool assumeFinite) {
  bool scales = false;
  for (Operation *user : llvm::to_vector(deviation.getUsers())) {
    auto scale = llvm::dyn_cast<ScaleOp>(user);
    if (!scale || otherOperand(scale, deviation) != stats.source ||
        (llvm::isa<nn::DivOp>(user) && user->getOperand(1) != deviation))
      continue;
    scales = true;
    raiseScaled(user, stats, raiser, assumeFinite);
  }
  return scales;
}

void noteUnscaled(Operation *root, const MeanSquare &stats) {
  noteMiss(root, matchCentred(stats.source) ? "layer_norm" : "rms_norm",
           isF32(stats.source) ? "the inverse deviation does not scale the value that the statistics are of"
                               : "statistics are computed in " + typeName(stats.source) + ", not in f32");
}

/// The statistics whose deviation `root` computes; nothing where they assume what is forbidden, which is
/// noted.
std::optional<MeanSquare> statisticsOf(Operation *root, Value variance, bool assumeFinite) {
  auto stats = matchMeanSquare(variance);
  if (!stats || assumeFinite || stats->assumes.empty())
    return stats;
  noteMiss(root, "layer_norm",
           "it would take for granted, which --no-assume-finite forbids: " + stats->assumes);
  return std::nullopt;
}

void raiseInverse(nn::RsqrtOp root, Raiser &raiser, bool assumeFinite) {
  const auto stats = statisticsOf(root, root.getX(), assumeFinite);
  if (!stats)
    return;
  bool scales = raiseUsers<nn::MulOp>(root, *stats, raiser, assumeFinite);
  scales |= raiseGained(root, *stats, raiser);
  if (!scales)
    noteUnscaled(root, *stats);
}

void raiseDeviation(nn::SqrtOp root, Raiser &raiser, bool assumeFinite) {
  const auto stats = statisticsOf(root, root.getX(), assumeFinite);
  if (!stats)
    return;
  bool scales = false;
  for (Operation *user : llvm::to_vector(root->getUsers())) { // 1 / sqrt is rsqrt in f32 alone
    auto div = llvm::dyn_cast<nn::DivOp>(user);
    if (llvm::isa<nn::ReciprocalOp>(user) || (div && div.getRhs() == root && isConstant(div.getLhs(), 1)))
      scales |= raiseUsers<nn::MulOp>(user->getResult(0), *stats, raiser, assumeFinite);
  }
  scales |= raiseUsers<nn::DivOp>(root, *stats, raiser, assumeFinite);
  if (!scales)
    noteUnscaled(root, *stats);
}

/// x / max(length of x, least) * sqrt(size of the last dim), as torch's normalize spells an RMS norm: the
/// mean square is the square of the length over that size.
void raiseLength(nn::ReduceOp root, Raiser &raiser, bool assumeFinite) {
  constexpr double mostLeast = 1e-6;
  const DimShape shape = raiser.shapes.of(root.getX());
  const auto rank = static_cast<int64_t>(shape.size());
  if (root.getKind() != "l2" || rank == 0)
    return;
  const Dim size = shape.back();
  auto bounded = onlyUserAs<nn::MaxOp>(root);
  const auto least = bounded ? constantScalar(otherOperand(bounded, root)) : std::nullopt;
  if (!root.getKeepdims() || root.getAxes().size() != 1 ||
      (root.getAxes()[0] != -1 && root.getAxes()[0] != rank - 1) || !size.isStatic() || !least ||
      !(*least > 0 && *least <= mostLeast))
    return;
  auto unit = onlyUserAs<nn::DivOp>(bounded);
  auto scaled = unit && unit.getLhs() == root.getX() ? onlyUserAs<nn::MulOp>(unit) : nn::MulOp();
  const auto factor = scaled ? constantScalar(otherOperand(scaled, unit)) : std::nullopt;
  const double length = std::sqrt(static_cast<double>(size.value()));
  if (!factor || std::abs(*factor / length - 1) > constantTolerance(elementType(scaled)))
    return;
  if (!assumeFinite || !isF32(root))
    return noteMiss(scaled, "rms_norm",
                    "the length is computed in " + typeName(root) + ", or rows may be short");
  const auto eps = static_cast<float>(*least * *least / static_cast<double>(size.value()));
  buildNorm(walkTail(scaled, false, raiser.shapes), root.getX(), eps, false, raiser,
            "rows are 0 or much longer than what bounds their length");
}

} // namespace
} // namespace raise

namespace {
struct RaiseNorm : impl::RaiseNormBase<RaiseNorm> {
  using RaiseNormBase::RaiseNormBase;
  void runOnOperation() override {
    auto raiseInverse = [this](nn::RsqrtOp root, raise::Raiser &raiser) {
      raise::raiseInverse(root, raiser, assumeFinite);
      raise::raiseBatchNormRows(root, raiser);
    };
    auto raiseDeviation = [this](nn::SqrtOp root, raise::Raiser &raiser) {
      raise::raiseDeviation(root, raiser, assumeFinite);
    };
    auto raiseLength = [this](nn::ReduceOp root, raise::Raiser &raiser) {
      raise::raiseLength(root, raiser, assumeFinite);
    };
    if (failed(raise::forEachRoot<nn::RsqrtOp>(getOperation(), raiseInverse)) ||
        failed(raise::forEachRoot<nn::ReduceOp>(getOperation(), raiseLength)) ||
        failed(raise::forEachRoot<nn::SqrtOp>(getOperation(), raiseDeviation)) ||
        failed(raise::absorbIntoNorms(getOperation())))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
