// Up to 64 rows on tensor cores, B straight from memory: see gemm_small_m.cuh.
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

/// x w + bias, then GELU; or silu(x w) * (x u).
std::string module(const Form &f) {
  const std::string x = fmt::format("tensor<{}x{}x{}>", f.m, f.k, f.type),
                    w = f.transposeB ? fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.type)
                                     : fmt::format("tensor<{}x{}x{}>", f.k, f.n, f.type),
                    y = fmt::format("tensor<{}x{}x{}>", f.m, f.n, f.type),
                    u = f.gated ? w : fmt::format("tensor<{}x{}>", f.n, f.type);
  const std::string tail =
      f.gated ? fmt::format(R"(
        %q = nn.matmul %a, %c {{transpose_b = {2}}} : ({0}, {1}) -> {3}
        %s = nn.silu %p : ({3}) -> {3}
        %r = nn.mul %s, %q : ({3}, {3}) -> {3})",
                            x, w, f.transposeB, y)
              : fmt::format(R"(
        %q = nn.add %p, %c : ({0}, {1}) -> {0}
        %r = nn.gelu %q {{approximate = "tanh"}} : ({0}) -> {0})",
                            y, u);
  return fmt::format(R"(
    func.func @main(%x: {0}, %w: {1}, %u: {2}) -> {3} {{
      %0 = fusion.group "g" schedule "matmul" (%a = %x, %b = %w, %c = %u) : ({0}, {1}, {2}) -> {3} {{
        %p = nn.matmul %a, %b {{transpose_b = {4}}} : ({0}, {1}) -> {3}{5}
        fusion.yield %r : {3}
      }}
      return %0 : {3}
    }})",
                     x, w, u, y, f.transposeB, tail);
}

/// `arch`: 90 has gemm_swap_ab for wide matrices, the others have not.
std::string run(const Form &form, uint32_t arch = 90) {
  const std::string source =
      check(matmulSchedule(), {.text = module(form), .tolerance = 1.2e-2, .arch = arch});
  EXPECT_NE(source.find("gemm_small_m<Config>"), std::string::npos);
  return source;
}

TEST(MatmulSmallM, RowsAtTheEndsOfRanges) {
  for (const char *type : {"f16", "bf16"})
    for (bool transpose : {true, false})
      for (bool gated : {false, true})
        for (int m : {1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64})
          run({m, 40, 72, transpose, type, gated});
}

TEST(MatmulSmallM, StepsBeyondTheLast) {
  for (bool transpose : {true, false})
    for (int k : {0, 8, 64, 136, 512, 1096})
      run({5, 24, k, transpose});
}

TEST(MatmulSmallM, WidthsThatAreSharedOutDifferently) {
  for (bool transpose : {true, false})
    for (int n : {8, 2048, 4096, 6144, 14336})
      for (int m : {3, 16}) {
        run({m, n, 64, transpose}, 100);
        run({m, n, 64, transpose, "f16", true}, 100);
      }
  for (bool transpose : {true, false})
    for (int m : {32, 64}) {
      run({m, 4104, 64, transpose}, 100);
      run({m, 4104, 64, transpose, "f16", true}, 100);
    }
}

TEST(MatmulSmallM, Batches) {
  for (bool transpose : {true, false})
    for (int m : {3, 20})
      check(matmulSchedule(), {fmt::format(R"(
    func.func @main(%a: tensor<3x2x{0}x24xf16>, %b: tensor<2x{1}xf16>) -> tensor<3x2x{0}x40xf16> {{
      %y = nn.matmul %a, %b {{transpose_b = {2}}} : (tensor<3x2x{0}x24xf16>, tensor<2x{1}xf16>) -> tensor<3x2x{0}x40xf16>
      return %y : tensor<3x2x{0}x40xf16>
    }})",
                                           m, transpose ? "40x24" : "24x40", transpose),
                               {},
                               5e-4});
}

TEST(MatmulSmallM, WhatLiesOddlyKeepsItsKernels) {
  for (bool transpose : {true, false}) {
    const std::string odd = check(matmulSchedule(), {module({5, 41, 37, transpose}), {}, 1.2e-2});
    EXPECT_EQ(odd.find("gemm_small_m<Config>"), std::string::npos);
    const std::string wide = check(matmulSchedule(), {module({5, 40, 72, transpose, "f32"}), {}, 4e-6});
    EXPECT_EQ(wide.find("gemm_small_m<Config>"), std::string::npos);
  }
}

} // namespace
} // namespace fusion::test
