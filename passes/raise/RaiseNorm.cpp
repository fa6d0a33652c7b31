#include "passes/Passes.h"
#include "passes/raise/NormAbsorb.h"
#include "passes/raise/Raise.h"

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
};

std::optional<MeanSquare> matchMeanSquare(Value value) {
  MeanSquare found;
  if (auto offset = matchAddConstant(value)) {
    found.eps = static_cast<float>(offset->constant);
    value = offset->value;
  }
  auto reduce = value.getDefiningOp<nn::ReduceOp>();
  auto square =
      reduce && isLastDimMean(reduce) ? reduce.getX().getDefiningOp<nn::SquareOp>() : nn::SquareOp();
  if (!square)
    return std::nullopt;
  found.source = square.getX();
  return found;
}

/// What follows a normalised value, up to the last op that the norm can take.
struct Tail {
  Operation *root;    ///< the op to replace
  Type scaleIn;       ///< where the value meets the weight
  Value weight, bias; ///< null if there is none
};

nn::CastOp floatCast(Value value) {
  auto cast = onlyUserAs<nn::CastOp>(value);
  return cast && isFloat(cast) ? cast : nn::CastOp();
}

/// The other operand of the only user of `value`, an OpTy, if it is a row over the last dim.
template <class OpTy>
Value rowOperand(Value value, ShapeTable &shapes) {
  auto user = onlyUserAs<OpTy>(value);
  Value other = user ? otherOperand(user, value) : Value();
  return other && isRowOf(other, value, shapes) ? other : Value();
}

/// Walks from the normalised f32 value over [cast] [mul weight] [add bias] [cast].
Tail walkTail(Operation *normalised, bool mayHaveBias, ShapeTable &shapes) {
  Value value = normalised->getResult(0);
  Tail tail{normalised, elementType(value), {}, {}};
  nn::CastOp first = floatCast(value);
  if (first) {
    value = first;
    tail.root = first;
    tail.scaleIn = elementType(value);
  }
  tail.weight = rowOperand<nn::MulOp>(value, shapes);
  if (!tail.weight)
    return tail;
  tail.root = onlyUser(value);
  value = tail.root->getResult(0);
  if (mayHaveBias && (tail.bias = rowOperand<nn::AddOp>(value, shapes))) {
    tail.root = onlyUser(value);
    value = tail.root->getResult(0);
  }
  if (!first)
    if (nn::CastOp last = floatCast(value))
      tail.root = last;
  return tail;
}

Value buildOnes(Raiser &raiser, Location location, int64_t size, Type element) {
  auto type = RankedTensorType::get({size}, element);
  return nn::buildConstant(raiser.rewriter, location,
                           DenseElementsAttr::get(type, raiser.rewriter.getFloatAttr(element, 1.0)));
}

/// Raises the norm whose normalised value `scaled` is: source * rsqrt(..) or source / sqrt(..).
void raiseScaled(Operation *scaled, const MeanSquare &stats, Raiser &raiser) {
  Value centred = matchCentred(stats.source);
  StringRef name = centred ? "layer_norm" : "rms_norm";
  Value input = centred ? centred : stats.source;
  if (!isF32(input))
    return noteMiss(scaled, name, "statistics are computed in " + typeName(input) + ", not in f32");
  if (!raiser.shapes.same(scaled->getResult(0), input))
    return noteMiss(scaled, name, "the normalised value has another shape than the input");
  Dim size = raiser.shapes.of(input).back();
  Tail tail = walkTail(scaled, bool(centred), raiser.shapes);
  if (!tail.weight && !size.isStatic())
    return noteMiss(scaled, name, "no weight, and the size of the last dim is not known");
  if (!tail.weight && !scaled->getResult(0).hasOneUse())
    for (Operation *user : scaled->getResult(0).getUsers())
      if (auto mul = llvm::dyn_cast<nn::MulOp>(user))
        if (Value other = otherOperand(mul, scaled->getResult(0));
            other && isRowOf(other, mul, raiser.shapes))
          noteMiss(mul, name, "the normalised value is used more than once: its weight stays outside");
  raiser.rewriter.setInsertionPoint(tail.root);
  Location location = tail.root->getLoc();
  Type resultType = elementType(tail.root->getResult(0));
  Value weight =
      tail.weight ? asRow(tail.weight, raiser) : buildOnes(raiser, location, size.value(), resultType);
  SmallVector<NamedAttribute> attributes = {
      raiser.rewriter.getNamedAttr("eps", raiser.rewriter.getF32FloatAttr(stats.eps))};
  if (tail.weight && tail.scaleIn != elementType(weight))
    attributes.push_back(raiser.rewriter.getNamedAttr("scale_in", TypeAttr::get(tail.scaleIn)));
  SmallVector<Value> operands = {input, weight};
  Value norm;
  if (centred) {
    if (tail.bias)
      operands.push_back(asRow(tail.bias, raiser));
    norm = nn::build<nn::LayerNormOp>(raiser.rewriter, location, operands, attributes, resultType);
  } else {
    norm = nn::build<nn::RmsNormOp>(raiser.rewriter, location, operands, attributes, resultType);
  }
  raiser.replace(tail.root, norm);
}

/// The users of 1/sqrt or sqrt that scale the value the statistics are of.
template <class ScaleOp>
void raiseUsers(Operation *root, Raiser &raiser) {
  auto stats = matchMeanSquare(root->getOperand(0));
  if (!stats)
    return;
  SmallVector<Operation *> users(root->getUsers());
  bool scales = false;
  for (Operation *user : users) {
    auto scale = llvm::dyn_cast<ScaleOp>(user);
    if (!scale || otherOperand(scale, root->getResult(0)) != stats->source ||
        (llvm::isa<nn::DivOp>(user) && user->getOperand(1) != root->getResult(0)))
      continue;
    scales = true;
    raiseScaled(user, *stats, raiser);
  }
  if (!scales)
    noteMiss(root, matchCentred(stats->source) ? "layer_norm" : "rms_norm",
             "the inverse deviation does not scale the value that the statistics are of");
}

} // namespace
} // namespace raise

namespace {
struct RaiseNorm : impl::RaiseNormBase<RaiseNorm> {
  void runOnOperation() override {
    if (failed(raise::forEachRoot<nn::RsqrtOp>(
            getOperation(),
            [](nn::RsqrtOp root, raise::Raiser &raiser) { raise::raiseUsers<nn::MulOp>(root, raiser); })) ||
        failed(raise::forEachRoot<nn::SqrtOp>(
            getOperation(),
            [](nn::SqrtOp root, raise::Raiser &raiser) { raise::raiseUsers<nn::DivOp>(root, raiser); })) ||
        failed(raise::absorbIntoNorms(getOperation())))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
