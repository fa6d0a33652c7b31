#include "PlanChecks.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

TEST(DataMovement, ConcatPadTrilu) {
  std::string text = R"(func.func @main(%a: tensor<?x3x4xf16> {nn.name = "a", nn.dims = ["p", 3, 4]},
      %b: tensor<?x3x4xf16> {nn.name = "b", nn.dims = ["q", 3, 4]}, %c: tensor<2x3x4xf16> {nn.name = "c"},
      %m: tensor<?x?xi64> {nn.name = "m", nn.dims = ["p", "q"]}, %v: tensor<f16> {nn.name = "v"})
      -> (tensor<?x3x4xf16>, tensor<2x3x8xf16>, tensor<?x6x4xf16>, tensor<?x?xi64>, tensor<?x?xi64>) {
    %0 = nn.concat %a, %b, %c {axis = 0 : i64} : (tensor<?x3x4xf16>, tensor<?x3x4xf16>, tensor<2x3x4xf16>) -> tensor<?x3x4xf16>
    %1 = nn.concat %c, %c {axis = -1 : i64} : (tensor<2x3x4xf16>, tensor<2x3x4xf16>) -> tensor<2x3x8xf16>
    %2 = nn.pad %a, %v {low = [1, 1, 0], high = ["q", 2, 0]} : (tensor<?x3x4xf16>, tensor<f16>) -> tensor<?x6x4xf16>
    %3 = nn.trilu %m {upper = true, k = 1 : i64} : (tensor<?x?xi64>) -> tensor<?x?xi64>
    %4 = nn.trilu %m {upper = false, k = -1 : i64} : (tensor<?x?xi64>) -> tensor<?x?xi64>
    return %0, %1, %2, %3, %4 : tensor<?x3x4xf16>, tensor<2x3x8xf16>, tensor<?x6x4xf16>, tensor<?x?xi64>, tensor<?x?xi64>
  })";
  for (auto [p, q] : {std::pair<int64_t, int64_t>{3, 5}, {0, 1}, {1, 0}, {7, 7}})
    check(text, {.symbols = {{"p", p}, {"q", q}}});
}

TEST(DataMovement, GathersClampTheirIndices) {
  std::string text =
      R"(func.func @main(%t: tensor<11x8xbf16> {nn.name = "t"}, %i: tensor<?x3xi64> {nn.name = "i", nn.dims = ["n", 3]},
      %j: tensor<?x8xi32> {nn.name = "j", nn.dims = ["n", 8]}, %s: tensor<i64> {nn.name = "s"}, %x: tensor<?x3x11xf32> {nn.name = "x", nn.dims = ["n", 3, 11]},
      %k: tensor<?x3x2xi64> {nn.name = "k", nn.dims = ["n", 3, 2]}, %l: tensor<?x5x1xi64> {nn.name = "l", nn.dims = ["n", 5, 1]})
      -> (tensor<?x3x8xbf16>, tensor<11xbf16>, tensor<?x8xbf16>, tensor<?x3x11xf32>, tensor<?x5x11xf32>, tensor<?x3x3xf32>) {
    %0 = nn.gather %t, %i {axis = 0 : i64} : (tensor<11x8xbf16>, tensor<?x3xi64>) -> tensor<?x3x8xbf16>
    %1 = nn.gather %t, %s {axis = 1 : i64} : (tensor<11x8xbf16>, tensor<i64>) -> tensor<11xbf16>
    %2 = nn.gather_elements %t, %j {axis = 0 : i64} : (tensor<11x8xbf16>, tensor<?x8xi32>) -> tensor<?x8xbf16>
    %3 = nn.gather_nd %x, %k {batch_dims = 0 : i64} : (tensor<?x3x11xf32>, tensor<?x3x2xi64>) -> tensor<?x3x11xf32>
    %4 = nn.gather_nd %x, %l {batch_dims = 1 : i64} : (tensor<?x3x11xf32>, tensor<?x5x1xi64>) -> tensor<?x5x11xf32>
    %c = nn.constant {value = dense<[2, -1, 5]> : tensor<3xi64>} : () -> tensor<3xi64>
    %5 = nn.gather %x, %c {axis = 2 : i64} : (tensor<?x3x11xf32>, tensor<3xi64>) -> tensor<?x3x3xf32>
    return %0, %1, %2, %3, %4, %5 : tensor<?x3x8xbf16>, tensor<11xbf16>, tensor<?x8xbf16>, tensor<?x3x11xf32>, tensor<?x5x11xf32>, tensor<?x3x3xf32>
  })";
  for (int64_t n : {1, 4, 11})
    check(text, {.symbols = {{"n", n}}});
}

TEST(DataMovement, ConstantsAndRanges) {
  check(
      R"(func.func @main(%x: tensor<?x4xf32> {nn.name = "x", nn.dims = ["n", 4]}, %start: tensor<i64> {nn.name = "start"}, %step: tensor<f32> {nn.name = "step"})
      -> (tensor<?xi64>, tensor<?xf32>, tensor<2xi64>, tensor<2x3xi32>, tensor<3xf16>, tensor<?x4xf32>, tensor<i64>, tensor<?xi32>) {
    %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %0 = nn.iota %start, %one {size = ["n + 2"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
    %1 = nn.iota %step, %step {size = ["n"]} : (tensor<f32>, tensor<f32>) -> tensor<?xf32>
    %2 = nn.dim_constant {values = ["n", "2*n + 1"]} : () -> tensor<2xi64>
    %3 = nn.constant {value = dense<[[1, 2, 3], [4, -5, 6]]> : tensor<2x3xi32>} : () -> tensor<2x3xi32>
    %4 = nn.constant {value = dense<0.1> : tensor<3xf16>} : () -> tensor<3xf16>
    %c = nn.constant {value = dense<[0.5, 0x7F800000, -1.0e-8, 3.0]> : tensor<4xf32>} : () -> tensor<4xf32>
    %5 = nn.add %x, %c : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    %6 = nn.dim_constant {values = ["n*n"]} : () -> tensor<i64>
    %i0 = nn.constant {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %i3 = nn.constant {value = dense<-3> : tensor<i32>} : () -> tensor<i32>
    %7 = nn.iota %i0, %i3 {size = ["n"]} : (tensor<i32>, tensor<i32>) -> tensor<?xi32>
    return %0, %1, %2, %3, %4, %5, %6, %7 : tensor<?xi64>, tensor<?xf32>, tensor<2xi64>, tensor<2x3xi32>, tensor<3xf16>, tensor<?x4xf32>, tensor<i64>, tensor<?xi32>
  })",
      {.symbols = {{"n", 5}}});
}

/// The body's constant is a table in the kernel, and everything around it index arithmetic.
TEST(DataMovement, OneKernelOfManyMoves) {
  check(
      R"(func.func @main(%x: tensor<?x6xf32> {nn.name = "x", nn.dims = ["n", 6]}, %y: tensor<?x2xf32> {nn.name = "y", nn.dims = ["n", 2]}) -> tensor<4x?x2xf32> {
    %0 = fusion.group "pointwise" schedule "pointwise" (%a = %x, %b = %y) : (tensor<?x6xf32>, tensor<?x2xf32>) -> tensor<4x?x2xf32> {
      %c = nn.constant {value = dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>} : () -> tensor<8xf32>
      %1 = nn.concat %a, %b {axis = 1 : i64} : (tensor<?x6xf32>, tensor<?x2xf32>) -> tensor<?x8xf32>
      %2 = nn.mul %1, %c : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
      %3 = nn.reshape %2 {shape = ["n", 4, 2]} : (tensor<?x8xf32>) -> tensor<?x4x2xf32>
      %4 = nn.transpose %3 {perm = array<i64: 1, 0, 2>} : (tensor<?x4x2xf32>) -> tensor<4x?x2xf32>
      %5 = nn.slice %4 {starts = [0, "n - 1", 0], sizes = [4, "n", 2], steps = array<i64: 1, -1, 1>} : (tensor<4x?x2xf32>) -> tensor<4x?x2xf32>
      fusion.yield %5 : tensor<4x?x2xf32>
    }
    return %0 : tensor<4x?x2xf32>
  })",
      {.symbols = {{"n", 3}}, .launches = 1});
}

TEST(DataMovement, Rope) {
  for (bool interleaved : {false, true})
    for (int64_t rotary : {8, 6})
      for (bool halfTable : {true, false}) {
        int64_t width = halfTable ? rotary / 2 : rotary;
        check(fmt::format(
                  R"(func.func @main(%x: tensor<?x2x?x8xbf16> {{nn.name = "x", nn.dims = ["b", 2, "s", 8]}},
            %c: tensor<1x1x?x{0}xbf16> {{nn.name = "c", nn.dims = [1, 1, "s", {0}]}}, %s: tensor<?x{0}xbf16> {{nn.name = "s", nn.dims = ["s", {0}]}})
            -> (tensor<?x2x?x8xbf16>, tensor<?x2x?x8xbf16>) {{
          %0 = nn.rope %x, %c, %s {{interleaved = {1}, rotary_dim = {2} : i64}} : (tensor<?x2x?x8xbf16>, tensor<1x1x?x{0}xbf16>, tensor<?x{0}xbf16>) -> tensor<?x2x?x8xbf16>
          %1 = nn.rope %x, %c, %s {{interleaved = {1}, rotary_dim = {2} : i64, compute = f32}} : (tensor<?x2x?x8xbf16>, tensor<1x1x?x{0}xbf16>, tensor<?x{0}xbf16>) -> tensor<?x2x?x8xbf16>
          return %0, %1 : tensor<?x2x?x8xbf16>, tensor<?x2x?x8xbf16>
        }})",
                  width, interleaved, rotary),
              {.symbols = {{"b", 2}, {"s", 3}}, .tolerance = 0});
      }
}

TEST(DataMovement, QuantizeAndDequantize) {
  std::vector<float> scales = {0.02f, 0.5f, 1.3f, 0.007f};
  for (const char *type : {"i8", "ui8", "f8E4M3FN"}) {
    bool integer = type[0] != 'f';
    std::string zero = integer ? ", %z" : "", zeroType = integer ? fmt::format(", tensor<4x{}>", type) : "";
    check(
        fmt::format(
            R"(func.func @main(%x: tensor<?x4x6xf16> {{nn.name = "x", nn.dims = ["n", 4, 6]}}, %s: tensor<4xf32> {{nn.name = "s"}},
        %b: tensor<?x4x2xf32> {{nn.name = "b", nn.dims = ["n", 4, 2]}}, %z: tensor<4x{0}> {{nn.name = "z"}})
        -> (tensor<?x4x6x{0}>, tensor<?x4x6xf16>, tensor<?x4x6x{0}>, tensor<?x4x6x{0}>, tensor<?x4x6xf32>) {{
      %0 = nn.quantize %x, %s{1} {{axis = 1 : i64}} : (tensor<?x4x6xf16>, tensor<4xf32>{2}) -> tensor<?x4x6x{0}>
      %1 = nn.dequantize %0, %s{1} {{axis = 1 : i64}} : (tensor<?x4x6x{0}>, tensor<4xf32>{2}) -> tensor<?x4x6xf16>
      %c = nn.constant {{value = dense<0.05> : tensor<f32>}} : () -> tensor<f32>
      %2 = nn.quantize %x, %c : (tensor<?x4x6xf16>, tensor<f32>) -> tensor<?x4x6x{0}>
      %a = nn.abs %b : (tensor<?x4x2xf32>) -> tensor<?x4x2xf32>
      %3 = nn.quantize %x, %a {{axis = 2 : i64, block_size = 3 : i64}} : (tensor<?x4x6xf16>, tensor<?x4x2xf32>) -> tensor<?x4x6x{0}>
      %4 = nn.dequantize %3, %a {{axis = 2 : i64, block_size = 3 : i64}} : (tensor<?x4x6x{0}>, tensor<?x4x2xf32>) -> tensor<?x4x6xf32>
      return %0, %1, %2, %3, %4 : tensor<?x4x6x{0}>, tensor<?x4x6xf16>, tensor<?x4x6x{0}>, tensor<?x4x6x{0}>, tensor<?x4x6xf32>
    }})",
            type, zero, zeroType),
        {.symbols = {{"n", 3}},
         .inputs = {{"s", Tensor::of<float>(DType::F32, {4}, scales)}},
         .tolerance = 0});
  }
}

} // namespace
} // namespace fusion::test
