// Row kernels of several norms: of one value, and one after the other.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) {
  return type == "f16" ? 5e-4 : type == "bf16" ? 4e-3 : type == "f32" ? 2e-6 : 2e-2;
}

size_t countOf(const std::string &text, const std::string &part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// `norms` of add(x, r), with weights w0, w1 and a bias b.
std::string siblings(const std::string &type, int width, const std::string &first,
                     const std::string &second) {
  return fmt::format(R"(
    func.func @main(%x: tensor<?x{1}x{0}> {{nn.dims = ["t", {1}]}}, %r: tensor<?x{1}x{0}> {{nn.dims = ["t", {1}]}},
                    %w0: tensor<{1}x{0}>, %w1: tensor<{1}x{0}>, %b: tensor<{1}x{0}>)
        -> (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>, tensor<?x{1}x{0}>) {{
      %o:3 = fusion.group "add_norm" schedule "row" (%a = %x, %c = %r, %v0 = %w0, %v1 = %w1, %d = %b)
          : (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>, tensor<{1}x{0}>, tensor<{1}x{0}>, tensor<{1}x{0}>)
          -> (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>, tensor<?x{1}x{0}>) {{
        %s = nn.add %a, %c : (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>) -> tensor<?x{1}x{0}>
        %0 = {2}
        %1 = {3}
        fusion.yield %s, %0, %1 : tensor<?x{1}x{0}>, tensor<?x{1}x{0}>, tensor<?x{1}x{0}>
      }}
      return %o#0, %o#1, %o#2 : tensor<?x{1}x{0}>, tensor<?x{1}x{0}>, tensor<?x{1}x{0}>
    }})",
                     type, width, first, second);
}

std::string rmsNorm(const std::string &type, int width, const char *weight, const char *attributes = "") {
  return fmt::format("nn.rms_norm %s, %{2} {{eps = 1.0e-6 : f32{3}}} : (tensor<?x{1}x{0}>, tensor<{1}x{0}>) "
                     "-> tensor<?x{1}x{0}>",
                     type, width, weight, attributes);
}
std::string layerNorm(const std::string &type, int width, const char *weight) {
  return fmt::format(
      "nn.layer_norm %s, %{2}, %d {{eps = 1.0e-5 : f32}} : (tensor<?x{1}x{0}>, tensor<{1}x{0}>, "
      "tensor<{1}x{0}>) -> tensor<?x{1}x{0}>",
      type, width, weight);
}

TEST(RowNorms, TwoOfOneSumShareTheirStatistics) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int width : {1, 33, 768, 4096}) {
      for (int rows : {0, 1, 5}) {
        const std::string source = check(
            rowSchedule(), {siblings(type, width, layerNorm(type, width, "v0"), layerNorm(type, width, "v1")),
                            {{"t", rows}},
                            toleranceOf(type),
                            {},
                            rows == 1});
        if (rows > 0)
          EXPECT_EQ(countOf(source, "sqrt_("), 1u);
      }
      const std::string source =
          check(rowSchedule(), {siblings(type, width, rmsNorm(type, width, "v0"), rmsNorm(type, width, "v1")),
                                {{"t", 3}},
                                toleranceOf(type)});
      EXPECT_EQ(countOf(source, "sqrt_("), 1u);
    }
}

TEST(RowNorms, DifferentNormsOfOneSum) {
  for (const char *type : {"f16", "bf16", "f32"}) {
    check(rowSchedule(), {siblings(type, 257, layerNorm(type, 257, "v0"), rmsNorm(type, 257, "v1")),
                          {{"t", 4}},
                          toleranceOf(type)});
    // Another rounding point and another weight: the same statistics.
    const std::string source = check(
        rowSchedule(), {siblings(type, 512, rmsNorm(type, 512, "v0"),
                                 rmsNorm(type, 512, "v1", ", weight_bias = 1.0 : f32, scale_in = f32")),
                        {{"t", 4}},
                        toleranceOf(type)});
    EXPECT_EQ(countOf(source, "sqrt_("), 1u);
    // Two eps: one sum of squares, two factors.
    const std::string apart =
        check(rowSchedule(),
              {siblings(type, 512, rmsNorm(type, 512, "v0"),
                        "nn.rms_norm %s, %v1 {eps = 1.0e-2 : f32} : (tensor<?x512x" + std::string(type) +
                            ">, tensor<512x" + type + ">) -> tensor<?x512x" + type + ">"),
               {{"t", 4}},
               toleranceOf(type)});
    EXPECT_EQ(countOf(apart, "sqrt_("), 2u);
  }
}

TEST(RowNorms, NormThenAddThenNorm) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int width : {7, 128, 1152, 4608})
      check(rowSchedule(), {fmt::format(R"(
    func.func @main(%x: tensor<?x{1}x{0}> {{nn.dims = ["t", {1}]}}, %r: tensor<?x{1}x{0}> {{nn.dims = ["t", {1}]}},
                    %w0: tensor<{1}x{0}>, %w1: tensor<{1}xf32>) -> (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>) {{
      %o:2 = fusion.group "add_norm" schedule "row" (%a = %x, %c = %r, %v0 = %w0, %v1 = %w1)
          : (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>, tensor<{1}x{0}>, tensor<{1}xf32>) -> (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>) {{
        %0 = nn.rms_norm %a, %v0 {{eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}} : (tensor<?x{1}x{0}>, tensor<{1}x{0}>) -> tensor<?x{1}x{0}>
        %s = nn.add %c, %0 : (tensor<?x{1}x{0}>, tensor<?x{1}x{0}>) -> tensor<?x{1}x{0}>
        %1 = nn.rms_norm %s, %v1 {{eps = 1.0e-6 : f32}} : (tensor<?x{1}x{0}>, tensor<{1}xf32>) -> tensor<?x{1}x{0}>
        fusion.yield %s, %1 : tensor<?x{1}x{0}>, tensor<?x{1}x{0}>
      }}
      return %o#0, %o#1 : tensor<?x{1}x{0}>, tensor<?x{1}x{0}>
    }})",
                                        type, width),
                            {{"t", 3}},
                            toleranceOf(type)});
}

TEST(RowNorms, TwoNormsQuantisedInTwoWays) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int group : {0, 64}) {
      const std::string t = fmt::format("tensor<?x512x{}>", type), w = fmt::format("tensor<512x{}>", type),
                        s = fmt::format("tensor<?x{}xf32>", group ? 8 : 1);
      auto fill = [](unsigned index, Tensor &tensor) {
        if (index == 4)
          set(tensor, 0, 0.03);
      };
      check(rowSchedule(), {fmt::format(R"(
    func.func @main(%x: {0} {{nn.dims = ["t", 512]}}, %r: {0} {{nn.dims = ["t", 512]}}, %w0: {1}, %w1: {1}, %k: tensor<f32>)
        -> ({0}, tensor<?x512xi8>, {2}, tensor<?x512xf8E4M3FN>) {{
      %o:4 = fusion.group "add_norm_quant" schedule "row" (%a = %x, %c = %r, %v0 = %w0, %v1 = %w1, %d = %k)
          : ({0}, {0}, {1}, {1}, tensor<f32>) -> ({0}, tensor<?x512xi8>, {2}, tensor<?x512xf8E4M3FN>) {{
        %s = nn.add %a, %c : ({0}, {0}) -> {0}
        %0 = nn.rms_norm %s, %v0 {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}
        %1, %2 = nn.dynamic_quantize %0 {{group_size = {3} : i64}} : ({0}) -> (tensor<?x512xi8>, {2})
        %3 = nn.rms_norm %s, %v1 {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}
        %4 = nn.quantize %3, %d : ({0}, tensor<f32>) -> tensor<?x512xf8E4M3FN>
        fusion.yield %s, %1, %2, %4 : {0}, tensor<?x512xi8>, {2}, tensor<?x512xf8E4M3FN>
      }}
      return %o#0, %o#1, %o#2, %o#3 : {0}, tensor<?x512xi8>, {2}, tensor<?x512xf8E4M3FN>
    }})",
                                        t, w, s, group),
                            {{"t", 3}},
                            2e-2,
                            fill});
    }
}

TEST(RowNorms, QuantisedByTwoScales) {
  auto fill = [](unsigned index, Tensor &tensor) {
    if (index > 1)
      set(tensor, 0, index == 2 ? 0.03 : 0.11);
  };
  check(rowSchedule(), {R"(
    func.func @main(%x: tensor<5x512xbf16>, %w: tensor<512xbf16>, %k: tensor<f32>, %l: tensor<f32>)
        -> (tensor<5x512xi8>, tensor<5x512xi8>) {
      %o:2 = fusion.group "norm_quant" schedule "row" (%a = %x, %v = %w, %c = %k, %d = %l)
          : (tensor<5x512xbf16>, tensor<512xbf16>, tensor<f32>, tensor<f32>) -> (tensor<5x512xi8>, tensor<5x512xi8>) {
        %n = nn.rms_norm %a, %v {eps = 1.0e-6 : f32} : (tensor<5x512xbf16>, tensor<512xbf16>) -> tensor<5x512xbf16>
        %p = nn.quantize %n, %c : (tensor<5x512xbf16>, tensor<f32>) -> tensor<5x512xi8>
        %q = nn.quantize %n, %d : (tensor<5x512xbf16>, tensor<f32>) -> tensor<5x512xi8>
        fusion.yield %p, %q : tensor<5x512xi8>, tensor<5x512xi8>
      }
      return %o#0, %o#1 : tensor<5x512xi8>, tensor<5x512xi8>
    })",
                        {},
                        2e-2,
                        fill});
}

TEST(RowNorms, NarrowFloatsAreComputedInPairs) {
  for (const std::string type : {"f16", "bf16", "f32"})
    for (int width : {48, 1000, 2880, 4096}) {
      const std::string source = check(
          rowSchedule(), {siblings(type, width, rmsNorm(type, width, "v0"), layerNorm(type, width, "v1")),
                          {{"t", 3}},
                          toleranceOf(type)});
      // The sum, the two products with weights, the sum with the bias; nothing element by element.
      EXPECT_EQ(countOf(source, "add_vec("), type == "f32" ? 0u : 2u) << source;
      EXPECT_EQ(countOf(source, "mul_vec("), type == "f32" ? 0u : 2u) << source;
      EXPECT_EQ(countOf(source, "_to<"), 0u) << source;
    }
}

// Rows of which the last ones have none before them.
TEST(RowNorms, ManyRowsArePrefetched) {
  for (int rows : {4095, 4099}) {
    const std::string source =
        check(rowSchedule(), {siblings("bf16", 520, rmsNorm("bf16", 520, "v0"), rmsNorm("bf16", 520, "v1")),
                              {{"t", rows}},
                              toleranceOf("bf16")});
    EXPECT_EQ(countOf(source, "prefetch_range("), rows < 4096 ? 0u : 2u) << source;
  }
}

} // namespace
} // namespace fusion::test
