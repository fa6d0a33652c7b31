#include "ir/dialect/Formulas.h"

#include "ir/dialect/Types.h"
#include "ir/scalar/Quantize.h"

using namespace mlir;

#include "ir/dialect/ScalarFormula.cpp.inc"

namespace fusion::nn {

using scalar::Graph;
using scalar::Kind;
using scalar::Value;
using Values = llvm::ArrayRef<Value>;
using Formula = Value (*)(Graph &, Values);

namespace {

/// An op's formula by the element type of its operands. Integers without one are computed in f32, bools
/// without one stay as they are.
struct Forms {
  Formula floats, integers = nullptr, booleans = nullptr;
};

Value finished(Operation *op, Graph &g, Value computed) {
  return g.convert(dtype(op->getResult(0)), computed);
}

Value compute(Operation *op, Graph &g, Values x, const Forms &forms) {
  const DType type = g.type(x[0]);
  if (type == DType::Bool)
    return finished(op, g, forms.booleans ? forms.booleans(g, x) : x[0]);
  if (isFloat(type))
    return finished(op, g, forms.floats(g, x));
  if (forms.integers)
    return finished(op, g, forms.integers(g, x));
  SmallVector<Value> floats;
  for (Value value : x)
    floats.push_back(g.convertRegister(DType::F32, value));
  return finished(op, g, g.convertRegister(type, forms.floats(g, floats)));
}

template <class Op, const Forms &forms>
struct Arithmetic : ScalarFormula::ExternalModel<Arithmetic<Op, forms>, Op> {
  Value formula(Operation *op, Graph &g, Values x) const { return compute(op, g, x, forms); }
};

template <class Op, Kind kind> struct Comparison : ScalarFormula::ExternalModel<Comparison<Op, kind>, Op> {
  Value formula(Operation *, Graph &g, Values x) const { return g.compare(kind, x[0], x[1]); }
};

template <class Op, Value (*function)(Op, Graph &, Values)>
struct Own : ScalarFormula::ExternalModel<Own<Op, function>, Op> {
  Value formula(Operation *op, Graph &g, Values x) const { return function(llvm::cast<Op>(op), g, x); }
};

// Parts of formulas.

/// Unsigned arithmetic wraps; signed overflow would be undefined.
template <Kind kind> Value wrapping(Graph &g, Values x) {
  return g.convertRegister(
      g.type(x[0]), g.binary(kind, g.convertRegister(DType::U64, x[0]), g.convertRegister(DType::U64, x[1])));
}
template <Kind kind> Value infix(Graph &g, Values x) { return g.binary(kind, x[0], x[1]); }
Value same(Graph &, Values x) { return x[0]; }
Value both(Graph &g, Values x) { return g.both(x[0], x[1]); }
Value either(Graph &g, Values x) { return g.either(x[0], x[1]); }
Value never(Graph &g, Values) { return g.boolean(false); }
Value differ(Graph &g, Values x) { return g.compare(Kind::NotEqual, x[0], x[1]); }
Value larger(Graph &g, Values x) { return g.select(g.compare(Kind::Greater, x[0], x[1]), x[0], x[1]); }
Value smaller(Graph &g, Values x) { return g.select(g.compare(Kind::Less, x[0], x[1]), x[0], x[1]); }
Value above(Graph &g, Value x, double number) { return g.compare(Kind::Greater, x, g.like(x, number)); }
Value below(Graph &g, Value x, double number) { return g.compare(Kind::Less, x, g.like(x, number)); }
/// 1 + e^-x
Value onePlusExp(Graph &g, Value x) { return g.add(g.like(x, 1), g.call("exp_", {g.neg(x)})); }
bool isWide(Graph &g, Values x) { return g.type(x[0]) == DType::F64; }

#define CALL(function) [](Graph &g, Values x) { return g.call(function, {x.begin(), x.end()}); }

Value negateInteger(Graph &g, Values x) {
  const Value zero = g.integer(DType::U64, 0);
  return g.convertRegister(g.type(x[0]), g.sub(zero, g.convertRegister(DType::U64, x[0])));
}
Value magnitude(Graph &g, Values x) {
  return isSignedInteger(g.type(x[0])) ? g.select(below(g, x[0], 0), negateInteger(g, x), x[0]) : x[0];
}
Value signOfInteger(Graph &g, Values x) {
  const Value other = isSignedInteger(g.type(x[0]))
                          ? g.select(below(g, x[0], 0), g.like(x[0], -1), g.like(x[0], 0))
                          : g.like(x[0], 0);
  return g.select(above(g, x[0], 0), g.like(x[0], 1), other);
}
Value signOfFloat(Graph &g, Values x) {
  const Value zero = g.select(g.compare(Kind::Equal, x[0], g.like(x[0], 0)), g.like(x[0], 0), x[0]); // or NaN
  return g.select(above(g, x[0], 0), g.like(x[0], 1), g.select(below(g, x[0], 0), g.like(x[0], -1), zero));
}
Value sigmoid(Graph &g, Values x) {
  return isWide(g, x) ? g.div(g.like(x[0], 1), onePlusExp(g, x[0]))
                      : g.call("sigmoid_", {x[0]}, DType::F32, "sigmoid_near");
}
Value silu(Graph &g, Values x) {
  return isWide(g, x) ? g.div(x[0], onePlusExp(g, x[0])) : g.call("silu_", {x[0]}, DType::F32, "silu_near");
}
Value softplus(Graph &g, Values x) {
  if (!isWide(g, x))
    return g.call("softplus_", {x[0]});
  const Value small = g.call("exp_", {g.neg(g.call("fabs_", {x[0]}))});
  return g.add(g.call("max_nan", {x[0], g.like(x[0], 0)}), g.call("log1p_", {small}));
}

// One line an op: floats, integers, booleans.
constexpr Forms negForms{[](Graph &g, Values x) { return g.neg(x[0]); }, negateInteger};
constexpr Forms absForms{CALL("fabs_"), magnitude};
constexpr Forms signForms{signOfFloat, signOfInteger};
constexpr Forms expForms{CALL("exp_")};
constexpr Forms logForms{CALL("log_")};
constexpr Forms sqrtForms{CALL("sqrt_")};
constexpr Forms rsqrtForms{
    [](Graph &g, Values x) { return g.div(g.like(x[0], 1), g.call("sqrt_", {x[0]})); }};
constexpr Forms reciprocalForms{[](Graph &g, Values x) { return g.div(g.like(x[0], 1), x[0]); },
                                [](Graph &g, Values x) {
                                  return g.call("int_div", {g.like(x[0], 1), x[0]});
                                }};
constexpr Forms squareForms{[](Graph &g, Values x) { return g.mul(x[0], x[0]); },
                            [](Graph &g, Values x) { return wrapping<Kind::Mul>(g, {x[0], x[0]}); }};
constexpr Forms sinForms{CALL("sin_")};
constexpr Forms cosForms{CALL("cos_")};
constexpr Forms tanhForms{CALL("tanh_")};
constexpr Forms erfForms{CALL("erf_")};
constexpr Forms sigmoidForms{sigmoid};
constexpr Forms siluForms{silu};
constexpr Forms reluForms{
    [](Graph &g, Values x) {
      return g.call("max_nan", {x[0], g.like(x[0], 0)});
    },
    [](Graph &g, Values x) { return g.select(above(g, x[0], 0), x[0], g.like(x[0], 0)); }};
constexpr Forms softplusForms{softplus};
constexpr Forms floorForms{CALL("floor_"), same};
constexpr Forms ceilForms{CALL("ceil_"), same};
constexpr Forms roundForms{CALL("rint_"), same};
constexpr Forms notForms{
    [](Graph &g, Values x) {
      return g.select(g.compare(Kind::Equal, x[0], g.like(x[0], 0)), g.like(x[0], 1), g.like(x[0], 0));
    },
    [](Graph &g, Values x) { return g.bitNot(x[0]); }, [](Graph &g, Values x) { return g.logicalNot(x[0]); }};
constexpr Forms addForms{infix<Kind::Add>, wrapping<Kind::Add>, either};
constexpr Forms subForms{infix<Kind::Sub>, wrapping<Kind::Sub>, differ};
constexpr Forms mulForms{infix<Kind::Mul>, wrapping<Kind::Mul>, both};
constexpr Forms divForms{infix<Kind::Div>, CALL("int_div"), both};
constexpr Forms modForms{CALL("floor_mod_"), CALL("int_mod"), never};
constexpr Forms fmodForms{CALL("fmod_"), CALL("int_rem"), never};
constexpr Forms powForms{CALL("pow_"), CALL("int_pow")};
constexpr Forms maxForms{CALL("max_nan"), larger, either};
constexpr Forms minForms{CALL("min_nan"), smaller, both};
constexpr Forms andForms{same, infix<Kind::And>, both};
constexpr Forms orForms{same, infix<Kind::Or>, either};
constexpr Forms xorForms{same, infix<Kind::Xor>, differ};
#undef CALL

Value isNan(IsNanOp, Graph &g, Values x) { return g.call("is_nan", {x[0]}, DType::Bool); }

Value isInf(IsInfOp op, Graph &g, Values x) {
  if (!op.getNegative() && !op.getPositive())
    return g.boolean(false);
  const Value infinite = g.call("is_inf", {x[0]}, DType::Bool);
  if (op.getNegative() && op.getPositive())
    return infinite;
  return g.both(infinite, op.getPositive() ? above(g, x[0], 0) : below(g, x[0], 0));
}

Value wideGelu(llvm::StringRef form, Graph &g, Value x) {
  auto number = [&](double value) { return g.like(x, value); };
  if (form == "quick")
    return g.div(x, g.add(number(1), g.call("exp_", {g.mul(number(-1.702), x)})));
  Value inner;
  if (form == "none") {
    inner = g.call("erf_", {g.mul(x, number(0.7071067811865476))});
  } else {
    const Value cube = g.mul(g.mul(g.mul(number(0.044715), x), x), x);
    inner = g.call("tanh_", {g.mul(number(0.7978845608028654), g.add(x, cube))});
  }
  return g.mul(g.mul(number(0.5), x), g.add(number(1), inner));
}

Value gelu(GeluOp op, Graph &g, Values x) {
  const llvm::StringRef form = op.getApproximate();
  if (isWide(g, x))
    return finished(op, g, wideGelu(form, g, x[0]));
  const std::string function = form == "none" ? "gelu_erf_" : form == "tanh" ? "gelu_tanh_" : "gelu_quick_";
  return finished(op, g, g.call(function, {x[0]}, DType::F32, function + "near"));
}

Value castTo(CastOp op, Graph &g, Values x) { return finished(op, g, x[0]); }
/// Registers hold narrow floats as f32, from which their bits are made.
Value bitcast(BitcastOp op, Graph &g, Values x) {
  struct Function {
    std::string bits, value; ///< of a float, and of its bits
    DType integer;
  };
  auto functionOf = [](DType type) -> Function {
    switch (type) {
    case DType::F64:
      return {"bits_of_f64", "f64_of_bits", DType::U64};
    case DType::F32:
      return {"bits_of", "f32_of_bits", DType::U32};
    case DType::F16:
      return {"f16_of_f32", "f32_of_f16", DType::U16};
    case DType::BF16:
      return {"bf16_of_f32", "f32_of_bf16", DType::U16};
    default:
      return {"e4m3_of_f32", "f32_of_e4m3", DType::U8};
    }
  };
  const DType from = dtype(op.getX()), to = dtype(op.getY());
  if (from == to || !(isFloat(from) || isFloat(to)))
    return finished(op, g, x[0]);
  const DType integer = functionOf(isFloat(from) ? from : to).integer;
  const Value bits = isFloat(from) ? g.call(functionOf(from).bits, {x[0]}, integer)
                                   : g.convertRegister(integer, x[0]);
  return finished(op, g, isFloat(to) ? g.call(functionOf(to).value, {bits}, to) : bits);
}

Value where(WhereOp, Graph &g, Values x) { return g.select(x[0], x[1], x[2]); }

/// x, scale and, if there is one, the zero point.
Value quantize(QuantizeOp op, Graph &g, Values x) {
  return scalar::quantized(g, dtype(op.getY()), x[0], x[1], x.size() == 3 ? x[2] : Value());
}

Value dequantize(DequantizeOp op, Graph &g, Values x) {
  return scalar::dequantized(g, dtype(op.getY()), x[0], x[1], x.size() == 3 ? x[2] : Value());
}

} // namespace

void attachFormulas(MLIRContext &context) {
#define ARITHMETIC(op, forms) op::attachInterface<Arithmetic<op, forms>>(context)
  ARITHMETIC(NegOp, negForms);
  ARITHMETIC(AbsOp, absForms);
  ARITHMETIC(SignOp, signForms);
  ARITHMETIC(ExpOp, expForms);
  ARITHMETIC(LogOp, logForms);
  ARITHMETIC(SqrtOp, sqrtForms);
  ARITHMETIC(RsqrtOp, rsqrtForms);
  ARITHMETIC(ReciprocalOp, reciprocalForms);
  ARITHMETIC(SquareOp, squareForms);
  ARITHMETIC(SinOp, sinForms);
  ARITHMETIC(CosOp, cosForms);
  ARITHMETIC(TanhOp, tanhForms);
  ARITHMETIC(ErfOp, erfForms);
  ARITHMETIC(SigmoidOp, sigmoidForms);
  ARITHMETIC(SiluOp, siluForms);
  ARITHMETIC(ReluOp, reluForms);
  ARITHMETIC(SoftplusOp, softplusForms);
  ARITHMETIC(FloorOp, floorForms);
  ARITHMETIC(CeilOp, ceilForms);
  ARITHMETIC(RoundOp, roundForms);
  ARITHMETIC(NotOp, notForms);
  ARITHMETIC(AddOp, addForms);
  ARITHMETIC(SubOp, subForms);
  ARITHMETIC(MulOp, mulForms);
  ARITHMETIC(DivOp, divForms);
  ARITHMETIC(ModOp, modForms);
  ARITHMETIC(FmodOp, fmodForms);
  ARITHMETIC(PowOp, powForms);
  ARITHMETIC(MaxOp, maxForms);
  ARITHMETIC(MinOp, minForms);
  ARITHMETIC(AndOp, andForms);
  ARITHMETIC(OrOp, orForms);
  ARITHMETIC(XorOp, xorForms);
#undef ARITHMETIC
  EqualOp::attachInterface<Comparison<EqualOp, Kind::Equal>>(context);
  LessOp::attachInterface<Comparison<LessOp, Kind::Less>>(context);
  LessEqualOp::attachInterface<Comparison<LessEqualOp, Kind::LessEqual>>(context);
  GreaterOp::attachInterface<Comparison<GreaterOp, Kind::Greater>>(context);
  GreaterEqualOp::attachInterface<Comparison<GreaterEqualOp, Kind::GreaterEqual>>(context);
  IsNanOp::attachInterface<Own<IsNanOp, isNan>>(context);
  IsInfOp::attachInterface<Own<IsInfOp, isInf>>(context);
  GeluOp::attachInterface<Own<GeluOp, gelu>>(context);
  CastOp::attachInterface<Own<CastOp, castTo>>(context);
  BitcastOp::attachInterface<Own<BitcastOp, bitcast>>(context);
  WhereOp::attachInterface<Own<WhereOp, where>>(context);
  QuantizeOp::attachInterface<Own<QuantizeOp, quantize>>(context);
  DequantizeOp::attachInterface<Own<DequantizeOp, dequantize>>(context);
}

} // namespace fusion::nn
