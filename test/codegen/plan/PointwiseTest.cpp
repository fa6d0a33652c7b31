#include "PlanChecks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fusion::test {
namespace {

/// A function of x and y, both [b, 37], with one result for each op.
std::string eachOp(const std::string &type, const std::vector<std::string> &unary,
                   const std::vector<std::string> &binary, const std::vector<std::string> &comparing) {
  std::string t = "tensor<?x37x" + type + ">", c = "tensor<?x37xi1>";
  std::vector<std::string> lines, results, types;
  auto add = [&](const std::string &op, bool two, const std::string &result) {
    std::string name = fmt::format("%r{}", results.size());
    lines.push_back(fmt::format("  {} = {} {} : ({}{}) -> {}", name, op, two ? "%x, %y" : "%x", t,
                                two ? ", " + t : "", result));
    results.push_back(name);
    types.push_back(result);
  };
  for (const std::string &op : unary)
    add("nn." + op, false, t);
  for (const std::string &op : binary)
    add("nn." + op, true, t);
  for (const std::string &op : comparing)
    add("nn." + op, true, c);
  return fmt::format(
      "func.func @main(%x: {0} {{nn.name = \"x\", nn.dims = [\"b\", 37]}}, "
      "%y: {0} {{nn.name = \"y\", nn.dims = [\"b\", 37]}}) -> ({1}) {{\n{2}\n  return {3} : {1}\n}}",
      t, fmt::join(types, ", "), fmt::join(lines, "\n"), fmt::join(results, ", "));
}

const std::vector<std::string> floatUnary = {
    "neg",  "abs", "sign",    "exp",  "log",  "sqrt",     "rsqrt", "reciprocal", "square", "sin", "cos",
    "tanh", "erf", "sigmoid", "silu", "relu", "softplus", "floor", "ceil",       "round",  "gelu"};
const std::vector<std::string> arithmetic = {"add", "sub", "mul", "div", "mod", "fmod", "pow", "max", "min"};
const std::vector<std::string> comparisons = {"equal", "less", "less_equal", "greater", "greater_equal"};
const std::vector<std::string> bitwise = {"and", "or", "xor"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string> &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class FloatArithmetic : public testing::TestWithParam<std::pair<const char *, double>> {};
TEST_P(FloatArithmetic, EveryOp) {
  auto [type, tolerance] = GetParam();
  check(eachOp(type, floatUnary, arithmetic, comparisons),
        {.symbols = {{"b", 3}}, .tolerance = tolerance, .targets = Targets::One});
}
INSTANTIATE_TEST_SUITE_P(Types, FloatArithmetic,
                         testing::Values(std::pair("f32", 1e-6), std::pair("f16", 1e-4),
                                         std::pair("bf16", 1e-3), std::pair("f64", 1e-12),
                                         std::pair("f8E4M3FN", 1e-2)));

class IntegerArithmetic : public testing::TestWithParam<const char *> {};
TEST_P(IntegerArithmetic, EveryOp) {
  check(eachOp(GetParam(), {"neg", "abs", "sign", "square", "relu", "floor", "not", "reciprocal"},
               joined(arithmetic, bitwise), comparisons),
        {.symbols = {{"b", 3}}, .targets = Targets::One});
}
INSTANTIATE_TEST_SUITE_P(Types, IntegerArithmetic, testing::Values("i8", "ui8", "i32", "i64"));

TEST(Pointwise, Booleans) { check(eachOp("i1", {"not"}, bitwise, {"equal"}), {.symbols = {{"b", 2}}}); }

TEST(Pointwise, SpecialIntegers) {
  std::vector<int64_t> a = {INT64_MIN, INT64_MIN, INT64_MAX, 5, -5, 0, 7, -7},
                       b = {-1, 0, INT64_MAX, 0, 3, 0, -3, 2};
  std::string t = "tensor<8xi64>";
  std::string text = fmt::format(
      R"(func.func @main(%x: {0} {{nn.name = "x"}}, %y: {0} {{nn.name = "y"}}) -> ({0}, {0}, {0}, {0}, {0}, {0}) {{
    %0 = nn.div %x, %y : ({0}, {0}) -> {0}
    %1 = nn.mod %x, %y : ({0}, {0}) -> {0}
    %2 = nn.fmod %x, %y : ({0}, {0}) -> {0}
    %3 = nn.mul %x, %y : ({0}, {0}) -> {0}
    %4 = nn.pow %x, %y : ({0}, {0}) -> {0}
    %5 = nn.abs %x : ({0}) -> {0}
    return %0, %1, %2, %3, %4, %5 : {0}, {0}, {0}, {0}, {0}, {0}
  }})",
      t);
  check(text, {.inputs = {{"x", Tensor::of<int64_t>(DType::I64, {8}, a)},
                          {"y", Tensor::of<int64_t>(DType::I64, {8}, b)}}});
}

TEST(Pointwise, Casts) {
  std::vector<std::string> types = {"i1",   "i8",       "ui8",    "i16", "i32",  "ui32", "i64",
                                    "ui64", "f8E4M3FN", "f8E5M2", "f16", "bf16", "f32",  "f64"};
  for (const std::string &from : {"i1", "i8", "ui8", "i64", "f8E4M3FN", "bf16", "f32", "f64"}) {
    std::vector<std::string> lines, names, results;
    for (const std::string &to : types) {
      names.push_back(fmt::format("%{}", names.size()));
      results.push_back("tensor<5x7x" + to + ">");
      lines.push_back(
          fmt::format("{} = nn.cast %x : (tensor<5x7x{}>) -> {}", names.back(), from, results.back()));
    }
    check(fmt::format(
              "func.func @main(%x: tensor<5x7x{}> {{nn.name = \"x\"}}) -> ({}) {{\n{}\nreturn {} : {}\n}}",
              from, fmt::join(results, ", "), fmt::join(lines, "\n"), fmt::join(names, ", "),
              fmt::join(results, ", ")),
          {.targets = Targets::One});
  }
}

TEST(Pointwise, NanAndInfinity) {
  float inf = INFINITY, nan = NAN;
  std::vector<float> a = {1, nan, inf, -inf, nan, 0, -0.0f, 2}, b = {nan, 1, -inf, nan, nan, 0, 1, inf};
  check(R"(func.func @main(%x: tensor<8xf32> {nn.name = "x"}, %y: tensor<8xf32> {nn.name = "y"})
      -> (tensor<8xi1>, tensor<8xi1>, tensor<8xi1>, tensor<8xi1>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xi1>, tensor<8xf32>, tensor<8xf32>) {
    %0 = nn.is_nan %x : (tensor<8xf32>) -> tensor<8xi1>
    %1 = nn.is_inf %x : (tensor<8xf32>) -> tensor<8xi1>
    %2 = nn.is_inf %x {negative = false} : (tensor<8xf32>) -> tensor<8xi1>
    %3 = nn.is_inf %x {positive = false} : (tensor<8xf32>) -> tensor<8xi1>
    %4 = nn.max %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %5 = nn.min %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %6 = nn.relu %x : (tensor<8xf32>) -> tensor<8xf32>
    %7 = nn.less_equal %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
    %8 = nn.sign %x : (tensor<8xf32>) -> tensor<8xf32>
    %9 = nn.softplus %x : (tensor<8xf32>) -> tensor<8xf32>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9 : tensor<8xi1>, tensor<8xi1>, tensor<8xi1>, tensor<8xi1>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xi1>, tensor<8xf32>, tensor<8xf32>
  })",
        {.inputs = {{"x", Tensor::of<float>(DType::F32, {8}, a)},
                    {"y", Tensor::of<float>(DType::F32, {8}, b)}}});
}

TEST(Pointwise, BitsOfOtherTypes) {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"f32", "i32"}, {"ui32", "f32"}, {"f64", "i64"},   {"i64", "f64"},    {"f16", "ui16"},
      {"i16", "f16"}, {"bf16", "i16"}, {"ui16", "bf16"}, {"f16", "bf16"},   {"f8E4M3FN", "ui8"},
      {"i8", "ui8"},  {"i32", "ui32"}, {"i1", "i8"},     {"i8", "f8E4M3FN"}};
  for (const auto &[from, to] : pairs)
    check(fmt::format(R"(func.func @main(%x: tensor<5x7x{0}> {{nn.name = "x"}}) -> tensor<5x7x{1}> {{
    %0 = nn.bitcast %x : (tensor<5x7x{0}>) -> tensor<5x7x{1}>
    return %0 : tensor<5x7x{1}>
  }})",
                      from, to),
          {.targets = Targets::One});
}

TEST(Pointwise, GeluForms) {
  for (const char *form : {"none", "tanh", "quick"})
    check(
        fmt::format(
            R"(func.func @main(%x: tensor<33xf16> {{nn.name = "x"}}, %y: tensor<9xf64> {{nn.name = "y"}}) -> (tensor<33xf16>, tensor<9xf64>) {{
      %0 = nn.gelu %x {{approximate = "{0}"}} : (tensor<33xf16>) -> tensor<33xf16>
      %1 = nn.gelu %y {{approximate = "{0}"}} : (tensor<9xf64>) -> tensor<9xf64>
      return %0, %1 : tensor<33xf16>, tensor<9xf64>
    }})",
            form),
        {.tolerance = 1e-4});
}

/// Shapes for which the 16-byte path, its tail and the general path are taken, and empty ones.
TEST(Pointwise, BroadcastAndAwkwardSizes) {
  std::string text = R"(func.func @main(
      %x: tensor<?x?x16xf16> {nn.name = "x", nn.dims = ["b", "s", 16]}, %row: tensor<16xf16> {nn.name = "row"},
      %column: tensor<?x1xf16> {nn.name = "column", nn.dims = ["s", 1]}, %one: tensor<1x1x1xf16> {nn.name = "one"},
      %mask: tensor<?x?x16xi1> {nn.name = "mask", nn.dims = ["b", "s", 16]}, %flat: tensor<?xf16> {nn.name = "flat", nn.dims = ["s"]})
      -> (tensor<?x?x16xf16>, tensor<?x?x16xf16>, tensor<?x?x16xf16>, tensor<?x?x16xf16>, tensor<?xf16>) {
    %c = nn.constant {value = dense<0.3> : tensor<f16>} : () -> tensor<f16>
    %0 = nn.add %x, %row : (tensor<?x?x16xf16>, tensor<16xf16>) -> tensor<?x?x16xf16>
    %1 = nn.mul %x, %column : (tensor<?x?x16xf16>, tensor<?x1xf16>) -> tensor<?x?x16xf16>
    %2 = nn.sub %one, %x : (tensor<1x1x1xf16>, tensor<?x?x16xf16>) -> tensor<?x?x16xf16>
    %3 = nn.where %mask, %x, %c : (tensor<?x?x16xi1>, tensor<?x?x16xf16>, tensor<f16>) -> tensor<?x?x16xf16>
    %4 = nn.mul %flat, %c : (tensor<?xf16>, tensor<f16>) -> tensor<?xf16>
    return %0, %1, %2, %3, %4 : tensor<?x?x16xf16>, tensor<?x?x16xf16>, tensor<?x?x16xf16>, tensor<?x?x16xf16>, tensor<?xf16>
  })";
  for (auto [batch, sequence] : {std::pair<int64_t, int64_t>{1, 1}, {2, 5}, {0, 3}, {3, 0}, {1, 1031}})
    check(text, {.symbols = {{"b", batch}, {"s", sequence}}, .launches = 5});
}

TEST(Pointwise, GroupOfSeveralOutputs) {
  check(
      R"(func.func @main(%x: tensor<?x24xbf16> {nn.name = "x", nn.dims = ["n", 24]}, %w: tensor<24xbf16> {nn.name = "w"})
      -> (tensor<?x24xf32>, tensor<?x24xbf16>) {
    %0:2 = fusion.group "pointwise" schedule "pointwise" (%a = %x, %b = %w)
        : (tensor<?x24xbf16>, tensor<24xbf16>) -> (tensor<?x24xf32>, tensor<?x24xbf16>) {
      %half = nn.constant {value = dense<0.5> : tensor<bf16>} : () -> tensor<bf16>
      %1 = nn.mul %a, %b : (tensor<?x24xbf16>, tensor<24xbf16>) -> tensor<?x24xbf16>
      %2 = nn.silu %1 : (tensor<?x24xbf16>) -> tensor<?x24xbf16>
      %3 = nn.add %2, %half : (tensor<?x24xbf16>, tensor<bf16>) -> tensor<?x24xbf16>
      %4 = nn.cast %3 : (tensor<?x24xbf16>) -> tensor<?x24xf32>
      fusion.yield %4, %1 : tensor<?x24xf32>, tensor<?x24xbf16>
    }
    return %0#0, %0#1 : tensor<?x24xf32>, tensor<?x24xbf16>
  })",
      {.symbols = {{"n", 7}}, .tolerance = 1e-4, .launches = 1});
}

TEST(Pointwise, AResultMayTakeTheMemoryOfWhatItsThreadsAloneRead) {
  std::string text =
      R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}, %w: tensor<8xf32> {nn.name = "w"})
      -> (tensor<?x8xf16>, tensor<?x8xf32>) {
    %0 = nn.silu %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = nn.mul %0, %w : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    %2 = nn.exp %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %first = nn.slice %2 {starts = [0, 3], sizes = [1, 1], steps = array<i64: 1, 1>} : (tensor<?x8xf32>) -> tensor<1x1xf32>
    %3 = nn.sub %2, %first : (tensor<?x8xf32>, tensor<1x1xf32>) -> tensor<?x8xf32>
    %4 = nn.cast %3 : (tensor<?x8xf32>) -> tensor<?x8xf16>
    %5 = nn.add %3, %3 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %4, %5 : tensor<?x8xf16>, tensor<?x8xf32>
  })";
  // exp of products up to 16, whose last places (a GPU's silu has other ones) are 5e-6 of it.
  check(text, {.symbols = {{"n", 1031}}, .tolerance = 1e-5, .launches = 6});
  auto module = parse(text);
  auto plan = buildPlan(mainOf(*module), {});
  ASSERT_TRUE(plan) << plan.error().message;
  std::vector<size_t> replaceable;
  for (const KernelLaunch *launch : plan->launches())
    for (const KernelArgument &argument : launch->arguments)
      if (isWritten(argument))
        replaceable.push_back(std::get<PointerArgument>(argument).mayReplace.size());
  // Not the row that repeats, not where every thread reads one element, not another type.
  EXPECT_EQ(replaceable, (std::vector<size_t>{1, 1, 1, 0, 0, 1}));
}

TEST(Pointwise, RefusesResultsOfDifferentShapes) {
  std::string error = planError(
      R"(func.func @main(%x: tensor<4x8xf32> {nn.name = "x"}, %w: tensor<8xf32> {nn.name = "w"}) -> (tensor<4x8xf32>, tensor<8xf32>) {
    %0:2 = fusion.group "mine" schedule "pointwise" (%a = %x, %b = %w) : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
      %1 = nn.exp %b : (tensor<8xf32>) -> tensor<8xf32>
      %2 = nn.mul %a, %1 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
      fusion.yield %2, %1 : tensor<4x8xf32>, tensor<8xf32>
    }
    return %0#0, %0#1 : tensor<4x8xf32>, tensor<8xf32>
  })");
  EXPECT_NE(error.find("results of different shapes: [4, 8] and [8]"), std::string::npos) << error;
}

} // namespace
} // namespace fusion::test
