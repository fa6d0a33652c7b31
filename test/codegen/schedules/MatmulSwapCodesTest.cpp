// Up to 128 rows, quantised weights whose codes come by TMA: see gemm_swap_codes.cuh.
#include "Harness.h"

#include <cmath>
#include <fmt/format.h>

namespace fusion::test {
namespace {

struct Form {
  int m, n, k;
  const char *codes = "i8", *type = "bf16", *scales = "f32";
  int block = 0; ///< along k; 0: a scale a row of the weights; -1: one for all
  bool zero = false, gated = false;
};

bool isPacked(const Form &form) { return std::string(form.codes).ends_with("i4"); }

/// Numbers from 0 to 15, or from -8 to 7, in no order, others for another seed.
std::string packedCodes(const std::string &type, int rows, int columns, unsigned seed) {
  uint64_t state = 0x9e3779b97f4a7c15u * (seed + 1);
  std::string text = "dense<[";
  for (int i = 0; i < rows; ++i) {
    text += i ? ", [" : "[";
    for (int j = 0; j < columns; ++j) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += fmt::format("{}{}", j ? ", " : "", static_cast<int>(state >> 60) - (type == "i4" ? 8 : 0));
    }
    text += "]";
  }
  return fmt::format("{}]> : tensor<{}x{}x{}>", text, rows, columns, type);
}

/// x w + bias, or silu(x w) * (x u), of which w and u are quantised along k.
std::string module(const Form &f) {
  const int blocks = f.block > 0 ? (f.k + f.block - 1) / f.block : 1;
  const std::string x = fmt::format("tensor<{}x{}x{}>", f.m, f.k, f.type),
                    y = fmt::format("tensor<{}x{}x{}>", f.m, f.n, f.type),
                    w = fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.codes),
                    d = fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.type);
  const std::string shape = f.block > 0    ? fmt::format("{}x{}x", f.n, blocks)
                            : f.block == 0 ? fmt::format("{}x", f.n)
                                           : "";
  const std::string s = fmt::format("tensor<{}{}>", shape, f.scales),
                    z = fmt::format("tensor<{}{}>", shape, f.codes);
  std::string arguments = fmt::format("%x: {}, %b: tensor<{}x{}>", x, f.n, f.type), constants;
  std::string bound = "%x_ = %x, %b_ = %b", types = fmt::format("{}, tensor<{}x{}>", x, f.n, f.type), body;
  for (int i = 0; i < (f.gated ? 2 : 1); ++i) {
    auto operand = [&](const char *name, const std::string &type, const std::string &constant) {
      if (constant.empty())
        arguments += fmt::format(", %{}{}: {}", name, i, type);
      else
        constants += fmt::format("%{}{} = nn.constant {{value = {}}} : () -> {}\n", name, i, constant, type);
      bound += fmt::format(", %{0}_{1} = %{0}{1}", name, i);
      types += ", " + type;
    };
    operand("w", w, isPacked(f) ? packedCodes(f.codes, f.n, f.k, 2 * i) : "");
    operand("s", s, "");
    if (f.zero)
      operand("z", z, isPacked(f) ? packedCodes(f.codes, f.n, blocks, 2 * i + 1) : "");
    body += fmt::format("%d{0} = nn.dequantize %w_{0}, %s_{0}{1} {{axis = {2} : i64, block_size = {3} : "
                        "i64}} : ({4}, {5}{6}) -> {7}\n"
                        "%p{0} = nn.matmul %x_, %d{0} {{transpose_b = true}} : ({8}, {7}) -> {9}\n",
                        i, f.zero ? fmt::format(", %z_{}", i) : "", f.block > 0 ? 1 : 0, std::max(f.block, 0),
                        w, s, f.zero ? ", " + z : "", d, x, y);
  }
  body += f.gated ? fmt::format("%g = nn.silu %p0 : ({0}) -> {0}\n%r = nn.mul %g, %p1 : ({0}, {0}) -> {0}", y)
                  : fmt::format("%r = nn.add %p0, %b_ : ({0}, tensor<{1}x{2}>) -> {0}", y, f.n, f.type);
  return fmt::format(R"(
    func.func @main({0}) -> {1} {{
      {2}
      %y = fusion.group "g" schedule "matmul" ({3}) : ({4}) -> {1} {{
        {5}
        fusion.yield %r : {1}
      }}
      return %y : {1}
    }})",
                     arguments, y, constants, bound, types, body);
}

/// Codes over their whole range, scales around a hundredth, others around 1.
void fill(unsigned, Tensor &tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto place = static_cast<double>(static_cast<uint64_t>(i) * 2654435761u % 1009u) / 1008.0;
    const bool isScale = isFloat(tensor.type()) && byteSize(tensor.type()) > 1;
    set(tensor, i,
        isScale                          ? 0.005 + 0.01 * place
        : isFloat(tensor.type())         ? 20 * place - 10
        : isSignedInteger(tensor.type()) ? std::floor(255.99 * place) - 128
                                         : std::floor(255.99 * place));
  }
}

bool has(const std::string &source, const std::string &part) {
  return source.find(part) != std::string::npos;
}

std::string run(const Form &form, const char *variant = "") {
  const double tolerance = std::string(form.type) == "f16" ? 1e-3 : 6e-3;
  auto fillAll = [](unsigned index, Tensor &tensor) {
    if (index > 1) // x and the bias are as they are
      fill(index, tensor);
  };
  return check(matmulSchedule(), {.text = module(form),
                                  .tolerance = form.gated ? 2 * tolerance : tolerance,
                                  .fill = fillAll,
                                  .variant = form.m > 4 ? variant : otherKernelVariant});
}

std::string takes(const Form &form) {
  const std::string source = run(form);
  EXPECT_TRUE(has(source, "gemm_swap_codes<Config>")) << source;
  return source;
}

TEST(MatmulSwapCodes, RowsAtTheEndsOfRanges) {
  for (int m : {1, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128}) {
    takes({m, 72, 272, "f8E4M3FN"});
    takes({m, 72, 288, "ui4", "bf16", "bf16", 32, true});
  }
}

/// Each type of codes to each type, with scales of that type and of f32.
TEST(MatmulSwapCodes, Types) {
  for (const char *type : {"bf16", "f16"})
    for (const char *scales : {type, "f32"}) {
      for (const char *codes : {"i8", "ui8"})
        for (bool zero : {false, true})
          takes({12, 72, 272, codes, type, scales, zero ? 64 : 0, zero});
      for (const char *codes : {"i4", "ui4"})
        for (bool zero : {false, true})
          takes({12, 72, 288, codes, type, scales, zero ? 32 : 0, zero});
      for (const char *codes : {"f8E4M3FN", "f8E5M2"})
        takes({12, 72, 272, codes, type, scales, -1});
    }
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
  for (int m : {3, 20, 64})
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
  EXPECT_TRUE(
      has(check(matmulSchedule(), {.text = module({4, 72, 272}), .tolerance = 6e-3}), "gemv<Config>"));
  EXPECT_TRUE(has(run({5, 72, 272}, otherKernelVariant), "gemm_small_m<Config>"));
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
