// Elementwise arithmetic, comparisons, logic, casts and activations.
#include "ir/import/NodeImporter.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

template <class Op>
void unary(NodeImporter &n) {
  n.result(0, n.build<Op>(n.operand(0)));
}

template <class Op>
void binary(NodeImporter &n) {
  n.result(0, n.build<Op>({n.operand(0), n.operand(1)}));
}

/// Max, Min, Sum: one input or more.
template <class Op>
Value fold(NodeImporter &n) {
  Value result = n.operand(0);
  for (unsigned i = 1; i < n.inputCount(); ++i)
    result = n.build<Op>({result, n.operand(i)});
  return result;
}

template <class Op>
void variadic(NodeImporter &n) {
  n.result(0, fold<Op>(n));
}

void mean(NodeImporter &n) {
  Value sum = fold<nn::AddOp>(n);
  n.result(0, n.div(sum, n.scalar(n.typeOf(sum), n.inputCount())));
}

void power(NodeImporter &n) {
  Value base = n.operand(0), exponent = n.operand(1);
  Type baseType = n.inputType(0), exponentType = n.inputType(1);
  if (n.failed())
    return;
  // The result has the type of the base; an integer base with a float exponent is computed in floats.
  if (llvm::isa<FloatType>(baseType) || !llvm::isa<FloatType>(exponentType))
    return n.result(0, n.build<nn::PowOp>({base, n.cast(exponent, baseType)}));
  n.result(0, n.cast(n.build<nn::PowOp>({n.cast(base, exponentType), exponent}), baseType));
}

void clip(NodeImporter &n) {
  Value x = n.operand(0);
  if (n.has(1))
    x = n.build<nn::MaxOp>({x, n.reshape(n.operand(1), {})});
  if (n.has(2))
    x = n.build<nn::MinOp>({x, n.reshape(n.operand(2), {})});
  if (n.opset() < 11 && n.hasAttribute("min"))
    x = n.build<nn::MaxOp>({x, n.scalar(n.inputType(0), n.floatAttribute("min", 0))});
  if (n.opset() < 11 && n.hasAttribute("max"))
    x = n.build<nn::MinOp>({x, n.scalar(n.inputType(0), n.floatAttribute("max", 0))});
  n.result(0, x);
}

void castTo(NodeImporter &n) {
  Type type = n.opType() == "Cast" ? n.typeAttribute("to", {}) : n.inputType(1);
  if (!type)
    return n.fail("attribute 'to' is missing");
  if (type.getIntOrFloatBitWidth() == 8 && llvm::isa<FloatType>(type) && n.intAttribute("saturate", 1) == 0)
    return n.fail("casts to 8-bit floats without saturation are not supported");
  n.result(0, n.cast(n.operand(0), type));
}

void bitCast(NodeImporter &n) {
  Type type = n.typeAttribute("to", {});
  if (!type)
    return n.fail("attribute 'to' is missing");
  n.result(0, n.build<nn::BitcastOp>(n.operand(0), {}, type));
}

void where(NodeImporter &n) {
  if (n.inputType(1) != n.inputType(2))
    return n.fail("operands have different element types");
  n.result(0, n.build<nn::WhereOp>({n.operand(0), n.operand(1), n.operand(2)}));
}

void isInf(NodeImporter &n) {
  n.result(
      0, n.build<nn::IsInfOp>(n.operand(0), {n.flag("negative", n.intAttribute("detect_negative", 1) != 0),
                                             n.flag("positive", n.intAttribute("detect_positive", 1) != 0)}));
}

void swish(NodeImporter &n) {
  Value x = n.operand(0);
  double alpha = n.floatAttribute("alpha", 1);
  if (alpha == 1)
    return n.result(0, n.build<nn::SiluOp>(x));
  Value gate = n.build<nn::SigmoidOp>(n.mul(x, n.scalar(n.inputType(0), alpha)));
  n.result(0, n.mul(x, gate));
}

/// `negative` where x < 0, else x.
Value belowZero(NodeImporter &n, Value x, Value negative) {
  Value below = n.build<nn::LessOp>({x, n.scalar(n.typeOf(x), 0)});
  return n.build<nn::WhereOp>({below, negative, x});
}

void leakyRelu(NodeImporter &n) {
  Value x = n.operand(0);
  n.result(0, belowZero(n, x, n.mul(x, n.scalar(n.inputType(0), n.floatAttribute("alpha", 0.01)))));
}

void parametricRelu(NodeImporter &n) {
  Value x = n.operand(0);
  n.result(0, belowZero(n, x, n.mul(x, n.operand(1))));
}

/// alpha * (e^x - 1) below zero.
Value exponentialBelowZero(NodeImporter &n, Value x, double alpha) {
  Type type = n.inputType(0);
  Value exponential = n.sub(n.build<nn::ExpOp>(x), n.scalar(type, 1));
  return belowZero(n, x, n.mul(exponential, n.scalar(type, alpha)));
}

void elu(NodeImporter &n) {
  n.result(0, exponentialBelowZero(n, n.operand(0), n.floatAttribute("alpha", 1)));
}

Value hardGate(NodeImporter &n, Value x, double alpha, double beta) {
  Type type = n.typeOf(x);
  Value line = n.add(n.mul(x, n.scalar(type, alpha)), n.scalar(type, beta));
  return n.build<nn::MinOp>({n.build<nn::MaxOp>({line, n.scalar(type, 0)}), n.scalar(type, 1)});
}

void hardSigmoid(NodeImporter &n) {
  n.result(0, hardGate(n, n.operand(0), n.floatAttribute("alpha", 0.2), n.floatAttribute("beta", 0.5)));
}

void hardSwish(NodeImporter &n) {
  Value x = n.operand(0);
  n.result(0, n.mul(x, hardGate(n, x, 1.0 / 6, 0.5)));
}

void softsign(NodeImporter &n) {
  Value x = n.operand(0);
  n.result(0, n.div(x, n.add(n.build<nn::AbsOp>(x), n.scalar(n.inputType(0), 1))));
}

void mish(NodeImporter &n) {
  Value x = n.operand(0);
  n.result(0, n.mul(x, n.build<nn::TanhOp>(n.build<nn::SoftplusOp>(x))));
}

void tangent(NodeImporter &n) {
  const Value x = n.operand(0);
  n.result(0, n.div(n.build<nn::SinOp>(x), n.build<nn::CosOp>(x)));
}

void selu(NodeImporter &n) {
  const double alpha = n.floatAttribute("alpha", 1.67326319217681884765625);
  const double gamma = n.floatAttribute("gamma", 1.05070102214813232421875);
  n.result(0, n.mul(exponentialBelowZero(n, n.operand(0), alpha), n.scalar(n.inputType(0), gamma)));
}

/// max(x, 0) + min(alpha * (e^(x / alpha) - 1), 0)
void celu(NodeImporter &n) {
  const double alpha = n.floatAttribute("alpha", 1.0);
  const Type type = n.inputType(0);
  const Value x = n.operand(0), zero = n.scalar(type, 0);
  const Value below = n.sub(n.build<nn::ExpOp>(n.div(x, n.scalar(type, alpha))), n.scalar(type, 1));
  const Value negative = n.build<nn::MinOp>({n.mul(below, n.scalar(type, alpha)), zero});
  n.result(0, n.add(n.build<nn::ReluOp>(x), negative));
}

void thresholdedRelu(NodeImporter &n) {
  const Value x = n.operand(0), bound = n.scalar(n.inputType(0), n.floatAttribute("alpha", 1.0));
  n.result(0, n.build<nn::WhereOp>({n.build<nn::GreaterOp>({x, bound}), x, n.scalar(n.inputType(0), 0)}));
}

/// Numbers near 0 become 0, the others come closer to it by `bias`.
void shrink(NodeImporter &n) {
  const double lambda = n.floatAttribute("lambd", 0.5), bias = n.floatAttribute("bias", 0);
  const Type type = n.inputType(0);
  const Value x = n.operand(0), shift = n.scalar(type, bias), zero = n.scalar(type, 0);
  const Value isAbove = n.build<nn::GreaterOp>({x, n.scalar(type, lambda)});
  const Value isBelow = n.build<nn::LessOp>({x, n.scalar(type, -lambda)});
  const Value above = n.build<nn::WhereOp>({isAbove, n.sub(x, shift), zero});
  n.result(0, n.build<nn::WhereOp>({isBelow, n.add(x, shift), above}));
}

} // namespace

void registerElementwise(HandlerTable &table) {
  constexpr unsigned any = HandlerTable::anyNumber;
  auto one = [&](StringRef name, Handler handler) { table.add("", name, 1, 1, std::move(handler)); };
  auto two = [&](StringRef name, Handler handler) { table.add("", name, 2, 2, std::move(handler)); };
  one("Neg", unary<nn::NegOp>);
  one("Abs", unary<nn::AbsOp>);
  one("Sign", unary<nn::SignOp>);
  one("Exp", unary<nn::ExpOp>);
  one("Log", unary<nn::LogOp>);
  one("Sqrt", unary<nn::SqrtOp>);
  one("Reciprocal", unary<nn::ReciprocalOp>);
  one("Sin", unary<nn::SinOp>);
  one("Cos", unary<nn::CosOp>);
  one("Tan", tangent);
  one("Tanh", unary<nn::TanhOp>);
  one("Erf", unary<nn::ErfOp>);
  one("Sigmoid", unary<nn::SigmoidOp>);
  one("Relu", unary<nn::ReluOp>);
  one("Softplus", unary<nn::SoftplusOp>);
  one("Floor", unary<nn::FloorOp>);
  one("Ceil", unary<nn::CeilOp>);
  one("Round", unary<nn::RoundOp>);
  one("Not", unary<nn::NotOp>);
  one("BitwiseNot", unary<nn::NotOp>);
  one("IsNaN", unary<nn::IsNanOp>);
  one("IsInf", isInf);
  two("Add", binary<nn::AddOp>);
  two("Sub", binary<nn::SubOp>);
  two("Mul", binary<nn::MulOp>);
  two("Div", binary<nn::DivOp>);
  two("Pow", power);
  two("Mod",
      [](NodeImporter &n) { n.intAttribute("fmod", 0) != 0 ? binary<nn::FmodOp>(n) : binary<nn::ModOp>(n); });
  two("And", binary<nn::AndOp>);
  two("Or", binary<nn::OrOp>);
  two("Xor", binary<nn::XorOp>);
  two("BitwiseAnd", binary<nn::AndOp>);
  two("BitwiseOr", binary<nn::OrOp>);
  two("BitwiseXor", binary<nn::XorOp>);
  two("Equal", binary<nn::EqualOp>);
  two("Less", binary<nn::LessOp>);
  two("LessOrEqual", binary<nn::LessEqualOp>);
  two("Greater", binary<nn::GreaterOp>);
  two("GreaterOrEqual", binary<nn::GreaterEqualOp>);
  table.add("", "Max", 1, any, variadic<nn::MaxOp>);
  table.add("", "Min", 1, any, variadic<nn::MinOp>);
  table.add("", "Sum", 1, any, variadic<nn::AddOp>);
  table.add("", "Mean", 1, any, mean);
  table.add("", "Clip", 1, 3, clip);
  one("Cast", castTo);
  one("BitCast", bitCast);
  two("CastLike", castTo);
  table.add("", "Where", 3, 3, where);
  one("Swish", swish);
  one("LeakyRelu", leakyRelu);
  two("PRelu", parametricRelu);
  one("Elu", elu);
  one("Selu", selu);
  one("Celu", celu);
  one("ThresholdedRelu", thresholdedRelu);
  one("Shrink", shrink);
  one("HardSigmoid", hardSigmoid);
  one("HardSwish", hardSwish);
  one("Softsign", softsign);
  one("Mish", mish);
}

} // namespace fusion::onnx
