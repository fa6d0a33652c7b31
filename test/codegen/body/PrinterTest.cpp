// Scalar statements: each value once, by level, with the roundings of its type.
#include "codegen/body/Printer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

using namespace fusion;
using namespace fusion::body;
using scalar::Kind;

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

size_t count(const std::string &text, std::string_view part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++number;
  return number;
}
} // namespace

TEST(BodyPrinter, LiteralsRoundTrip) {
  EXPECT_EQ(literal(DType::F32, 1), "1.0f");
  EXPECT_EQ(literal(DType::F32, -1.5), "(-1.5f)");
  EXPECT_EQ(literal(DType::F64, 0.1), "0.1");
  EXPECT_EQ(literal(DType::F32, -std::numeric_limits<double>::infinity()), "(-inf_f32())");
  EXPECT_EQ(literal(DType::F32, std::nan("")), "nan_f32()");
  EXPECT_EQ(std::stof(literal(DType::F32, 3.4028234663852886e38)), 3.4028234663852886e38f);
  EXPECT_EQ(integerLiteral(DType::I64, INT64_MIN), "(-9223372036854775807ll - 1)");
  EXPECT_EQ(integerLiteral(DType::I32, INT32_MIN), "(-2147483647 - 1)");
  EXPECT_EQ(integerLiteral(DType::U64, -1), "18446744073709551615ull");
  EXPECT_EQ(integerLiteral(DType::U32, -1), "4294967295u");
  EXPECT_EQ(integerLiteral(DType::I8, -2), "(i8)(-2)");
  EXPECT_EQ(integerLiteral(DType::Bool, 1), "true");
}

TEST(BodyPrinter, SharedValuesAreDeclaredOnce) {
  Printed p;
  const Value x = p.input("x", DType::F32), e = p.g.call("exp_", {x});
  const Value root = p.g.mul(p.g.add(e, x), e);
  EXPECT_EQ(p.printer.value(root, p.code), "(exp_0 + x) * exp_0");
  EXPECT_EQ(p.code.text(), "const f32 exp_0 = exp_(x);\n");
}

/// A variable named i8 would hide the type.
TEST(BodyPrinter, IndicesAreNotNamedLikeTypes) {
  Printed p;
  Value index = p.input("n", DType::I64);
  for (int i = 0; i < 70; ++i) {
    const Value next = p.g.add(index, index); // read twice, so that it gets a name
    (void)p.printer.value(next, p.code);
    index = next;
  }
  EXPECT_EQ(count(p.code.text(), "const i64 i7 = "), 1u);
  for (const char *type : {"i4", "i8", "i16", "i32", "i64"})
    EXPECT_EQ(count(p.code.text(), std::string("const i64 ") + type + " = "), 0u) << type;
}

TEST(BodyPrinter, PrecedenceIsWritten) {
  Printed p;
  const Value x = p.input("x", DType::F32), y = p.input("y", DType::F32);
  EXPECT_EQ(p.printer.value(p.g.sub(x, p.g.sub(y, x)), p.code), "x - (y - x)");
  EXPECT_EQ(p.printer.value(p.g.neg(p.g.neg(y)), p.code), "-(-y)");
  EXPECT_EQ(p.printer.value(p.g.mul(p.g.number(DType::F32, -2), x), p.code), "(-2.0f) * x");
  const Value c = p.g.compare(Kind::Less, x, y);
  EXPECT_EQ(p.printer.value(p.g.add(p.g.select(c, x, y), y), p.code), "((x < y) ? x : y) + y");
}

TEST(BodyPrinter, RoundingsOfSixteenBits) {
  Printed p;
  const Value a = p.input("a", DType::BF16), b = p.input("b", DType::BF16), f = p.input("f", DType::F32);
  EXPECT_EQ(p.printer.value(p.g.round(DType::BF16, p.g.mul(a, b)), p.code), "mul_to<bf16>(a, b)");
  EXPECT_EQ(p.printer.value(p.g.round(DType::BF16, p.g.mul(a, f)), p.code), "round_to<bf16>(a * f)");
  EXPECT_EQ(p.printer.value(p.g.round(DType::F16, p.g.sub(a, b)), p.code), "round_to<f16>(a - b)");
  EXPECT_EQ(p.printer.stored({p.g.round(DType::BF16, p.g.div(a, b)), DType::BF16}, p.code),
            "from_f32<bf16>(a / b)");
  EXPECT_EQ(p.printer.stored({a, DType::BF16}, p.code), "from_f32<bf16>(a)");
  EXPECT_EQ(p.printer.stored({f, DType::F32}, p.code), "f");
}

TEST(BodyPrinter, NearFormsWhereOnlyRoundingsRead) {
  Printed p;
  const Value x = p.input("x", DType::F32), silu = p.g.call("silu_", {x}, DType::F32, "silu_near");
  EXPECT_EQ(p.printer.value(p.g.round(DType::F16, silu), p.code), "round_to<f16>(silu_near(x))");
  Printed q;
  const Value y = q.input("y", DType::F32), both = q.g.call("silu_", {y}, DType::F32, "silu_near");
  const Value roots[] = {q.g.round(DType::F16, both), both};
  q.printer.announce(roots);
  EXPECT_EQ(q.printer.value(roots[0], q.code), "round_to<f16>(silu_0)");
  EXPECT_EQ(q.code.text(), "const f32 silu_0 = silu_(y);\n");
}

TEST(BodyPrinter, LoadsSayHow) {
  Printed p;
  const Value i = p.input("i", DType::I64), c = p.input("c", DType::Bool);
  p.printer.value(p.g.load({"in0", DType::BF16}, i), p.code);
  p.printer.value(p.g.load({"in1", DType::I32}, p.g.index(0)), p.code);
  p.printer.value(p.g.load({"in2", DType::U4, scalar::Access::Plain, true}, p.g.add(i, p.g.index(1))),
                  p.code);
  p.printer.value(p.g.load({"in3", DType::F32, scalar::Access::Early}, i, c), p.code);
  p.printer.value(p.g.load({"table0", DType::F16, scalar::Access::Table}, i), p.code);
  EXPECT_EQ(p.code.text(), "const f32 loaded0 = to_f32(load(in0 + i));\n"
                           "const i32 loaded1 = load(in1);\n"
                           "const u8 loaded2 = load(packed<u8>(in2) + (i + 1ll));\n"
                           "const f32 loaded3 = c ? load_early(in3 + i) : 0.0f;\n"
                           "const f32 loaded4 = table0[i];\n");
}

TEST(BodyPrinter, IntegersConvertAndWrap) {
  Printed p;
  const Value a = p.input("a", DType::I8), x = p.input("x", DType::F32);
  const Value wide = p.g.convertRegister(DType::U64, a);
  EXPECT_EQ(
      p.printer.value(p.g.convertRegister(DType::I8, p.g.binary(Kind::Add, wide, p.g.integer(DType::U64, 3))),
                      p.code),
      "(i8)(((u64)a) + 3ull)");
  EXPECT_EQ(p.printer.value(p.g.binary(Kind::And, a, a), p.code), "(i8)(a & a)");
  EXPECT_EQ(p.printer.value(p.g.convertRegister(DType::I8, x), p.code), "convert<i8>(x)");
  EXPECT_EQ(p.printer.value(p.g.convertRegister(DType::Bool, x), p.code), "convert<bool>(x)");
}

TEST(BodyPrinter, LevelsAreHoisted) {
  Printed p;
  const Value scale = p.input("scale", DType::F32, Level::Kernel),
              mean = p.input("mean", DType::F32, Level::Row);
  const Value x = p.input("x", DType::F32);
  const Value inverse = p.g.div(p.g.number(DType::F32, 1), scale), shift = p.g.mul(mean, inverse);
  const Value roots[] = {p.g.sub(p.g.mul(x, inverse), shift)};
  EXPECT_EQ(p.printer.crossing(roots, Level::Kernel), std::vector<Value>{inverse});
  p.printer.hoist(roots, Level::Kernel, p.code);
  EXPECT_EQ(p.code.text(), "const f32 x0 = 1.0f / scale;\n");
  EXPECT_EQ(p.printer.crossing(roots, Level::Row), std::vector<Value>{shift});
  Code row(0);
  const std::vector<Member> members = p.printer.hoistMembers(roots, Level::Row, row);
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].type, "f32");
  EXPECT_EQ(row.text(), members[0].name + " = mean * x0;\n");
  EXPECT_EQ(p.printer.value(roots[0], p.code), "x * x0 - " + members[0].name);
}

TEST(BodyPrinter, DivisorsAreMadeOncePerLevel) {
  Printed p;
  const Value scale = p.input("scale", DType::F32, Level::Row), x = p.input("x", DType::F32),
              y = p.input("y", DType::F32);
  const Value roots[] = {p.g.quotient(x, scale), p.g.quotient(y, scale), p.g.quotient(x, y)};
  p.printer.announce(roots);
  p.printer.hoistDivisors(roots, Level::Row, p.code);
  EXPECT_EQ(p.code.text(), "const Divisor by0 = divisor(scale);\n");
  EXPECT_EQ(p.printer.value(roots[0], p.code), "divide(x, by0)");
  EXPECT_EQ(p.printer.value(roots[2], p.code), "x / y");
}

TEST(BodyPrinter, BlocksForget) {
  Printed p;
  const Value x = p.input("x", DType::F32), e = p.g.call("exp_", {x});
  const Value roots[] = {p.g.add(e, x), p.g.mul(e, x)};
  p.printer.announce(roots);
  p.printer.enterBlock();
  p.printer.value(roots[0], p.code);
  p.printer.leaveBlock();
  p.printer.value(roots[1], p.code);
  EXPECT_EQ(count(p.code.text(), "= exp_(x)"), 2u);
}
