// Elementwise ops without a function of their own: what their formula says, computed on the host. It shares
// nothing with the code that prints formulas for a device, so that it is a second opinion on that.
#include "ir/dialect/Formulas.h"
#include "ir/reference/PointwiseEngine.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringSwitch.h"

#include <array>
#include <cmath>

namespace fusion::reference {
namespace {

using scalar::Kind;
using scalar::Node;

/// A value as a register holds it.
struct Number {
  double real = 0;   ///< floats; f32 is exact in it
  int64_t whole = 0; ///< integers and bools; of u64 the bits
};

template <class T>
using RealFunction = T (*)(T, T);

/// What the C library has under the names of codegen/device. A function that is an activation by itself is
/// none of these: its op has a reference of its own.
template <class T>
RealFunction<T> realFunction(llvm::StringRef name) {
  return llvm::StringSwitch<RealFunction<T>>(name)
      .Case("exp_", [](T x, T) { return std::exp(x); })
      .Case("log_", [](T x, T) { return std::log(x); })
      .Case("log1p_", [](T x, T) { return std::log1p(x); })
      .Case("sqrt_", [](T x, T) { return std::sqrt(x); })
      .Case("sin_", [](T x, T) { return std::sin(x); })
      .Case("cos_", [](T x, T) { return std::cos(x); })
      .Case("tanh_", [](T x, T) { return std::tanh(x); })
      .Case("erf_", [](T x, T) { return std::erf(x); })
      .Case("floor_", [](T x, T) { return std::floor(x); })
      .Case("ceil_", [](T x, T) { return std::ceil(x); })
      .Case("rint_", [](T x, T) { return std::nearbyint(x); })
      .Case("fabs_", [](T x, T) { return std::fabs(x); })
      .Case("pow_", [](T x, T y) { return std::pow(x, y); })
      .Case("fmod_", [](T x, T y) { return std::fmod(x, y); })
      .Case("floor_mod_",
            [](T x, T y) {
              const T left = std::fmod(x, y);
              return left != T(0) && (left < T(0)) != (y < T(0)) ? left + y : left;
            })
      .Case("max_nan", [](T x, T y) { return std::isnan(x) ? x : std::isnan(y) ? y : largerOf(x, y); })
      .Case("min_nan", [](T x, T y) { return std::isnan(x) ? x : std::isnan(y) ? y : smallerOf(x, y); })
      .Case("is_nan", [](T x, T) { return T(std::isnan(x)); })
      .Case("is_inf", [](T x, T) { return T(std::isinf(x)); })
      .Default(nullptr);
}

/// The bits that a register of the type keeps of a result.
int64_t wrapped(DType type, int64_t value) {
  switch (type) {
  case DType::Bool:
    return value & 1;
  case DType::I4:
  case DType::I8:
    return static_cast<int8_t>(value);
  case DType::U4:
  case DType::U8:
    return static_cast<uint8_t>(value);
  case DType::I16:
    return static_cast<int16_t>(value);
  case DType::U16:
    return static_cast<uint16_t>(value);
  case DType::I32:
    return static_cast<int32_t>(value);
  case DType::U32:
    return static_cast<uint32_t>(value);
  default:
    return value;
  }
}

/// Divisions of the graph: by 0 they give 0, and the smallest number by -1 wraps.
int64_t quotient(DType type, int64_t a, int64_t b) {
  if (b == 0)
    return 0;
  if (type == DType::U64)
    return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  return b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}
int64_t remainder(DType type, int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && type != DType::U64))
    return 0;
  return type == DType::U64 ? static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b))
                            : a % b;
}
int64_t flooredRemainder(DType type, int64_t a, int64_t b) {
  const int64_t left = remainder(type, a, b);
  return isSignedInteger(type) && left != 0 && (left < 0) != (b < 0) ? left + b : left;
}
int64_t power(DType type, int64_t base, int64_t exponent) {
  if (isSignedInteger(type) && exponent < 0)
    return base == 1 ? 1 : base != -1 ? 0 : exponent % 2 ? -1 : 1;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (auto left = static_cast<uint64_t>(exponent); left; left >>= 1, square *= square)
    if (left & 1)
      result *= square;
  return static_cast<int64_t>(result);
}

using WholeFunction = int64_t (*)(DType, int64_t, int64_t);
WholeFunction wholeFunction(llvm::StringRef name) {
  return llvm::StringSwitch<WholeFunction>(name)
      .Case("int_div", quotient)
      .Case("int_rem", remainder)
      .Case("int_mod", flooredRemainder)
      .Case("int_pow", power)
      .Default(nullptr);
}

/// One value of the graph: computed for a run of elements before the next one is.
struct Step {
  const Node *node;
  DType from; ///< the type of its first operand
  std::array<const std::vector<Number> *, 3> operands{};
  RealFunction<float> single = nullptr;
  RealFunction<double> twice = nullptr;
  WholeFunction whole = nullptr;
};

template <class T>
T arithmetic(Kind kind, T a, T b) {
  switch (kind) {
  case Kind::Neg:
    return -a;
  case Kind::Add:
    return a + b;
  case Kind::Sub:
    return a - b;
  case Kind::Mul:
    return a * b;
  default:
    return a / b; // Div, Quotient
  }
}

int64_t wholeArithmetic(Kind kind, DType type, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b); // wrap
  switch (kind) {
  case Kind::Neg:
    return static_cast<int64_t>(0 - x);
  case Kind::Not:
    return a == 0;
  case Kind::BitNot:
    return ~a;
  case Kind::Add:
    return static_cast<int64_t>(x + y);
  case Kind::Sub:
    return static_cast<int64_t>(x - y);
  case Kind::Mul:
    return static_cast<int64_t>(x * y);
  case Kind::Div:
    return quotient(type, a, b);
  case Kind::Mod:
    return remainder(type, a, b);
  case Kind::And:
    return a & b;
  case Kind::Or:
    return a | b;
  default:
    return a ^ b; // Xor
  }
}

template <class T>
bool holds(Kind kind, T a, T b) {
  switch (kind) {
  case Kind::Equal:
    return a == b;
  case Kind::NotEqual:
    return a != b;
  case Kind::Less:
    return a < b;
  case Kind::LessEqual:
    return a <= b;
  case Kind::Greater:
    return a > b;
  default:
    return a >= b; // GreaterEqual
  }
}

bool compared(Kind kind, DType type, const Number &a, const Number &b) {
  if (isFloat(type))
    return holds(kind, a.real, b.real);
  return type == DType::U64 ? holds(kind, static_cast<uint64_t>(a.whole), static_cast<uint64_t>(b.whole))
                            : holds(kind, a.whole, b.whole);
}

/// Between register types, as nn.cast does.
Number converted(DType from, DType to, const Number &value) {
  const DType wideFrom = isFloat(from) ? DType::F64 : from == DType::U64 ? DType::U64 : DType::I64;
  const void *source = isFloat(from) ? static_cast<const void *>(&value.real) : &value.whole;
  Number result;
  if (isFloat(to)) {
    if (to == DType::F64) {
      convert(wideFrom, source, to, &result.real, 1);
      return result;
    }
    float single;
    convert(wideFrom, source, to, &single, 1);
    result.real = single;
    return result;
  }
  alignas(int64_t) char bytes[sizeof(int64_t)];
  convert(wideFrom, source, to, bytes, 1);
  convert(to, bytes, to == DType::U64 ? DType::U64 : DType::I64, &result.whole, 1);
  return result;
}

Number computed(const Step &step, const Number &a, const Number &b, const Number &c) {
  const Node &node = *step.node;
  switch (node.kind) {
  case Kind::Integer:
    return {0, node.integer};
  case Kind::Float:
    return {node.number, 0};
  case Kind::Select:
    return a.whole ? b : c;
  case Kind::Convert:
    return converted(step.from, node.type, a);
  case Kind::Round: {
    auto value = static_cast<float>(a.real);
    roundElements(node.roundedTo, &value, 1);
    return {value, 0};
  }
  case Kind::Equal:
  case Kind::NotEqual:
  case Kind::Less:
  case Kind::LessEqual:
  case Kind::Greater:
  case Kind::GreaterEqual:
    return {0, compared(node.kind, step.from, a, b)};
  default:
    break;
  }
  const bool isCall = node.kind == Kind::Call;
  if (!isFloat(step.from))
    return {0, wrapped(node.type, isCall ? step.whole(node.type, a.whole, b.whole)
                                         : wholeArithmetic(node.kind, node.type, a.whole, b.whole))};
  double result;
  if (step.from == DType::F64) {
    result = isCall ? step.twice(a.real, b.real) : arithmetic(node.kind, a.real, b.real);
  } else {
    const auto x = static_cast<float>(a.real), y = static_cast<float>(b.real);
    result = isCall ? step.single(x, y) : arithmetic(node.kind, x, y);
  }
  return isFloat(node.type) ? Number{result, 0} : Number{0, result != 0};
}

/// Reads elements of an operand as registers hold them.
class Operand {
public:
  Operand(const Tensor &tensor, const Shape &shape) : type(tensor.type()), tensor(tensor), shape(shape) {}

  void read(int64_t begin, int64_t count, std::vector<Number> &numbers) const {
    dispatch(arithmeticOf(type), [&](auto zero) {
      using T = decltype(zero);
      alignas(64) T buffer[chunkSize];
      const T *values = BroadcastReader<T>(tensor, shape).read(begin, count, buffer);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        if constexpr (std::is_floating_point_v<T>)
          numbers[i].real = values[i];
        else
          numbers[i].whole = static_cast<int64_t>(values[i]);
    });
  }

private:
  DType type;
  const Tensor &tensor;
  const Shape &shape;
};

void write(Tensor &result, int64_t begin, int64_t count, const std::vector<Number> &numbers) {
  dispatch(arithmeticOf(result.type()), [&](auto zero) {
    using T = decltype(zero);
    alignas(64) T buffer[chunkSize];
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      buffer[i] =
          std::is_floating_point_v<T> ? static_cast<T>(numbers[i].real) : static_cast<T>(numbers[i].whole);
    storeElements(result, begin, count, buffer);
  });
}

/// The values of a graph that one of them needs, operands first, and where each keeps its elements.
class Program {
public:
  Program(const scalar::Graph &graph, scalar::Value root) : graph(graph), root(root), needed(graph.size()) {
    for (needed[root.index] = true; uint32_t index : llvm::reverse(llvm::seq(root.index + 1)))
      if (needed[index])
        for (scalar::Value operand : graph[{index}].operands)
          needed[operand.index] = true;
  }

  /// What of it cannot be computed.
  std::optional<Error> whyNot() const {
    for (uint32_t index : llvm::seq(root.index + 1)) {
      const Node &node = graph[{index}];
      if (!needed[index])
        continue;
      if (node.kind == Kind::Load)
        return problem("its formula reads memory");
      if (node.kind == Kind::Call && !isKnown(node))
        return problem("its formula calls {}, of which the reference knows nothing", node.name);
    }
    return std::nullopt;
  }

  /// The root's elements, given those of the inputs.
  const std::vector<Number> &run(std::vector<std::vector<Number>> &values, int64_t count) const {
    for (uint32_t index : llvm::seq(root.index + 1)) {
      const Node &node = graph[{index}];
      if (!needed[index] || node.kind == Kind::Input)
        continue;
      values[index].resize(chunkSize);
      const Step step = stepOf(node, values);
      static constexpr Number none;
      auto operand = [&](size_t number, size_t i) {
        return step.operands[number] ? (*step.operands[number])[i] : none;
      };
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        values[index][i] = computed(step, operand(0, i), operand(1, i), operand(2, i));
    }
    return values[root.index];
  }

private:
  bool isKnown(const Node &node) const {
    return isFloat(graph.type(node.operands[0])) ? realFunction<float>(node.name) != nullptr
                                                 : wholeFunction(node.name) != nullptr;
  }

  Step stepOf(const Node &node, const std::vector<std::vector<Number>> &values) const {
    Step step{&node, node.operands.empty() ? node.type : graph.type(node.operands[0])};
    for (auto [number, operand] : llvm::enumerate(node.operands))
      step.operands[number] = &values[operand.index];
    if (node.kind == Kind::Call) {
      step.single = realFunction<float>(node.name);
      step.twice = realFunction<double>(node.name);
      step.whole = wholeFunction(node.name);
    }
    return step;
  }

  const scalar::Graph &graph;
  scalar::Value root;
  std::vector<bool> needed;
};

} // namespace

bool hasFormula(mlir::OperationName name) {
  return name.hasInterface<nn::ScalarFormula>() && name.hasTrait<nn::Pointwise>();
}

Result<Tensors> evaluateFormula(const Call &call) {
  scalar::Graph graph;
  llvm::SmallVector<scalar::Value> inputs;
  std::vector<Shape> shapes;
  for (auto [index, operand] : llvm::enumerate(call.operands)) {
    inputs.push_back(graph.input(std::to_string(index), operand.type(), scalar::Level::Element));
    shapes.push_back(operand.shape());
  }
  const Program program(graph, llvm::cast<nn::ScalarFormula>(call.op).formula(graph, inputs));
  if (auto reason = program.whyNot())
    return *reason;
  auto shape = broadcastShapes(shapes);
  if (!shape)
    return shape.error();
  Tensor result = Tensor::uninitialized(call.resultType(), *shape);
  forChunks(result.size(), [&](int64_t begin, int64_t count) {
    std::vector<std::vector<Number>> values(graph.size());
    for (auto [input, operand] : llvm::zip(inputs, call.operands)) {
      values[input.index].resize(chunkSize);
      Operand(operand, *shape).read(begin, count, values[input.index]);
    }
    write(result, begin, count, program.run(values, count));
  });
  return Tensors{result};
}

} // namespace fusion::reference
