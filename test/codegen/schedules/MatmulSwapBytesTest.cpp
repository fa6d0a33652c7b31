// Up to 128 rows of bytes by bytes, f8 or 8-bit integers, on warpgroups: see gemm_swap_ab.cuh.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

enum class Scales { One, OfRows, OfBlocks }; ///< OfBlocks: of 128 along k, for each row

struct Form {
  int m, n, k;
  Scales a = Scales::One, b = Scales::One;
  const char *typeA = "f8E4M3FN", *typeB = "f8E4M3FN", *type = "bf16"; ///< type: of the result
  bool gated = false, bias = true;
};

std::string scaleType(Scales scales, int rows, int k) {
  return scales == Scales::One      ? "tensor<f32>"
         : scales == Scales::OfRows ? fmt::format("tensor<{}xf32>", rows)
                                    : fmt::format("tensor<{}x{}xf32>", rows, (k + 127) / 128);
}
const char *axisOf(Scales scales) {
  return scales == Scales::OfBlocks ? "axis = 1 : i64, block_size = 128 : i64" : "axis = 0 : i64";
}

/// x w + bias, or silu(x w) * (x u).
std::string module(const Form &f) {
  const std::string x = fmt::format("tensor<{}x{}x{}>", f.m, f.k, f.typeA),
                    w = fmt::format("tensor<{}x{}x{}>", f.n, f.k, f.typeB),
                    wideX = fmt::format("tensor<{}x{}xf32>", f.m, f.k),
                    wideW = fmt::format("tensor<{}x{}xf32>", f.n, f.k),
                    p = fmt::format("tensor<{}x{}xf32>", f.m, f.n),
                    y = fmt::format("tensor<{}x{}x{}>", f.m, f.n, f.type),
                    b = fmt::format("tensor<{}xf32>", f.n), s = scaleType(f.a, f.m, f.k),
                    t = scaleType(f.b, f.n, f.k);
  std::string arguments = fmt::format("%x: {}, %s: {}, %b: {}", x, s, b),
              bound = "%x_ = %x, %s_ = %s, %b_ = %b", types = fmt::format("{}, {}, {}", x, s, b),
              body = fmt::format("%e = nn.dequantize %x_, %s_ {{{}}} : ({}, {}) -> {}\n", axisOf(f.a), x, s,
                                 wideX);
  for (int i = 0; i < (f.gated ? 2 : 1); ++i) {
    arguments += fmt::format(", %w{0}: {1}, %t{0}: {2}", i, w, t);
    bound += fmt::format(", %w_{0} = %w{0}, %t_{0} = %t{0}", i);
    types += fmt::format(", {}, {}", w, t);
    body += fmt::format("%d{0} = nn.dequantize %w_{0}, %t_{0} {{{1}}} : ({2}, {3}) -> {4}\n"
                        "%p{0} = nn.matmul %e, %d{0} {{transpose_b = true}} : ({5}, {4}) -> {6}\n",
                        i, axisOf(f.b), w, t, wideW, wideX, p);
  }
  body += f.gated
              ? fmt::format("%g = nn.silu %p0 : ({0}) -> {0}\n%r = nn.mul %g, %p1 : ({0}, {0}) -> {0}\n", p)
          : f.bias ? fmt::format("%r = nn.add %p0, %b_ : ({0}, {1}) -> {0}\n", p, b)
                   : "";
  body += std::string(f.type) == "f32"
              ? ""
              : fmt::format("%y = nn.cast %{} : ({}) -> {}\n", f.gated || f.bias ? "r" : "p0", p, y);
  return fmt::format(R"(
    func.func @main({0}) -> {1} {{
      %0 = fusion.group "g" schedule "matmul" ({2}) : ({3}) -> {1} {{
        {4}
        fusion.yield %{5} : {1}
      }}
      return %0 : {1}
    }})",
                     arguments, y, bound, types, body, std::string(f.type) == "f32" ? "r" : "y");
}

/// Scales around a hundredth, others for another row and block; codes over what they can be.
void fill(unsigned index, Tensor &tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto place =
        static_cast<double>((static_cast<uint64_t>(i) * 2654435761u + index * 97u) % 1009u) / 1008.0;
    set(tensor, i,
        tensor.type() == DType::F32      ? 0.005 + 0.01 * place
        : isFloat(tensor.type())         ? 20 * place - 10
        : isSignedInteger(tensor.type()) ? static_cast<double>(static_cast<int>(255.99 * place) - 128)
                                         : static_cast<double>(static_cast<int>(255.99 * place)));
  }
}

bool has(const std::string &source, const std::string &part) {
  return source.find(part) != std::string::npos;
}

/// By gemm_swap_ab, whether or not it is what runs where nothing is measured.
std::string run(const Form &form) {
  const std::string type = form.type;
  const double tolerance = type == "f32" ? 2e-6 : type == "f16" ? 1e-3 : 5e-3;
  const bool isFirst = form.m > 4 && form.m <= 64;
  const std::string source = check(matmulSchedule(), {.text = module(form),
                                                      .tolerance = form.gated ? 2 * tolerance : tolerance,
                                                      .fill = fill,
                                                      .variant = isFirst ? "" : otherKernelVariant});
  EXPECT_TRUE(has(source, "gemm_swap_ab_bytes.cuh")) << source;
  return source;
}

TEST(MatmulSwapBytes, RowsAtTheEndsOfRanges) {
  for (int m : {1, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128}) {
    run({m, 72, 144, Scales::OfRows, Scales::OfRows});
    run({m, 72, 272, Scales::OfBlocks, Scales::OfBlocks});
  }
}

TEST(MatmulSwapBytes, Types) {
  run({12, 136, 272, Scales::One, Scales::OfRows, "f8E5M2", "f8E4M3FN"});
  run({12, 136, 272, Scales::OfRows, Scales::One, "f8E4M3FN", "f8E5M2", "f16"});
  for (Scales scales : {Scales::OfRows, Scales::OfBlocks}) {
    run({12, 72, 272, scales, scales, "i8", "i8", "f32"});
    run({40, 72, 144, scales, scales, "ui8", "i8", "bf16"});
  }
}

/// Results of whole sums, without scales.
TEST(MatmulSwapBytes, IntegersAreExact) {
  const std::string text = R"(
    func.func @main(%x: tensor<9x1296xui8>, %w: tensor<200x1296xi8>) -> tensor<9x200xi32> {
      %0 = fusion.group "g" schedule "matmul" (%a = %x, %b = %w)
          : (tensor<9x1296xui8>, tensor<200x1296xi8>) -> tensor<9x200xi32> {
        %c = nn.cast %a : (tensor<9x1296xui8>) -> tensor<9x1296xi32>
        %d = nn.cast %b : (tensor<200x1296xi8>) -> tensor<200x1296xi32>
        %y = nn.matmul %c, %d {transpose_b = true} : (tensor<9x1296xi32>, tensor<200x1296xi32>) -> tensor<9x200xi32>
        fusion.yield %y : tensor<9x200xi32>
      }
      return %0 : tensor<9x200xi32>
    })";
  const std::string source = check(matmulSchedule(), {.text = text, .tolerance = 0, .fill = fill});
  EXPECT_TRUE(has(source, "gemm_swap_ab_bytes.cuh") && has(source, "k_split = 8,")) << source;
}

TEST(MatmulSwapBytes, TwoProductsInOneResult) {
  for (int m : {1, 12, 64})
    for (Scales scales : {Scales::OfRows, Scales::OfBlocks})
      run({m, 72, 400, scales, scales, "f8E4M3FN", "f8E4M3FN", "bf16", true});
  // More rows leave no registers: gemm_sm90 takes them, with nothing to be measured beside it.
  for (Scales scales : {Scales::OfRows, Scales::OfBlocks}) {
    const Form many{200, 136, 400, scales, scales, "f8E4M3FN", "f8E4M3FN", "bf16", true};
    const ScheduleCase test{.text = module(many), .tolerance = 1e-2, .fill = fill};
    EXPECT_TRUE(has(check(matmulSchedule(), test), "gemm_sm90_bytes.cuh"));
  }
  const Form integers{70, 72, 272, Scales::OfBlocks, Scales::OfBlocks, "i8", "i8", "f32", true};
  const ScheduleCase test{.text = module(integers), .tolerance = 1e-5, .fill = fill};
  EXPECT_TRUE(has(check(matmulSchedule(), test), "gemm_fma<Config>"));
}

/// Blocks with a share of K, and several tiles at once or one after the other.
TEST(MatmulSwapBytes, WaysToShareOut) {
  EXPECT_TRUE(has(run({12, 512, 1168}), "k_split = 8,"));
  for (auto [n, split] : {std::pair(512, 8), std::pair(896, 7), std::pair(1280, 5), std::pair(2048, 3)})
    EXPECT_TRUE(
        has(run({12, n, 1168, Scales::OfBlocks, Scales::OfBlocks}), fmt::format("k_split = {},", split)));
  for (auto [m, tiles] : {std::pair(5, 3), std::pair(20, 2)})
    EXPECT_TRUE(has(run({m, m == 5 ? 16904 : 16896, 128, Scales::OfBlocks, Scales::OfBlocks}),
                    fmt::format("tiles = {},", tiles)));
}

/// Long sums of f8, and such as become f16, are added in f32 after each step.
TEST(MatmulSwapBytes, LongSumsAreAddedInF32) {
  EXPECT_TRUE(has(run({6, 72, 8320, Scales::One, Scales::OfRows}), "exact_steps = 1"));
  EXPECT_FALSE(has(run({6, 72, 8192, Scales::One, Scales::OfRows}), "exact_steps"));
  Form half{40, 72, 400, Scales::One, Scales::One, "f8E4M3FN", "f8E4M3FN", "f16"};
  half.bias = false;
  EXPECT_TRUE(has(run(half), "exact_steps = 1"));
}

} // namespace
} // namespace fusion::test
