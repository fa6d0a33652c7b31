// A matmul that finds the largest of each row as it stores them, against the reference. Elements are small
// integers, so that every sum is exact and many elements of a row are equal: the first of them is meant.
#include "TestDevice.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <random>
#include <unistd.h>

using namespace fusion;
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
  const auto file = std::filesystem::temp_directory_path() / fmt::format("arg-max-{}.mlir", getpid());
  std::ofstream(file) << text;
  auto graph = Graph::load(file.string());
  std::filesystem::remove(file);
  EXPECT_TRUE(bool(graph)) << graph.error().message << text;
  return *graph;
}

/// The same ids, and elements of the same bits, for these numbers of rows.
void check(const Form &form, std::initializer_list<int> rows) {
  SCOPED_TRACE(fmt::format("{} x {} {} {}", form.n, form.k, form.type, form.epilogue));
  const Graph graph = graphOf(form);
  auto together = compile(graph, {.target = {"sm_90a"}, .device = kernelDevice()}),
       parts = compile(graph, {.target = {"sm_90a"}, .device = kernelDevice(), .batchInvariant = true}),
       reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
  ASSERT_TRUE(bool(together)) << together.error().message;
  ASSERT_TRUE(bool(parts)) << parts.error().message;
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  const DType type = form.type == std::string("f16") ? DType::F16 : DType::BF16;
  const Shape w = form.transposeB ? Shape{form.n, form.k} : Shape{form.k, form.n};
  for (int count : rows) {
    const NamedTensors inputs = {{"x", integers(type, {count, form.k}, 1, 1)},
                                 {"w", integers(type, w, 1, 2)},
                                 {"b", integers(type, {form.n}, 3, 3)}};
    auto wanted = reference->run(inputs);
    ASSERT_TRUE(bool(wanted)) << wanted.error().message;
    for (Program *program : {&*together, &*parts}) {
      auto made = program->run(inputs);
      ASSERT_TRUE(bool(made)) << made.error().message;
      EXPECT_EQ(made->at("ids").toInts(), wanted->at("ids").toInts()) << count << " rows";
      if (form.leaves)
        EXPECT_EQ(made->at("logits").toFloats(), wanted->at("logits").toFloats()) << count << " rows";
    }
  }
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
