#include "passes/raise/NormTail.h"

using namespace mlir;

namespace fusion::raise {

namespace {

nn::CastOp floatCast(Value value) {
  auto cast = onlyUserAs<nn::CastOp>(value);
  return cast && isFloat(cast) ? cast : nn::CastOp();
}

Value buildOnes(Raiser &raiser, Location location, const Dim &size, Type element) {
  IRRewriter &rewriter = raiser.rewriter;
  if (!size.isStatic())
    return nn::build<nn::ExpandOp>(
        rewriter, location, nn::buildScalar(rewriter, location, element, 1.0),
        rewriter.getNamedAttr("shape", nn::dimsToAttr(rewriter.getContext(), {size})));
  auto type = RankedTensorType::get({size.value()}, element);
  return nn::buildConstant(rewriter, location,
                           DenseElementsAttr::get(type, rewriter.getFloatAttr(element, 1.0)));
}

/// On from the product with the weight, over [add bias] [cast].
Tail walkFromWeight(Tail tail, bool mayHaveBias, ShapeTable &shapes) {
  Value value = tail.root->getResult(0);
  if (mayHaveBias && (tail.bias = rowOperand<nn::AddOp>(value, shapes))) {
    tail.root = onlyUser(value);
    value = tail.root->getResult(0);
  }
  if (tail.scaleIn.isF32())
    if (nn::CastOp last = floatCast(value))
      tail.root = last;
  return tail;
}

} // namespace

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
  return walkFromWeight(tail, mayHaveBias, shapes);
}

SmallVector<Tail> walkTails(Operation *normalised, bool mayHaveBias, ShapeTable &shapes) {
  Value value = normalised->getResult(0);
  SmallVector<Tail> tails;
  for (Operation *user : value.getUsers()) {
    auto mul = llvm::dyn_cast<nn::MulOp>(user);
    Value weight = mul ? otherOperand(mul, value) : Value();
    if (!weight || !isRowOf(weight, value, shapes))
      return {};
    tails.push_back(walkFromWeight({mul, elementType(value), weight, {}}, mayHaveBias, shapes));
  }
  return tails;
}

void buildNorm(const Tail &tail, Value input, float eps, bool centred, Raiser &raiser, std::string assumes) {
  raiser.rewriter.setInsertionPoint(tail.root);
  Location location = tail.root->getLoc();
  Type resultType = elementType(tail.root->getResult(0));
  Value weight = tail.weight
                     ? asRow(tail.weight, raiser)
                     : buildOnes(raiser, location, raiser.shapes.of(input).back(), resultType);
  SmallVector<NamedAttribute> attributes = {
      raiser.rewriter.getNamedAttr("eps", raiser.rewriter.getF32FloatAttr(eps))};
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
  raiser.replace(tail.root, norm, std::move(assumes));
}

} // namespace fusion::raise
