#include "codegen/ScalarCode.h"

#include "llvm/ADT/StringSwitch.h"

#include <fmt/format.h>

#include <cmath>

using namespace mlir;

namespace fusion {

StringRef registerType(DType type) {
  return isFloat(type) && type != DType::F64 ? StringRef("f32") : sourceType(type);
}

static bool isNarrow(DType type) { return isFloat(type) && byteSize(type) < 4; }

std::string loadElement(DType type, StringRef pointer, StringRef index, bool settled) {
  std::string loaded = (settled ? "load_settled(" : "load(") + pointer.str() + " + " + index.str() + ")";
  return isNarrow(type) ? "to_f32(" + loaded + ")" : loaded;
}

std::string storeElement(DType type, StringRef pointer, StringRef index, StringRef value) {
  return fmt::format("store({} + {}, {})", pointer.str(), index.str(),
                     isNarrow(type) ? fmt::format("from_f32<{}>({})", sourceType(type).str(), value.str())
                                    : value.str());
}

std::string rounded(DType type, StringRef expression) {
  return isNarrow(type) ? fmt::format("round_to<{}>({})", sourceType(type).str(), expression.str())
                        : expression.str();
}

std::string roundedPair(DType type, StringRef name, StringRef a, StringRef b) {
  if (isNarrow(type) && byteSize(type) == 2)
    return fmt::format("{}_to<{}>({}, {})", name.str(), sourceType(type).str(), a.str(), b.str());
  return rounded(type, fmt::format("{} {} {}", a.str(), name == "mul" ? "*" : name == "add" ? "+" : "-", b.str()));
}

std::optional<std::string> unrounded(DType type, StringRef text) {
  if (!isNarrow(type) || !text.consume_front(fmt::format("round_to<{}>(", sourceType(type).str())) ||
      !text.consume_back(")"))
    return std::nullopt;
  int depth = 0;
  for (char c : text)
    if ((depth += c == '(' ? 1 : c == ')' ? -1 : 0) < 0)
      return std::nullopt; // the last parenthesis closes another one
  return text.str();
}

std::string integerLiteral(DType type, int64_t value) {
  auto wrap = [&](std::string text) { return value < 0 ? "(" + text + ")" : text; };
  switch (type) {
  case DType::Bool:
    return value ? "true" : "false";
  case DType::I64:
    return value == INT64_MIN ? "(-9223372036854775807ll - 1)" : wrap(std::to_string(value) + "ll");
  case DType::U64:
    return std::to_string(static_cast<uint64_t>(value)) + "ull";
  case DType::U32:
    return std::to_string(static_cast<uint32_t>(value)) + "u";
  case DType::I32:
    return value == INT32_MIN ? "(-2147483647 - 1)" : wrap(std::to_string(value));
  default:
    return fmt::format("({}){}", sourceType(type).str(), wrap(std::to_string(value)));
  }
}

std::string literal(DType type, double value) {
  if (!isFloat(type))
    return integerLiteral(type, type == DType::U64 && value > 0
                                    ? static_cast<int64_t>(static_cast<uint64_t>(value))
                                    : static_cast<int64_t>(value));
  bool wide = type == DType::F64;
  if (std::isnan(value))
    return wide ? "(f64)nan_f32()" : "nan_f32()";
  if (std::isinf(value))
    return fmt::format("({}{}inf_f32())", wide ? "(f64)" : "", value < 0 ? "-" : "");
  // The shortest digits that read back as the same number.
  std::string digits = wide ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (digits.find_first_of(".e") == std::string::npos)
    digits += ".0";
  if (!wide)
    digits += "f";
  return digits[0] == '-' ? "(" + digits + ")" : digits;
}

std::string quantizedExpression(DType to, const std::string &quotient, const std::string &zero) {
  if (isFloat(to))
    return rounded(to, quotient);
  std::string whole = fmt::format("rint_({})", quotient);
  if (!zero.empty())
    whole += fmt::format(" + (f32){}", zero);
  if (to == DType::I4 || to == DType::U4)
    whole = fmt::format("min_nan(max_nan({}, {}), {})", whole, to == DType::I4 ? "-8.f" : "0.f",
                        to == DType::I4 ? "7.f" : "15.f");
  return fmt::format("saturate_to_int<{}>({})", registerType(to).str(), whole);
}

bool isScalarOp(Operation *op) { return op->hasTrait<nn::Pointwise>(); }

namespace {

/// The formula of one op for operands of one type; `a`, `b` are names or literals.
struct Formula {
  Operation *op;
  StringRef name; ///< without the dialect
  DType type;     ///< of the operands
  std::string a, b;
  bool toNarrow = false; ///< the result is rounded to 16 bits or fewer

  std::string floats() const;
  std::string integers() const;
  std::string booleans() const;
  std::string comparison() const;

private:
  std::string constant(double value) const {
    return literal(type == DType::F64 ? DType::F64 : DType::F32, value);
  }
  std::string call(StringRef function) const { return function.str() + "(" + a + ")"; }
  std::string call2(StringRef function) const { return function.str() + "(" + a + ", " + b + ")"; }
  std::string infix(StringRef symbol) const { return a + " " + symbol.str() + " " + b; }
  std::string sigmoid() const { return fmt::format("{0} / ({0} + exp_(-{1}))", constant(1), a); }
  std::string gelu() const;
  std::string wideActivation() const;
};

std::string Formula::gelu() const {
  StringRef form = llvm::cast<nn::GeluOp>(op).getApproximate();
  if (type == DType::F64) {
    if (form == "none")
      return fmt::format("0.5 * {0} * (1.0 + erf_({0} * 0.7071067811865476))", a);
    if (form == "tanh")
      return fmt::format("0.5 * {0} * (1.0 + tanh_(0.7978845608028654 * ({0} + 0.044715 * {0} * {0} * {0})))",
                         a);
    return fmt::format("{0} / (1.0 + exp_(-1.702 * {0}))", a);
  }
  const std::string function = form == "none" ? "gelu_erf_" : form == "tanh" ? "gelu_tanh_" : "gelu_quick_";
  return call(toNarrow ? function + "near" : function);
}

/// The prelude's activations are for f32.
std::string Formula::wideActivation() const {
  return llvm::StringSwitch<std::string>(name)
      .Case("sigmoid", "1.0 / (1.0 + exp_(-" + a + "))")
      .Case("silu", a + " / (1.0 + exp_(-" + a + "))")
      .Default("max_nan(" + a + ", 0.0) + log1p_(exp_(-fabs_(" + a + ")))");
}

std::string Formula::floats() const {
  if (name == "gelu")
    return gelu();
  if (type == DType::F64 && (name == "sigmoid" || name == "silu" || name == "softplus"))
    return wideActivation();
  const std::string zero = constant(0), one = constant(1);
  return llvm::StringSwitch<std::string>(name)
      .Case("neg", "-" + a)
      .Case("abs", call("fabs_"))
      .Case("sign", fmt::format("({0} > {1} ? {2} : ({0} < {1} ? -{2} : {0}))", a, zero, one))
      .Case("exp", call("exp_"))
      .Case("log", call("log_"))
      .Case("sqrt", call("sqrt_"))
      .Case("rsqrt", fmt::format("{} / sqrt_({})", one, a))
      .Case("reciprocal", one + " / " + a)
      .Case("square", a + " * " + a)
      .Case("sin", call("sin_"))
      .Case("cos", call("cos_"))
      .Case("tanh", call("tanh_"))
      .Case("erf", call("erf_"))
      .Case("sigmoid", call(toNarrow ? "sigmoid_near" : "sigmoid_"))
      .Case("silu", call(toNarrow ? "silu_near" : "silu_"))
      .Case("relu", "max_nan(" + a + ", " + zero + ")")
      .Case("softplus", call("softplus_"))
      .Case("floor", call("floor_"))
      .Case("ceil", call("ceil_"))
      .Case("round", call("rint_"))
      .Case("not", fmt::format("({} == {} ? {} : {})", a, zero, one, zero))
      .Case("add", infix("+"))
      .Case("sub", infix("-"))
      .Case("mul", infix("*"))
      .Case("div", infix("/"))
      .Case("mod", call2("floor_mod_"))
      .Case("fmod", call2("fmod_"))
      .Case("pow", call2("pow_"))
      .Case("max", call2("max_nan"))
      .Case("min", call2("min_nan"))
      .Default({});
}

std::string Formula::integers() const {
  const std::string t = sourceType(type).str();
  const bool isSigned = isSignedInteger(type);
  // Unsigned arithmetic wraps; signed overflow would be undefined.
  auto wrapping = [&](StringRef symbol) {
    return fmt::format("({})((u64){} {} (u64){})", t, a, symbol.str(), b);
  };
  auto asFloat = [&] { // what has no meaning on integers goes through f32
    Formula formula{op, name, DType::F32, "(f32)" + a, "(f32)" + b, false};
    return fmt::format("convert<{}>({})", t, formula.floats());
  };
  return llvm::StringSwitch<llvm::function_ref<std::string()>>(name)
      .Case("neg", [&] { return fmt::format("({})(0ull - (u64){})", t, a); })
      .Case("abs",
            [&] { return isSigned ? fmt::format("({0})({1} < 0 ? 0ull - (u64){1} : (u64){1})", t, a) : a; })
      .Case("sign", [&] { return fmt::format("({0})({1} > 0 ? 1 : ({1} < 0 ? -1 : 0))", t, a); })
      .Case("reciprocal", [&] { return fmt::format("int_div(({}){}, {})", t, 1, a); })
      .Case("square", [&] { return fmt::format("({0})((u64){1} * (u64){1})", t, a); })
      .Case("relu", [&] { return fmt::format("({0} > 0 ? {0} : ({1})0)", a, t); })
      .Cases({"floor", "ceil", "round"}, [&] { return a; })
      .Case("not", [&] { return fmt::format("({})~{}", t, a); })
      .Case("add", [&] { return wrapping("+"); })
      .Case("sub", [&] { return wrapping("-"); })
      .Case("mul", [&] { return wrapping("*"); })
      .Case("div", [&] { return call2("int_div"); })
      .Case("mod", [&] { return call2("int_mod"); })
      .Case("fmod", [&] { return call2("int_rem"); })
      .Case("pow", [&] { return call2("int_pow"); })
      .Case("max", [&] { return fmt::format("({0} > {1} ? {0} : {1})", a, b); })
      .Case("min", [&] { return fmt::format("({0} < {1} ? {0} : {1})", a, b); })
      .Case("and", [&] { return fmt::format("({})({} & {})", t, a, b); })
      .Case("or", [&] { return fmt::format("({})({} | {})", t, a, b); })
      .Case("xor", [&] { return fmt::format("({})({} ^ {})", t, a, b); })
      .Default(asFloat)();
}

std::string Formula::booleans() const {
  return llvm::StringSwitch<std::string>(name)
      .Case("not", "!" + a)
      .Cases({"and", "mul", "min", "div"}, infix("&&"))
      .Cases({"or", "add", "max"}, infix("||"))
      .Cases({"xor", "sub"}, infix("!="))
      .Default(a);
}

std::string Formula::comparison() const {
  StringRef symbol = llvm::StringSwitch<StringRef>(name)
                         .Case("equal", "==")
                         .Case("less", "<")
                         .Case("less_equal", "<=")
                         .Case("greater", ">")
                         .Case("greater_equal", ">=")
                         .Default({});
  return symbol.empty() ? std::string() : infix(symbol);
}

std::string castExpression(DType from, DType to, const std::string &value) {
  if (from == to)
    return value;
  StringRef source = registerType(from);
  if (isNarrow(to))
    return rounded(to, source == "f32" ? value : "(f32)" + value);
  StringRef target = registerType(to);
  if (source == target)
    return value;
  return fmt::format("convert<{}>({})", target.str(), value);
}

std::string infinityTest(nn::IsInfOp op, const std::string &x) {
  StringRef zero = elementType(op.getX()).isF64() ? "0.0" : "0.f";
  if (op.getNegative() && op.getPositive())
    return "is_inf(" + x + ")";
  if (!op.getNegative() && !op.getPositive())
    return "false";
  return fmt::format("is_inf({0}) && {0} {1} {2}", x, op.getPositive() ? ">" : "<", zero.str());
}

} // namespace

std::string scalarExpression(Operation *op, llvm::ArrayRef<std::string> operands) {
  assert(isScalarOp(op));
  if (llvm::isa<nn::WhereOp>(op))
    return fmt::format("({} ? {} : {})", operands[0], operands[1], operands[2]);
  DType from = dtype(op->getOperand(0)), to = dtype(op->getResult(0));
  if (llvm::isa<nn::CastOp>(op))
    return castExpression(from, to, operands[0]);
  if (llvm::isa<nn::IsNanOp>(op))
    return "is_nan(" + operands[0] + ")";
  if (auto isInf = llvm::dyn_cast<nn::IsInfOp>(op))
    return infinityTest(isInf, operands[0]);
  Formula formula{op, op->getName().stripDialect(), from, operands[0],
                  operands.size() > 1 ? operands[1] : "", isNarrow(to)};
  if (std::string comparison = formula.comparison(); !comparison.empty())
    return comparison;
  if (from == DType::Bool)
    return castExpression(from, to, formula.booleans());
  if (isFloat(from) && from == to && llvm::is_contained({"mul", "add", "sub"}, formula.name))
    return roundedPair(to, formula.name, formula.a, formula.b);
  if (isFloat(from)) {
    DType computed = from == DType::F64 ? from : DType::F32;
    return computed == to ? formula.floats() : castExpression(computed, to, formula.floats());
  }
  return castExpression(from, to, formula.integers());
}

} // namespace fusion
