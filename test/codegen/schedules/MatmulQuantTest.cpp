// Products of quantised operands: multiplied as bytes, or decoded while they are loaded.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

/// A quantised operand of a matmul [m x k] by [k x n].
struct Quantised {
  std::string type = "i8";  ///< of the quantised values; empty: not quantised
  std::string scale;        ///< shape of the scale; empty: a scalar
  int axis = -1, block = 0;
  bool zero = false;
};

struct Form {
  int m, n, k;
  bool transposeB = false;
  Quantised a, b;
  std::string type = "f32"; ///< of the dequantised elements and of the result
};

std::string shaped(const std::string &shape, const std::string &type) {
  return shape.empty() ? "tensor<" + type + ">" : "tensor<" + shape + "x" + type + ">";
}

/// A group of the dequantisations and the matmul. Arguments: the quantised values, then each operand's scale
/// and zero point.
std::string module(const Form &p) {
  const std::string shapeA = fmt::format("{}x{}", p.m, p.k),
                    shapeB = p.transposeB ? fmt::format("{}x{}", p.n, p.k) : fmt::format("{}x{}", p.k, p.n),
                    result = fmt::format("tensor<{}x{}x{}>", p.m, p.n, p.type);
  std::string arguments, bindings, types, body;
  auto operand = [&](const char *name, const Quantised &q, const std::string &shape) {
    auto add = [&](const std::string &argument, const std::string &type) {
      const std::string comma = arguments.empty() ? "" : ", ";
      arguments += fmt::format("{}%{}: {}", comma, argument, type);
      bindings += fmt::format("{}%{}_ = %{}", comma, argument, argument);
      types += comma + type;
    };
    const std::string wide = shaped(shape, p.type);
    if (q.type.empty()) {
      add(name, wide);
      return fmt::format("%{}_", name);
    }
    const std::string codes = shaped(shape, q.type), scale = shaped(q.scale, "f32"),
                      zero = shaped(q.scale, q.type);
    add(name, codes);
    add(fmt::format("{}s", name), scale);
    if (q.zero)
      add(fmt::format("{}z", name), zero);
    body += fmt::format("%{0}d = nn.dequantize %{0}_, %{0}s_{1} {{axis = {2} : i64, block_size = {3} : i64}} "
                        ": ({4}, {5}{6}) -> {7}\n",
                        name, q.zero ? fmt::format(", %{}z_", name) : "", q.axis, q.block, codes, scale,
                        q.zero ? ", " + zero : "", wide);
    return fmt::format("%{}d", name);
  };
  const std::string a = operand("a", p.a, shapeA), b = operand("b", p.b, shapeB);
  return fmt::format(R"(
    func.func @main({0}) -> {3} {{
      %y = fusion.group "scaled_matmul" schedule "matmul" ({1}) : ({2}) -> {3} {{
        {4}
        %p = nn.matmul {5}, {6} {{transpose_b = {7}}} : ({8}, {9}) -> {3}
        fusion.yield %p : {3}
      }}
      return %y : {3}
    }})",
                     arguments, bindings, types, result, body, a, b, p.transposeB, shaped(shapeA, p.type),
                     shaped(shapeB, p.type));
}

/// Codes over their whole range, scales around a hundredth.
void fill(unsigned index, Tensor &tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto place =
        static_cast<double>((static_cast<uint64_t>(i) * 2654435761u + index * 97u) % 1009u) / 1008.0;
    if (tensor.type() == DType::F32 || tensor.type() == DType::F16 || tensor.type() == DType::BF16)
      set(tensor, i, tensor.size() == 0 ? 0 : 0.005 + 0.01 * place);
    else if (isFloat(tensor.type()))
      set(tensor, i, 20 * place - 10);
    else
      set(tensor, i, std::floor(255.99 * place) - (isSignedInteger(tensor.type()) ? 128 : 0));
  }
}

double toleranceOf(const std::string &type) { return type == "f16" ? 6e-4 : type == "bf16" ? 5e-3 : 3e-6; }

std::string run(const Form &form, double tolerance = 0) {
  return check(matmulSchedule(),
               {module(form), {}, tolerance == 0 ? toleranceOf(form.type) : tolerance, fill});
}

const std::string byteMatmul = "using type = void;";

TEST(MatmulQuant, BytesPerTensorAndPerChannel) {
  for (const char *type : {"i8", "ui8", "f8E4M3FN", "f8E5M2"})
    for (bool transpose : {false, true})
      for (auto [m, n, k] : {std::tuple(70, 56, 160), std::tuple(33, 65, 31), std::tuple(16, 64, 64)}) {
        const Quantised b{type, std::to_string(n), transpose ? 0 : 1};
        EXPECT_NE(run({m, n, k, transpose, {type}, b}).find(byteMatmul), std::string::npos);
      }
}

TEST(MatmulQuant, BytesOfTwoTypes) {
  EXPECT_NE(run({20, 40, 96, true, {"ui8"}, {"i8"}}).find(byteMatmul), std::string::npos);
  EXPECT_NE(run({20, 40, 96, false, {"i8"}, {"ui8"}}).find(byteMatmul), std::string::npos);
  EXPECT_NE(run({20, 40, 96, true, {"f8E4M3FN"}, {"f8E5M2"}}).find(byteMatmul), std::string::npos);
  run({20, 40, 96, false, {"f8E5M2"}, {"i8"}}); // no such instruction: decoded
}

TEST(MatmulQuant, ZeroPointsLeaveTheSum) {
  for (bool transpose : {false, true})
    for (bool left : {false, true})
      for (bool right : {false, true}) {
        const Quantised a{"ui8", "", -1, 0, left}, b{"i8", "56", transpose ? 0 : 1, 0, right};
        EXPECT_NE(run({35, 56, 160, transpose, a, b}).find(byteMatmul), std::string::npos);
      }
  run({17, 9, 37, false, {"ui8", "17", 0, 0, true}, {"ui8", "", -1, 0, true}});
}

TEST(MatmulQuant, ScalesOfRows) {
  EXPECT_NE(run({35, 40, 64, true, {"f8E4M3FN", "35", 0}, {"f8E4M3FN", "40", 0}}).find(byteMatmul),
            std::string::npos);
  // One block as long as the row is a scale of the row.
  EXPECT_NE(run({35, 40, 64, true, {"i8", "35x1", 1, 64}, {"i8", "40x1", 1, 64}}).find(byteMatmul),
            std::string::npos);
}

/// Dequantising to 16 bits rounds, and blocks along k have no common scale: elements are decoded as they are
/// loaded.
TEST(MatmulQuant, DecodedWhileLoading) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool transpose : {false, true}) {
      const Quantised none{""};
      for (const char *codes : {"i8", "f8E4M3FN"}) {
        const bool zero = std::string(codes) == "i8";
        auto matmul = [&](int m, int n, int k, const Quantised &a, const Quantised &b) {
          EXPECT_EQ(run({m, n, k, transpose, a, b, type}).find(byteMatmul), std::string::npos);
        };
        const std::string blocks = transpose ? "72x3" : "3x72";
        matmul(35, 72, 96, none, {codes, blocks, transpose ? 1 : 0, 32, zero});
        matmul(3, 72, 96, none, {codes, "72", transpose ? 0 : 1, 0, zero});
        matmul(7, 9, 37, none, {codes, transpose ? "9x3" : "3x9", transpose ? 1 : 0, 16});
      }
      run({35, 72, 96, transpose, {"i8", "35x2", 1, 48}, {"i8", "72", transpose ? 0 : 1}, type});
      if (std::string(type) != "f32")
        run({35, 72, 96, transpose, {"f8E4M3FN"}, {"f8E5M2", "72", transpose ? 0 : 1}, type});
    }
}

/// Few rows: no tensor cores, each element decoded where it is multiplied.
TEST(MatmulQuant, FewRows) {
  for (bool transpose : {false, true})
    for (int m : {1, 4}) {
      const std::string blocks = transpose ? "72x2" : "2x72";
      run({m, 72, 64, transpose, {""}, {"i8", blocks, transpose ? 1 : 0, 32, true}, "bf16"});
      run({m, 72, 64, transpose, {"f8E4M3FN"}, {"f8E4M3FN", "72", transpose ? 0 : 1}, "f16"});
      run({m, 9, 37, transpose, {"ui8", "", -1, 0, true}, {"i8"}, "f32"});
    }
}

/// Up to 64 rows of 16 bits: codes go from memory to registers and are decoded there.
TEST(MatmulQuant, FewRowsOnTensorCores) {
  for (bool transpose : {false, true})
    for (int m : {6, 13, 64}) {
      const std::string type = m == 13 ? "f16" : "bf16";
      auto narrow = [&](int n, int k, const Quantised &b) {
        const bool ahead = transpose && m <= 32 && b.block != 4; // see MatmulSmallMCodesTest.cpp
        EXPECT_NE(run({m, n, k, transpose, {""}, b, type})
                      .find(ahead ? "gemm_small_m_codes<Config>" : "gemm_small_m<Config>"),
                  std::string::npos);
      };
      const std::string blocks = transpose ? "72x3" : "3x72";
      narrow(72, 96, {"i8", blocks, transpose ? 1 : 0, 32, true});
      narrow(72, 144, {"ui8", "72", transpose ? 0 : 1, 0, true});
      narrow(40, 1104, {"f8E4M3FN", "", -1, 0});
      narrow(72, 48, {"i8", transpose ? "72x12" : "12x72", transpose ? 1 : 0, 4});
    }
  for (bool transpose : {false, true})
    run({5, 2048, 64, transpose, {""}, {"i8", "2048", transpose ? 0 : 1}, "f16"});
}

TEST(MatmulQuant, DeepIntegerSumsAreNotLeftToWrap) {
  // The reference's f32 sums of so many positive terms are off by a few times 1e-5.
  EXPECT_EQ(run({20, 8, 33100, true, {"ui8"}, {"ui8"}}, 1e-4).find(byteMatmul), std::string::npos);
  EXPECT_NE(run({20, 8, 33000, true, {"ui8"}, {"ui8"}}, 1e-4).find(byteMatmul), std::string::npos);
}

TEST(MatmulQuant, LargeTiles) {
  run({1024, 1024, 64, false, {"i8"}, {"i8", "1024", 1}});
  run({1024, 1024, 64, true, {"ui8", "", -1, 0, true}, {"i8", "1024", 0, 0, true}});
  run({1024, 1024, 64, true, {"f8E4M3FN"}, {"f8E4M3FN", "1024", 0}});
  run({1024, 1024, 64, false, {"f8E5M2"}, {"f8E4M3FN", "1024", 1}});
  run({1024, 1024, 64, true, {""}, {"i8", "1024x2", 1, 32}, "f16"});
}

/// MatMulInteger: zero points are subtracted in i32, and the matmul wraps there.
TEST(MatmulQuant, IntegerProducts) {
  for (const char *zero : {"ui8", "40xui8"})
    EXPECT_NE(check(matmulSchedule(), {fmt::format(R"(
    func.func @main(%a: tensor<35x64xui8>, %az: tensor<ui8>, %b: tensor<64x40xui8>, %bz: tensor<{0}>) -> tensor<35x40xf32> {{
      %y = fusion.group "matmul_epilogue" schedule "matmul" (%c = %a, %cz = %az, %d = %b, %dz = %bz)
          : (tensor<35x64xui8>, tensor<ui8>, tensor<64x40xui8>, tensor<{0}>) -> tensor<35x40xf32> {{
        %0 = nn.cast %c : (tensor<35x64xui8>) -> tensor<35x64xi32>
        %1 = nn.cast %cz : (tensor<ui8>) -> tensor<i32>
        %2 = nn.sub %0, %1 : (tensor<35x64xi32>, tensor<i32>) -> tensor<35x64xi32>
        %3 = nn.cast %d : (tensor<64x40xui8>) -> tensor<64x40xi32>
        %4 = nn.cast %dz : (tensor<{0}>) -> tensor<{1}>
        %5 = nn.sub %3, %4 : (tensor<64x40xi32>, tensor<{1}>) -> tensor<64x40xi32>
        %6 = nn.matmul %2, %5 : (tensor<35x64xi32>, tensor<64x40xi32>) -> tensor<35x40xi32>
        %7 = nn.cast %6 : (tensor<35x40xi32>) -> tensor<35x40xf32>
        fusion.yield %7 : tensor<35x40xf32>
      }}
      return %y : tensor<35x40xf32>
    }})",
                                                   zero, std::string(zero) == "ui8" ? "i32" : "40xi32"),
                                       {},
                                       0,
                                       fill})
                  .find(byteMatmul),
              std::string::npos);
}

/// Products side by side and together, of quantised weights.
TEST(MatmulQuant, SeveralProducts) {
  for (bool together : {false, true})
    for (const char *type : {"f32", "f16"})
      check(matmulSchedule(),
            {fmt::format(R"(
    func.func @main(%x: tensor<35x64xi8>, %s: tensor<f32>, %g: tensor<64x72xi8>, %gs: tensor<72xf32>,
                    %u: tensor<64x72xi8>, %us: tensor<72xf32>) -> (tensor<35x72x{0}>{1}) {{
      %y{2} = fusion.group "g" schedule "matmul" (%a = %x, %as = %s, %b = %g, %bs = %gs, %c = %u, %cs = %us)
          : (tensor<35x64xi8>, tensor<f32>, tensor<64x72xi8>, tensor<72xf32>, tensor<64x72xi8>, tensor<72xf32>)
            -> (tensor<35x72x{0}>{1}) {{
        %0 = nn.dequantize %a, %as : (tensor<35x64xi8>, tensor<f32>) -> tensor<35x64x{0}>
        %1 = nn.dequantize %b, %bs {{axis = 1 : i64}} : (tensor<64x72xi8>, tensor<72xf32>) -> tensor<64x72x{0}>
        %2 = nn.dequantize %c, %cs {{axis = 1 : i64}} : (tensor<64x72xi8>, tensor<72xf32>) -> tensor<64x72x{0}>
        %3 = nn.matmul %0, %1 : (tensor<35x64x{0}>, tensor<64x72x{0}>) -> tensor<35x72x{0}>
        %4 = nn.matmul %0, %2 : (tensor<35x64x{0}>, tensor<64x72x{0}>) -> tensor<35x72x{0}>
        %5 = nn.mul %3, %4 : (tensor<35x72x{0}>, tensor<35x72x{0}>) -> tensor<35x72x{0}>
        fusion.yield {3}
      }}
      return {4}
    }})",
                         type, together ? "" : fmt::format(", tensor<35x72x{}>", type), together ? "" : ":2",
                         together ? fmt::format("%5 : tensor<35x72x{}>", type)
                                  : fmt::format("%3, %4 : tensor<35x72x{0}>, tensor<35x72x{0}>", type),
                         together ? fmt::format("%y : tensor<35x72x{}>", type)
                                  : fmt::format("%y#0, %y#1 : tensor<35x72x{0}>, tensor<35x72x{0}>", type)),
             {},
             std::string(type) == "f32" ? 3e-6 : 1.5e-3,
             fill});
}

/// After the matmul: a scale a column, a scale a row, and blocks of columns; and back.
TEST(MatmulQuant, ScalesAfterTheMatmul) {
  for (int m : {3, 35})
    for (auto [scale, axis, block] :
         {std::tuple("40", 1, 0), std::tuple("", 0, 0), std::tuple("{}x5", 1, 8)}) {
      const std::string rows = std::to_string(m), shape = fmt::format(fmt::runtime(scale), m);
      const std::string scales = shaped(axis == 0 ? rows : shape, "f32"),
                        zeros = shaped(axis == 0 ? rows : shape, "i8");
      check(matmulSchedule(), {fmt::format(R"(
    func.func @main(%a: tensor<{0}x64xf16>, %b: tensor<64x40xf16>, %s: {1}, %z: {2}) -> (tensor<{0}x40xi8>, tensor<{0}x40xf16>) {{
      %y, %x = fusion.group "matmul_epilogue" schedule "matmul" (%c = %a, %d = %b, %t = %s, %w = %z)
          : (tensor<{0}x64xf16>, tensor<64x40xf16>, {1}, {2}) -> (tensor<{0}x40xi8>, tensor<{0}x40xf16>) {{
        %0 = nn.matmul %c, %d : (tensor<{0}x64xf16>, tensor<64x40xf16>) -> tensor<{0}x40xf16>
        %1 = nn.quantize %0, %t, %w {{axis = {3} : i64, block_size = {4} : i64}} : (tensor<{0}x40xf16>, {1}, {2}) -> tensor<{0}x40xi8>
        %2 = nn.dequantize %1, %t, %w {{axis = {3} : i64, block_size = {4} : i64}} : (tensor<{0}x40xi8>, {1}, {2}) -> tensor<{0}x40xf16>
        fusion.yield %1, %2 : tensor<{0}x40xi8>, tensor<{0}x40xf16>
      }}
      return %y, %x : tensor<{0}x40xi8>, tensor<{0}x40xf16>
    }})",
                                           m, scales, zeros, axis, block),
                               {},
                               1e-2}); // one step where a sum is rounded the other way
    }
}

TEST(MatmulQuant, RefusalsNameTheReason) {
  EXPECT_NE(refusal(matmulSchedule(), R"(
    func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xi8> {
      %y, %z = fusion.group "g" schedule "matmul" (%c = %a, %d = %b)
          : (tensor<4x8xf32>, tensor<8x4xf32>) -> (tensor<4x4xi8>, tensor<4x1xf32>) {
        %0 = nn.matmul %c, %d : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        %1, %2 = nn.dynamic_quantize %0 : (tensor<4x4xf32>) -> (tensor<4x4xi8>, tensor<4x1xf32>)
        fusion.yield %1, %2 : tensor<4x4xi8>, tensor<4x1xf32>
      }
      return %y : tensor<4x4xi8>
    })")
                .find("nn.dynamic_quantize needs the largest element of whole rows"),
            std::string::npos);
  EXPECT_NE(refusal(matmulSchedule(), R"(
    func.func @main(%a: tensor<4x8xi8>, %s: tensor<f32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> {
      %y, %z = fusion.group "g" schedule "matmul" (%c = %a, %t = %s, %d = %b)
          : (tensor<4x8xi8>, tensor<f32>, tensor<8x4xf32>) -> (tensor<4x4xf32>, tensor<4x8xf32>) {
        %0 = nn.dequantize %c, %t : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
        %1 = nn.matmul %0, %d : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        fusion.yield %1, %0 : tensor<4x4xf32>, tensor<4x8xf32>
      }
      return %y : tensor<4x4xf32>
    })")
                .find("nn.dequantize of an operand is a result"),
            std::string::npos);
}

} // namespace
} // namespace fusion::test
