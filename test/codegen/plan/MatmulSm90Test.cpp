// Matmuls of many rows on sm_90a: see gemm_sm90.cuh.
#include "PlanChecks.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) { return type == "f16" ? 2e-3 : 1.2e-2; }

std::string tensor(const std::string &shape, const std::string &type) {
  return fmt::format("tensor<{}x{}>", shape, type);
}

/// %y, of `shape` and `type`, made of %p, the product, which has the type `product`, and what else there is.
struct After {
  std::string arguments, operands, types; ///< ", %b: tensor<…>", ", %e = %b", ", tensor<…>"
  std::string ops;
};

struct Form {
  std::string m = "200"; ///< rows; "?" is the symbol "rows"
  int n = 264, k = 136;
  std::string type = "bf16", product, result; ///< none: `type`
  bool transposeB = true;
};

std::string typeOr(const std::string &type, const Form &f) { return type.empty() ? f.type : type; }

std::string module(const Form &f, const After &after) {
  const std::string product = typeOr(f.product, f), result = typeOr(f.result, f);
  const std::string x = tensor(fmt::format("{}x{}", f.m, f.k), f.type),
                    w = tensor(f.transposeB ? fmt::format("{}x{}", f.n, f.k) : fmt::format("{}x{}", f.k, f.n),
                               f.type),
                    p = tensor(fmt::format("{}x{}", f.m, f.n), product),
                    y = tensor(fmt::format("{}x{}", f.m, f.n), result);
  const std::string dims = f.m == "?" ? fmt::format(" {{nn.dims = [\"rows\", {}]}}", f.k) : "";
  return fmt::format(R"(
func.func @main(%x: {0}{8}, %w: {1}{4}) -> {3} {{
  %0 = fusion.group "g" schedule "matmul" (%a = %x, %c = %w{5}) : ({0}, {1}{6}) -> {3} {{
    %p = nn.matmul %a, %c {{transpose_b = {9}}} : ({0}, {1}) -> {2}
{7}
    fusion.yield %y : {3}
  }}
  return %0 : {3}
}})",
                     x, w, p, y, after.arguments, after.operands, after.types, after.ops, dims, f.transposeB);
}

After biasGelu(const Form &f) {
  const std::string b = tensor(std::to_string(f.n), f.type),
                    t = tensor(fmt::format("{}x{}", f.m, f.n), f.type);
  return {", %b: " + b, ", %d = %b", ", " + b,
          fmt::format("    %q = nn.add %p, %d : ({0}, {1}) -> {0}\n    %y = nn.gelu %q {{approximate = "
                      "\"tanh\"}} : ({0}) -> {0}",
                      t, b)};
}

After residual(const Form &f) {
  const std::string t = tensor(fmt::format("{}x{}", f.m, f.n), f.type);
  const std::string dims = f.m == "?" ? fmt::format(" {{nn.dims = [\"rows\", {}]}}", f.n) : "";
  return {", %r: " + t + dims, ", %d = %r", ", " + t,
          fmt::format("    %y = nn.add %p, %d : ({0}, {0}) -> {0}", t)};
}

/// That the many rows are multiplied by gemm_sm90, and what it computes.
void run(const std::string &text, const std::string &type, SymbolValues symbols = {}) {
  auto module = parse(text);
  ASSERT_TRUE(module);
  auto plan = buildPlan(mainOf(*module), {});
  ASSERT_TRUE(bool(plan)) << plan.error().message;
  EXPECT_TRUE(llvm::any_of(plan->kernels, [](const KernelPlan &kernel) {
    return kernel.source.find("gemm_sm90<Config>") != std::string::npos;
  })) << text;
  check(text, {.symbols = std::move(symbols), .tolerance = toleranceOf(type), .targets = Targets::One});
}

TEST(MatmulSm90, SizesAndLayouts) {
  for (const char *type : {"bf16", "f16"})
    for (auto [m, n, k] : {std::tuple(165, 64, 64), std::tuple(129, 328, 72), std::tuple(300, 1096, 200),
                           std::tuple(170, 140, 520)})
      for (bool transposeB : {true, false}) {
        if ((!transposeB && n % 8 != 0) || (type == std::string("f16") && n > 328))
          continue;
        const Form f{.m = std::to_string(m), .n = n, .k = k, .type = type, .transposeB = transposeB};
        run(module(f, m == 129 ? residual(f) : biasGelu(f)), type);
      }
}

/// A device of one multiprocessor: one block takes all tiles, which are as wide as columns are there.
void runOnOne(const std::string &text, const std::string &tile) {
  TargetInfo device = TargetInfo::standard();
  device.multiprocessors = 1;
  auto module = parse(text);
  auto plan = buildPlan(mainOf(*module), {.device = device});
  ASSERT_TRUE(bool(plan)) << plan.error().message;
  EXPECT_NE(plan->kernels.front().source.find(tile), std::string::npos) << plan->kernels.front().source;
  check(text, {.tolerance = 1.2e-2, .device = device, .targets = Targets::One});
}

TEST(MatmulSm90, TilesOneAfterTheOther) {
  // k is short, as long as an epilogue has pieces, and longer: the widest tile with every epilogue at every
  // k, the others with each once.
  for (int n : {64, 176, 208, 224, 256, 520})
    for (int k : {72, 520, 1000}) {
      if (n != 256 && k > 520)
        continue;
      const Form f{.m = "330", .n = n, .k = k};
      const std::string tile = fmt::format("tile_n = {}", n == 520 ? 176 : n);
      if (n == 256 || n == 64 || k == 72)
        runOnOne(module(f, biasGelu(f)), tile);
      if (n == 256 || (n != 64 && k == 520))
        runOnOne(module(f, residual(f)), tile);
    }
  const Form byDepth{.m = "330", .n = 192, .k = 200, .transposeB = false};
  runOnOne(module(byDepth, residual(byDepth)), "tile_n = 192");
  const Form wide{.m = "400", .n = 72, .k = 96, .product = "f32", .result = "f32"};
  runOnOne(
      module(wide, {"", "", "", fmt::format("    %y = nn.silu %p : ({0}) -> {0}", tensor("400x72", "f32"))}),
      "tile_n = 80");
}

TEST(MatmulSm90, ColumnsThatAreNoVectors) {
  for (int n : {66, 67, 132, 261}) {
    const Form f{.m = "140", .n = n, .k = 80, .type = n == 132 ? "f16" : "bf16"};
    run(module(f, biasGelu(f)), f.type);
    run(module(f, residual(f)), f.type);
  }
}

TEST(MatmulSm90, AnyNumberOfRows) {
  const Form f{.m = "?", .n = 520, .k = 72};
  for (int64_t rows : {0, 1, 17, 64, 65, 128, 257, 700})
    run(module(f, residual(f)), f.type, {{"rows", rows}});
}

TEST(MatmulSm90, OtherResults) {
  // Sums that are not rounded, and ones that are and then are something else.
  for (int n : {72, 67}) {
    Form f{.m = "150", .n = n, .k = 96, .type = "f16", .product = "f32", .result = "f32"};
    const std::string t = tensor(fmt::format("150x{}", n), "f32");
    run(module(f, {"", "", "", fmt::format("    %y = nn.silu %p : ({0}) -> {0}", t)}), "f16");
    f = {.m = "150", .n = n, .k = 96, .result = "f32"};
    run(module(f, {"", "", "",
                   fmt::format("    %y = nn.cast %p : ({}) -> {}", tensor(fmt::format("150x{}", n), "bf16"),
                               t)}),
        "bf16");
    f.result = "i8";
    run(module(f, {", %s: tensor<bf16>", ", %d = %s", ", tensor<bf16>",
                   fmt::format("    %y = nn.quantize %p, %d : ({}, tensor<bf16>) -> {}",
                               tensor(fmt::format("150x{}", n), "bf16"),
                               tensor(fmt::format("150x{}", n), "i8"))}),
        "bf16");
  }
}

/// silu(x gate) * (x up), of two matrices, or of one that has both, by halves or in turn.
std::string gated(int m, int n, int k, const std::string &packed) {
  const std::string x = tensor(fmt::format("{}x{}", m, k), "bf16"),
                    w = tensor(fmt::format("{}x{}", n, k), "bf16"),
                    y = tensor(fmt::format("{}x{}", m, n), "bf16"),
                    both = tensor(fmt::format("{}x{}", 2 * n, k), "bf16");
  const bool isPacked = !packed.empty(), inTurn = packed == "in turn";
  auto slice = [&](int number) {
    return fmt::format("    %{} = nn.slice %w {{starts = [{}, 0], sizes = [{}, {}], steps = array<i64: {}, "
                       "1>}} : ({}) -> {}\n",
                       number == 0 ? "c" : "d", inTurn ? number : number * n, n, k, inTurn ? 2 : 1, both, w);
  };
  return fmt::format(R"(
func.func @main(%x: {0}, {6}) -> {2} {{
  %0 = fusion.group "g" schedule "matmul" (%a = %x, {4}) : ({0}, {5}) -> {2} {{
{3}    %g = nn.matmul %a, %c {{transpose_b = true}} : ({0}, {1}) -> {2}
    %u = nn.matmul %a, %d {{transpose_b = true}} : ({0}, {1}) -> {2}
    %s = nn.silu %g : ({2}) -> {2}
    %y = nn.mul %s, %u : ({2}, {2}) -> {2}
    fusion.yield %y : {2}
  }}
  return %0 : {2}
}})",
                     x, w, y, isPacked ? slice(0) + slice(1) : "", isPacked ? "%w = %v" : "%c = %v, %d = %u0",
                     isPacked ? both : w + ", " + w,
                     isPacked ? "%v: " + both : fmt::format("%v: {0}, %u0: {0}", w));
}

TEST(MatmulSm90, TwoAccumulators) {
  for (auto [m, n, k] : {std::tuple(130, 264, 136), std::tuple(170, 66, 600)})
    for (const char *packed : {"", "halves", "in turn"})
      run(gated(m, n, k, packed), "bf16");
}

TEST(MatmulSm90, TwoAccumulatorsOneTileAfterTheOther) {
  for (int n : {112, 128, 200})
    for (int k : {136, 600})
      runOnOne(gated(300, n, k, ""), n == 200 ? "tile_n = 112" : fmt::format("tile_n = {}", n));
}

TEST(MatmulSm90, SideBySide) {
  const std::string text = R"(
func.func @main(%x: tensor<150x136xbf16>, %q: tensor<264x136xbf16>, %k: tensor<72x136xbf16>, %v: tensor<96x136xbf16>, %b: tensor<72xbf16>)
    -> (tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>) {
  %0:3 = fusion.group "g" schedule "matmul" (%a = %x, %c = %q, %d = %k, %e = %v, %f = %b) : (tensor<150x136xbf16>, tensor<264x136xbf16>, tensor<72x136xbf16>, tensor<96x136xbf16>, tensor<72xbf16>) -> (tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>) {
    %1 = nn.matmul %a, %c {transpose_b = true} : (tensor<150x136xbf16>, tensor<264x136xbf16>) -> tensor<150x264xbf16>
    %2 = nn.matmul %a, %d {transpose_b = true} : (tensor<150x136xbf16>, tensor<72x136xbf16>) -> tensor<150x72xbf16>
    %3 = nn.matmul %a, %e {transpose_b = true} : (tensor<150x136xbf16>, tensor<96x136xbf16>) -> tensor<150x96xbf16>
    %4 = nn.add %2, %f : (tensor<150x72xbf16>, tensor<72xbf16>) -> tensor<150x72xbf16>
    fusion.yield %1, %4, %3 : tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>
  }
  return %0#0, %0#1, %0#2 : tensor<150x264xbf16>, tensor<150x72xbf16>, tensor<150x96xbf16>
})";
  run(text, "bf16");
  runOnOne(text, "tile_n = ");
}

TEST(MatmulSm90, Batches) {
  auto text = [](const char *a, const char *b, const char *y, bool transpose) {
    return fmt::format(R"(
func.func @main(%x: tensor<{0}xbf16>, %w: tensor<{1}xbf16>) -> tensor<{2}xbf16> {{
  %0 = nn.matmul %x, %w {{transpose_b = {3}}} : (tensor<{0}xbf16>, tensor<{1}xbf16>) -> tensor<{2}xbf16>
  return %0 : tensor<{2}xbf16>
}})",
                       a, b, y, transpose);
  };
  run(text("3x90x72", "3x88x72", "3x90x88", true), "bf16");
  run(text("2x3x90x72", "2x3x72x88", "2x3x90x88", false), "bf16");
  runOnOne(text("2x3x290x72", "2x3x88x72", "2x3x290x88", true), "tile_n = 96");
  run(text("90x72", "3x88x72", "3x90x88", true), "bf16"); // A is the same for all
  run(text("3x90x72", "88x72", "3x90x88", true), "bf16"); // the batch becomes rows
}

TEST(MatmulSm90, WhatOtherKernelsMultiply) {
  auto uses = [](const std::string &text, const char *target) {
    auto module = parse(text);
    auto plan = buildPlan(mainOf(*module), {.target = target});
    EXPECT_TRUE(bool(plan)) << plan.error().message;
    return llvm::any_of(plan->kernels, [](const KernelPlan &kernel) {
      return kernel.source.find("gemm_sm90<") != std::string::npos;
    });
  };
  const Form f;
  EXPECT_TRUE(uses(module(f, biasGelu(f)), "sm_90a"));
  EXPECT_FALSE(uses(module(f, biasGelu(f)), "sm_80"));
  EXPECT_FALSE(uses(module(f, biasGelu(f)), "sm_100a"));
  for (const Form &other : {Form{.m = "16"}, Form{.type = "f32"}})
    EXPECT_FALSE(uses(module(other, biasGelu(other)), "sm_90a"));
}

TEST(MatmulSm90, KernelsSayWhyTheyAreNot) {
  auto says = [](const Form &form, const std::string &reason) {
    auto parsed = parse(module(form, biasGelu(form)));
    auto plan = buildPlan(mainOf(*parsed), {.target = "sm_90a"});
    ASSERT_TRUE(bool(plan)) << plan.error().message;
    EXPECT_TRUE(llvm::any_of(plan->kernels, [&](const KernelPlan &kernel) {
      return kernel.source.find("// Not by warpgroups and TMA: " + reason + ".\n") != std::string::npos;
    })) << plan->kernels.front().source;
  };
  says({.k = 56}, "the products are shorter than 64");
  says({.k = 100}, "the second operand is decoded, or its rows are no multiple of 16 bytes apart");
  says({.n = 100, .transposeB = false},
       "the second operand is decoded, or its rows are no multiple of 16 bytes apart");
  says({.n = 56}, "there are fewer than 64 columns");
}

} // namespace
} // namespace fusion::test
