#include "PlanChecks.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

TEST(Scan, CumSum) {
  for (const char *type : {"i64", "i32", "f32", "f16"})
    for (bool reverse : {false, true}) {
      std::string t = fmt::format("tensor<?x?x3x{}>", type);
      std::string text = fmt::format(
          R"(func.func @main(%x: {0} {{nn.name = "x", nn.dims = ["a", "b", 3]}}) -> ({0}, {0}, {0}) {{
        %0 = nn.cumsum %x {{axis = 1 : i64, exclusive = false, reverse = {1}}} : ({0}) -> {0}
        %1 = nn.cumsum %x {{axis = -1 : i64, exclusive = true, reverse = {1}}} : ({0}) -> {0}
        %2 = nn.cumsum %x {{axis = 0 : i64, exclusive = true, reverse = {1}}} : ({0}) -> {0}
        return %0, %1, %2 : {0}, {0}, {0}
      }})",
          t, reverse);
      for (auto [a, b] : {std::pair<int64_t, int64_t>{1, 1}, {3, 100}, {33, 32}, {2, 0}})
        check(text, {.symbols = {{"a", a}, {"b", b}}, .tolerance = type == std::string("f16") ? 1e-3 : 1e-5});
    }
}

TEST(Scan, ArgMaxTakesTheFirstOfEquals) {
  for (const char *type : {"f32", "bf16", "i64", "ui8"}) {
    std::string text = fmt::format(
        R"(func.func @main(%x: tensor<?x?x5x{0}> {{nn.name = "x", nn.dims = ["a", "b", 5]}}) -> (tensor<?x5xi64>, tensor<?x?x1xi64>) {{
      %t = nn.transpose %x {{perm = array<i64: 1, 0, 2>}} : (tensor<?x?x5x{0}>) -> tensor<?x?x5x{0}>
      %0 = nn.arg_max %t {{axis = 0 : i64, keepdims = false}} : (tensor<?x?x5x{0}>) -> tensor<?x5xi64>
      %1 = nn.arg_max %x {{axis = 2 : i64, keepdims = true}} : (tensor<?x?x5x{0}>) -> tensor<?x?x1xi64>
      return %0, %1 : tensor<?x5xi64>, tensor<?x?x1xi64>
    }})",
        type);
    for (auto [a, b] : {std::pair<int64_t, int64_t>{1, 1}, {3, 70}, {0, 4}})
      check(text, {.symbols = {{"a", a}, {"b", b}}});
  }
  std::vector<float> values = {1, NAN, 3, NAN, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
  check(R"(func.func @main(%x: tensor<2x4xf32> {nn.name = "x"}) -> tensor<2xi64> {
    %0 = nn.arg_max %x {axis = 1 : i64, keepdims = false} : (tensor<2x4xf32>) -> tensor<2xi64>
    return %0 : tensor<2xi64>
  })",
        {.inputs = {{"x", Tensor::of<float>(DType::F32, {2, 4}, values)}}});
}

/// A vocabulary's, which the blocks of a cluster share where there are clusters; in vectors where its length
/// and type allow.
TEST(Scan, ArgMaxOfAVocabulary) {
  for (const char *type : {"bf16", "f32", "i64", "ui8"})
    for (int length : {33001, 33008, 70002})
      check(fmt::format(
                R"(func.func @main(%x: tensor<?x{1}x{0}> {{nn.name = "x", nn.dims = ["b", {1}]}}) -> tensor<?xi64> {{
      %0 = nn.arg_max %x {{axis = 1 : i64, keepdims = false}} : (tensor<?x{1}x{0}>) -> tensor<?xi64>
      return %0 : tensor<?xi64>
    }})",
                type, length),
            {.symbols = {{"b", 3}}});
}

TEST(Scan, TopKInOrder) {
  for (const char *type : {"f32", "bf16", "i64", "ui8"}) {
    const std::string text = fmt::format(
        R"(func.func @main(%x: tensor<?x?x5x{0}> {{nn.name = "x", nn.dims = ["a", "b", 5]}}) -> (tensor<2x?x5xi64>, tensor<?x?x5xi64>, tensor<?x?x3xi64>) {{
      %t = nn.transpose %x {{perm = array<i64: 1, 0, 2>}} : (tensor<?x?x5x{0}>) -> tensor<?x?x5x{0}>
      %0 = nn.top_k %t {{axis = 0 : i64, k = [2]}} : (tensor<?x?x5x{0}>) -> tensor<2x?x5xi64>
      %1 = nn.top_k %x {{axis = 1 : i64, k = ["b"]}} : (tensor<?x?x5x{0}>) -> tensor<?x?x5xi64>
      %2 = nn.top_k %x {{axis = -1 : i64, k = [3]}} : (tensor<?x?x5x{0}>) -> tensor<?x?x3xi64>
      return %0, %1, %2 : tensor<2x?x5xi64>, tensor<?x?x5xi64>, tensor<?x?x3xi64>
    }})",
        type);
    for (auto [a, b] : {std::pair<int64_t, int64_t>{1, 2}, {3, 70}, {0, 4}})
      check(text, {.symbols = {{"a", a}, {"b", b}}});
  }
  const std::vector<float> values = {1, NAN, 3, NAN, -INFINITY, 2, 2, -INFINITY};
  check(R"(func.func @main(%x: tensor<2x4xf32> {nn.name = "x"}) -> tensor<2x4xi64> {
    %0 = nn.top_k %x {axis = 1 : i64, k = [4]} : (tensor<2x4xf32>) -> tensor<2x4xi64>
    return %0 : tensor<2x4xi64>
  })",
        {.inputs = {{"x", Tensor::of<float>(DType::F32, {2, 4}, values)}}});
}

// Also where the rows lie in another order than the elements of the result.
TEST(Scan, BestGroups) {
  const std::string text =
      R"(func.func @main(%x: tensor<?x?x60xf32> {nn.name = "x", nn.dims = ["a", "b", 60]}) -> (tensor<?x?x60xf32>, tensor<?x?x60xf32>) {
      %t = nn.transpose %x {perm = array<i64: 1, 0, 2>} : (tensor<?x?x60xf32>) -> tensor<?x?x60xf32>
      %0 = nn.limit_groups %t {groups = 6 : i64, kept = 2 : i64, summed = 2 : i64, other = 0xFF800000 : f32} : (tensor<?x?x60xf32>) -> tensor<?x?x60xf32>
      %1 = nn.limit_groups %x {groups = 4 : i64, kept = 3 : i64, summed = 1 : i64, other = 0.5 : f32} : (tensor<?x?x60xf32>) -> tensor<?x?x60xf32>
      return %0, %1 : tensor<?x?x60xf32>, tensor<?x?x60xf32>
    })";
  for (auto [a, b] : {std::pair<int64_t, int64_t>{1, 2}, {3, 37}, {0, 4}})
    check(text, {.symbols = {{"a", a}, {"b", b}}});
}

TEST(Scan, ScatterIsACopyAndAScatter) {
  std::vector<int64_t> rows = {4, -5, 2}, places = {0, 1, 3, -1, 2, 0};
  check(
      R"(func.func @main(%x: tensor<5x6xf16> {nn.name = "x"}, %i: tensor<3x1xi64> {nn.name = "i"}, %u: tensor<3x6xf16> {nn.name = "u"},
      %j: tensor<3x2xi64> {nn.name = "j"}, %v: tensor<3xf16> {nn.name = "v"}) -> (tensor<5x6xf16>, tensor<5x6xf16>) {
    %0 = nn.scatter_nd %x, %i, %u : (tensor<5x6xf16>, tensor<3x1xi64>, tensor<3x6xf16>) -> tensor<5x6xf16>
    %1 = nn.scatter_nd %x, %j, %v : (tensor<5x6xf16>, tensor<3x2xi64>, tensor<3xf16>) -> tensor<5x6xf16>
    return %0, %1 : tensor<5x6xf16>, tensor<5x6xf16>
  })",
      {.inputs = {{"i", Tensor::of<int64_t>(DType::I64, {3, 1}, rows)},
                  {"j", Tensor::of<int64_t>(DType::I64, {3, 2}, places)}},
       .tolerance = 0,
       .launches = 4});
}

// Places that repeat, that are none, and rows wider than what a warp has.
TEST(Scan, ScatteredUpdatesAreReducedInTheirOrder) {
  std::vector<int64_t> rows, places;
  for (int64_t i = 0; i < 70; ++i) {
    rows.push_back(i * 7 % 9 - 2); // -2 is the last but one of five; 5 and 6 are none
    places.insert(places.end(), {i * 5 % 5, -(i % 3) - 1});
  }
  for (const char *type : {"f16", "f32", "i32"})
    for (const char *kind : {"add", "mul", "min", "max"})
      check(fmt::format(R"(func.func @main(%x: tensor<5x300x{0}> {{nn.name = "x"}}, %i: tensor<70x1xi64> {{nn.name = "i"}},
      %u: tensor<70x300x{0}> {{nn.name = "u"}}, %j: tensor<70x2xi64> {{nn.name = "j"}}, %v: tensor<70x{0}> {{nn.name = "v"}})
      -> (tensor<5x300x{0}>, tensor<5x300x{0}>) {{
    %0 = nn.scatter_reduce %x, %i, %u {{kind = "{1}"}} : (tensor<5x300x{0}>, tensor<70x1xi64>, tensor<70x300x{0}>) -> tensor<5x300x{0}>
    %1 = nn.scatter_reduce %x, %j, %v {{kind = "{1}"}} : (tensor<5x300x{0}>, tensor<70x2xi64>, tensor<70x{0}>) -> tensor<5x300x{0}>
    return %0, %1 : tensor<5x300x{0}>, tensor<5x300x{0}>
  }})",
                        type, kind),
            {.inputs = {{"i", Tensor::of<int64_t>(DType::I64, {70, 1}, rows)},
                        {"j", Tensor::of<int64_t>(DType::I64, {70, 2}, places)}},
             .tolerance = 0,
             .launches = 2});
}

} // namespace
} // namespace fusion::test
