// Up to 128 rows, quantised weights whose codes come by TMA: see gemm_swap_codes.cuh.
#include "QuantisedMatmul.h"

namespace fusion::test {
namespace {

using Form = QuantisedMatmul;

std::string run(const Form &form, const char *variant = "") { return checkQuantised(form, variant); }

std::string takes(const Form &form) {
  const std::string source = run(form);
  EXPECT_TRUE(has(source, "gemm_swap_codes<Config>")) << source;
  return source;
}

TEST(MatmulSwapCodes, RowsAtTheEndsOfRanges) {
  for (int m : {5, 8, 9, 16, 17, 32, 33, 64, 65, 128}) {
    takes({m, 72, 272, "f8E4M3FN"});
    takes({m, 72, 288, "ui4", "bf16", "bf16", 32, true});
  }
}

TEST(MatmulSwapCodes, Types) {
  for (const Form &form : everyType(12))
    takes(form);
}

/// Of blocks that are shorter than a step, longer, no part of it, and longer than K's rest.
TEST(MatmulSwapCodes, Blocks) {
  for (auto [block, depth] : {std::pair(16, 16), std::pair(32, 32), std::pair(48, 16), std::pair(64, 64),
                              std::pair(128, 128), std::pair(256, 256), std::pair(384, 128)})
    for (int m : {7, depth < 32 ? 60 : 100}) {
      EXPECT_TRUE(has(takes({m, 72, 544, "ui4", "bf16", "bf16", block, true}),
                      fmt::format("scale_depth = {},", m == 100 ? std::min(depth, 128) : depth)));
      takes({m, 72, 544, "i8", "f16", "f16", block, true});
    }
  EXPECT_FALSE(has(run({65, 72, 544, "i8", "f16", "f16", 16, true}), "gemm_swap_codes<Config>"));
}

/// Where they lie side by side and steps are whole; else one by one.
TEST(MatmulSwapCodes, ScalesOfAStepAtOnce) {
  auto isAtOnce = [](const Form &form) { return has(takes(form), "entries_at_once = true"); };
  for (int block : {16, 32, 64, 128})
    for (int m : {7, 60}) {
      EXPECT_TRUE(isAtOnce({m, 72, 512, "ui4", "bf16", "bf16", block, true}));
      EXPECT_TRUE(isAtOnce({m, 72, 512, "i8", "f16", "f16", block, true}));
      EXPECT_TRUE(isAtOnce({m, 72, 512, "i4", "f16", "f32", block, false}));
      EXPECT_TRUE(isAtOnce({m, 72, 512, "f8E4M3FN", "bf16", "f32", block, false}));
    }
  EXPECT_TRUE(isAtOnce({7, 14336, 512, "ui4", "bf16", "bf16", 32, true}));
  EXPECT_TRUE(isAtOnce({20, 136, 512, "ui4", "bf16", "bf16", 32, true, true}));
  EXPECT_FALSE(isAtOnce({7, 72, 512, "ui4", "bf16", "bf16", 256, true})); // one a step
  EXPECT_FALSE(isAtOnce({7, 72, 544, "ui4", "bf16", "bf16", 32, true}));
  EXPECT_FALSE(isAtOnce({7, 72, 512, "ui4", "bf16", "bf16", 48, true}));
}

/// Blocks with a share of K, one tile each, and several tiles one after the other or at once.
TEST(MatmulSwapCodes, WaysToShareOut) {
  for (auto [n, split] :
       {std::pair(512, 8), std::pair(1024, 6), std::pair(1280, 5), std::pair(2048, 3), std::pair(4096, 2)})
    EXPECT_TRUE(has(takes({n == 1280 ? 70 : 5, n, 1040, "f8E4M3FN"}), fmt::format("k_split = {},", split)));
  EXPECT_TRUE(has(takes({5, 14336, 256, "i8"}), "tiles = 2,"));
  EXPECT_TRUE(has(takes({5, 18944, 256, "i8"}), "tiles = 1,"));
}

TEST(MatmulSwapCodes, TwoInOneResult) {
  for (int m : {5, 20, 64})
    for (const char *codes : {"ui4", "f8E5M2"})
      takes({m, 136, 544, codes, "bf16", "bf16", 32, codes[0] == 'u', true});
  EXPECT_FALSE(
      has(run({65, 136, 544, "f8E5M2", "bf16", "bf16", 32, false, true}), "gemm_swap_codes<Config>"));
}

TEST(MatmulSwapCodes, SideBySide) {
  for (int m : {6, 40})
    EXPECT_TRUE(has(check(matmulSchedule(), {.text = fmt::format(R"(
    func.func @main(%x: tensor<{0}x272xf16>, %q: tensor<200x272xi8>, %qs: tensor<200xf32>, %k: tensor<72x272xi8>, %ks: tensor<72xf32>)
        -> (tensor<{0}x200xf16>, tensor<{0}x72xf16>) {{
      %0, %1 = fusion.group "g" schedule "matmul" (%a = %x, %b = %q, %c = %qs, %d = %k, %e = %ks)
          : (tensor<{0}x272xf16>, tensor<200x272xi8>, tensor<200xf32>, tensor<72x272xi8>, tensor<72xf32>)
          -> (tensor<{0}x200xf16>, tensor<{0}x72xf16>) {{
        %v = nn.dequantize %b, %c {{axis = 0 : i64}} : (tensor<200x272xi8>, tensor<200xf32>) -> tensor<200x272xf16>
        %w = nn.dequantize %d, %e {{axis = 0 : i64}} : (tensor<72x272xi8>, tensor<72xf32>) -> tensor<72x272xf16>
        %y = nn.matmul %a, %v {{transpose_b = true}} : (tensor<{0}x272xf16>, tensor<200x272xf16>) -> tensor<{0}x200xf16>
        %z = nn.matmul %a, %w {{transpose_b = true}} : (tensor<{0}x272xf16>, tensor<72x272xf16>) -> tensor<{0}x72xf16>
        fusion.yield %y, %z : tensor<{0}x200xf16>, tensor<{0}x72xf16>
      }}
      return %0, %1 : tensor<{0}x200xf16>, tensor<{0}x72xf16>
    }})",
                                                                 m),
                                             .tolerance = 1e-3}),
                    "gemm_swap_codes<Config>"));
}

/// The kernel that is taken where nothing is measured, and the one beside it.
TEST(MatmulSwapCodes, OneBesideTheOther) {
  EXPECT_TRUE(has(check(matmulSchedule(), {.text = module({4, 72, 272}), .tolerance = 6e-3}),
                  "gemm_small_m_codes<Config>"));
  EXPECT_TRUE(has(run({5, 72, 272}, otherKernelVariant), "gemm_small_m_codes<Config>"));
  EXPECT_TRUE(has(run({40, 72, 272}, otherKernelVariant), "gemm_small_m<Config>"));
  EXPECT_TRUE(has(run({100, 72, 272}, otherKernelVariant), "gemm_mma<Config>"));
}

TEST(MatmulSwapCodes, OthersKeepTheirKernels) {
  for (const Form &form : {Form{12, 72, 264}, Form{12, 56, 272}, Form{12, 72, 240}, Form{129, 72, 272},
                           Form{12, 72, 272, "i8", "f32"}, Form{12, 72, 288, "ui4", "bf16", "bf16", 8}})
    EXPECT_FALSE(
        has(check(matmulSchedule(), {.text = module(form), .tolerance = 6e-3}), "gemm_swap_codes<Config>"));
  EXPECT_FALSE(has(check(matmulSchedule(), {.text = module({12, 72, 272}), .tolerance = 6e-3, .arch = 80}),
                   "gemm_swap_codes<Config>"));
}

} // namespace
} // namespace fusion::test
