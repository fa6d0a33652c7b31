// Attention whose mask says no more than which keys are the first and the last that each query looks at.
#include "AttentionCase.h"
#include "Parsed.h"

namespace fusion::test {
namespace {

struct Bounded {
  std::string type = "bf16";
  std::string above = "?x1x?x1", below;           ///< shapes of the limits; empty: there is none
  std::string aboveDims = R"("b", 1, "q", 1)", belowDims = R"("b", 1, "q", 1)";
  std::string upTo = "nn.less_equal %n, %a_", from = "nn.greater %n, %l_";
  std::string limits = "i64";
  std::string attributes = "scale = 0.2 : f32, zero_masked_rows = true";
  int width = 64;
  int heads = 8, kvHeads = 2;
};

std::string module(const Bounded &c) {
  const std::string q = fmt::format("tensor<?x{}x?x{}x{}>", c.heads, c.width, c.type);
  const std::string kv = fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, c.width, c.type);
  const std::string numbers = fmt::format("tensor<?x{}>", c.limits),
                    number = fmt::format("tensor<{}>", c.limits);
  auto limit = [&](const std::string &shape) { return fmt::format("tensor<{}x{}>", shape, c.limits); };
  auto maskOf = [](const std::string &shape) {
    return fmt::format("tensor<{}?xi1>", shape.substr(0, shape.size() - 1));
  };
  std::string arguments, bindings, types, body, mask;
  auto add = [&](const std::string &name, const std::string &type, const std::string &dims) {
    arguments += fmt::format("{}%{}: {} {{nn.dims = [{}]}}", arguments.empty() ? "" : ", ", name, type, dims);
    bindings += fmt::format("{}%{}_ = %{}", bindings.empty() ? "" : ", ", name, name);
    types += (types.empty() ? "" : ", ") + type;
  };
  add("q", q, fmt::format(R"("b", {}, "q", {})", c.heads, c.width));
  add("k", kv, fmt::format(R"("b", {}, "k", {})", c.kvHeads, c.width));
  add("v", kv, fmt::format(R"("b", {}, "k", {})", c.kvHeads, c.width));
  auto compare = [&](const char *name, const char *result, const std::string &shape, const std::string &dims,
                     const std::string &comparison) {
    if (shape.empty())
      return;
    add(name, limit(shape), dims);
    const bool numbersFirst = comparison.find("%n,") != std::string::npos;
    body +=
        fmt::format("%{} = {} : ({}, {}) -> {}\n", result, comparison, numbersFirst ? numbers : limit(shape),
                    numbersFirst ? limit(shape) : numbers, maskOf(shape));
    mask = mask.empty() ? maskOf(shape) : maskOf("?x1x?x1");
  };
  compare("a", "above", c.above, c.aboveDims, c.upTo);
  compare("l", "below", c.below, c.belowDims, c.from);
  std::string name = c.above.empty() ? "%below" : "%above";
  if (!c.above.empty() && !c.below.empty()) {
    body += fmt::format("%both = nn.and %above, %below : ({}, {}) -> {}\n", maskOf(c.above), maskOf(c.below),
                        mask);
    name = "%both";
  }
  return fmt::format(R"(
    func.func @main({0}) -> {1} {{
      %y = fusion.group "bounded_attention" schedule "attention" ({2}) : ({3}) -> {1} {{
        %zero = nn.constant {{value = dense<0> : {4}}} : () -> {4}
        %one = nn.constant {{value = dense<1> : {4}}} : () -> {4}
        %n = nn.iota %zero, %one {{size = ["k"]}} : ({4}, {4}) -> {5}
        {6}
        %p = nn.attention %q_, %k_, %v_, {7} {{{8}}} : ({1}, {9}, {9}, {10}) -> {1}
        fusion.yield %p : {1}
      }}
      return %y : {1}
    }})",
                     arguments, q, bindings, types, number, numbers, body, name, c.attributes, kv, mask);
}

/// Limits around the keys, some in front of the first and some behind the last.
auto filled(int64_t keys) {
  return [keys](unsigned index, Tensor &tensor) {
    fillRandom(tensor, index + 11);
    if (index < 3)
      return;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const auto place =
          static_cast<int64_t>((static_cast<uint64_t>(i) * 2654435761u + index * 977u) % 10007u);
      double limit = static_cast<double>(place % (keys + 20) - 8);
      if (index == 4)
        limit = static_cast<double>(place % 30 - 15);
      if (place % 13 == 0)
        limit = tensor.type() == DType::I64 ? (index == 3 ? 1e15 : -1e15) : (index == 3 ? 2e9 : -2e9);
      set(tensor, i, limit);
    }
  };
}

std::string run(const Bounded &c, int64_t batch, int64_t queries, int64_t keys, uint32_t arch = 90) {
  return check(attentionSchedule(),
               {module(c), sizes(batch, queries, keys), toleranceOf(c.type), filled(keys), true, arch});
}

TEST(AttentionBounds, FewQueries) {
  for (const char *type : {"bf16", "f32"})
    for (auto [batch, queries, keys] : {std::tuple(1, 1, 133), std::tuple(5, 1, 700), std::tuple(3, 4, 70),
                                        std::tuple(70, 1, 40), std::tuple(2, 2, 0)})
      run({.type = type}, batch, queries, keys);
}

TEST(AttentionBounds, ManyQueries) {
  for (auto [arch, kernel] :
       {std::pair(90u, "attention_prefill_tma<"), std::pair(80u, "attention_prefill_mma<")})
    for (auto [queries, keys] : {std::pair(40, 150), std::pair(300, 300), std::pair(70, 0)})
      EXPECT_NE(run({}, 2, queries, keys, arch).find(kernel), std::string::npos);
  run({.type = "f32"}, 2, 40, 90);
  run({.kvHeads = 1}, 2, 40, 90);
}

TEST(AttentionBounds, FirstKeys) {
  for (int queries : {1, 40})
    for (uint32_t arch : {90u, 80u}) {
      run({.below = "?x1x?x1"}, 2, queries, 90, arch);
      run({.below = "?x1x1x1", .belowDims = R"("b", 1, 1, 1)", .from = "nn.greater_equal %n, %l_"}, 2,
          queries, 90, arch);
    }
  run({.above = "", .below = "?x1x?x1"}, 2, 1, 90);
  run({.above = "", .below = "?x1x?x1"}, 2, 50, 90);
}

TEST(AttentionBounds, OtherSpellings) {
  for (int queries : {1, 40}) {
    run({.above = "?x1x1x1", .aboveDims = R"("b", 1, 1, 1)"}, 3, queries, 90);
    run({.above = "?x1", .aboveDims = R"("q", 1)"}, 3, queries, 90);
    run({.upTo = "nn.less %n, %a_", .limits = "i32"}, 2, queries, 90);
    run({.upTo = "nn.greater_equal %a_, %n"}, 2, queries, 90);
    run({.upTo = "nn.greater %a_, %n"}, 2, queries, 90);
    run({.below = "?x1x?x1", .from = "nn.less %l_, %n"}, 2, queries, 90);
  }
}

TEST(AttentionBounds, BesideOtherLimits) {
  for (int queries : {1, 7, 40})
    for (const char *attributes :
         {"scale = 0.2 : f32, zero_masked_rows = true, causal = true",
          "scale = 0.2 : f32, zero_masked_rows = true, causal = true, window = 20 : i64",
          "scale = 0.2 : f32, zero_masked_rows = true, softcap = 10.0 : f32"})
      run({.attributes = attributes}, 2, queries, 90);
}

TEST(AttentionBounds, HeadSizes) {
  for (int width : {72, 96, 128, 256})
    for (int queries : {1, 4, 40})
      run({.width = width}, 2, queries, 150);
}

TEST(AttentionBounds, Refusals) {
  auto reason = [](const Bounded &c) { return refusal(attentionSchedule(), module(c)); };
  EXPECT_EQ(reason({}), "");
  // A limit for each head.
  EXPECT_NE(reason({.above = "?x8x?x1", .aboveDims = R"("b", 8, "q", 1)"}).find("not bounds of the keys"),
            std::string::npos);
  std::string other = module({});
  other.replace(other.find(R"(size = ["k"])"), 12, R"(size = ["q"])");
  EXPECT_FALSE(refusal(attentionSchedule(), other).empty());
}

} // namespace
} // namespace fusion::test
