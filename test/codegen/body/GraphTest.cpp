// The typed scalar graph: equal values are one, levels, roundings, index arithmetic.
#include "ir/scalar/Graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace fusion;
using namespace fusion::scalar;

TEST(ScalarGraph, EqualExpressionsAreOneValue) {
  Graph g;
  const Value x = g.input("x", DType::F32, Level::Element), y = g.input("y", DType::F32, Level::Row);
  EXPECT_EQ(g.add(x, y), g.add(x, y));
  EXPECT_FALSE(g.add(x, y) == g.add(y, x));
  EXPECT_FALSE(g.input("x", DType::F32, Level::Row) == x);
  EXPECT_FALSE(g.number(DType::F32, 0.0) == g.number(DType::F32, -0.0));
  EXPECT_FALSE(g.integer(DType::I32, 1) == g.integer(DType::I64, 1));
}

TEST(ScalarGraph, LevelsAreTheHighestOfTheOperands) {
  Graph g;
  const Value one = g.number(DType::F32, 1), row = g.input("r", DType::F32, Level::Row);
  const Value element = g.input("x", DType::F32, Level::Element);
  EXPECT_EQ(g.level(g.add(one, one)), Level::Constant);
  EXPECT_EQ(g.level(g.add(one, row)), Level::Row);
  EXPECT_EQ(g.level(g.mul(g.add(one, row), element)), Level::Element);
  EXPECT_EQ(g.level(g.load({"p", DType::F16}, g.index(3))), Level::Kernel);
  EXPECT_EQ(g.level(g.load({"p", DType::F16}, g.input("i", DType::I64, Level::Group))), Level::Group);
}

TEST(ScalarGraph, WhatIsRoundedIsNotRoundedAgain) {
  Graph g;
  const Value half = g.input("x", DType::F16, Level::Element),
              full = g.input("y", DType::F32, Level::Element);
  EXPECT_EQ(g.type(half), DType::F32);
  EXPECT_EQ(g.round(DType::F16, half), half);
  EXPECT_FALSE(g.round(DType::BF16, half) == half);
  EXPECT_EQ(g.round(DType::F32, full), full);
  const Value rounded = g.round(DType::BF16, full);
  EXPECT_EQ(g.round(DType::BF16, rounded), rounded);
  EXPECT_EQ(g.round(DType::BF16, g.neg(rounded)), g.neg(rounded));
  const Value relu = g.call("max_nan", {rounded, g.number(DType::F32, 0)});
  EXPECT_EQ(g.round(DType::BF16, relu), relu);
  EXPECT_FALSE(g.round(DType::BF16, g.add(rounded, rounded)) == g.add(rounded, rounded));
  // Every f8 is an f16 and a bf16; neither of those is one of the other.
  const Value eight = g.input("z", DType::F8E4M3, Level::Element);
  EXPECT_EQ(g.round(DType::F16, eight), eight);
  EXPECT_EQ(g.round(DType::BF16, eight), eight);
  EXPECT_FALSE(g.round(DType::F8E5M2, eight) == eight);
  EXPECT_TRUE(g.isExactIn(g.number(DType::F32, 1.5), DType::F8E4M3));
  EXPECT_FALSE(g.isExactIn(g.number(DType::F32, 1e30), DType::F16));
  EXPECT_FALSE(g.isExactIn(g.number(DType::F32, 1.001), DType::BF16));
}

TEST(ScalarGraph, SelectionsKeepWhatBothSidesAre) {
  Graph g;
  const Value yes = g.input("c", DType::Bool, Level::Element);
  const Value a = g.input("a", DType::BF16, Level::Element), b = g.input("b", DType::F8E5M2, Level::Element);
  EXPECT_EQ(g[g.select(yes, a, b)].roundedTo, DType::BF16);
  EXPECT_EQ(g[g.select(yes, b, a)].roundedTo, DType::BF16);
  EXPECT_EQ(g[g.select(yes, a, g.input("d", DType::F16, Level::Element))].roundedTo, DType::F32);
  EXPECT_EQ(g.select(g.boolean(true), a, b), a);
  EXPECT_EQ(g.select(yes, a, a), a);
}

TEST(ScalarGraph, ConversionsThroughWiderTypesVanish) {
  Graph g;
  const Value x = g.input("x", DType::F32, Level::Element), i = g.input("i", DType::I32, Level::Element);
  EXPECT_EQ(g.convertRegister(DType::F32, g.convertRegister(DType::F64, x)), x);
  EXPECT_EQ(g.convertRegister(DType::I32, g.convertRegister(DType::U64, i)), i);
  EXPECT_FALSE(g.convertRegister(DType::I32, g.convertRegister(DType::F32, i)) == i);
  const Value wide = g.input("w", DType::F64, Level::Element);
  EXPECT_FALSE(g.convertRegister(DType::F64, g.convertRegister(DType::F32, wide)) == wide);
  EXPECT_EQ(g.convert(DType::I32, i), i);
}

TEST(ScalarGraph, IndexArithmeticOnConstantsIsDone) {
  Graph g;
  const Value i = g.input("i", DType::I64, Level::Element);
  EXPECT_EQ(g.add(i, g.index(0)), i);
  EXPECT_EQ(g.mul(i, g.index(1)), i);
  EXPECT_EQ(g.mul(i, g.index(0)), g.index(0));
  EXPECT_EQ(g.div(i, g.index(1)), i);
  EXPECT_EQ(g.mod(i, g.index(1)), g.index(0));
  EXPECT_EQ(g.add(g.index(2), g.mul(g.index(3), g.index(4))), g.index(14));
  EXPECT_EQ(g.compare(Kind::Less, g.index(2), g.index(3)), g.boolean(true));
  // Floats are left alone: 0 * infinity is not 0.
  const Value x = g.input("x", DType::F32, Level::Element);
  EXPECT_FALSE(g.mul(x, g.number(DType::F32, 0)) == g.number(DType::F32, 0));
  EXPECT_FALSE(g.add(x, g.number(DType::F32, 0)) == x);
}

TEST(ScalarGraph, WhatWasSplitIsPutTogether) {
  Graph g;
  const Value i = g.input("i", DType::I64, Level::Element), n = g.input("n", DType::I64, Level::Kernel),
              m = g.input("m", DType::I64, Level::Kernel);
  EXPECT_EQ(g.add(g.mul(g.div(i, n), n), g.mod(i, n)), i);
  EXPECT_FALSE(g.add(g.mul(g.div(i, n), m), g.mod(i, n)) == i);
  EXPECT_FALSE(g.add(g.mul(g.div(i, m), n), g.mod(i, n)) == i);
  EXPECT_FALSE(g.add(g.mul(g.div(n, i), n), g.mod(i, n)) == i);
}

TEST(ScalarGraph, FormulasTakeOtherOperands) {
  Graph g;
  const Value x = g.input("x", DType::F32, Level::Element), y = g.input("y", DType::F32, Level::Row);
  const Value formula = g.mul(g.add(x, g.number(DType::F32, 1)), x);
  EXPECT_EQ(g.substitute(formula, {{x, y}}), g.mul(g.add(y, g.number(DType::F32, 1)), y));
  EXPECT_EQ(g.level(g.substitute(formula, {{x, y}})), Level::Row);
  EXPECT_EQ(g.substitute(formula, {}), formula);
}

TEST(ScalarGraph, IntegerConstantsConvertWhereTheyFit) {
  Graph g;
  EXPECT_EQ(g.convertRegister(DType::U32, g.index(4)), g.integer(DType::U32, 4));
  EXPECT_EQ(g.convertRegister(DType::I64, g.integer(DType::I8, -3)), g.index(-3));
  EXPECT_EQ(g[g.convertRegister(DType::U32, g.index(-1))].kind, Kind::Convert);
  EXPECT_EQ(g[g.convertRegister(DType::I8, g.index(200))].kind, Kind::Convert);
  EXPECT_EQ(g[g.convertRegister(DType::I64, g.integer(DType::U64, -1))].kind, Kind::Convert);
}
