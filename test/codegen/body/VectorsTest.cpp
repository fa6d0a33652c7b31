// Vectors: 16-bit pairs, loops over lanes, and what passes between them.
#include "codegen/body/Printer.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::body;

namespace {
struct Printed {
  Graph g;
  Names names;
  Printer printer{g, names};
  Code code{0};

  Value vector(const char *name, DType type) {
    const Value value = g.input(name, type, Level::Element);
    printer.bindVector(value, name, type);
    return value;
  }
  std::string print(std::vector<body::Result> results, int64_t width) {
    for (const std::string &name : printer.vectors(results, width, code))
      code.line("-> " + name);
    return code.text();
  }
  Value rounded(DType type, Value value) { return g.round(type, value); }
};
} // namespace

TEST(BodyVectors, SumsOfSixteenBitsRunInPairs) {
  Printed p;
  const Value a = p.vector("a", DType::BF16), b = p.vector("b", DType::BF16);
  const Value sum = p.rounded(DType::BF16, p.g.add(a, b));
  EXPECT_EQ(p.print({{p.rounded(DType::BF16, p.g.mul(sum, b)), DType::BF16}}, 8),
            "const Vec<bf16, 8> v0 = add_vec(a, b);\n"
            "const Vec<bf16, 8> v1 = mul_vec(v0, b);\n"
            "-> v1\n");
}

TEST(BodyVectors, OthersRunInLoopsAndAreRoundedTogether) {
  Printed p;
  const Value a = p.vector("a", DType::F16);
  const Value silu = p.g.call("silu_", {a}, DType::F32, "silu_near");
  EXPECT_EQ(p.print({{p.rounded(DType::F16, silu), DType::F16}}, 8),
            "Vec<f32, 8> y0;\n"
            "#pragma unroll\n"
            "for (int lane = 0; lane < 8; ++lane) {\n"
            "  y0[lane] = silu_near(element_f32(a, lane));\n"
            "}\n"
            "const Vec<f16, 8> v0 = vec_from_f32<f16>(y0);\n"
            "-> v0\n");
}

TEST(BodyVectors, PairsFollowTheLoopThatTheyRead) {
  Printed p;
  const Value gate = p.vector("gate", DType::BF16), up = p.vector("up", DType::BF16);
  const Value silu = p.rounded(DType::BF16, p.g.call("silu_", {gate}, DType::F32, "silu_near"));
  EXPECT_EQ(p.print({{p.rounded(DType::BF16, p.g.mul(silu, up)), DType::BF16}}, 8),
            "Vec<f32, 8> y0;\n"
            "#pragma unroll\n"
            "for (int lane = 0; lane < 8; ++lane) {\n"
            "  y0[lane] = silu_near(element_f32(gate, lane));\n"
            "}\n"
            "const Vec<bf16, 8> v0 = vec_from_f32<bf16>(y0);\n"
            "const Vec<bf16, 8> v1 = mul_vec(v0, up);\n"
            "-> v1\n");
}

TEST(BodyVectors, LoopsReadWhatPairsMade) {
  Printed p;
  const Value a = p.vector("a", DType::F16), b = p.vector("b", DType::F16);
  const Value sum = p.rounded(DType::F16, p.g.add(a, b));
  EXPECT_EQ(p.print({{sum, DType::F16}, {p.g.call("exp_", {sum}), DType::F32}}, 4),
            "const Vec<f16, 4> v0 = add_vec(a, b);\n"
            "Vec<f32, 4> y0;\n"
            "#pragma unroll\n"
            "for (int lane = 0; lane < 4; ++lane) {\n"
            "  y0[lane] = exp_(element_f32(v0, lane));\n"
            "}\n"
            "-> v0\n"
            "-> y0\n");
}

TEST(BodyVectors, ScalarsStandInFrontAndAreSplatted) {
  Printed p;
  const Value a = p.vector("a", DType::F16), s = p.g.input("s", DType::F16, Level::Row);
  p.printer.bind(s, "s");
  const Value half = p.g.number(DType::F16, 0.5);
  const Value shift = p.rounded(DType::F16, p.g.mul(s, half));
  EXPECT_EQ(p.print({{p.rounded(DType::F16, p.g.sub(a, shift)), DType::F16}}, 2),
            "const f32 x0 = mul_to<f16>(s, 0.5f);\n"
            "const Vec<f16, 2> v0 = sub_vec(a, splat_vec<f16, 2>(from_f32<f16>(x0)));\n"
            "-> v0\n");
}

TEST(BodyVectors, ConstantsThatTheTypeLacksDoNotRunInPairs) {
  Printed p;
  const Value a = p.vector("a", DType::BF16);
  const std::string text =
      p.print({{p.rounded(DType::BF16, p.g.mul(a, p.g.number(DType::F32, 1.001))), DType::BF16}}, 8);
  EXPECT_EQ(text.find("mul_vec"), std::string::npos) << text;
  EXPECT_NE(text.find("element_f32(a, lane) * 1.001f"), std::string::npos) << text;
}

TEST(BodyVectors, ValuesChangeTheirTypeInMemory) {
  Printed p;
  const Value a = p.vector("a", DType::BF16);
  EXPECT_EQ(p.print({{a, DType::BF16}, {a, DType::F32}}, 2),
            "Vec<f32, 2> y0;\n"
            "#pragma unroll\n"
            "for (int lane = 0; lane < 2; ++lane) {\n"
            "  y0[lane] = element_f32(a, lane);\n"
            "}\n"
            "-> a\n"
            "-> y0\n");
}

TEST(BodyVectors, QuantisationDividesByOneDivisor) {
  Printed p;
  const Value a = p.vector("a", DType::F16), scale = p.g.input("scale", DType::F32, Level::Kernel);
  p.printer.bind(scale, "scale");
  const Value whole = p.g.call("rint_", {p.g.quotient(a, scale)});
  EXPECT_EQ(p.print({{p.g.convertRegister(DType::I8, whole), DType::I8}}, 8),
            "const Divisor by0 = divisor(scale);\n"
            "Vec<i8, 8> y0;\n"
            "#pragma unroll\n"
            "for (int lane = 0; lane < 8; ++lane) {\n"
            "  y0[lane] = convert<i8>(rint_(divide(element_f32(a, lane), by0)));\n"
            "}\n"
            "-> y0\n");
}

TEST(BodyVectors, OneLaneRunsNoPairs) {
  Printed p;
  const Value a = p.vector("a", DType::BF16);
  const std::string text = p.print({{p.rounded(DType::BF16, p.g.add(a, a)), DType::BF16}}, 1);
  EXPECT_EQ(text.find("add_vec"), std::string::npos) << text;
  EXPECT_NE(text.find("-> v0"), std::string::npos) << text;
}
