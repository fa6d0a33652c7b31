// gemm_sm90 of quantised operands: tensor cores multiply their bytes.
#include "PlanChecks.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

std::string tensor(const std::string &shape, const std::string &type) {
  return fmt::format("tensor<{}x{}>", shape, type);
}

/// Bytes: quantised operands, [m x k] and [n x k], dequantised to f32. Scales: none, one, one of each row.
struct Bytes {
  int m, n, k;
  std::string a = "f8E4M3FN", b = "f8E4M3FN", scaleA = "", scaleB = "", type = "bf16"; ///< of the result
  bool zero = false, blocks = false; ///< blocks: scales of 128 along k
  int repeats = 1;                   ///< so many rows of the second operand have one row of scaleB
};

/// %r, each row of %d several times.
std::string repeating(const Bytes &f) {
  const int rows = f.n / f.repeats, deep = f.k / 128;
  const std::string from = tensor(f.scaleB, "f32"), apart = tensor(fmt::format("{}x1x{}", rows, deep), "f32"),
                    wide = tensor(fmt::format("{}x{}x{}", rows, f.repeats, deep), "f32"),
                    to = tensor(fmt::format("{}x{}", f.n, deep), "f32");
  return fmt::format(R"(    %u = nn.reshape %d {{shape = [{4}, 1, {6}]}} : ({0}) -> {1}
    %v = nn.expand %u {{shape = [{4}, {5}, {6}]}} : ({1}) -> {2}
    %r = nn.reshape %v {{shape = [{7}, {6}]}} : ({2}) -> {3}
)",
                     from, apart, wide, to, rows, f.repeats, deep, f.n);
}

/// What follows the product, %p of f32, to make %y of `type`.
std::string bytesModule(const Bytes &f, const std::string &ops = "") {
  const std::string x = tensor(fmt::format("{}x{}", f.m, f.k), f.a),
                    w = tensor(fmt::format("{}x{}", f.n, f.k), f.b),
                    wideX = tensor(fmt::format("{}x{}", f.m, f.k), "f32"),
                    wideW = tensor(fmt::format("{}x{}", f.n, f.k), "f32"),
                    p = tensor(fmt::format("{}x{}", f.m, f.n), "f32"),
                    y = tensor(fmt::format("{}x{}", f.m, f.n), f.type),
                    s = f.scaleA.empty() ? "tensor<f32>" : tensor(f.scaleA, "f32"),
                    t = f.scaleB.empty() ? "tensor<f32>" : tensor(f.scaleB, "f32"),
                    z = f.scaleA.empty() ? "tensor<" + f.a + ">" : tensor(f.scaleA, f.a),
                    repeated = f.repeats == 1 ? t : tensor(fmt::format("{}x{}", f.n, f.k / 128), "f32"),
                    last = f.type == "f32" ? "" : fmt::format("    %y = nn.cast %p : ({}) -> {}\n", p, y);
  return fmt::format(R"(
func.func @main(%x: {0}, %s: {1}, %w: {2}, %t: {3}{10}) -> {4} {{
  %0 = fusion.group "g" schedule "matmul" (%a = %x, %b = %s, %c = %w, %d = %t{11}) : ({0}, {1}, {2}, {3}{12}) -> {4} {{
    %e = nn.dequantize %a, %b{13} {{{15}}} : ({0}, {1}{12}) -> {5}
{16}    %f = nn.dequantize %c, %{17} {{{15}}} : ({2}, {18}) -> {6}
    %{14} = nn.matmul %e, %f {{transpose_b = true}} : ({5}, {6}) -> {7}
{8}{9}    fusion.yield %y : {4}
  }}
  return %0 : {4}
}})",
                     x, s, w, t, y, wideX, wideW, p, ops, ops.empty() ? last : "", f.zero ? ", %z: " + z : "",
                     f.zero ? ", %h = %z" : "", f.zero ? ", " + z : "", f.zero ? ", %h" : "",
                     f.type == "f32" && ops.empty() ? "y" : "p",
                     f.blocks ? "axis = 1 : i64, block_size = 128 : i64" : "axis = 0 : i64",
                     f.repeats == 1 ? "" : repeating(f), f.repeats == 1 ? "d" : "r", repeated);
}

/// That gemm_sm90 multiplies them, in tiles as `holds` says, what it computes, and that it compiles.
void runBytes(const Bytes &f, double tolerance,
              const std::string &holds = "tile_n = ", const std::string &ops = "",
              std::optional<TargetInfo> device = {}) {
  const std::string text = bytesModule(f, ops);
  auto module = parse(text);
  ASSERT_TRUE(module) << text;
  auto plan = buildPlan(mainOf(*module), {.device = device});
  ASSERT_TRUE(bool(plan)) << plan.error().message;
  const std::string &source = plan->kernels.front().source;
  EXPECT_NE(source.find("gemm_sm90_bytes.cuh"), std::string::npos) << source;
  EXPECT_NE(source.find(holds), std::string::npos) << source;
  check(text, {.tolerance = tolerance, .device = device, .targets = Targets::One});
}

std::optional<TargetInfo> oneMultiprocessor() {
  TargetInfo device = TargetInfo::standard();
  device.multiprocessors = 1;
  return device;
}

TEST(MatmulSm90Bytes, F8WithScales) {
  runBytes({.m = 140, .n = 72, .k = 144}, 5e-3);
  runBytes({.m = 300, .n = 268, .k = 400, .scaleA = "300", .scaleB = "268"}, 5e-3, "tile_n = ", "",
           oneMultiprocessor());
  runBytes({.m = 129, .n = 131, .k = 128, .b = "f8E5M2", .scaleB = "131"}, 5e-3);
  // Less than the rounding to f16: sums of a few steps are added in f32.
  runBytes({.m = 170, .n = 320, .k = 1184, .scaleA = "170", .type = "f16"}, 1e-3, "exact_steps = 5", "",
           oneMultiprocessor());
  // Results of 8 bits, by way of f32.
  runBytes({.m = 150, .n = 72, .k = 160, .type = "f8E4M3FN"}, 4e-2, "result = f32",
           "    %q = nn.silu %p : (tensor<150x72xf32>) -> tensor<150x72xf32>\n"
           "    %y = nn.quantize %q, %b : (tensor<150x72xf32>, tensor<f32>) -> tensor<150x72xf8E4M3FN>\n");
}

TEST(MatmulSm90Bytes, F8SumsAreAddedExactlyWhereTheyAreLong) {
  auto holds = [](const Bytes &f) {
    auto module = parse(bytesModule(f));
    auto plan = buildPlan(mainOf(*module), {.target = "sm_90a"});
    return plan && plan->kernels.front().source.find("exact_steps") != std::string::npos;
  };
  EXPECT_FALSE(holds({.m = 4096, .n = 4096, .k = 8192}));
  EXPECT_TRUE(holds({.m = 4096, .n = 4096, .k = 8320}));
  EXPECT_TRUE(holds({.m = 4096, .n = 4096, .k = 4096, .type = "f16"}));
  EXPECT_FALSE(holds({.m = 4096, .n = 4096, .k = 8320, .a = "i8", .b = "i8"}));
}

TEST(MatmulSm90Bytes, ScalesOfBlocksAlongK) {
  // Epilogues that end behind the steps of the next tile, and ones that do not fit there.
  runBytes({.m = 150, .n = 248, .k = 1280, .scaleA = "150x10", .scaleB = "248x10", .blocks = true}, 5e-3,
           "tile_n = 128", "", oneMultiprocessor());
  runBytes({.m = 200, .n = 168, .k = 400, .scaleA = "200x4", .scaleB = "168x4", .blocks = true}, 5e-3,
           "tile_n = 96", "", oneMultiprocessor());
  runBytes({.m = 140,
            .n = 67,
            .k = 384,
            .a = "i8",
            .b = "i8",
            .scaleA = "140x3",
            .scaleB = "67x3",
            .type = "f32",
            .blocks = true},
           3e-6, "scaled_steps = true");
}

TEST(MatmulSm90Bytes, ScalesOfBlocksOfRowsAndColumns) {
  // A tile's columns lie in one block: two warps bring the products of both operands' scales.
  runBytes(
      {.m = 150, .n = 256, .k = 1280, .scaleA = "150x10", .scaleB = "2x10", .blocks = true, .repeats = 128},
      5e-3, "one_column_scale = true", "", oneMultiprocessor());
  runBytes({.m = 130,
            .n = 512,
            .k = 384,
            .a = "i8",
            .b = "i8",
            .scaleA = "130x3",
            .scaleB = "2x3",
            .type = "f32",
            .blocks = true,
            .repeats = 256},
           3e-6, "scaled_steps = true");
  // Blocks narrower than tiles.
  runBytes({.m = 131, .n = 192, .k = 640, .scaleA = "131x5", .scaleB = "6x5", .blocks = true, .repeats = 32},
           5e-3, "one_column_scale = false");
}

TEST(MatmulSm90Bytes, FewRowsWithScalesOfBlocksOfRowsAndColumns) {
  for (int rows : {1, 3, 9, 33})
    check(bytesModule({.m = rows,
                       .n = 256,
                       .k = 640,
                       .scaleA = fmt::format("{}x5", rows),
                       .scaleB = "2x5",
                       .blocks = true,
                       .repeats = 128}),
          {.tolerance = 5e-3, .targets = Targets::One});
}

TEST(MatmulSm90Bytes, IntegersOfBytes) {
  runBytes({.m = 150, .n = 136, .k = 208, .a = "i8", .b = "i8", .scaleA = "150", .scaleB = "136"}, 5e-3);
  runBytes({.m = 300, .n = 67, .k = 144, .a = "ui8", .b = "i8", .scaleB = "67", .type = "f32"}, 3e-6,
           "result = f32", "", oneMultiprocessor());
  const std::string text = R"(
func.func @main(%x: tensor<150x144xi8>, %w: tensor<72x144xui8>) -> tensor<150x72xi32> {
  %0 = fusion.group "g" schedule "matmul" (%a = %x, %b = %w) : (tensor<150x144xi8>, tensor<72x144xui8>) -> tensor<150x72xi32> {
    %c = nn.cast %a : (tensor<150x144xi8>) -> tensor<150x144xi32>
    %d = nn.cast %b : (tensor<72x144xui8>) -> tensor<72x144xi32>
    %y = nn.matmul %c, %d {transpose_b = true} : (tensor<150x144xi32>, tensor<72x144xi32>) -> tensor<150x72xi32>
    fusion.yield %y : tensor<150x72xi32>
  }
  return %0 : tensor<150x72xi32>
})";
  check(text, {.targets = Targets::One});
}

TEST(MatmulSm90Bytes, BytesThatOtherKernelsMultiply) {
  auto says = [](const std::string &text, const std::string &reason) {
    auto parsed = parse(text);
    ASSERT_TRUE(parsed) << text;
    auto plan = buildPlan(mainOf(*parsed), {.target = "sm_90a"});
    ASSERT_TRUE(bool(plan)) << plan.error().message;
    EXPECT_NE(plan->kernels.front().source.find("// Not by warpgroups and TMA: " + reason + ".\n"),
              std::string::npos)
        << plan->kernels.front().source;
  };
  says(bytesModule({.m = 150, .n = 72, .k = 144, .type = "f32"}),
       "tensor cores sum f8 less exactly than f32 is");
  says(bytesModule({.m = 150, .n = 72, .k = 144, .a = "ui8", .b = "i8", .zero = true}),
       "there are zero points");
  says(bytesModule({.m = 150, .n = 72, .k = 136}),
       "the second operand is decoded, or its rows are no multiple of 16 bytes apart");
  says(bytesModule({.m = 150, .n = 72, .k = 96}), "the products are shorter than 128");
  std::string byColumns = bytesModule({.m = 150, .n = 144, .k = 144});
  byColumns.replace(byColumns.find("transpose_b = true"), 18, "transpose_b = false");
  says(byColumns, "the second operand's bytes do not lie along k");
}

} // namespace
} // namespace fusion::test
