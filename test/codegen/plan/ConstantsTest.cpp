// Constants at the ends of their types, through every schedule that writes them as literals.
#include "PlanChecks.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

struct Typed {
  const char *type;
  std::vector<const char *> values; ///< as MLIR writes them
};

const std::vector<Typed> integers = {
    {"i8", {"-128", "-2", "0", "127"}},
    {"ui8", {"0", "128", "200", "255"}},
    {"i16", {"-32768", "-2", "32767"}},
    {"ui16", {"0", "32768", "65535"}},
    {"i32", {"-2147483648", "-2", "2147483647"}},
    {"ui32", {"0", "2147483648", "4294967295"}},
    // Neighbours of 2^53 and 2^63, which f64 does not have.
    {"i64",
     {"-9223372036854775808", "-9223372036854775807", "-9007199254740993", "-2", "9007199254740993",
      "9223372036854775807"}},
    {"ui64", {"0", "9007199254740993", "9223372036854775808", "9223372036854775809", "18446744073709551615"}},
};

/// Zeros of both signs, the smallest denormal and its negative, the largest finite number and its negative,
/// infinities, NaN.
const std::vector<Typed> floats = {
    {"f16", {"0x0000", "0x8000", "0x0001", "0x8001", "0x7BFF", "0xFBFF", "0x7C00", "0xFC00", "0x7E00"}},
    {"bf16", {"0x0000", "0x8000", "0x0001", "0x8001", "0x7F7F", "0xFF7F", "0x7F80", "0xFF80", "0x7FC0"}},
    {"f32",
     {"0x00000000", "0x80000000", "0x00000001", "0x807FFFFF", "0x7F7FFFFF", "0xFF7FFFFF", "0x7F800000",
      "0xFF800000", "0x7FC00000"}},
    {"f64",
     {"0x0000000000000000", "0x8000000000000000", "0x0000000000000001", "0x7FEFFFFFFFFFFFFF",
      "0xFFEFFFFFFFFFFFFF", "0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000",
      "0x3FF0000000000001"}},
    {"f8E4M3FN", {"0x00", "0x80", "0x01", "0x81", "0x7E", "0xFE", "0x7F"}},
    {"f8E5M2", {"0x00", "0x80", "0x01", "0x81", "0x7B", "0xFB", "0x7C", "0xFC", "0x7E"}},
};

std::string constant(const char *name, const char *value, const std::string &type) {
  return fmt::format("%{} = nn.constant {{value = dense<{}> : {}}} : () -> {}\n", name, value, type, type);
}

/// Element by element: chosen by a condition, compared with, at the edge of a pad, one part of a concat; by
/// vectors where the shapes allow it, and through a transpose, where not.
std::string elementwise(const char *type, const char *value) {
  const std::string scalar = fmt::format("tensor<{}>", type), edge = fmt::format("tensor<4x2x{}>", type),
                    x = fmt::format("tensor<4x8x{}>", type), turned = fmt::format("tensor<8x4x{}>", type),
                    wide = fmt::format("tensor<4x10x{}>", type);
  return fmt::format(
      R"(func.func @main(%x: {x}, %b: tensor<4x8xi1>, %t: tensor<8x4xi1>) -> ({x}, tensor<4x8xi1>, {wide}, {wide}, {turned}) {{
    {c}{e}
    %0 = nn.where %b, %x, %c : (tensor<4x8xi1>, {x}, {scalar}) -> {x}
    %1 = nn.less %x, %c : ({x}, {scalar}) -> tensor<4x8xi1>
    %2 = nn.pad %x, %c {{low = [0, 1], high = [0, 1]}} : ({x}, {scalar}) -> {wide}
    %3 = nn.concat %x, %e {{axis = 1 : i64}} : ({x}, {edge}) -> {wide}
    %u = nn.transpose %x {{perm = array<i64: 1, 0>}} : ({x}) -> {turned}
    %4 = nn.where %t, %u, %c : (tensor<8x4xi1>, {turned}, {scalar}) -> {turned}
    return %0, %1, %2, %3, %4 : {x}, tensor<4x8xi1>, {wide}, {wide}, {turned}
  }})",
      fmt::arg("x", x), fmt::arg("wide", wide), fmt::arg("turned", turned), fmt::arg("scalar", scalar),
      fmt::arg("edge", edge), fmt::arg("c", constant("c", value, scalar)),
      fmt::arg("e", constant("e", value, edge)));
}

TEST(Constants, Integers) {
  for (const Typed &each : integers)
    for (const char *value : each.values) {
      SCOPED_TRACE(fmt::format("{} {}", each.type, value));
      check(elementwise(each.type, value), {.targets = Targets::One});
    }
}

TEST(Constants, Floats) {
  for (const Typed &each : floats)
    for (const char *value : each.values) {
      SCOPED_TRACE(fmt::format("{} {}", each.type, value));
      check(elementwise(each.type, value), {.tolerance = 0, .targets = Targets::One});
    }
}

/// Signs of zeros and of infinities show in the quotient.
TEST(Constants, SignsOfFloats) {
  for (const Typed &each : floats)
    for (const char *value : each.values) {
      if (std::string(each.type).starts_with("f8"))
        continue;
      SCOPED_TRACE(fmt::format("{} {}", each.type, value));
      const std::string x = fmt::format("tensor<16x{}>", each.type),
                        scalar = fmt::format("tensor<{}>", each.type);
      check(fmt::format(R"(func.func @main(%x: {0}) -> ({0}, {0}) {{
        {2}%0 = nn.div %x, %c : ({0}, {1}) -> {0}
        %1 = nn.min %x, %c : ({0}, {1}) -> {0}
        return %0, %1 : {0}, {0}
      }})", x, scalar, constant("c", value, scalar)), {.tolerance = 1e-3, .targets = Targets::One});
    }
}

/// After a norm and after a product: the zero point of what is quantised there.
TEST(Constants, ZeroPointsOfResults) {
  for (const Typed &each : {integers[0], integers[1]})
    for (const char *value : each.values) {
      SCOPED_TRACE(fmt::format("{} {}", each.type, value));
      const std::string zero = fmt::format("tensor<{}>", each.type),
                        y = fmt::format("tensor<5x32x{}>", each.type);
      check(
          fmt::format(
              R"(func.func @main(%x: tensor<5x32xf32>, %w: tensor<32xf32>, %b: tensor<32x32xf32>) -> ({1}, {1}, {1}) {{
        {2}{3}
        %0 = fusion.group "norm_quant" schedule "row" (%a = %x, %v = %w) : (tensor<5x32xf32>, tensor<32xf32>) -> {1} {{
          {4}{5}%n = nn.rms_norm %a, %v {{eps = 1.0e-6 : f32}} : (tensor<5x32xf32>, tensor<32xf32>) -> tensor<5x32xf32>
          %q = nn.quantize %n, %s1, %c1 : (tensor<5x32xf32>, tensor<f32>, {0}) -> {1}
          fusion.yield %q : {1}
        }}
        %1 = fusion.group "matmul_epilogue" schedule "matmul" (%a = %x, %v = %b) : (tensor<5x32xf32>, tensor<32x32xf32>) -> {1} {{
          {6}{7}%m = nn.matmul %a, %v : (tensor<5x32xf32>, tensor<32x32xf32>) -> tensor<5x32xf32>
          %q = nn.quantize %m, %s2, %c2 : (tensor<5x32xf32>, tensor<f32>, {0}) -> {1}
          fusion.yield %q : {1}
        }}
        %2 = nn.quantize %x, %s, %c : (tensor<5x32xf32>, tensor<f32>, {0}) -> {1}
        return %0, %1, %2 : {1}, {1}, {1}
      }})",
              zero, y, constant("c", value, zero), constant("s", "0.03", "tensor<f32>"),
              constant("c1", value, zero), constant("s1", "0.03", "tensor<f32>"), constant("c2", value, zero),
              constant("s2", "0.03", "tensor<f32>")),
          {.targets = Targets::One});
    }
}

/// Of both operands of a product: bytes multiplied as they are (16 bits of sums and more), and decoded while
/// loading.
TEST(Constants, ZeroPointsOfOperands) {
  for (const char *result : {"f32", "f16"})
    for (const Typed &each : {integers[0], integers[1]})
      for (const char *value : each.values) {
        SCOPED_TRACE(fmt::format("{} {}", each.type, value));
        const std::string zero = fmt::format("tensor<{}>", each.type),
                          a = fmt::format("tensor<5x64x{}>", each.type),
                          b = fmt::format("tensor<64x32x{}>", each.type),
                          da = fmt::format("tensor<5x64x{}>", result),
                          db = fmt::format("tensor<64x32x{}>", result),
                          y = fmt::format("tensor<5x32x{}>", result);
        check(fmt::format(R"(func.func @main(%x: {a}, %w: {b}) -> {y} {{
          %0 = fusion.group "scaled_matmul" schedule "matmul" (%a = %x, %v = %w) : ({a}, {b}) -> {y} {{
            {c}{s}%d = nn.dequantize %a, %s, %c : ({a}, tensor<f32>, {zero}) -> {da}
            %e = nn.dequantize %v, %s, %c : ({b}, tensor<f32>, {zero}) -> {db}
            %m = nn.matmul %d, %e : ({da}, {db}) -> {y}
            fusion.yield %m : {y}
          }}
          return %0 : {y}
        }})",
                          fmt::arg("a", a), fmt::arg("b", b), fmt::arg("da", da), fmt::arg("db", db),
                          fmt::arg("y", y), fmt::arg("zero", zero), fmt::arg("c", constant("c", value, zero)),
                          fmt::arg("s", constant("s", "0.03", "tensor<f32>"))),
              {.tolerance = 1e-3, .targets = Targets::One});
      }
}

} // namespace
} // namespace fusion::test
