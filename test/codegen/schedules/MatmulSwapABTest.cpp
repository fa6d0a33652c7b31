// Up to 128 rows on warpgroups, B by TMA: see gemm_swap_ab.cuh.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

struct Form {
  int m, n, k;
  bool transposeB = true;
  const char *type = "bf16";
  bool gated = false;
};

/// gelu(x w + bias) + residual, or silu(x w) * (x u).
std::string module(const Form &f) {
  const std::string x = fmt::format("tensor<{}x{}x{}>", f.m, f.k, f.type),
                    w = f.transposeB ? fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.type)
                                     : fmt::format("tensor<{}x{}x{}>", f.k, f.n, f.type),
                    y = fmt::format("tensor<{}x{}x{}>", f.m, f.n, f.type),
                    u = f.gated ? w : fmt::format("tensor<{}x{}>", f.n, f.type);
  const std::string tail = f.gated ? fmt::format(R"(
        %q = nn.matmul %a, %c {{transpose_b = {2}}} : ({0}, {1}) -> {3}
        %s = nn.silu %p : ({3}) -> {3}
        %r = nn.mul %s, %q : ({3}, {3}) -> {3})",
                                                 x, w, f.transposeB, y)
                                   : fmt::format(R"(
        %q = nn.add %p, %c : ({0}, {1}) -> {0}
        %g = nn.gelu %q {{approximate = "tanh"}} : ({0}) -> {0}
        %r = nn.add %g, %d : ({0}, {0}) -> {0})",
                                                 y, u);
  return fmt::format(R"(
    func.func @main(%x: {0}, %w: {1}, %u: {2}, %v: {3}) -> {3} {{
      %0 = fusion.group "g" schedule "matmul" (%a = %x, %b = %w, %c = %u, %d = %v) : ({0}, {1}, {2}, {3}) -> {3} {{
        %p = nn.matmul %a, %b {{transpose_b = {4}}} : ({0}, {1}) -> {3}{5}
        fusion.yield %r : {3}
      }}
      return %0 : {3}
    }})",
                     x, w, u, y, f.transposeB, tail);
}

bool has(const std::string &source, const std::string &part) {
  return source.find(part) != std::string::npos;
}

std::string run(const Form &form, double tolerance = 1.2e-2) {
  const std::string source = check(matmulSchedule(), {module(form), {}, tolerance});
  EXPECT_TRUE(has(source, "gemm_swap_ab<Config>")) << source;
  return source;
}

TEST(MatmulSwapAB, RowsAtTheEndsOfRanges) {
  for (const char *type : {"f16", "bf16"})
    for (bool transpose : {true, false})
      for (bool gated : {false, true})
        for (int m : {1, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128})
          run({m, 72, 136, transpose, type, gated});
}

TEST(MatmulSwapAB, StepsBeyondTheLast) {
  for (bool transpose : {true, false})
    for (int k : {64, 72, 128, 192, 1096, 4160})
      run({5, 136, k, transpose});
}

/// Blocks with a share of K, one tile each, and several tiles one after the other.
TEST(MatmulSwapAB, WaysToShareOut) {
  for (bool transpose : {true, false})
    for (auto [n, split] :
         {std::pair(512, 8), std::pair(1280, 5), std::pair(2048, 3), std::pair(4096, 2), std::pair(6152, 1)})
      for (int m : {3, 24, 100})
        EXPECT_TRUE(has(run({m, n, 2056, transpose}), fmt::format("k_split = {},", split)));
  for (auto [n, split] : {std::pair(896, 7), std::pair(1024, 6), std::pair(1856, 4)})
    EXPECT_TRUE(has(run({24, n, 2056}), fmt::format("k_split = {},", split)));
  for (bool transpose : {true, false})
    for (int m : {3, 40, 100}) {
      EXPECT_TRUE(has(run({m, 16904, 64, transpose}), m == 100 ? "tiles = 1," : "tiles = 3,"));
      EXPECT_TRUE(has(run({m, 8712, 72, transpose, "f16", true}), "tiles = 1,"));
    }
  // What the blocks of such a cluster send each other is more than a kernel may declare.
  EXPECT_TRUE(has(run({100, 512, 2056, true, "bf16", true}), "k_split = 8,"));
  for (auto [n, tiles] : {std::pair(14336, 2), std::pair(18944, 3), std::pair(28672, 2)})
    EXPECT_TRUE(has(run({9, n, 64}), fmt::format("tiles = {},", tiles)));
}

/// Few rows wait for less work where all weights are in the ring: not of more rows, of a K that leaves a
/// block one step, or of blocks of which a multiprocessor holds one.
TEST(MatmulSwapAB, FewRowsShareOutFurther) {
  for (auto [m, n, k, split] :
       {std::tuple(3, 2048, 2048, 4), std::tuple(32, 2048, 2048, 4), std::tuple(8, 3072, 2048, 4),
        std::tuple(33, 2048, 2048, 3), std::tuple(40, 3072, 2048, 2), std::tuple(3, 2048, 1792, 3),
        std::tuple(3, 2048, 2304, 3), std::tuple(3, 3328, 2048, 2)})
    EXPECT_TRUE(has(run({m, n, k}), fmt::format("k_split = {},", split))) << m << " " << n << " " << k;
}

/// Forty clusters of three are more than there is room for at once, of five with half of a ring are not; more
/// rows, or a K of few steps, leave two. 72 tiles are shared out by three.
TEST(MatmulSwapAB, TwoBlocksOnAMultiprocessor) {
  for (auto [m, n, k, split, stages] :
       {std::tuple(3, 2560, 2624, 5, 5), std::tuple(32, 2560, 2624, 5, 4), std::tuple(33, 2560, 2624, 2, 6),
        std::tuple(3, 2560, 1216, 2, 3), std::tuple(20, 4608, 1600, 3, 4)}) {
    const std::string source = run({m, n, k});
    EXPECT_TRUE(has(source, fmt::format("stages = {}, k_split = {},", stages, split))) << source;
  }
}

/// 16 bytes, 8 and fewer are stored at once.
TEST(MatmulSwapAB, Widths) {
  for (auto [n, vector] : {std::pair(200, 8), std::pair(196, 4), std::pair(198, 2), std::pair(197, 1)})
    EXPECT_TRUE(has(run({20, n, 72}), fmt::format("vector = {};", vector)));
  EXPECT_TRUE(has(run({5, 200, 72}), "vector = 4;"));
}

/// Bias and residual come while the products are computed.
TEST(MatmulSwapAB, ReadsAhead) {
  const std::string source = run({20, 200, 136});
  const size_t reads = source.find("Operands0 operands("), body = source.find("void operator()");
  ASSERT_TRUE(reads != std::string::npos && body != std::string::npos) << source;
  const std::string ahead = source.substr(reads, body - reads);
  EXPECT_TRUE(has(ahead, "load_vec<bf16, 8>(in2") && has(ahead, "load_vec<bf16, 8>(in3")) << source;
  EXPECT_FALSE(has(source.substr(body), "load")) << source;
}

std::string sideBySide(int rows, bool transpose) {
  const std::string q = transpose ? "tensor<200x192xbf16>" : "tensor<192x200xbf16>",
                    k = transpose ? "tensor<72x192xbf16>" : "tensor<192x72xbf16>",
                    x = fmt::format("tensor<{}x192xbf16>", rows),
                    y = fmt::format("tensor<{}x200xbf16>", rows), z = fmt::format("tensor<{}x72xbf16>", rows);
  return fmt::format(R"(
    func.func @main(%x: {0}, %wq: {1}, %wk: {2}, %wv: {2}, %bv: tensor<72xbf16>) -> ({3}, {4}, {4}) {{
      %0, %1, %2 = fusion.group "g" schedule "matmul" (%a = %x, %b = %wq, %c = %wk, %d = %wv, %e = %bv)
          : ({0}, {1}, {2}, {2}, tensor<72xbf16>) -> ({3}, {4}, {4}) {{
        %q = nn.matmul %a, %b {{transpose_b = {5}}} : ({0}, {1}) -> {3}
        %k = nn.matmul %a, %c {{transpose_b = {5}}} : ({0}, {2}) -> {4}
        %v = nn.matmul %a, %d {{transpose_b = {5}}} : ({0}, {2}) -> {4}
        %w = nn.add %v, %e : ({4}, tensor<72xbf16>) -> {4}
        fusion.yield %q, %k, %w : {3}, {4}, {4}
      }}
      return %0, %1, %2 : {3}, {4}, {4}
    }})",
                     x, q, k, y, z, transpose);
}

TEST(MatmulSwapAB, SideBySide) {
  for (bool transpose : {true, false})
    for (int rows : {1, 12, 70})
      EXPECT_TRUE(
          has(check(matmulSchedule(), {sideBySide(rows, transpose), {}, 1.2e-2}), "gemm_swap_ab<Config>"));
}

/// Rows of two dims, of which the inner one is a part of longer ones; two results, one of another type.
TEST(MatmulSwapAB, ViewsAndResults) {
  for (int rows : {3, 40})
    EXPECT_TRUE(has(check(matmulSchedule(), {fmt::format(R"(
    func.func @main(%x: tensor<1x{0}x288xf16>, %w: tensor<96x320xf16>) -> (tensor<1x{0}x96xf16>, tensor<1x{0}x96xf32>) {{
      %s = nn.slice %x {{starts = [0, 0, 32], sizes = [1, {0}, 192], steps = array<i64: 1, 1, 1>}} : (tensor<1x{0}x288xf16>) -> tensor<1x{0}x192xf16>
      %t = nn.slice %w {{starts = [0, 64], sizes = [96, 192], steps = array<i64: 1, 1>}} : (tensor<96x320xf16>) -> tensor<96x192xf16>
      %0, %1 = fusion.group "g" schedule "matmul" (%a = %s, %b = %t) : (tensor<1x{0}x192xf16>, tensor<96x192xf16>) -> (tensor<1x{0}x96xf16>, tensor<1x{0}x96xf32>) {{
        %p = nn.matmul %a, %b {{transpose_b = true}} : (tensor<1x{0}x192xf16>, tensor<96x192xf16>) -> tensor<1x{0}x96xf16>
        %r = nn.relu %p : (tensor<1x{0}x96xf16>) -> tensor<1x{0}x96xf16>
        %c = nn.cast %p : (tensor<1x{0}x96xf16>) -> tensor<1x{0}x96xf32>
        fusion.yield %r, %c : tensor<1x{0}x96xf16>, tensor<1x{0}x96xf32>
      }}
      return %0, %1 : tensor<1x{0}x96xf16>, tensor<1x{0}x96xf32>
    }})",
                                                         rows),
                                             {},
                                             1e-3}),
                    "gemm_swap_ab<Config>"));
}

TEST(MatmulSwapAB, AKernelForEachRangeOfRows) {
  const std::string text = R"(
    func.func @main(%x: tensor<?x?x128xbf16> {nn.dims = ["b", "s", 128]}, %w: tensor<128x96xbf16>) -> tensor<?x?x96xbf16> {
      %y = nn.matmul %x, %w : (tensor<?x?x128xbf16>, tensor<128x96xbf16>) -> tensor<?x?x96xbf16>
      return %y : tensor<?x?x96xbf16>
    })";
  for (auto [b, s, rows] :
       {std::tuple(1, 1, 8), std::tuple(2, 4, 8), std::tuple(3, 3, 16), std::tuple(1, 32, 32),
        std::tuple(7, 7, 64), std::tuple(65, 1, 128), std::tuple(2, 64, 128)})
    EXPECT_TRUE(
        has(check(matmulSchedule(), {text, {{"b", b}, {"s", s}}, 8e-3}), fmt::format("rows = {},", rows)));
  EXPECT_FALSE(has(check(matmulSchedule(), {text, {{"b", 3}, {"s", 43}}, 8e-3}), "gemm_swap_ab<Config>"));
}

TEST(MatmulSwapAB, WhatTmaDoesNotReadKeepsItsKernels) {
  for (const Form &form : {Form{5, 100, 76}, Form{5, 100, 72, false}, Form{5, 56, 72}, Form{5, 72, 56},
                           Form{129, 72, 72}, Form{5, 72, 72, true, "f32"}})
    EXPECT_FALSE(has(check(matmulSchedule(), {module(form), {}, 1.2e-2}), "gemm_swap_ab<Config>"));
  EXPECT_FALSE(has(check(matmulSchedule(), {.text = module({5, 72, 72}), .tolerance = 1.2e-2, .arch = 80}),
                   "gemm_swap_ab<Config>"));
}

} // namespace
} // namespace fusion::test
