// Matmuls of many rows by tcgen05: see gemm_sm100.cuh.
#include "Harness.h"

#include "codegen/plan/ProgramPlan.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

bool has(const std::string &source, const std::string &part) {
  return source.find(part) != std::string::npos;
}

std::string tensor(const std::string &shape, const std::string &type) {
  return fmt::format("tensor<{}x{}>", shape, type);
}

/// x [m x k] times w, %p of the type `product`, and what is made of it, %y of the type `result`.
struct Form {
  std::string m = "200"; ///< "?": the symbol "rows"
  int n = 264, k = 136;
  std::string type = "bf16", product = type, result = type;
  bool transposeB = true;
  std::string extra = "", ops = ""; ///< the type of %e, if there is one; without ops %p is the result
};

std::string module(const Form &f) {
  const std::string x = tensor(fmt::format("{}x{}", f.m, f.k), f.type),
                    w = tensor(f.transposeB ? fmt::format("{}x{}", f.n, f.k) : fmt::format("{}x{}", f.k, f.n),
                               f.type),
                    p = tensor(fmt::format("{}x{}", f.m, f.n), f.product),
                    y = tensor(fmt::format("{}x{}", f.m, f.n), f.result),
                    dims = f.m == "?" ? fmt::format(" {{nn.dims = [\"rows\", {}]}}", f.k) : "";
  const bool has = !f.extra.empty();
  const std::string ofRows =
      f.m == "?" && has && f.extra[7] == '?' ? fmt::format(" {{nn.dims = [\"rows\", {}]}}", f.n) : "";
  return fmt::format(R"(
func.func @main(%x: {0}{1}, %w: {2}{3}) -> {4} {{
  %0 = fusion.group "g" schedule "matmul" (%a = %x, %c = %w{5}) : ({0}, {2}{6}) -> {4} {{
    %p = nn.matmul %a, %c {{transpose_b = {7}}} : ({0}, {2}) -> {8}
{9}
    fusion.yield {10} : {4}
  }}
  return %0 : {4}
}})",
                     x, dims, w, has ? ", %e: " + f.extra + ofRows : "", y, has ? ", %d = %e" : "",
                     has ? ", " + f.extra : "", f.transposeB, p, f.ops, f.ops.empty() ? "%p" : "%y");
}

Form withBias(Form f) {
  const std::string t = tensor(fmt::format("{}x{}", f.m, f.n), f.type);
  f.extra = tensor(std::to_string(f.n), f.type);
  f.ops = fmt::format("    %q = nn.add %p, %d : ({0}, {1}) -> {0}\n    %y = nn.gelu %q {{approximate = "
                      "\"tanh\"}} : ({0}) -> {0}",
                      t, f.extra);
  return f;
}
Form withResidual(Form f) {
  f.extra = tensor(fmt::format("{}x{}", f.m, f.n), f.type);
  f.ops = fmt::format("    %y = nn.add %p, %d : ({0}, {0}) -> {0}", f.extra);
  return f;
}

struct Case {
  double tolerance = 1.2e-2;
  std::string holds = "tile_n = ";
  std::optional<int> multiprocessors = {};
  SymbolValues symbols = {};
  std::function<void(unsigned, Tensor &)> fill = {};
};

/// That gemm_sm100 is the other kernel, and what it computes.
void run(const std::string &text, const Case &with = {}) {
  const std::string source = check(matmulSchedule(), {.text = text,
                                                      .symbols = with.symbols,
                                                      .tolerance = with.tolerance,
                                                      .fill = with.fill,
                                                      .arch = 100,
                                                      .multiprocessors = with.multiprocessors,
                                                      .variant = otherKernelVariant});
  EXPECT_TRUE(has(source, "  gemm_sm100<Config>(")) << source;
  EXPECT_TRUE(has(source, with.holds)) << source;
}

TEST(MatmulSm100, SizesAndLayouts) {
  for (const char *type : {"bf16", "f16"})
    for (auto [m, n, k] : {std::tuple(165, 64, 64), std::tuple(129, 328, 72), std::tuple(300, 520, 200)})
      for (bool transposeB : {true, false}) {
        const Form f{.m = std::to_string(m), .n = n, .k = k, .type = type, .transposeB = transposeB};
        run(module(m == 129 ? withResidual(f) : withBias(f)), {.tolerance = *type == 'f' ? 2e-3 : 1.2e-2});
      }
  run(module({})); // without an epilogue
}

/// One block takes all tiles, so that sums and stages are used again.
TEST(MatmulSm100, TilesOneAfterTheOther) {
  for (auto [n, k] : {std::pair(64, 1000), {224, 72}, {256, 520}, {520, 136}}) {
    const Form f{.m = "330", .n = n, .k = k};
    const std::string tile = fmt::format("tile_n = {}", n == 520 ? 192 : n);
    run(module(n % 3 == 0 ? withBias(f) : withResidual(f)), {.holds = tile, .multiprocessors = 1});
  }
  const Form byDepth{.m = "330", .n = 192, .k = 200, .transposeB = false};
  run(module(withResidual(byDepth)), {.holds = "tile_n = 192", .multiprocessors = 1});
  Form wide{.m = "400", .n = 72, .k = 96, .product = "f32", .result = "f32"};
  wide.ops = fmt::format("    %y = nn.silu %p : ({0}) -> {0}", tensor("400x72", "f32"));
  run(module(wide), {.tolerance = 2e-6, .holds = "result = f32", .multiprocessors = 2});
}

TEST(MatmulSm100, ColumnsThatAreNoVectors) {
  for (int n : {66, 67, 132, 261}) {
    const Form f{.m = "140", .n = n, .k = 80};
    run(module(n % 2 ? withBias(f) : withResidual(f)));
  }
}

TEST(MatmulSm100, AnyNumberOfRows) {
  const Form f{.m = "?", .n = 520, .k = 72};
  for (int64_t rows : {17, 64, 129, 300})
    run(module(withResidual(f)), {.symbols = {{"rows", rows}}});
}

TEST(MatmulSm100, OtherResults) {
  Form f{.m = "150", .n = 72, .k = 96, .result = "i8", .extra = "tensor<bf16>"};
  f.ops = fmt::format("    %y = nn.quantize %p, %d : ({}, tensor<bf16>) -> {}", tensor("150x72", "bf16"),
                      tensor("150x72", "i8"));
  run(module(f));
  f = {.m = "150", .n = 67, .k = 96, .type = "f16", .product = "f16", .result = "f32"};
  f.ops = fmt::format("    %y = nn.cast %p : ({}) -> {}", tensor("150x67", "f16"), tensor("150x67", "f32"));
  run(module(f), {.tolerance = 2e-3});
}

/// Bytes, [m x k] and [n x k], dequantised to f32 with scales for all or for each row.
std::string bytes(int m, int n, int k, const std::string &a, const std::string &b, bool ofRows,
                  const std::string &type, int block = 0) {
  const std::string x = tensor(fmt::format("{}x{}", m, k), a), w = tensor(fmt::format("{}x{}", n, k), b),
                    wideX = tensor(fmt::format("{}x{}", m, k), "f32"),
                    wideW = tensor(fmt::format("{}x{}", n, k), "f32"),
                    p = tensor(fmt::format("{}x{}", m, n), "f32"),
                    y = tensor(fmt::format("{}x{}", m, n), type);
  auto scale = [&](int rows) {
    return block    ? tensor(fmt::format("{}x{}", rows, k / block), "f32")
           : ofRows ? tensor(std::to_string(rows), "f32")
                    : std::string("tensor<f32>");
  };
  const std::string how =
      block ? fmt::format("axis = 1 : i64, block_size = {} : i64", block) : "axis = 0 : i64";
  const bool casts = type != "f32";
  return fmt::format(R"(
func.func @main(%x: {0}, %s: {1}, %w: {2}, %t: {3}) -> {4} {{
  %0 = fusion.group "g" schedule "matmul" (%a = %x, %b = %s, %c = %w, %d = %t) : ({0}, {1}, {2}, {3}) -> {4} {{
    %e = nn.dequantize %a, %b {{{9}}} : ({0}, {1}) -> {5}
    %f = nn.dequantize %c, %d {{{9}}} : ({2}, {3}) -> {6}
    %{8} = nn.matmul %e, %f {{transpose_b = true}} : ({5}, {6}) -> {7}
{10}    fusion.yield %y : {4}
  }}
  return %0 : {4}
}})",
                     x, scale(m), w, scale(n), y, wideX, wideW, p, casts ? "p" : "y", how,
                     casts ? fmt::format("    %y = nn.cast %p : ({}) -> {}\n", p, y) : "");
}

TEST(MatmulSm100, F8WithScales) {
  auto fill = [](unsigned index, Tensor &values) {
    for (int64_t i = 0; i < values.size(); ++i)
      set(values, i,
          index % 2 ? 0.01 + 0.001 * static_cast<double>(i % 7)
                    : static_cast<double>((i * 37 + index) % 41) / 10 - 2);
  };
  run(bytes(140, 72, 144, "f8E4M3FN", "f8E4M3FN", false, "bf16"), {.tolerance = 5e-3, .fill = fill});
  run(bytes(300, 268, 400, "f8E4M3FN", "f8E5M2", true, "bf16"),
      {.tolerance = 5e-3, .multiprocessors = 1, .fill = fill});
  run(bytes(129, 131, 128, "f8E5M2", "f8E4M3FN", true, "f16"), {.tolerance = 1e-3, .fill = fill});
}

TEST(MatmulSm100, IntegersOfBytes) {
  run(bytes(150, 136, 208, "i8", "i8", true, "bf16"), {.tolerance = 5e-3});
  run(bytes(300, 67, 144, "ui8", "i8", true, "f32"), {.tolerance = 3e-6, .multiprocessors = 1});
  run(R"(
func.func @main(%x: tensor<150x144xi8>, %w: tensor<72x144xui8>) -> tensor<150x72xi32> {
  %0 = fusion.group "g" schedule "matmul" (%a = %x, %b = %w) : (tensor<150x144xi8>, tensor<72x144xui8>) -> tensor<150x72xi32> {
    %c = nn.cast %a : (tensor<150x144xi8>) -> tensor<150x144xi32>
    %d = nn.cast %b : (tensor<72x144xui8>) -> tensor<72x144xi32>
    %y = nn.matmul %c, %d {transpose_b = true} : (tensor<150x144xi32>, tensor<72x144xi32>) -> tensor<150x72xi32>
    fusion.yield %y : tensor<150x72xi32>
  }
  return %0 : tensor<150x72xi32>
})");
}

/// silu(x gate) * (x up): two accumulators.
std::string gated(int m, int n, int k, bool transposeB) {
  const std::string x = tensor(fmt::format("{}x{}", m, k), "bf16"),
                    w = tensor(transposeB ? fmt::format("{}x{}", n, k) : fmt::format("{}x{}", k, n), "bf16"),
                    y = tensor(fmt::format("{}x{}", m, n), "bf16");
  return fmt::format(R"(
func.func @main(%x: {0}, %w: {1}, %v: {1}) -> {2} {{
  %0 = fusion.group "g" schedule "matmul" (%a = %x, %c = %w, %d = %v) : ({0}, {1}, {1}) -> {2} {{
    %g = nn.matmul %a, %c {{transpose_b = {3}}} : ({0}, {1}) -> {2}
    %u = nn.matmul %a, %d {{transpose_b = {3}}} : ({0}, {1}) -> {2}
    %s = nn.silu %g : ({2}) -> {2}
    %y = nn.mul %s, %u : ({2}, {2}) -> {2}
    fusion.yield %y : {2}
  }}
  return %0 : {2}
}})",
                     x, w, y, transposeB);
}

TEST(MatmulSm100, TwoMatmulsInOneResult) {
  run(gated(150, 136, 136, true), {.tolerance = 2e-2});
  run(gated(290, 256, 200, true), {.tolerance = 2e-2, .holds = "tile_n = 128", .multiprocessors = 1});
  run(gated(290, 192, 72, false), {.tolerance = 2e-2, .multiprocessors = 1});
}

TEST(MatmulSm100, SideBySide) {
  const std::string text = R"(
func.func @main(%x: tensor<150x136xbf16>, %q: tensor<264x136xbf16>, %k: tensor<72x136xbf16>, %v: tensor<96x136xbf16>, %b: tensor<72xbf16>) -> (tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>) {
  %0:3 = fusion.group "g" schedule "matmul" (%a = %x, %c = %q, %d = %k, %e = %v, %f = %b) : (tensor<150x136xbf16>, tensor<264x136xbf16>, tensor<72x136xbf16>, tensor<96x136xbf16>, tensor<72xbf16>) -> (tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>) {
    %1 = nn.matmul %a, %c {transpose_b = true} : (tensor<150x136xbf16>, tensor<264x136xbf16>) -> tensor<150x264xbf16>
    %2 = nn.matmul %a, %d {transpose_b = true} : (tensor<150x136xbf16>, tensor<72x136xbf16>) -> tensor<150x72xbf16>
    %3 = nn.matmul %a, %e {transpose_b = true} : (tensor<150x136xbf16>, tensor<96x136xbf16>) -> tensor<150x96xbf16>
    %4 = nn.add %2, %f : (tensor<150x72xbf16>, tensor<72xbf16>) -> tensor<150x72xbf16>
    fusion.yield %1, %4, %3 : tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>
  }
  return %0#0, %0#1, %0#2 : tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>
})";
  run(text);
  run(text, {.multiprocessors = 1});
}

TEST(MatmulSm100, Batches) {
  auto text = [](const char *a, const char *b, const char *y, bool transpose) {
    return fmt::format(R"(
func.func @main(%x: tensor<{0}xbf16>, %w: tensor<{1}xbf16>) -> tensor<{2}xbf16> {{
  %0 = nn.matmul %x, %w {{transpose_b = {3}}} : (tensor<{0}xbf16>, tensor<{1}xbf16>) -> tensor<{2}xbf16>
  return %0 : tensor<{2}xbf16>
}})",
                       a, b, y, transpose);
  };
  run(text("2x3x90x72", "2x3x72x88", "2x3x90x88", false));
  run(text("2x3x290x72", "2x3x88x72", "2x3x290x88", true), {.multiprocessors = 1});
  run(text("90x72", "3x88x72", "3x90x88", true));
}

TEST(MatmulSm100, KernelsSayWhyTheyAreNot) {
  auto says = [](const std::string &text, const std::string &reason, uint32_t arch = 100) {
    const std::string source = check(matmulSchedule(), {.text = text, .tolerance = 1.2e-2, .arch = arch});
    EXPECT_TRUE(has(source, "// Not by tcgen05: " + reason + ".\n")) << source;
  };
  says(module({.k = 56}), "the products are shorter than 64");
  says(bytes(150, 72, 144, "f8E4M3FN", "f8E4M3FN", true, "f32"),
       "tensor cores sum f8 less exactly than f32 is");
  says(bytes(150, 72, 144, "i8", "i8", true, "bf16"), "on this GPU it does not multiply integers", 103);
}

/// Their sums would have to be scaled at every step.
TEST(MatmulSm100, ScalesOfBlocksAlongKAreForOthers) {
  const std::string text = bytes(150, 72, 256, "f8E4M3FN", "f8E4M3FN", true, "bf16", 128);
  const std::string source = check(matmulSchedule(), {.text = text, .tolerance = 1.2e-2, .arch = 100});
  EXPECT_TRUE(has(source, "gemm_fma<Config>")) << source;
}

/// Until it is measured, mma.sync multiplies; other targets have no such variant.
TEST(MatmulSm100, IsTheOtherKernel) {
  const std::string first = check(matmulSchedule(), {.text = module({}), .tolerance = 1.2e-2, .arch = 100});
  EXPECT_TRUE(has(first, "gemm_mma<Config>")) << first;
  EXPECT_FALSE(has(first, "Not by tcgen05")) << first;
  const std::string workstation =
      check(matmulSchedule(), {.text = module({}), .tolerance = 1.2e-2, .arch = 120});
  EXPECT_FALSE(has(workstation, "tcgen05")) << workstation;
}

} // namespace
} // namespace fusion::test
