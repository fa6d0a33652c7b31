// nn.sample: kernels draw what the reference draws, bit for bit.
#include "PlanChecks.h"

#include <fmt/format.h>

#include <cmath>

namespace fusion::test {
namespace {

std::string sample(const char *type, const char *length, double temperature, int topK, double topP) {
  return fmt::format(
      R"(func.func @main(%x: tensor<?x{1}x{0}> {{nn.name = "x", nn.dims = ["a", {2}]}}, %s: tensor<2xi64> {{nn.name = "s"}}) -> tensor<?xi64> {{
    %0 = nn.sample %x, %s {{temperature = {3:e} : f32, top_k = {4} : i64, top_p = {5:e} : f64}} : (tensor<?x{1}x{0}>, tensor<2xi64>) -> tensor<?xi64>
    return %0 : tensor<?xi64>
  }})",
      type, length, length == std::string("?") ? "\"n\"" : length, temperature, topK, topP);
}

Tensor seed(int64_t key, int64_t counter) {
  const std::vector<int64_t> values = {key, counter};
  return Tensor::of<int64_t>(DType::I64, {2}, values);
}

TEST(Sample, DrawsAsTheReferenceDoes) {
  struct Case {
    const char *type, *length;
    double temperature;
    int topK;
    double topP;
  };
  for (const Case &one : {Case{"f32", "777", 1, 0, 1},
                          {"bf16", "1000", 0.7, 50, 1},
                          {"f16", "300", 1.3, 0, 0.8},
                          {"f32", "?", 2.5, 40, 0.9}})
    for (auto [rows, key] : {std::pair<int64_t, int64_t>{1, -3}, {33, 1234567890123}})
      check(sample(one.type, one.length, one.temperature, one.topK, one.topP),
            {.symbols = {{"a", rows}, {"n", 257}}, .inputs = {{"s", seed(key, 5)}}, .targets = Targets::One});
}

TEST(Sample, EndsOfTheRange) {
  const std::vector<float> rows = {NAN,       1,         NAN,       NAN,       NAN, NAN, NAN,  NAN,
                                   -INFINITY, -INFINITY, -INFINITY, -INFINITY, 5,   5,   5,    5,
                                   1,         INFINITY,  3,         3,         0,   100, -100, 99.5f};
  const NamedTensors inputs = {{"x", Tensor::of<float>(DType::F32, {6, 4}, rows)}, {"s", seed(7, 11)}};
  for (auto [topK, topP] : {std::pair<int, double>{0, 1}, {1, 1}, {2, 0.5}, {100, 1e-9}})
    check(sample("f32", "4", 0.5, topK, topP),
          {.symbols = {{"a", 6}}, .inputs = inputs, .targets = Targets::One});
}

/// Rows that a block takes, of more elements than it has threads.
TEST(Sample, LongRows) {
  check(sample("bf16", "4501", 0.9, 20, 0.95), {.symbols = {{"a", 2}}, .inputs = {{"s", seed(1, 2)}}});
  check(R"(func.func @main(%x: tensor<3x4099xbf16> {nn.name = "x"}) -> (tensor<3xi64>, tensor<4099xi64>) {
    %0 = nn.arg_max %x {axis = 1 : i64, keepdims = false} : (tensor<3x4099xbf16>) -> tensor<3xi64>
    %1 = nn.arg_max %x {axis = 0 : i64, keepdims = false} : (tensor<3x4099xbf16>) -> tensor<4099xi64>
    return %0, %1 : tensor<3xi64>, tensor<4099xi64>
  })",
        {});
}

/// Few rows that are longer are shared out among blocks, by kernels that follow each other.
TEST(Sample, LongRowsInParts) {
  struct Case {
    const char *type;
    int length;
    double temperature;
    int topK;
    double topP;
    int64_t launches;
  };
  for (const Case &one : {Case{"bf16", 16384, 1, 0, 1, 3},
                          {"f16", 16391, 0.7, 50, 1, 5},
                          {"f32", 20001, 1.3, 0, 0.8, 5},
                          {"bf16", 32000, 2.5, 40, 0.9, 7},
                          {"f8E4M3FN", 16384, 1, 0, 0.9, 5},
                          {"f32", 128256, 0.3, 1000, 0.5, 7}})
    for (auto [rows, key] : {std::pair<int64_t, int64_t>{1, -3}, {5, 1234567890123}})
      check(sample(one.type, std::to_string(one.length).c_str(), one.temperature, one.topK, one.topP),
            {.symbols = {{"a", rows}},
             .inputs = {{"s", seed(key, 5)}},
             .launches = one.launches,
             .targets = Targets::One});
}

/// More rows have a block each.
TEST(Sample, ManyLongRows) {
  for (int64_t rows : {8, 9, 25, 64, 65})
    check(sample("bf16", "16384", 0.8, 0, 0.9),
          {.symbols = {{"a", rows}}, .inputs = {{"s", seed(1, 2)}}, .targets = Targets::One});
  const ProgramPlan plan = planOf(sample("bf16", "16384", 0.8, 0, 0.9));
  ASSERT_EQ(plan.steps.size(), 1u);
  ASSERT_EQ(plan.steps[0].alternatives.size(), 4u); // of up to 8, 24, 64 and more rows
  ASSERT_EQ(plan.steps[0].alternatives[0].launches.size(), 5u);
  EXPECT_EQ(plan.kernels[plan.steps[0].alternatives[0].launches[3].kernel].name, "sample_sums_of_parts");
  ASSERT_EQ(plan.steps[0].alternatives[1].launches.size(), 5u);
  ASSERT_EQ(plan.steps[0].alternatives[2].launches.size(), 5u);
  EXPECT_EQ(plan.steps[0].alternatives[3].launches.size(), 1u);
}

/// Rows that are all NaN or all alike, one score that is above all, infinite ones; cuts beyond all scores.
TEST(Sample, EndsOfTheRangeInParts) {
  constexpr int64_t length = 16400;
  std::vector<float> values(6 * length, 1.f);
  for (int64_t i = 0; i < length; ++i) {
    values[static_cast<size_t>(i)] = NAN;
    values[static_cast<size_t>(length + i)] = -INFINITY;
    values[static_cast<size_t>(3 * length + i)] = i == 16399 ? 50.f : -1.f;
    values[static_cast<size_t>(4 * length + i)] = i == 5000 || i == 9000 ? INFINITY : NAN;
    values[static_cast<size_t>(5 * length + i)] = i % 3 == 0 ? NAN : static_cast<float>(i % 17);
  }
  const NamedTensors inputs = {{"x", Tensor::of<float>(DType::F32, {6, length}, values)}, {"s", seed(7, 11)}};
  for (auto [topK, topP] : {std::pair<int, double>{0, 1}, {1, 1}, {2, 0.5}, {16400, 1e-9}, {100000, 0.999}})
    check(sample("f32", "16400", 0.5, topK, topP),
          {.symbols = {{"a", 6}}, .inputs = inputs, .targets = Targets::One});
}

/// Each draw has bins of its own, also where two look at the same scores.
TEST(Sample, TwoDrawsOfTheSameScores) {
  check(R"(func.func @main(%x: tensor<2x16384xbf16> {nn.name = "x"}, %s: tensor<2xi64> {nn.name = "s"}, %t: tensor<2xi64> {nn.name = "t"}) -> (tensor<2xi64>, tensor<2xi64>) {
    %0 = nn.sample %x, %s {temperature = 1.0 : f32, top_k = 30 : i64, top_p = 0.9 : f64} : (tensor<2x16384xbf16>, tensor<2xi64>) -> tensor<2xi64>
    %1 = nn.sample %x, %t {temperature = 1.0 : f32, top_k = 30 : i64, top_p = 0.9 : f64} : (tensor<2x16384xbf16>, tensor<2xi64>) -> tensor<2xi64>
    return %0, %1 : tensor<2xi64>, tensor<2xi64>
  })",
        {.inputs = {{"s", seed(1, 2)}, {"t", seed(3, 4)}}, .launches = 14});
}

} // namespace
} // namespace fusion::test
