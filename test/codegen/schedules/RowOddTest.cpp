// Rows of odd lengths, which are cut into vectors where memory is aligned for them; mean and variance in one
// reduction.
#include "Harness.h"

#include <fmt/format.h>

#include <cmath>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) {
  return type == "f16" ? 5e-4 : type == "bf16" ? 4e-3 : type == "f32" ? 2e-6 : 2e-2;
}

struct Norm {
  std::string type = "bf16";
  int width = 1001;
  std::string norm = "rms"; ///< or layer
  std::string after = "";  ///< static, token: quantised
};

/// add -> norm -> quantise; the sum leaves too.
std::string module(const Norm &n) {
  const std::string x = fmt::format("tensor<?x{}x{}>", n.width, n.type),
                    w = fmt::format("tensor<{}x{}>", n.width, n.type),
                    q = fmt::format("tensor<?x{}xf8E4M3FN>", n.width);
  const std::string norm =
      n.norm == "layer"
          ? fmt::format("%1 = nn.layer_norm %0, %v, %e {{eps = 1.0e-5 : f32}} : ({0}, {1}, {1}) -> {0}", x, w)
          : fmt::format("%1 = nn.rms_norm %0, %v {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}", x, w);
  const std::string result = n.after.empty() ? x : q;
  const std::string after =
      n.after == "static" ? fmt::format("%2 = nn.quantize %1, %f : ({}, tensor<f32>) -> {}", x, q)
      : n.after == "token"
          ? fmt::format(
                "%2, %3 = nn.dynamic_quantize %1 {{group_size = 0 : i64}} : ({}) -> ({}, tensor<?x1xf32>)", x,
                q)
          : "";
  const std::string scales = n.after == "token" ? ", tensor<?x1xf32>" : "",
                    last = n.after.empty() ? "%1" : "%2";
  return fmt::format(R"(
    func.func @main(%x: {0} {{nn.dims = ["t", {3}]}}, %r: {0} {{nn.dims = ["t", {3}]}}, %w: {1}, %b: {1}, %k: tensor<f32>)
        -> ({2}, {0}{4}) {{
      %o:{5} = fusion.group "add_norm" schedule "row" (%a = %x, %c = %r, %v = %w, %e = %b, %f = %k)
          : ({0}, {0}, {1}, {1}, tensor<f32>) -> ({2}, {0}{4}) {{
        %0 = nn.add %a, %c : ({0}, {0}) -> {0}
        {6}
        {7}
        fusion.yield {8}, %0{9} : {2}, {0}{4}
      }}
      return %o#0, %o#1{10} : {2}, {0}{4}
    }})",
                     x, w, result, n.width, scales, scales.empty() ? 2 : 3, norm, after, last,
                     scales.empty() ? "" : ", %3", scales.empty() ? "" : ", %o#2");
}

void setScale(unsigned index, Tensor &tensor) {
  if (index == 4)
    set(tensor, 0, 0.03);
}

TEST(RowOdd, VectorsBetweenTheEnds) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (const char *norm : {"rms", "layer"})
      for (int width : {257, 1001, 1002, 4097})
        for (int rows : {0, 1, 2, 9}) {
          const std::string source = check(
              rowSchedule(), {module({type, width, norm}), {{"t", rows}}, toleranceOf(type), {}, rows == 2});
          const bool eightBytes = width % 2 == 0 && type == std::string("f32");
          if (rows > 0)
            EXPECT_EQ(source.find("store_edge_vec") != std::string::npos, !eightBytes) << source;
        }
}

TEST(RowOdd, Quantised) {
  for (const char *type : {"bf16", "f32"})
    for (const char *after : {"static", "token"})
      for (int width : {301, 2049})
        check(rowSchedule(), {module({type, width, "rms", after}), {{"t", 5}}, 2e-2, setScale});
}

/// Longer than registers hold: every pass reads the row again.
TEST(RowOdd, LongRows) {
  check(rowSchedule(), {module({"bf16", 70001, "layer"}), {{"t", 3}}, toleranceOf("bf16")});
  check(rowSchedule(), {module({"f32", 33333, "rms"}), {{"t", 2}}, toleranceOf("f32")});
}

/// Rows that lie otherwise are read element by element, beside others that do not.
TEST(RowOdd, SlicesAndResultsPerRow) {
  for (const char *type : {"bf16", "f32"})
    check(rowSchedule(), {fmt::format(R"(
    func.func @main(%x: tensor<5x1200x{0}>, %r: tensor<5x1001x{0}>, %w: tensor<1001x{0}>) -> (tensor<5x1001x{0}>, tensor<5x1xf32>) {{
      %p = nn.slice %x {{starts = [0, 3], sizes = [5, 1001], steps = array<i64: 1, 1>}} : (tensor<5x1200x{0}>) -> tensor<5x1001x{0}>
      %o:2 = fusion.group "add_norm" schedule "row" (%a = %p, %c = %r, %v = %w)
          : (tensor<5x1001x{0}>, tensor<5x1001x{0}>, tensor<1001x{0}>) -> (tensor<5x1001x{0}>, tensor<5x1xf32>) {{
        %0 = nn.add %a, %c : (tensor<5x1001x{0}>, tensor<5x1001x{0}>) -> tensor<5x1001x{0}>
        %1 = nn.softmax %0 {{axis = -1 : i64}} : (tensor<5x1001x{0}>) -> tensor<5x1001x{0}>
        %2 = nn.mul %1, %v : (tensor<5x1001x{0}>, tensor<1001x{0}>) -> tensor<5x1001x{0}>
        %3 = nn.cast %0 : (tensor<5x1001x{0}>) -> tensor<5x1001xf32>
        %4 = nn.reduce %3 {{kind = "min", axes = array<i64: 1>, keepdims = true}} : (tensor<5x1001xf32>) -> tensor<5x1xf32>
        fusion.yield %2, %4 : tensor<5x1001x{0}>, tensor<5x1xf32>
      }}
      return %o#0, %o#1 : tensor<5x1001x{0}>, tensor<5x1xf32>
    }})",
                                      type),
                          {},
                          toleranceOf(type)});
}

size_t countOf(const std::string &text, const std::string &part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

std::string layerNorm(int width) {
  return fmt::format(R"(
    func.func @main(%x: tensor<?x{0}xf32> {{nn.dims = ["t", {0}]}}, %w: tensor<{0}xf32>, %b: tensor<{0}xf32>) -> tensor<?x{0}xf32> {{
      %y = nn.layer_norm %x, %w, %b {{eps = 1.0e-5 : f32}} : (tensor<?x{0}xf32>, tensor<{0}xf32>, tensor<{0}xf32>) -> tensor<?x{0}xf32>
      return %y : tensor<?x{0}xf32>
    }})",
                     width);
}

TEST(RowMoments, OneReduction) {
  for (int width : {1, 7, 64, 96, 255, 512, 768, 1001, 1024, 2880, 4096, 8192, 16384}) {
    const std::string source = check(rowSchedule(), {layerNorm(width), {{"t", 3}}, toleranceOf("f32")});
    EXPECT_EQ(countOf(source, "thread.moments("), 1u) << source;
    EXPECT_EQ(countOf(source, "thread.total<"), 1u) << source;
  }
}

/// Far from 0, or one value far from the others: what a sum of squares less the square of a sum loses.
TEST(RowMoments, AsExactAsTwoPasses) {
  for (int width : {96, 1001, 2880, 4096})
    for (auto [mean, spread, first] :
         {std::tuple(1000., 1., 1000.), {-3e4, 10., 0.}, {0., 1., 1e4}, {1e6, 0.5, 1e6}}) {
      auto fill = [&, mean = mean, spread = spread, first = first](unsigned index, Tensor &tensor) {
        for (int64_t i = 0; index == 0 && i < tensor.size(); ++i)
          set(tensor, i,
              i % width == 0 ? first : mean + spread * static_cast<double>((i * 7919) % 1013) / 1013);
      };
      // The mean is an f32 too.
      const double tolerance = 2e-6 + 4e-7 * std::abs(mean) / spread;
      check(rowSchedule(), {layerNorm(width), {{"t", 3}}, tolerance, fill, false});
    }
}

/// A NaN or an infinity makes its own row NaN and no other, as in the reference.
TEST(RowMoments, NanAndInfinityStayInTheirRow) {
  for (int width : {96, 1001, 4096})
    for (double value : {std::nan(""), HUGE_VAL}) {
      const std::string text = layerNorm(width);
      auto fill = [&](unsigned index, Tensor &tensor) {
        if (index == 0)
          set(tensor, width + width / 2, value);
      };
      check(rowSchedule(), {text, {{"t", 3}}, toleranceOf("f32"), fill, false});
    }
}

} // namespace
} // namespace fusion::test
