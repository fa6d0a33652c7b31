// A matmul that finds the largest of each row as it stores them, against the reference. Elements are small
// integers, so that every sum is exact and many elements of a row are equal: the first of them is meant.
#include "GraphText.h"
#include "TestDevice.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <limits>
#include <random>

using namespace fusion;
using namespace fusion::test;
using test::kernelDevice;

namespace {

struct Form {
  int n = 0, k = 0;
  bool transposeB = true;
  const char *type = "bf16";
  std::string epilogue = ""; ///< of %m to %l
  bool leaves = true;        ///< the elements are a result too
  const char *elements = ""; ///< their type, if another
};

Tensor integers(DType type, Shape shape, int most, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> any(-most, most);
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values)
    value = static_cast<float>(any(engine));
  return Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(type);
}

Graph graphOf(const Form &f) {
  const std::string x = fmt::format("tensor<?x{}x{}>", f.k, f.type),
                    w = f.transposeB ? fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.type)
                                     : fmt::format("tensor<{}x{}x{}>", f.k, f.n, f.type),
                    b = fmt::format("tensor<{}x{}>", f.n, f.type),
                    m = fmt::format("tensor<?x{}x{}>", f.n, f.type),
                    l = *f.elements ? fmt::format("tensor<?x{}x{}>", f.n, f.elements) : m;
  const std::string text = fmt::format(
      R"(func.func @main(%x: {0} {{nn.name = "x", nn.dims = ["rows", {1}]}}, %w: {2} {{nn.name = "w"}},
                %b: {3} {{nn.name = "b"}}) -> ({4}tensor<?xi64> {{nn.name = "ids"}}) {{
  %{5} = nn.matmul %x, %w {{transpose_b = {6}}} : ({0}, {2}) -> {7}
  {8}
  %i = nn.arg_max %l {{axis = 1 : i64, keepdims = false}} : ({9}) -> tensor<?xi64>
  return {10}%i : {11}tensor<?xi64>
}}
)",
      x, f.k, w, b, f.leaves ? l + " {nn.name = \"logits\"}, " : "", f.epilogue.empty() ? "l" : "m",
      f.transposeB, m, fmt::format(fmt::runtime(f.epilogue), m, b, l), l, f.leaves ? "%l, " : "",
      f.leaves ? l + ", " : "");
  return parseGraph(text);
}

/// The matmul that finds the largest, its parts, and the reference.
struct Programs {
  Program together, parts, reference;
};
Programs compiled(const Graph &graph) {
  auto together = compile(graph, {.target = {"sm_90a"}, .device = kernelDevice()}),
       parts = compile(graph, {.target = {"sm_90a"}, .device = kernelDevice(), .batchInvariant = true}),
       reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
  EXPECT_TRUE(bool(together)) << together.error().message;
  EXPECT_TRUE(bool(parts)) << parts.error().message;
  EXPECT_TRUE(bool(reference)) << reference.error().message;
  return {std::move(*together), std::move(*parts), std::move(*reference)};
}

/// The same ids, and elements of the same bits.
void expectAlike(Programs &programs, const NamedTensors &inputs, bool leaves) {
  auto wanted = programs.reference.run(inputs);
  ASSERT_TRUE(bool(wanted)) << wanted.error().message;
  for (Program *program : {&programs.together, &programs.parts}) {
    auto made = program->run(inputs);
    ASSERT_TRUE(bool(made)) << made.error().message;
    EXPECT_EQ(made->at("ids").toInts(), wanted->at("ids").toInts()) << inputs.at("x").shape()[0] << " rows";
    if (leaves)
      EXPECT_EQ(made->at("logits").toFloats(), wanted->at("logits").toFloats());
  }
}

void check(const Form &form, std::initializer_list<int> rows) {
  SCOPED_TRACE(fmt::format("{} x {} {} {}", form.n, form.k, form.type, form.epilogue));
  Programs programs = compiled(graphOf(form));
  const DType type = form.type == std::string("f16") ? DType::F16 : DType::BF16;
  const Shape w = form.transposeB ? Shape{form.n, form.k} : Shape{form.k, form.n};
  for (int count : rows)
    expectAlike(programs,
                {{"x", integers(type, {count, form.k}, 1, 1)},
                 {"w", integers(type, w, 1, 2)},
                 {"b", integers(type, {form.n}, 3, 3)}},
                form.leaves);
}

const std::string biased = "%l = nn.add %m, %b : ({0}, {1}) -> {0}";

TEST(MatmulArgMax, RowsOfEveryRange) {
  check({.n = 200, .k = 136}, {1, 8, 9, 16, 17, 33, 64, 65, 128, 129, 300});
  check({.n = 200, .k = 136, .epilogue = biased, .leaves = false}, {1, 7, 15, 32, 40, 100, 130});
}

TEST(MatmulArgMax, TypesWeightsAndWidths) {
  for (const char *type : {"f16", "bf16"})
    for (bool transpose : {true, false})
      for (int n : {64, 72, 200, 1096}) {
        check({.n = n, .k = 72, .transposeB = transpose, .type = type}, {3, 20});
        check({.n = n, .k = 72, .transposeB = transpose, .type = type, .epilogue = biased, .leaves = false},
              {3, 20});
      }
  for (int n : {197, 198, 196}) // 1, 2 and 4 columns at once
    for (bool leaves : {true, false})
      check({.n = n, .k = 64, .leaves = leaves}, {2, 33});
  check({.n = 200, .k = 72, .epilogue = "%l = nn.cast %m : ({0}) -> {2}", .elements = "f32"}, {4, 18});
}

/// Blocks that share out K, several tiles a block, and several tiles at once.
TEST(MatmulArgMax, WaysToShareOut) {
  check({.n = 512, .k = 2056, .leaves = false}, {3, 24});
  check({.n = 2048, .k = 2048}, {8});
  check({.n = 18944, .k = 64}, {3, 32, 100});
}

/// Negative elements alone, equal ones, zeros of both signs, infinities and NaN.
TEST(MatmulArgMax, SpecialElements) {
  const Form form{.n = 160, .k = 64, .epilogue = biased};
  const Graph graph = graphOf(form);
  auto emulated = compile(graph, {.target = {"sm_90a"}, .device = kernelDevice()}),
       reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
  ASSERT_TRUE(bool(emulated) && bool(reference));
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (std::vector<std::pair<int, float>> special :
       {std::vector<std::pair<int, float>>{}, {{150, 0.f}, {70, -0.f}}, {{70, 0.f}, {150, -0.f}},
        {{3, -inf}, {159, -1.f}}, {{90, inf}, {91, inf}}, {{130, nan}, {140, nan}, {2, inf}}}) {
    std::vector<float> bias(160, -2);
    for (auto [at, value] : special)
      bias[static_cast<size_t>(at)] = value;
    const NamedTensors inputs = {{"x", Tensor::zeros(DType::BF16, {5, 64})},
                                 {"w", Tensor::zeros(DType::BF16, {160, 64})},
                                 {"b", Tensor::of<float>(DType::F32, {160}, bias).convertedTo(DType::BF16)}};
    auto made = emulated->run(inputs), wanted = reference->run(inputs);
    ASSERT_TRUE(bool(made)) << made.error().message;
    ASSERT_TRUE(bool(wanted)) << wanted.error().message;
    EXPECT_EQ(made->at("ids").toInts(), wanted->at("ids").toInts());
  }
  std::vector<float> all(160, -inf); // no element is above any
  const NamedTensors inputs = {{"x", Tensor::zeros(DType::BF16, {5, 64})},
                               {"w", Tensor::zeros(DType::BF16, {160, 64})},
                               {"b", Tensor::of<float>(DType::F32, {160}, all).convertedTo(DType::BF16)}};
  auto made = emulated->run(inputs);
  ASSERT_TRUE(bool(made)) << made.error().message;
  EXPECT_EQ(made->at("ids").toInts(), std::vector<int64_t>(5, 0));
}

/// Weights of 4 and 8 bits, with a scale for each block along k. All numbers are small integers times a power of
/// two, so that sums are exact.
TEST(MatmulArgMax, QuantisedWeights) {
  for (const char *codes : {"i4", "i8"})
    for (bool leaves : {true, false}) {
      const int n = 328, k = 512, block = 32;
      const std::string text = fmt::format(
          R"(func.func @main(%x: tensor<?x{1}xbf16> {{nn.name = "x", nn.dims = ["rows", {1}]}},
                %w: tensor<{0}x{1}x{2}> {{nn.name = "w"}}, %s: tensor<{0}x{3}xbf16> {{nn.name = "s"}})
    -> ({4}tensor<?xi64> {{nn.name = "ids"}}) {{
  %d = nn.dequantize %w, %s {{axis = 1 : i64, block_size = {5} : i64}} : (tensor<{0}x{1}x{2}>, tensor<{0}x{3}xbf16>) -> tensor<{0}x{1}xbf16>
  %l = nn.matmul %x, %d {{transpose_b = true}} : (tensor<?x{1}xbf16>, tensor<{0}x{1}xbf16>) -> tensor<?x{0}xbf16>
  %i = nn.arg_max %l {{axis = 1 : i64, keepdims = false}} : (tensor<?x{0}xbf16>) -> tensor<?xi64>
  return {6}%i : {7}tensor<?xi64>
}}
)",
          n, k, codes, k / block, leaves ? fmt::format("tensor<?x{}xbf16> {{nn.name = \"logits\"}}, ", n) : "",
          block, leaves ? "%l, " : "", leaves ? fmt::format("tensor<?x{}xbf16>, ", n) : "");
      const Graph graph = parseGraph(text);
      Programs programs = compiled(graph);
      for (int rows : {1, 4, 5, 8, 20, 100, 130}) {
        std::vector<float> scales(static_cast<size_t>(n * k / block), 0.5f);
        for (size_t i = 0; i < scales.size(); i += 3)
          scales[i] = 1;
        expectAlike(programs,
                    {{"x", integers(DType::BF16, {rows, k}, 1, 1)},
                     {"w", integers(codes == std::string("i4") ? DType::I4 : DType::I8, {n, k}, 3, 2)},
                     {"s", Tensor::of<float>(DType::F32, {n, k / block}, scales).convertedTo(DType::BF16)}},
                    leaves);
      }
      auto plan = explain(graph, {.target = {"sm_90a"}}, Emit::Plan);
      ASSERT_TRUE(bool(plan)) << plan.error().message;
      EXPECT_NE(plan->text.find("nn.matmul + nn.arg_max"), std::string::npos) << plan->text;
    }
}

/// The plan has both: the matmul that finds the largest, and the two kernels as without the group.
TEST(MatmulArgMax, BothAreInThePlan) {
  auto has = [](const CompileOptions &options, const char *launch) {
    auto plan = explain(graphOf({.n = 200, .k = 136, .leaves = false}), options, Emit::Plan);
    EXPECT_TRUE(bool(plan)) << plan.error().message;
    return plan && plan->text.find(launch) != std::string::npos;
  };
  EXPECT_TRUE(has({.target = {"sm_90a"}}, "matmul_arg_max: nn.matmul + nn.arg_max"));
  EXPECT_TRUE(has({.target = {"sm_90a"}}, "matmul_arg_max: nn.matmul at"));
  EXPECT_FALSE(has({.target = {"sm_90a"}, .batchInvariant = true}, "nn.matmul + nn.arg_max"));
  EXPECT_FALSE(has({.target = {"sm_80"}}, "matmul_arg_max"));
}

} // namespace
