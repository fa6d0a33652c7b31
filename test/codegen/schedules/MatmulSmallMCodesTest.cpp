// Up to 32 rows, quantised weights whose codes warps copy ahead: see gemm_small_m_codes.cuh.
#include "QuantisedMatmul.h"

namespace fusion::test {
namespace {

using Form = QuantisedMatmul;

/// Beside gemm_swap_codes it is the first of up to 4 rows, and the other one of more.
std::string run(const Form &form, uint32_t arch = 90) {
  return checkQuantised(form, form.m > 4 && arch == 90 ? otherKernelVariant : "", arch);
}

/// Codes of 4 bits also where the graph does not round what they are decoded to: in blocks of 32 and more the
/// scale is then multiplied with sums.
std::string takes(const Form &form, uint32_t arch = 90) {
  const std::string source = run(form, arch);
  EXPECT_TRUE(has(source, "gemm_small_m_codes<Config>") && !has(source, "scales_sums = true")) << source;
  if (isPacked(form)) {
    Form unrounded = form;
    unrounded.unrounded = true;
    EXPECT_EQ(has(run(unrounded, arch), "scales_sums = true"), form.block % 32 == 0);
  }
  return source;
}

TEST(MatmulSmallMCodes, RowsAtTheEndsOfRanges) {
  for (int m : {1, 2, 4, 5, 8, 9, 16, 17, 24, 25, 32}) {
    takes({m, 72, 272, "f8E4M3FN"});
    takes({m, 72, 288, "ui4", "bf16", "bf16", 32, true});
  }
}

/// What is decoded with the rounding of the graph is measured beside gemm_swap_codes from one row on: there that
/// was the faster one.
TEST(MatmulSmallMCodes, FewRoundedRowsHaveAnother) {
  for (int m : {1, 4})
    for (const Form &form : {Form{m, 72, 512, "ui4", "bf16", "bf16", 32, true}, Form{m, 72, 512, "i8", "f16", "f16", 32}})
      EXPECT_TRUE(has(checkQuantised(form, otherKernelVariant), "gemm_swap_codes<Config>"));
}

TEST(MatmulSmallMCodes, Types) {
  for (const Form &form : everyType(3))
    takes(form);
}

/// Of blocks that are shorter than a lane's codes, than a step, and longer; whose entries begin in the middle
/// of a word, or end with K.
TEST(MatmulSmallMCodes, Blocks) {
  for (int block : {16, 32, 64, 128, 256, 512})
    for (int k : {512, 544, 1056}) {
      takes({2, 40, k, "ui4", "f16", "f16", block, true});
      takes({2, 40, k, "i4", "bf16", "f32", block, false});
      takes({2, 40, k, "i8", "f16", "f16", block, true});
    }
  EXPECT_TRUE(has(takes({2, 40, 512, "ui4", "f16", "f16", 32, true}), "scale_words = 1, zero_words = 1,"));
  EXPECT_TRUE(has(takes({2, 40, 544, "ui4", "f16", "f16", 32, true}), "scale_words = 2, zero_words = 2,"));
}

/// All warps share out K of a tile, some of them, or each has tiles of its own; one turn, or several. Two
/// blocks on a multiprocessor, or one where A leaves no room for another.
TEST(MatmulSmallMCodes, WaysToShareOut) {
  for (auto [n, k, split] : {std::tuple(72, 2304, 8), std::tuple(4096, 544, 4), std::tuple(20000, 272, 1),
                             std::tuple(40000, 256, 2)}) {
    const std::string source = takes({2, n, k, "i8", "f16", "f16", 16});
    EXPECT_TRUE(has(source, fmt::format("k_split = {},", split))) << n << source;
    EXPECT_TRUE(has(source, "KERNEL_RESIDENT(256, 2)")) << n << source;
  }
  EXPECT_TRUE(has(takes({4, 72, 14336, "ui4", "bf16", "bf16", 32, true}), "KERNEL_RESIDENT(256, 1)"));
  EXPECT_TRUE(has(takes({12, 72, 2304, "ui4", "bf16", "bf16", 32, true}), "warps = 16,"));
}

TEST(MatmulSmallMCodes, TwoInOneResult) {
  for (int m : {1, 7, 20})
    for (const char *codes : {"ui4", "f8E5M2"})
      takes({m, 136, 544, codes, "bf16", "bf16", 32, codes[0] == 'u', true});
}

TEST(MatmulSmallMCodes, SideBySide) {
  EXPECT_TRUE(has(check(matmulSchedule(), {.text = R"(
    func.func @main(%x: tensor<3x272xf16>, %q: tensor<200x272xi8>, %qs: tensor<200x17xf16>, %k: tensor<72x272xi8>, %ks: tensor<72x17xf16>)
        -> (tensor<3x200xf16>, tensor<3x72xf16>) {
      %0, %1 = fusion.group "g" schedule "matmul" (%a = %x, %b = %q, %c = %qs, %d = %k, %e = %ks)
          : (tensor<3x272xf16>, tensor<200x272xi8>, tensor<200x17xf16>, tensor<72x272xi8>, tensor<72x17xf16>)
          -> (tensor<3x200xf16>, tensor<3x72xf16>) {
        %v = nn.dequantize %b, %c {axis = 1 : i64, block_size = 16 : i64} : (tensor<200x272xi8>, tensor<200x17xf16>) -> tensor<200x272xf16>
        %w = nn.dequantize %d, %e {axis = 1 : i64, block_size = 16 : i64} : (tensor<72x272xi8>, tensor<72x17xf16>) -> tensor<72x272xf16>
        %y = nn.matmul %a, %v {transpose_b = true} : (tensor<3x272xf16>, tensor<200x272xf16>) -> tensor<3x200xf16>
        %z = nn.matmul %a, %w {transpose_b = true} : (tensor<3x272xf16>, tensor<72x272xf16>) -> tensor<3x72xf16>
        fusion.yield %y, %z : tensor<3x200xf16>, tensor<3x72xf16>
      }
      return %0, %1 : tensor<3x200xf16>, tensor<3x72xf16>
    })",
                                           .tolerance = 1e-3}),
                  "gemm_small_m_codes<Config>"));
}

/// A zero point that is expanded outside of the kernel is known in it.
TEST(MatmulSmallMCodes, ZeroPointOfAll) {
  const std::string source = check(matmulSchedule(), {.text = R"(
    func.func @main(%x: tensor<3x256xf16>, %q: tensor<48x256xui8>, %s: tensor<48x8xf16>) -> tensor<3x48xf16> {
      %c = nn.constant {value = dense<128> : tensor<ui8>} : () -> tensor<ui8>
      %z = nn.expand %c {shape = [48, 8]} : (tensor<ui8>) -> tensor<48x8xui8>
      %y = fusion.group "g" schedule "matmul" (%a = %x, %b = %q, %d = %s, %e = %z)
          : (tensor<3x256xf16>, tensor<48x256xui8>, tensor<48x8xf16>, tensor<48x8xui8>) -> tensor<3x48xf16> {
        %w = nn.dequantize %b, %d, %e {axis = 1 : i64, block_size = 32 : i64} : (tensor<48x256xui8>, tensor<48x8xf16>, tensor<48x8xui8>) -> tensor<48x256xf16>
        %r = nn.matmul %a, %w {transpose_b = true} : (tensor<3x256xf16>, tensor<48x256xf16>) -> tensor<3x48xf16>
        fusion.yield %r : tensor<3x48xf16>
      }
      return %y : tensor<3x48xf16>
    })",
                                                      .tolerance = 1e-3});
  EXPECT_TRUE(has(source, "Alike<u8>{(u8)128}")) << source;
}

/// Also where the GPU has no warpgroups.
TEST(MatmulSmallMCodes, Ampere) {
  takes({1, 72, 288, "ui4", "bf16", "bf16", 32, true}, 80);
  takes({12, 72, 288, "ui4", "f16", "f16", 32, true}, 89);
}

TEST(MatmulSmallMCodes, OthersKeepTheirKernels) {
  for (const Form &form :
       {Form{3, 72, 264}, Form{3, 72, 272, "i8", "f32"}, Form{33, 72, 272},
        Form{3, 72, 288, "ui4", "bf16", "bf16", 8}, Form{3, 72, 288, "ui4", "bf16", "bf16", 48},
        Form{3, 72, 96, "ui4", "bf16", "bf16", 32}})
    EXPECT_FALSE(has(run(form), "gemm_small_m_codes<Config>"));
}

} // namespace
} // namespace fusion::test
