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

} // namespace
} // namespace fusion::test
