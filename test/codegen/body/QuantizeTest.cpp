// The formulas of nn.quantize and nn.dequantize, as they are printed.
#include "ir/scalar/Quantize.h"
#include "codegen/body/Printer.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::body;
using scalar::dequantized;
using scalar::quantized;

namespace {
struct Printed {
  Graph g;
  Names names;
  Printer printer{g, names};
  Code code{0};

  Value input(const char *name, DType type, Level level = Level::Element) {
    const Value value = g.input(name, type, level);
    printer.bind(value, name);
    return value;
  }
};
} // namespace

TEST(Quantize, IntegersAreShiftedAndSaturate) {
  Printed p;
  const Value x = p.input("x", DType::BF16), y = p.input("y", DType::F32);
  const Value s = p.input("s", DType::F32), z = p.input("z", DType::I8);
  EXPECT_EQ(p.printer.value(quantized(p.g, DType::I8, x, s), p.code), "convert<i8>(rint_(x / s))");
  EXPECT_EQ(p.printer.value(quantized(p.g, DType::U8, y, s, z), p.code),
            "convert<u8>(rint_(y / s) + ((f32)z))");
}

TEST(Quantize, FourBitsHaveTheirOwnRange) {
  Printed p, q;
  const Value x = p.input("x", DType::F32), s = p.input("s", DType::F32);
  EXPECT_EQ(p.printer.value(quantized(p.g, DType::I4, x, s), p.code),
            "convert<i8>(min_nan(max_nan(rint_(x / s), (-8.0f)), 7.0f))");
  const Value y = q.input("y", DType::F32), t = q.input("t", DType::F32);
  EXPECT_EQ(q.printer.value(quantized(q.g, DType::U4, y, t), q.code),
            "convert<u8>(min_nan(max_nan(rint_(y / t), 0.0f), 15.0f))");
}

TEST(Quantize, FloatsAreRounded) {
  Printed p;
  const Value x = p.input("x", DType::F32), s = p.input("s", DType::F32);
  const Value y = quantized(p.g, DType::F8E4M3, x, s);
  EXPECT_EQ(p.printer.value(y, p.code), "round_to<f8e4m3>(x / s)");
  EXPECT_EQ(p.printer.stored({y, DType::F8E4M3}, p.code), "from_f32<f8e4m3>(x / s)");
}

TEST(Quantize, ElementsOfOneScaleShareItsDivision) {
  Printed p;
  const Value x = p.input("x", DType::F32), s = p.input("s", DType::F32, Level::Row);
  const Value roots[] = {quantized(p.g, DType::I8, x, s)};
  p.printer.announce(roots);
  p.printer.hoistDivisors(roots, Level::Row, p.code);
  EXPECT_EQ(p.code.text(), "const Divisor by0 = divisor(s);\n");
  EXPECT_EQ(p.printer.value(roots[0], p.code), "convert<i8>(rint_(divide(x, by0)))");
}

TEST(Quantize, DoublesAreDividedAsSuch) {
  Printed p;
  const Value x = p.input("x", DType::F64), s = p.input("s", DType::F32);
  EXPECT_EQ(p.printer.value(quantized(p.g, DType::I8, x, s), p.code),
            "convert<i8>(rint_((f32)(x / ((f64)s))))");
}

TEST(Dequantize, IsRoundedOnce) {
  Printed p;
  const Value r = p.input("r", DType::U8), q = p.input("q", DType::I8);
  const Value s = p.input("s", DType::F32), z = p.input("z", DType::I8);
  EXPECT_EQ(p.printer.value(dequantized(p.g, DType::F32, r, s), p.code), "((f32)r) * s");
  EXPECT_EQ(p.printer.value(dequantized(p.g, DType::BF16, q, s, z), p.code),
            "round_to<bf16>((((f32)q) - ((f32)z)) * s)");
  const Value eight = p.input("e", DType::F8E4M3);
  EXPECT_EQ(p.printer.value(dequantized(p.g, DType::F16, eight, s), p.code), "round_to<f16>(e * s)");
}
