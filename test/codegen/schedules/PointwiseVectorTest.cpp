// Arithmetic on whole vectors: strided and broadcast inputs, values that pass from pairs to loops and back,
// rests.
#include "Harness.h"

#include <fmt/format.h>

#include <cmath>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) { return type == "f16" ? 6e-4 : type == "bf16" ? 5e-3 : 3e-6; }

/// act(gate) * up, both halves of one packed tensor, and what follows; yields `results`.
std::string gated(const std::string &type, int width, const std::string &activation,
                  const std::string &after = "", const std::string &yielded = "%m",
                  std::string result = "") {
  const std::string t = fmt::format("tensor<?x{}x{}>", width, type);
  if (result.empty())
    result = t;
  const std::string slice = "{{sizes = [\"t\", {0}], starts = [0, {1}], steps = array<i64: 1, 1>}} : "
                            "(tensor<?x{2}x{3}>) -> {4}";
  return fmt::format(R"(
    func.func @main(%p: tensor<?x{0}x{1}> {{nn.dims = ["t", {0}]}}, %scale: tensor<f32>) -> ({2}) {{
      %g = nn.slice %p {3}
      %u = nn.slice %p {4}
      %r = fusion.group "gated_activation" schedule "pointwise" (%a = %g, %b = %u, %s = %scale)
          : ({5}, {5}, tensor<f32>) -> ({2}) {{
        %x = nn.{6} : ({5}) -> {5}
        %m = nn.mul %x, %b : ({5}, {5}) -> {5}
        {7}
        fusion.yield {8} : {2}
      }}
      return %r : {2}
    }})",
                     2 * width, type, result, fmt::format(fmt::runtime(slice), width, 0, 2 * width, type, t),
                     fmt::format(fmt::runtime(slice), width, width, 2 * width, type, t), t, activation,
                     after, yielded);
}

TEST(PointwiseVectors, GatedHalvesOfOneTensor) {
  for (const char *type : {"f32", "f16", "bf16"})
    for (int width : {1, 12, 40, 1024})
      for (int64_t tokens : {0, 1, 5})
        check(pointwiseSchedule(), {gated(type, width, "silu %a"), {{"t", tokens}}, toleranceOf(type)});
}

TEST(PointwiseVectors, Activations) {
  for (const char *type : {"f32", "f16", "bf16"})
    for (const char *activation : {"gelu %a", "gelu %a {approximate = \"tanh\"}",
                                   "gelu %a {approximate = \"quick\"}", "sigmoid %a", "relu %a"}) {
      ScheduleCase test{gated(type, 64, activation), {{"t", 33}}, toleranceOf(type)};
      test.fill = [](unsigned index, Tensor &tensor) { // over the whole range in which they bend
        for (int64_t i = 0; index == 0 && i < tensor.size(); ++i)
          set(tensor, i, (static_cast<double>(i % 1009) - 504.0) / 60.0);
      };
      check(pointwiseSchedule(), test);
    }
}

/// One scale, and quotients that lie on and beside the boundaries of rounding: the very bytes of a division.
TEST(PointwiseVectors, QuotientsAreThoseOfADivision) {
  for (const char *type : {"f8E4M3FN", "f8E5M2", "i8"})
    for (double scale : {0.037, 3.0, 1.0, 0.25, 1e-38, 1e-41, 3e38}) {
      const std::string result = fmt::format("tensor<?x64x{}>", type);
      ScheduleCase test{
          gated("bf16", 64, "relu %a",
                fmt::format("%q = nn.quantize %m, %s : (tensor<?x64xbf16>, tensor<f32>) -> {}", result), "%q",
                result),
          {{"t", 9}},
          0};
      test.fill = [scale](unsigned index, Tensor &tensor) {
        for (int64_t i = 0; i < tensor.size(); ++i)
          set(tensor, i,
              index == 1     ? scale
              : i % 128 < 64 ? std::ldexp(1.0 + (i % 7) / 128.0, static_cast<int>(i % 61) - 30)
                             : ((i / 64) % 4 == 1 ? -1.0 : 1.0) * (1.0 + (i % 128) / 64.0));
      };
      check(pointwiseSchedule(), test);
    }
}

TEST(PointwiseVectors, QuantisedAndUnquantisedLeave) {
  const std::string module = R"(
    func.func @main(%x: tensor<?x24xf16> {nn.dims = ["t", 24]}, %scale: tensor<f32>, %zero: tensor<i8>)
        -> (tensor<?x24xi8>, tensor<?x24xf16>, tensor<?x24xf32>) {
      %r:3 = fusion.group "pointwise" schedule "pointwise" (%a = %x, %s = %scale, %z = %zero)
          : (tensor<?x24xf16>, tensor<f32>, tensor<i8>) -> (tensor<?x24xi8>, tensor<?x24xf16>, tensor<?x24xf32>) {
        %0 = nn.mul %a, %a : (tensor<?x24xf16>, tensor<?x24xf16>) -> tensor<?x24xf16>
        %1 = nn.quantize %0, %s, %z : (tensor<?x24xf16>, tensor<f32>, tensor<i8>) -> tensor<?x24xi8>
        %2 = nn.dequantize %1, %s, %z : (tensor<?x24xi8>, tensor<f32>, tensor<i8>) -> tensor<?x24xf32>
        fusion.yield %1, %0, %2 : tensor<?x24xi8>, tensor<?x24xf16>, tensor<?x24xf32>
      }
      return %r#0, %r#1, %r#2 : tensor<?x24xi8>, tensor<?x24xf16>, tensor<?x24xf32>
    })";
  ScheduleCase test{module, {{"t", 7}}, 0};
  test.fill = [](unsigned index, Tensor &tensor) {
    if (index == 1)
      set(tensor, 0, 0.031);
    if (index == 2)
      set(tensor, 0, -3);
  };
  check(pointwiseSchedule(), test);
}

/// A bias along the last dim, a factor a row, one number for all; sums of products from pairs and back.
TEST(PointwiseVectors, Broadcasts) {
  for (const char *type : {"f32", "f16", "bf16"})
    for (int width : {8, 20, 33})
      for (bool threeDims : {false, true}) {
        const std::string outer = threeDims ? "?x3x" : "?x", names = threeDims ? "\"t\", 3, " : "\"t\", ";
        const std::string x = fmt::format("tensor<{}{}x{}>", outer, width, type),
                          row = fmt::format("tensor<{}1x{}>", outer, type),
                          column = fmt::format("tensor<{}x{}>", width, type),
                          one = fmt::format("tensor<{}>", type);
        const std::string module = fmt::format(R"(
          func.func @main(%x: {0} {{nn.dims = [{4}{5}]}}, %row: {1} {{nn.dims = [{4}1]}}, %column: {2}, %one: {3})
              -> {0} {{
            %r = fusion.group "pointwise" schedule "pointwise" (%a = %x, %b = %row, %c = %column, %d = %one)
                : ({0}, {1}, {2}, {3}) -> {0} {{
              %0 = nn.mul %a, %b : ({0}, {1}) -> {0}
              %1 = nn.add %0, %c : ({0}, {2}) -> {0}
              %2 = nn.tanh %1 : ({0}) -> {0}
              %3 = nn.sub %2, %d : ({0}, {3}) -> {0}
              %4 = nn.mul %3, %1 : ({0}, {0}) -> {0}
              fusion.yield %4 : {0}
            }}
            return %r : {0}
          }})",
                                               x, row, column, one, names, width);
        check(pointwiseSchedule(), {module, {{"t", 5}}, toleranceOf(type)});
      }
}

/// A last dim known only at run time: vectors, then what is left.
TEST(PointwiseVectors, RestsOfRunTimeSizes) {
  for (const char *type : {"f32", "f16", "bf16", "i32", "i64"})
    for (int64_t size : {0, 1, 7, 8, 9, 1023, 2049}) {
      const std::string x = fmt::format("tensor<?x{}>", type);
      const std::string module = fmt::format(R"(
        func.func @main(%x: {0} {{nn.dims = ["n"]}}, %y: {0} {{nn.dims = ["n"]}}) -> {0} {{
          %r = fusion.group "pointwise" schedule "pointwise" (%a = %x, %b = %y) : ({0}, {0}) -> {0} {{
            %0 = nn.mul %a, %b : ({0}, {0}) -> {0}
            %1 = nn.neg %0 : ({0}) -> {0}
            %2 = nn.add %1, %a : ({0}, {0}) -> {0}
            fusion.yield %2 : {0}
          }}
          return %r : {0}
        }})",
                                             x);
      check(pointwiseSchedule(), {module, {{"n", size}}, toleranceOf(type)});
    }
}

} // namespace
} // namespace fusion::test
