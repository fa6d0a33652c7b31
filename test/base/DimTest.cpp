// Dim: the algebra against plain integers, the canonical forms, and the text.
#include "ir/base/Dim.h"
#include "ir/base/DimTable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

using namespace fusion;

namespace {

const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq"), s0 = Dim::symbol("s0");

Dim parsed(std::string_view text) {
  Result<Dim> dim = Dim::parse(text);
  EXPECT_TRUE(dim) << text << ": " << (dim ? "" : dim.error().message);
  return dim ? *dim : Dim(-999);
}

int64_t floorDivide(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/// A random expression, and the same computed on integers. No value if it divides by zero.
struct Sample {
  Dim dim;
  std::optional<int64_t> value;
};

struct Generator {
  std::mt19937 random;
  SymbolValues values;

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }

  Sample leaf() {
    if (pick(0, 2) == 0) {
      int64_t constant = pick(-6, 12);
      return {Dim(constant), constant};
    }
    auto symbol = std::next(values.begin(), pick(0, static_cast<int64_t>(values.size()) - 1));
    return {Dim::symbol(symbol->first), symbol->second};
  }

  Sample expression(int depth) {
    if (depth == 0)
      return leaf();
    Sample a = expression(depth - 1), b = expression(pick(0, depth - 1));
    int64_t operation = pick(0, 8);
    std::optional<int64_t> value;
    bool divides = operation >= 5 && operation <= 7;
    if (a.value && b.value && !(divides && *b.value == 0)) {
      int64_t x = *a.value, y = *b.value;
      switch (operation) {
      case 0:
      case 1:
        value = x + y;
        break;
      case 2:
        value = x - y;
        break;
      case 3:
      case 4:
        value = x * y;
        break;
      case 5:
        value = floorDivide(x, y);
        break;
      case 6:
        value = x - y * floorDivide(x, y);
        break;
      case 7:
        value = -floorDivide(-x, y);
        break;
      default:
        value = std::max(x, y);
        break;
      }
    }
    switch (operation) {
    case 0:
    case 1:
      return {a.dim + b.dim, value};
    case 2:
      return {a.dim - b.dim, value};
    case 3:
    case 4:
      return {a.dim * b.dim, value};
    case 5:
      return {a.dim.floorDiv(b.dim), value};
    case 6:
      return {a.dim.mod(b.dim), value};
    case 7:
      return {a.dim.ceilDiv(b.dim), value};
    default:
      break;
    }
    if (pick(0, 1) == 0)
      return {Dim::max(a.dim, b.dim), value};
    return {Dim::min(a.dim, b.dim), value ? std::optional(std::min(*a.value, *b.value)) : std::nullopt};
  }
};

TEST(Dim, RandomExpressionsEvaluateAsIntegersDo) {
  Generator generator;
  generator.random.seed(5);
  int checked = 0;
  for (int round = 0; round < 20000; ++round) {
    generator.values = {
        {"a", generator.pick(1, 9)}, {"b", generator.pick(1, 40)}, {"c", generator.pick(1, 5)}};
    Sample sample = generator.expression(static_cast<int>(generator.pick(1, 4)));
    std::string text = sample.dim.str();
    Result<Dim> again = Dim::parse(text);
    ASSERT_TRUE(again) << text << ": " << again.error().message;
    ASSERT_EQ(*again, sample.dim) << text << " became " << again->str();
    ASSERT_EQ(again->str(), text);
    ASSERT_EQ(sample.dim.substitute({}), sample.dim) << text;
    if (!sample.value)
      continue;
    Result<int64_t> value = sample.dim.evaluate(generator.values);
    // Simplification may keep a divisor that is zero here only where the sample has no value either.
    ASSERT_TRUE(value) << text << ": " << value.error().message;
    ASSERT_EQ(*value, *sample.value) << text << " a=" << generator.values["a"]
                                     << " b=" << generator.values["b"] << " c=" << generator.values["c"];
    std::map<std::string, Dim, std::less<>> constants(generator.values.begin(), generator.values.end());
    ASSERT_EQ(sample.dim.substitute(constants), Dim(*value)) << text;
    if (sample.dim.knownNonNegative())
      ASSERT_GE(*value, 0) << text;
    for (int64_t factor : {2, 3, 4, 6})
      if (sample.dim.knownMultipleOf(factor))
        ASSERT_EQ(*value % factor, 0) << text << " " << factor;
    ++checked;
  }
  EXPECT_GT(checked, 10000);
}

TEST(Dim, ProductsDivideExactly) {
  Generator generator;
  generator.random.seed(6);
  generator.values = {{"a", 1}, {"b", 1}, {"c", 1}};
  for (int round = 0; round < 3000; ++round) {
    Dim a = generator.expression(2).dim, b = generator.expression(2).dim;
    if (b == Dim(0))
      continue;
    EXPECT_EQ((a * b).dividedBy(b), a) << a.str() << " | " << b.str();
    EXPECT_EQ((a * b).floorDiv(b), a);
    EXPECT_EQ((a * b).mod(b), Dim(0));
    EXPECT_EQ(a - a, Dim(0));
    EXPECT_EQ((a + b) * (a - b), a * a - b * b);
  }
}

TEST(Dim, CanonicalForms) {
  EXPECT_EQ(batch + batch, 2 * batch);
  EXPECT_EQ((batch + 1) * seq, batch * seq + seq);
  EXPECT_EQ((batch * seq * 128).floorDiv(batch * seq), Dim(128));
  EXPECT_EQ((batch * seq * 128).floorDiv(seq), 128 * batch);
  EXPECT_EQ(batch.floorDiv(batch), Dim(1));
  EXPECT_EQ(batch.floorDiv(1), batch);
  EXPECT_EQ((batch * batch - seq * seq).floorDiv(batch + seq), batch - seq);
  EXPECT_EQ(Dim(-7).floorDiv(2), Dim(-4));
  EXPECT_EQ(Dim(-7).mod(2), Dim(1));
  EXPECT_EQ((4 * seq + 6).floorDiv(2), 2 * seq + 3);
  EXPECT_EQ((4 * seq).floorDiv(6), (2 * seq).floorDiv(3));
  EXPECT_EQ((2 * batch * seq).floorDiv(4 * batch), seq.floorDiv(2));
  EXPECT_EQ(seq.floorDiv(2).floorDiv(3), seq.floorDiv(6));
  EXPECT_EQ((seq - 1).floorDiv(2) + 1, seq.ceilDiv(2));
  EXPECT_EQ(Dim(0) - (Dim(0) - seq).floorDiv(2), seq.ceilDiv(2));
  EXPECT_EQ(seq.floorDiv(seq + 1), Dim(0));
  EXPECT_EQ((8 * seq + 3).mod(4), Dim(3));
  EXPECT_EQ(seq.mod(8).mod(4), seq.mod(4));
  EXPECT_EQ((2 * seq.mod(10)).mod(4), 2 * seq.mod(2));
  EXPECT_EQ((4 * batch).floorDiv(batch * seq + 10 * batch), Dim(0));
  EXPECT_EQ(seq.mod(batch).mod(batch), seq.mod(batch));
  EXPECT_EQ(Dim::max(seq, seq), seq);
  EXPECT_EQ(Dim::max(0, seq), seq);
  EXPECT_EQ(Dim::max(seq + 1, 1), seq + 1);
  EXPECT_EQ(Dim::max(3, 5), Dim(5));
  EXPECT_EQ(Dim::max(1, Dim::max(seq, 4)), Dim::max(seq, 4));
  EXPECT_EQ(Dim::max(batch, Dim::max(seq, s0)), Dim::max(Dim::max(batch, seq), s0));
  EXPECT_EQ(Dim::min(seq, seq + 3), seq);
}

TEST(Dim, Questions) {
  EXPECT_TRUE((128 * batch + 64).knownMultipleOf(64));
  EXPECT_FALSE((128 * batch + 32).knownMultipleOf(64));
  EXPECT_TRUE(Dim(0).knownMultipleOf(7));
  EXPECT_EQ((128 * batch + 48 * seq).knownFactor(), 16);
  EXPECT_EQ((128 * batch + 1).knownFactor(), 1);
  EXPECT_TRUE((batch * seq + 1).knownNonNegative());
  EXPECT_FALSE((batch - 1).knownNonNegative());
  EXPECT_TRUE((seq - Dim::min(1, seq)).knownNonNegative());
  EXPECT_TRUE((Dim::max(batch, seq) - batch).knownNonNegative());
  EXPECT_TRUE(
      (seq - Dim::min(seq, batch) - Dim::max(0, Dim::min(4, seq) - Dim::min(seq, batch))).knownNonNegative());
  EXPECT_FALSE((seq - Dim::min(2, batch)).knownNonNegative());
  EXPECT_FALSE((Dim::min(batch, seq) - batch).knownNonNegative());
  EXPECT_TRUE(Dim::min(1, seq).knownAtMostOne());
  EXPECT_TRUE((1 - Dim::max(0, 1 - seq)).knownAtMostOne()); // a slice [-seq:] of one element
  EXPECT_FALSE(Dim::max(1, seq).knownAtMostOne());
  EXPECT_FALSE(Dim(2).knownAtMostOne());
  EXPECT_FALSE(batch.dividedBy(seq));
  EXPECT_FALSE((3 * batch).dividedBy(2));
  EXPECT_FALSE(batch.dividedBy(0));
  EXPECT_EQ(Dim(5).constant(), 5);
  EXPECT_FALSE(batch.constant());
  EXPECT_EQ((batch * seq.floorDiv(2)).symbols(), (std::set<std::string>{"batch", "seq"}));
  EXPECT_EQ(product(DimShape{2, batch, 3}), 6 * batch);
  EXPECT_EQ(shapeString(DimShape{batch, seq + 1, 128}), "[batch, seq + 1, 128]");
  EXPECT_EQ(product(DimShape{}), Dim(1));
}

TEST(Dim, EvaluationFails) {
  Result<int64_t> missing = (batch * seq).evaluate({{"batch", 2}});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("'seq'"), std::string::npos);
  EXPECT_FALSE(batch.floorDiv(seq).evaluate({{"batch", 2}, {"seq", 0}}));
  EXPECT_FALSE(batch.mod(0).evaluate({{"batch", 2}}));
  EXPECT_FALSE((batch * batch).evaluate({{"batch", int64_t{1} << 40}}));
}

TEST(Dim, ReadsExporterSpellings) {
  EXPECT_EQ(parsed("s15 + 1"), Dim::symbol("s15") + 1);
  EXPECT_EQ(parsed("2*s0"), 2 * s0);
  EXPECT_EQ(parsed("(s0 - 1)//2 + 1"), (s0 - 1).floorDiv(2) + 1);
  EXPECT_EQ(parsed("floor(s0/2)"), s0.floorDiv(2));
  EXPECT_EQ(parsed("floor(s0/2 + 1/2)"), (s0 + 1).floorDiv(2));
  EXPECT_EQ(parsed("floor(0.5*s0 - 0.5) + 1"), (s0 - 1).floorDiv(2) + 1);
  EXPECT_EQ(parsed("ceil(s0/4)"), s0.ceilDiv(4));
  EXPECT_EQ(parsed("ceiling(s0/4)"), s0.ceilDiv(4));
  EXPECT_EQ(parsed("s0/2"), s0.floorDiv(2));
  EXPECT_EQ(parsed("s0//2//3"), s0.floorDiv(6));
  EXPECT_EQ(parsed("-s0//2"), (Dim(0) - s0).floorDiv(2));
  EXPECT_EQ(parsed("Max(1, s0)"), Dim::max(1, s0));
  EXPECT_EQ(parsed("min(s0, seq, 3)"), Dim::min(Dim::min(s0, seq), 3));
  EXPECT_EQ(parsed("FloorDiv(s0 + 1, 2)"), (s0 + 1).floorDiv(2));
  EXPECT_EQ(parsed("Mod(s0, 8)"), s0.mod(8));
  EXPECT_EQ(parsed("s0 % 8"), s0.mod(8));
  EXPECT_EQ(parsed("s0**2"), s0 * s0);
  EXPECT_EQ(parsed("sequence + 1"), Dim::symbol("sequence") + 1);
  EXPECT_EQ(parsed("unk__0"), Dim::symbol("unk__0"));
  EXPECT_EQ(parsed("  128 "), Dim(128));
  EXPECT_EQ(parsed("-1"), Dim(-1));
  EXPECT_EQ(parsed("`past sequence/len` + 1"), Dim::symbol("past sequence/len") + 1);
  EXPECT_EQ(parsed("max"), Dim::symbol("max"));
}

TEST(Dim, RefusesOtherText) {
  for (std::string_view text : {"",       " ",       "batch.size", "past sequence/len",
                                "s0 +",   "(s0",     "s0)",        "2s0",
                                "?",      "foo(s0)", "`open",      "99999999999999999999",
                                "1.5*s0", "s0**-1",  "floor(1,2)", "max(",
                                "s0,1",   "a b",     "s0**99",     "* 2"})
    EXPECT_FALSE(Dim::parse(text)) << text;
  const auto twoLines = Dim::parse("n +\n\x1b[31m$"); // a file's text does not write to the terminal
  ASSERT_FALSE(twoLines);
  EXPECT_EQ(twoLines.error().message.find_first_of("\n\x1b"), std::string::npos) << twoLines.error().message;
  EXPECT_FALSE(Dim::parse(std::string(5000, '(')));
  EXPECT_FALSE(Dim::parse(std::string(5000, '-') + "1"));
  EXPECT_FALSE(Dim::parse(std::string(9000, '1')));
  std::string explosion = "1";
  for (int i = 0; i < 60; ++i)
    explosion += "*(a" + std::to_string(i) + "+1)";
  EXPECT_FALSE(Dim::parse(explosion));
}

TEST(Dim, TextOfOddNamesAndNumbers) {
  for (std::string name : {"batch.size", "a b", "`", "``x`", "", "1st", "größe"}) {
    Dim dim = 3 * Dim::symbol(name) + 1;
    EXPECT_EQ(parsed(dim.str()), dim) << dim.str();
  }
  for (int64_t number : {INT64_MIN, INT64_MAX, int64_t{0}, int64_t{-1}}) {
    EXPECT_EQ(parsed(Dim(number).str()), Dim(number));
    EXPECT_EQ(parsed((Dim(number) * batch).str()), Dim(number) * batch);
    EXPECT_EQ(parsed((seq + Dim(number) * batch).str()), seq + Dim(number) * batch);
  }
  EXPECT_EQ((seq * batch * 4 - 1).str(), "4*batch*seq - 1");
  EXPECT_EQ((2 * seq.floorDiv(3) - batch.mod(2)).str(), "2*(seq//3) - (batch % 2)");
}

/// What a thread has kept of its constants ends before what was there before them.
TEST(Dim, ConstantsWhileAThreadEnds) {
  static std::atomic<bool> isRight = false;
  struct Late {
    ~Late() {
      isRight = Dim(7) + Dim(5) == Dim(12) && Dim(7) * Dim::symbol("n") == Dim::symbol("n") * Dim(7);
    }
  };
  std::thread([] {
    thread_local Late late;
    (void)&late;
    EXPECT_EQ(Dim(7) + Dim(5), Dim(12));
  }).join();
  EXPECT_TRUE(isRight);
}

TEST(DimTable, EvaluatesAsTheDimsThemselvesDo) {
  Generator generator;
  generator.random.seed(9);
  generator.values = {{"a", 0}, {"b", 0}, {"c", 0}};
  DimTable table;
  std::vector<std::pair<uint32_t, Dim>> dims;
  for (int i = 0; i < 300; ++i) {
    Dim dim = generator.expression(3).dim;
    dims.push_back({table.add(dim), dim});
    EXPECT_EQ(table.add(Dim(dim)), dims.back().first);
  }
  int failures = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> values;
    SymbolValues named;
    for (const std::string &name : table.symbols()) {
      values.push_back(round == 49 && name == "c" ? DimTable::unknown
                                                  : generator.pick(-3, round % 2 ? 40 : int64_t(1) << 40));
      if (values.back() != DimTable::unknown)
        named[name] = values.back();
    }
    for (const auto &[number, dim] : dims) {
      Result<int64_t> expected = dim.evaluate(named);
      std::optional<int64_t> actual = table.evaluate(number, values);
      ASSERT_EQ(actual.has_value(), bool(expected)) << dim.str();
      if (expected)
        ASSERT_EQ(*actual, *expected) << dim.str();
      failures += !expected;
    }
  }
  EXPECT_GT(failures, 100); // divisions by zero, sums that do not fit, a symbol without a value
  std::set<std::string> symbols;
  for (uint32_t symbol : table.symbolsOf(table.add(Dim::symbol("b") * 3 + Dim::max(Dim::symbol("a"), 5))))
    symbols.insert(table.symbols()[symbol]);
  EXPECT_EQ(symbols, (std::set<std::string>{"a", "b"}));
}

} // namespace
