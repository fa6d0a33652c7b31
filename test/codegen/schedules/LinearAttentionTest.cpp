// The kernels of linear attention, against the reference.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

struct Case {
  std::string type = "f32", stateType = "f32";
  int queryHeads = 2, keyHeads = 2, heads = 2, width = 32, valueWidth = 32;
  std::string rule = "gated_delta";
  bool decayPerKey = false, sharedBeta = false;
  int64_t batch = 2, tokens = 1;
  double meanDecay = -0.5; ///< decays lie around it
};

std::string module(const Case &c) {
  auto tensor = [](int heads, const char *tokens, int width, const std::string &type) {
    return fmt::format("tensor<?x{}x{}x{}x{}>", heads, tokens, width, type);
  };
  const bool decays = c.rule.starts_with("gated"), corrects = c.rule.ends_with("delta");
  const std::string q = tensor(c.queryHeads, "?", c.width, c.type),
                    k = tensor(c.keyHeads, "?", c.width, c.type);
  const std::string v = tensor(c.heads, "?", c.valueWidth, c.type);
  const std::string state = fmt::format("tensor<?x{}x{}x{}x{}>", c.heads, c.width, c.valueWidth, c.stateType);
  const std::string y = tensor(std::max(c.queryHeads, c.heads), "?", c.valueWidth, c.type);
  const int decayWidth = c.decayPerKey ? c.width : 1, betaHeads = c.sharedBeta ? 1 : c.heads;
  std::string arguments, names, types;
  if (decays) {
    const std::string type = tensor(c.heads, "?", decayWidth, c.type);
    arguments += fmt::format(", %g: {} {{nn.dims = [\"b\", {}, \"t\", {}]}}", type, c.heads, decayWidth);
    names += ", %g", types += ", " + type;
  }
  if (corrects) {
    const std::string type = tensor(betaHeads, "?", 1, c.type);
    arguments += fmt::format(", %beta: {} {{nn.dims = [\"b\", {}, \"t\", 1]}}", type, betaHeads);
    names += ", %beta", types += ", " + type;
  }
  return fmt::format(R"(
    func.func @main(%q: {0} {{nn.dims = ["b", {5}, "t", {8}]}}, %k: {1} {{nn.dims = ["b", {6}, "t", {8}]}},
                    %v: {2} {{nn.dims = ["b", {7}, "t", {9}]}}, %s: {3} {{nn.dims = ["b", {7}, {8}, {9}]}}{10}) -> ({4}, {3}) {{
      %y, %n = nn.linear_attention %q, %k, %v, %s{11} {{scale = 0.25 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, {13}, {14}>}}
        : ({0}, {1}, {2}, {3}{12}) -> ({4}, {3})
      return %y, %n : {4}, {3}
    }})",
                     q, k, v, state, y, c.queryHeads, c.keyHeads, c.heads, c.width, c.valueWidth, arguments,
                     names, types, decays ? 1 : 0, corrects ? 1 : 0);
}

/// Keys of length 1, as the rule wants them; betas between 0 and 1.
void fill(const Case &c, unsigned index, Tensor &tensor) {
  const bool decays = c.rule.starts_with("gated");
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double random = static_cast<double>((i * 7919 + index * 104729) % 1009) / 1009;
    if (index == 1)
      set(tensor, i, (2 * random - 1) * 1.7 / std::sqrt(static_cast<double>(c.width)));
    if (index == 4 && decays)
      set(tensor, i, c.meanDecay * 2 * random);
    if (index == (decays ? 5u : 4u))
      set(tensor, i, random);
  }
}

double toleranceOf(const Case &c) {
  auto rounding = [](const std::string &type) { return type == "f16" ? 2e-4 : type == "bf16" ? 1e-3 : 4e-6; };
  return std::max(rounding(c.type), rounding(c.stateType));
}

std::string run(const Case &c) {
  return check(linearAttentionSchedule(), {module(c),
                                           {{"b", c.batch}, {"t", c.tokens}},
                                           toleranceOf(c),
                                           [c](unsigned index, Tensor &tensor) { fill(c, index, tensor); }});
}

TEST(LinearAttention, RulesAndTypes) {
  for (auto [type, stateType] : {std::pair("f32", "f32"), std::pair("f16", "f32"), std::pair("bf16", "bf16"),
                                 std::pair("f16", "f16"), std::pair("bf16", "f32")})
    run({.type = type, .stateType = stateType, .tokens = 3});
  for (const char *rule : {"linear", "gated", "delta"})
    for (int64_t tokens : {1, 3})
      run({.type = "f16", .stateType = "f32", .rule = rule, .tokens = tokens});
}

TEST(LinearAttention, HeadSizes) {
  for (auto [width, valueWidth] : {std::pair(128, 128), std::pair(256, 256), std::pair(64, 128),
                                   std::pair(7, 13), std::pair(1, 1), std::pair(100, 6), std::pair(16, 250)})
    for (int64_t tokens : {1, 2})
      run({.type = (width + tokens) % 2 == 0 ? "f32" : "bf16",
           .width = width,
           .valueWidth = valueWidth,
           .tokens = tokens});
}

TEST(LinearAttention, SharedHeads) {
  for (auto [queryHeads, keyHeads, heads] : {std::tuple(2, 2, 4), std::tuple(4, 2, 2), std::tuple(8, 1, 1),
                                             std::tuple(1, 1, 3), std::tuple(6, 1, 2)})
    run({.queryHeads = queryHeads, .keyHeads = keyHeads, .heads = heads, .width = 16, .valueWidth = 24,
         .sharedBeta = queryHeads == 2, .tokens = 5});
}

TEST(LinearAttention, DecayOfEachKey) {
  for (const char *rule : {"gated", "gated_delta"})
    for (int width : {32, 20})
      run({.type = "f16", .width = width, .valueWidth = 12, .rule = rule, .decayPerKey = true, .tokens = 40});
}

TEST(LinearAttention, NoTokensAndManyInStages) {
  for (int64_t tokens : {0, 33, 70})
    run({.width = 96, .valueWidth = 16, .batch = 1, .tokens = tokens});
}

TEST(LinearAttention, DecaysThatGrow) {
  for (int64_t tokens : {1, 30})
    run({.rule = "gated", .tokens = tokens, .meanDecay = 0.2});
}

std::string runChunked(Case c) {
  c.type = "bf16";
  const std::string source = run(c);
  EXPECT_NE(source.find("linear_attention_chunked<"), std::string::npos) << source;
  return source;
}

TEST(LinearAttention, ChunksOfEachRule) {
  for (const char *rule : {"linear", "gated", "delta", "gated_delta"})
    for (int64_t tokens : {16, 64, 150})
      runChunked({.rule = rule, .tokens = tokens, .meanDecay = -0.1});
}

TEST(LinearAttention, ChunksOfHeadSizes) {
  for (auto [width, valueWidth] :
       {std::pair(128, 128), std::pair(64, 80), std::pair(8, 8), std::pair(72, 200)})
    for (const char *stateType : {"f32", "bf16"})
      runChunked({.stateType = stateType,
                  .queryHeads = 1,
                  .keyHeads = 1,
                  .heads = 2,
                  .width = width,
                  .valueWidth = valueWidth,
                  .batch = 1,
                  .tokens = 100,
                  .meanDecay = -0.05});
}

/// Resets of the state between tokens that barely forget; decays that grow.
TEST(LinearAttention, ChunksWithAnyDecay) {
  for (double mean : {0.02, -30.0, -1000.0})
    runChunked({.rule = "gated_delta", .batch = 1, .tokens = 140, .meanDecay = mean});
}

/// What the chunks do not take: other types, decays of each key, several queries for one state, rows out of
/// line.
TEST(LinearAttention, OneByOneWhereChunksCannot) {
  auto isOneByOne = [](const Case &c) {
    EXPECT_NE(run(c).find("linear_attention_recurrent<"), std::string::npos);
  };
  isOneByOne({.type = "f16", .tokens = 70});
  isOneByOne({.type = "bf16", .decayPerKey = true, .tokens = 70});
  isOneByOne({.type = "bf16", .queryHeads = 4, .tokens = 70});
  isOneByOne({.type = "bf16", .width = 36, .tokens = 70});
  isOneByOne({.type = "bf16", .width = 136, .tokens = 20});
  isOneByOne({.type = "bf16", .tokens = 15});
}

} // namespace
} // namespace fusion::test
