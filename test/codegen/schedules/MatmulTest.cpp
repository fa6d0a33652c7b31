#include "Harness.h"

#include <fmt/format.h>

#include <set>

namespace fusion::test {
namespace {

/// Error of one rounding to the type plus that of f32 sums in another order.
double toleranceOf(const std::string &type) {
  return type == "f16" ? 5e-4 : type == "bf16" ? 4e-3 : type == "f64" ? 1e-13 : 2e-6;
}

struct Form {
  std::string a, b, y; ///< shapes, such as "5x8"
  bool transposeA = false, transposeB = false;
};

std::string module(const Form &form, const std::string &type, const std::string &result) {
  return fmt::format(R"(
    func.func @main(%a: tensor<{0}x{3}>, %b: tensor<{1}x{3}>) -> tensor<{2}x{4}> {{
      %y = nn.matmul %a, %b {{transpose_a = {5}, transpose_b = {6}}} : (tensor<{0}x{3}>, tensor<{1}x{3}>) -> tensor<{2}x{4}>
      return %y : tensor<{2}x{4}>
    }})",
                     form.a, form.b, form.y, type, result, form.transposeA, form.transposeB);
}

TEST(Matmul, TailsInEveryLayout) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        for (auto [m, n, k] : {std::tuple(70, 72, 40), std::tuple(33, 65, 31), std::tuple(130, 8, 96)}) {
          auto shape = [](int rows, int columns, bool swap) {
            return swap ? fmt::format("{}x{}", columns, rows) : fmt::format("{}x{}", rows, columns);
          };
          check(matmulSchedule(),
                {module({shape(m, k, ta), shape(k, n, tb), fmt::format("{}x{}", m, n), ta, tb}, type, type),
                 {},
                 toleranceOf(type)});
        }
}

TEST(Matmul, FewRows) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int m : {1, 3, 8, 16}) {
      check(matmulSchedule(),
            {module({fmt::format("{}x256", m), "70x256", fmt::format("{}x70", m), false, true}, type, type),
             {},
             toleranceOf(type)});
      check(matmulSchedule(),
            {module({fmt::format("{}x256", m), "256x72", fmt::format("{}x72", m)}, type, type),
             {},
             toleranceOf(type)});
      check(matmulSchedule(),
            {module({fmt::format("{}x37", m), "9x37", fmt::format("{}x9", m), false, true}, type, type),
             {},
             toleranceOf(type)});
    }
}

/// The result of a matmul followed by other roundings, in the 16-bit types.
double roundedTolerance(const std::string &type) {
  return type == "f16" ? 2e-3 : type == "bf16" ? 1.2e-2 : 4e-6;
}

/// Rows that only a run knows, over two dims; `b` and `n` are the second operand's shape and the result's
/// columns.
std::string manyRows(const std::string &b, int k, int n, bool transposeB, const std::string &type) {
  return fmt::format(R"(
    func.func @main(%a: tensor<?x?x{1}x{4}> {{nn.dims = ["batch", "seq", {1}]}}, %b: tensor<{0}x{4}>, %r: tensor<?x?x{2}x{4}> {{nn.dims = ["batch", "seq", {2}]}}) -> tensor<?x?x{2}x{4}> {{
      %0 = fusion.group "matmul_epilogue" schedule "matmul" (%x = %a, %w = %b, %s = %r) : (tensor<?x?x{1}x{4}>, tensor<{0}x{4}>, tensor<?x?x{2}x{4}>) -> tensor<?x?x{2}x{4}> {{
        %y = nn.matmul %x, %w {{transpose_b = {3}}} : (tensor<?x?x{1}x{4}>, tensor<{0}x{4}>) -> tensor<?x?x{2}x{4}>
        %z = nn.add %y, %s : (tensor<?x?x{2}x{4}>, tensor<?x?x{2}x{4}>) -> tensor<?x?x{2}x{4}>
        fusion.yield %z : tensor<?x?x{2}x{4}>
      }}
      return %0 : tensor<?x?x{2}x{4}>
    }})",
                     b, k, n, transposeB, type);
}

TEST(Matmul, AKernelForEachRangeOfRows) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool transpose : {true, false}) {
      std::set<std::string> kernels;
      for (auto [batch, seq] :
           {std::pair(1, 1), std::pair(2, 1), std::pair(1, 3), std::pair(2, 2), std::pair(5, 1),
            std::pair(2, 4), std::pair(3, 3), std::pair(4, 4), std::pair(1, 17)})
        kernels.insert(
            check(matmulSchedule(), {manyRows(transpose ? "72x64" : "64x72", 64, 72, transpose, type),
                                     {{"batch", batch}, {"seq", seq}},
                                     roundedTolerance(type)}));
      // One row, up to four, up to eight and more; on tensor cores up to eight, up to 16 and up to 32.
      EXPECT_EQ(kernels.size(), std::string(type) == "f32" ? 4u : 3u);
    }
  for (bool transpose : {true, false})
    for (int64_t rows : {0, 1, 4, 7})
      check(matmulSchedule(), {manyRows(transpose ? "9x37" : "37x9", 37, 9, transpose, "f16"),
                               {{"batch", 1}, {"seq", rows}},
                               roundedTolerance("f16")});
}

TEST(Matmul, LargeTile) {
  const std::string source = check(
      matmulSchedule(), {module({"1024x32", "32x1024", "1024x1024"}, "f16", "f16"), {}, toleranceOf("f16")});
  EXPECT_NE(source.find("gemm_mma<Config>"), std::string::npos);
  EXPECT_NE(source.find("Copy::Async"), std::string::npos);
}

TEST(Matmul, OtherTypes) {
  check(matmulSchedule(), {module({"20x33", "33x40", "20x40"}, "f64", "f64"), {}, 1e-13});
  check(matmulSchedule(), {module({"20x33", "33x40", "20x40"}, "i8", "i32"), {}, 0});
  check(matmulSchedule(), {module({"20x33", "33x40", "20x40"}, "ui8", "i32"), {}, 0});
  check(matmulSchedule(), {module({"20x33", "33x40", "20x40"}, "i64", "i64"), {}, 0});
  check(matmulSchedule(), {module({"20x64", "64x40", "20x40"}, "f8E4M3FN", "bf16"), {}, 4e-3});
  check(matmulSchedule(), {module({"20x64", "64x40", "20x40"}, "f8E5M2", "f16"), {}, 5e-4});
  check(matmulSchedule(), {module({"20x64", "64x40", "20x40"}, "f16", "f32"), {}, 2e-6});
  EXPECT_NE(refusal(matmulSchedule(), R"(
    func.func @main(%a: tensor<2x2xi8>, %b: tensor<2x2xi64>) -> tensor<2x2xi64> {
      %y = nn.matmul %a, %b : (tensor<2x2xi8>, tensor<2x2xi64>) -> tensor<2x2xi64>
      return %y : tensor<2x2xi64>
    })")
                .find("nn.matmul of i8 and i64"),
            std::string::npos);
}

TEST(Matmul, BatchesAndVectors) {
  for (const char *type : {"f16", "f32"}) {
    check(matmulSchedule(), {module({"3x2x10x24", "24x40", "3x2x10x40"}, type, type), {}, toleranceOf(type)});
    check(matmulSchedule(),
          {module({"3x2x10x24", "2x24x40", "3x2x10x40"}, type, type), {}, toleranceOf(type)});
    check(matmulSchedule(),
          {module({"3x1x10x24", "1x2x40x24", "3x2x10x40", false, true}, type, type), {}, toleranceOf(type)});
    check(matmulSchedule(), {module({"10x24", "3x24x40", "3x10x40"}, type, type), {}, toleranceOf(type)});
    check(matmulSchedule(), {module({"24", "24x40", "40"}, type, type), {}, toleranceOf(type)});
    check(matmulSchedule(), {module({"10x24", "24", "10"}, type, type), {}, toleranceOf(type)});
    check(matmulSchedule(), {module({"3x10x24", "24", "3x10"}, type, type), {}, toleranceOf(type)});
    check(matmulSchedule(), {module({"5x24", "5x24x9", "5x5x9"}, type, type), {}, toleranceOf(type)});
  }
}

TEST(Matmul, EmptySums) {
  for (const char *type : {"f16", "f32"})
    check(matmulSchedule(), {module({"10x0", "0x40", "10x40"}, type, type), {}, 0});
}

TEST(Matmul, DynamicRowsAndEpilogue) {
  for (const char *type : {"bf16", "f32"}) {
    const std::string x = fmt::format("tensor<?x?x64x{}>", type), y = fmt::format("tensor<?x?x96x{}>", type);
    const std::string text = fmt::format(R"(
    func.func @main(%x: {0} {{nn.dims = ["b", "s", 64]}}, %w: tensor<96x64x{2}>, %bias: tensor<96x{2}>,
                    %res: {1} {{nn.dims = ["b", "s", 96]}}) -> ({1}, tensor<?x?x96xf32>) {{
      %0, %1 = fusion.group "matmul_epilogue" schedule "matmul" (%a = %x, %b = %w, %c = %bias, %r = %res)
          : ({0}, tensor<96x64x{2}>, tensor<96x{2}>, {1}) -> ({1}, tensor<?x?x96xf32>) {{
        %half = nn.constant {{value = dense<0.5> : tensor<{2}>}} : () -> tensor<{2}>
        %p = nn.matmul %a, %b {{transpose_b = true}} : ({0}, tensor<96x64x{2}>) -> {1}
        %q = nn.add %p, %c : ({1}, tensor<96x{2}>) -> {1}
        %g = nn.gelu %q {{approximate = "tanh"}} : ({1}) -> {1}
        %h = nn.mul %g, %half : ({1}, tensor<{2}>) -> {1}
        %s = nn.add %h, %r : ({1}, {1}) -> {1}
        %f = nn.cast %g : ({1}) -> tensor<?x?x96xf32>
        fusion.yield %s, %f : {1}, tensor<?x?x96xf32>
      }}
      return %0, %1 : {1}, tensor<?x?x96xf32>
    }})",
                                         x, y, type);
    for (auto [b, s] : {std::pair(1, 1), std::pair(2, 37), std::pair(0, 5)})
      check(matmulSchedule(), {text, {{"b", b}, {"s", s}}, std::string(type) == "f32" ? 3e-6 : 6e-3});
  }
}

TEST(Matmul, StridedViews) {
  for (const char *type : {"f16", "f32"})
    check(matmulSchedule(), {fmt::format(R"(
    func.func @main(%q: tensor<?x?x4x32x{0}> {{nn.dims = ["b", "s", 4, 32]}},
                    %k: tensor<?x?x4x32x{0}> {{nn.dims = ["b", "s", 4, 32]}}) -> tensor<?x4x?x?x{0}> {{
      %qt = nn.transpose %q {{perm = array<i64: 0, 2, 1, 3>}} : (tensor<?x?x4x32x{0}>) -> tensor<?x4x?x32x{0}>
      %kt = nn.transpose %k {{perm = array<i64: 0, 2, 3, 1>}} : (tensor<?x?x4x32x{0}>) -> tensor<?x4x32x?x{0}>
      %y = nn.matmul %qt, %kt : (tensor<?x4x?x32x{0}>, tensor<?x4x32x?x{0}>) -> tensor<?x4x?x?x{0}>
      return %y : tensor<?x4x?x?x{0}>
    }})",
                                         type),
                             {{"b", 2}, {"s", 9}},
                             toleranceOf(type)});
}

TEST(Matmul, RefusalsNameTheReason) {
  EXPECT_NE(refusal(matmulSchedule(), R"(
    func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> {
      %y = fusion.group "g" schedule "matmul" (%c = %a, %d = %b) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> {
        %0 = nn.matmul %c, %d : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        %1 = nn.softmax %0 {axis = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
        fusion.yield %1 : tensor<4x4xf32>
      }
      return %y : tensor<4x4xf32>
    })")
                .find("nn.softmax after nn.matmul"),
            std::string::npos);
}

std::string shape(int rows, int columns, bool swap) {
  return swap ? fmt::format("{}x{}", columns, rows) : fmt::format("{}x{}", rows, columns);
}

/// q (with a bias), k and v (with a bias and an activation) of one x; `rows` is a size or "?".
std::string sideBySide(const std::string &rows, int depth, int wide, int narrow, bool transpose,
                       const std::string &type) {
  return fmt::format(
      R"(
    func.func @main(%x: tensor<{0}x{1}x{6}>{7}, %wq: tensor<{4}x{6}>, %wk: tensor<{5}x{6}>, %wv: tensor<{5}x{6}>,
                    %bq: tensor<{2}x{6}>, %bv: tensor<{3}x{6}>) -> (tensor<{0}x{2}x{6}>, tensor<{0}x{3}x{6}>, tensor<{0}x{3}x{6}>) {{
      %0, %1, %2 = fusion.group "qkv_matmul" schedule "matmul" (%a = %x, %b = %wq, %c = %wk, %d = %wv, %e = %bq, %f = %bv)
          : (tensor<{0}x{1}x{6}>, tensor<{4}x{6}>, tensor<{5}x{6}>, tensor<{5}x{6}>, tensor<{2}x{6}>, tensor<{3}x{6}>)
            -> (tensor<{0}x{2}x{6}>, tensor<{0}x{3}x{6}>, tensor<{0}x{3}x{6}>) {{
        %q = nn.matmul %a, %b {{transpose_b = {8}}} : (tensor<{0}x{1}x{6}>, tensor<{4}x{6}>) -> tensor<{0}x{2}x{6}>
        %k = nn.matmul %a, %c {{transpose_b = {8}}} : (tensor<{0}x{1}x{6}>, tensor<{5}x{6}>) -> tensor<{0}x{3}x{6}>
        %v = nn.matmul %a, %d {{transpose_b = {8}}} : (tensor<{0}x{1}x{6}>, tensor<{5}x{6}>) -> tensor<{0}x{3}x{6}>
        %qb = nn.add %q, %e : (tensor<{0}x{2}x{6}>, tensor<{2}x{6}>) -> tensor<{0}x{2}x{6}>
        %vb = nn.add %v, %f : (tensor<{0}x{3}x{6}>, tensor<{3}x{6}>) -> tensor<{0}x{3}x{6}>
        %va = nn.silu %vb : (tensor<{0}x{3}x{6}>) -> tensor<{0}x{3}x{6}>
        fusion.yield %qb, %k, %va : tensor<{0}x{2}x{6}>, tensor<{0}x{3}x{6}>, tensor<{0}x{3}x{6}>
      }}
      return %0, %1, %2 : tensor<{0}x{2}x{6}>, tensor<{0}x{3}x{6}>, tensor<{0}x{3}x{6}>
    }})",
      rows, depth, wide, narrow, shape(depth, wide, transpose), shape(depth, narrow, transpose), type,
      rows == "?" ? fmt::format(" {{nn.dims = [\"s\", {}]}}", depth) : "", transpose);
}

std::string gated(const std::string &rows, int depth, int width, bool transpose, const std::string &type) {
  return fmt::format(
      R"(
    func.func @main(%x: tensor<{0}x{1}x{4}>{5}, %wg: tensor<{3}x{4}>, %wu: tensor<{3}x{4}>, %bg: tensor<{2}x{4}>) -> tensor<{0}x{2}x{4}> {{
      %0 = fusion.group "gated_matmul" schedule "matmul" (%a = %x, %b = %wg, %c = %wu, %d = %bg)
          : (tensor<{0}x{1}x{4}>, tensor<{3}x{4}>, tensor<{3}x{4}>, tensor<{2}x{4}>) -> tensor<{0}x{2}x{4}> {{
        %g = nn.matmul %a, %b {{transpose_b = {6}}} : (tensor<{0}x{1}x{4}>, tensor<{3}x{4}>) -> tensor<{0}x{2}x{4}>
        %u = nn.matmul %a, %c {{transpose_b = {6}}} : (tensor<{0}x{1}x{4}>, tensor<{3}x{4}>) -> tensor<{0}x{2}x{4}>
        %gb = nn.add %g, %d : (tensor<{0}x{2}x{4}>, tensor<{2}x{4}>) -> tensor<{0}x{2}x{4}>
        %s = nn.silu %gb : (tensor<{0}x{2}x{4}>) -> tensor<{0}x{2}x{4}>
        %m = nn.mul %s, %u : (tensor<{0}x{2}x{4}>, tensor<{0}x{2}x{4}>) -> tensor<{0}x{2}x{4}>
        fusion.yield %m : tensor<{0}x{2}x{4}>
      }}
      return %0 : tensor<{0}x{2}x{4}>
    }})",
      rows, depth, width, shape(depth, width, transpose), type,
      rows == "?" ? fmt::format(" {{nn.dims = [\"s\", {}]}}", depth) : "", transpose);
}

TEST(MatmulsOfOneOperand, SideBySide) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (bool transpose : {false, true}) {
      for (const char *rows : {"1", "3", "8", "16", "70"})
        check(matmulSchedule(), {sideBySide(rows, 64, 136, 72, transpose, type), {}, roundedTolerance(type)});
      check(matmulSchedule(), {sideBySide("5", 37, 67, 9, transpose, type), {}, roundedTolerance(type)});
      for (int64_t s : {1, 3, 4, 5, 8, 9, 17, 65})
        check(matmulSchedule(),
              {sideBySide("?", 64, 128, 32, transpose, type), {{"s", s}}, roundedTolerance(type)});
    }
}

TEST(MatmulsOfOneOperand, Gated) {
  for (const char *type : {"bf16", "f16", "f32"})
    for (bool transpose : {false, true}) {
      for (const char *rows : {"1", "4", "8", "16", "70"})
        check(matmulSchedule(), {gated(rows, 64, 136, transpose, type), {}, roundedTolerance(type)});
      check(matmulSchedule(), {gated("5", 37, 67, transpose, type), {}, roundedTolerance(type)});
      for (int64_t s : {1, 2, 4, 5, 16, 17, 65})
        check(matmulSchedule(), {gated("?", 64, 128, transpose, type), {{"s", s}}, roundedTolerance(type)});
    }
}

TEST(MatmulsOfOneOperand, LargeTiles) {
  check(matmulSchedule(), {gated("1024", 32, 1024, true, "bf16"), {}, roundedTolerance("bf16")});
  check(matmulSchedule(), {sideBySide("1024", 32, 1024, 64, false, "f16"), {}, roundedTolerance("f16")});
}

TEST(MatmulsOfOneOperand, RefusalsNameTheReason) {
  EXPECT_NE(refusal(matmulSchedule(), R"(
    func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
      %0, %1 = fusion.group "g" schedule "matmul" (%a = %x, %b = %y, %c = %w) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
        %p = nn.matmul %a, %c : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        %q = nn.matmul %b, %c : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        fusion.yield %p, %q : tensor<4x4xf32>, tensor<4x4xf32>
      }
      return %0, %1 : tensor<4x4xf32>, tensor<4x4xf32>
    })")
                .find("matmuls of different first operands"),
            std::string::npos);
}

} // namespace
} // namespace fusion::test
