// Inverse trigonometric and hyperbolic functions, of operations that kernels have; and windows of signals.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

#include <numbers>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Arithmetic on values and numbers, in f32 or f64.
class Arithmetic {
public:
  explicit Arithmetic(NodeImporter &n) : n(n) {
    const Type given = n.inputType(0);
    if (n.failed())
      return;
    if (!llvm::isa<FloatType>(given)) {
      n.fail("integers are not supported");
      return;
    }
    type = given.isF64() ? given : n.f32Type();
    x = n.cast(n.operand(0), type);
  }

  Value number(double value) { return n.scalar(type, value); }
  Value add(Value a, double b) { return n.add(a, number(b)); }
  Value mul(Value a, double b) { return n.mul(a, number(b)); }
  Value root(Value a) { return n.build<nn::SqrtOp>(a); }
  Value magnitude(Value a) { return n.build<nn::AbsOp>(a); }
  /// |size| with the sign of `like`: both are 0 where either is.
  Value signedAs(Value size, Value like) { return n.mul(size, n.build<nn::SignOp>(like)); }
  Value where(Value condition, Value a, Value b) { return n.build<nn::WhereOp>({condition, a, b}); }

  /// Halvings of the angle and the series: within a few units in the last place.
  Value arcTangent(Value a) {
    constexpr int halvings = 3, terms = 9;
    Value size = magnitude(a), isLarge = n.build<nn::GreaterOp>({size, number(1)});
    Value t = where(isLarge, n.build<nn::ReciprocalOp>(size), size);
    for (int i = 0; i < halvings; ++i)
      t = n.div(t, add(root(add(n.mul(t, t), 1)), 1));
    Value square = n.mul(t, t), sum = number(1.0 / (2 * terms - 1));
    for (int i = terms - 1; i > 0; --i)
      sum = n.sub(number(1.0 / (2 * i - 1)), n.mul(square, sum));
    Value angle = mul(n.mul(t, sum), 1 << halvings);
    angle = where(isLarge, n.sub(number(std::numbers::pi / 2), angle), angle);
    return signedAs(angle, a);
  }
  /// log(1 + a), exact near 0: the rounding of 1 + a cancels.
  Value logOfOnePlus(Value a) {
    Value sum = add(a, 1), less = add(sum, -1), isSmall = n.build<nn::EqualOp>({less, number(0)});
    Value isInfinite = n.build<nn::IsInfOp>(sum, {n.flag("negative", false), n.flag("positive", true)});
    Value ratio = n.div(n.build<nn::LogOp>(sum), where(isSmall, number(1), less));
    return where(isSmall, a, where(isInfinite, sum, n.mul(a, ratio)));
  }
  /// e^a - 1, exact near 0 likewise.
  Value expLessOne(Value a) {
    Value power = n.build<nn::ExpOp>(a), less = add(power, -1);
    Value isNear = n.build<nn::LessOp>({magnitude(a), number(0.5)});
    Value isOne = n.build<nn::EqualOp>({less, number(0)});
    Value near = n.mul(less, n.div(a, where(isOne, number(1), n.build<nn::LogOp>(power))));
    return where(isNear, where(isOne, a, near), less);
  }

  void finish(Value y) { n.result(0, n.cast(y, n.inputType(0))); }

  NodeImporter &n;
  Type type;
  Value x;
};

template <class Function>
void unary(NodeImporter &n, Function function) {
  Arithmetic a(n);
  if (!n.failed())
    a.finish(function(a));
}

Value arcSine(Arithmetic &a) {
  Value both = a.n.mul(a.n.sub(a.number(1), a.x), a.add(a.x, 1)); // 1 - x²
  return a.arcTangent(a.n.div(a.x, a.root(both)));
}

Value arcCosine(Arithmetic &a) {
  return a.mul(a.arcTangent(a.root(a.n.div(a.n.sub(a.number(1), a.x), a.add(a.x, 1)))), 2);
}

Value hyperbolicSine(Arithmetic &a) {
  Value size = a.magnitude(a.x), less = a.expLessOne(size), power = a.add(less, 1);
  // 1 - 1 / power: near 0 its rounding cancels; where the power is infinite, its inverse is 0.
  Value isNear = a.n.build<nn::LessOp>({size, a.number(1)});
  Value other = a.where(isNear, a.n.div(less, power),
                        a.n.sub(a.number(1), a.n.build<nn::ReciprocalOp>(power)));
  return a.signedAs(a.mul(a.n.add(less, other), 0.5), a.x);
}

Value hyperbolicCosine(Arithmetic &a) {
  Value power = a.n.build<nn::ExpOp>(a.magnitude(a.x));
  return a.mul(a.n.add(power, a.n.build<nn::ReciprocalOp>(power)), 0.5);
}

Value inverseHyperbolicSine(Arithmetic &a) {
  Value size = a.magnitude(a.x), square = a.n.mul(size, size);
  return a.signedAs(
      a.logOfOnePlus(a.n.add(size, a.n.div(square, a.add(a.root(a.add(square, 1)), 1)))), a.x);
}

Value inverseHyperbolicCosine(Arithmetic &a) {
  Value above = a.add(a.x, -1);
  return a.logOfOnePlus(a.n.add(above, a.root(a.n.mul(above, a.add(a.x, 1)))));
}

Value inverseHyperbolicTangent(Arithmetic &a) {
  Value size = a.magnitude(a.x);
  return a.signedAs(a.mul(a.logOfOnePlus(a.n.div(a.mul(size, 2), a.n.sub(a.number(1), size))), 0.5), a.x);
}

/// offset - first * cos(2πk / length) + second * cos(4πk / length)
void window(NodeImporter &n, double offset, double first, double second) {
  const DimShape sizes = n.requireKnown(0, "size");
  const bool isPeriodic = n.intAttribute("periodic", 1) != 0;
  Type type = n.typeAttribute("output_datatype", n.f32Type());
  if (n.failed())
    return;
  if (sizes.size() != 1 || !llvm::isa<FloatType>(type))
    return n.fail("size is not one number, or the result is no float");
  const Type wide = type.isF64() ? type : n.f32Type();
  const Dim &size = sizes[0];
  Value length = n.cast(n.dimConstant(isPeriodic ? size : size - 1, {}, n.i64Type()), wide);
  Value angle =
      n.div(n.mul(n.cast(countFrom(n, 0, size), wide), n.scalar(wide, 2 * std::numbers::pi)), length);
  Value y = n.sub(n.scalar(wide, offset), n.mul(n.build<nn::CosOp>(angle), n.scalar(wide, first)));
  if (second != 0)
    y = n.add(y, n.mul(n.build<nn::CosOp>(n.mul(angle, n.scalar(wide, 2))), n.scalar(wide, second)));
  n.result(0, n.cast(y, type));
}

} // namespace

void registerTrigonometry(HandlerTable &table) {
  auto one = [&](StringRef name, Value (*function)(Arithmetic &)) {
    table.add("", name, 1, 1, [function](NodeImporter &n) { unary(n, function); });
  };
  one("Atan", [](Arithmetic &a) { return a.arcTangent(a.x); });
  one("Asin", arcSine);
  one("Acos", arcCosine);
  one("Sinh", hyperbolicSine);
  one("Cosh", hyperbolicCosine);
  one("Asinh", inverseHyperbolicSine);
  one("Acosh", inverseHyperbolicCosine);
  one("Atanh", inverseHyperbolicTangent);
  table.add("", "HannWindow", 1, 1, [](NodeImporter &n) { window(n, 0.5, 0.5, 0); });
  table.add("", "HammingWindow", 1, 1, [](NodeImporter &n) { window(n, 25.0 / 46, 21.0 / 46, 0); });
  table.add("", "BlackmanWindow", 1, 1, [](NodeImporter &n) { window(n, 0.42, 0.5, 0.08); });
}

} // namespace fusion::onnx
