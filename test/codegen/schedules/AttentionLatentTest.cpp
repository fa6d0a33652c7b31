// Attention over a compressed cache, whose heads are larger than a warp's registers hold.
#include "AttentionCase.h"
#include "Parsed.h"

namespace fusion::test {
namespace {

struct Latent {
  std::string type = "bf16";
  int heads = 16, kvHeads = 1, values = 512, rotated = 64;
  std::string attributes = "scale = 0.05 : f32, causal = true";
  std::string mask = "", maskDims = "";
  int width() const { return values + rotated; }
};

std::string maskArgument(const Latent &l) {
  return l.mask.empty() ? "" : fmt::format(", %m: tensor<{}> {{nn.dims = [{}]}}", l.mask, l.maskDims);
}

/// One cache, of which the values are a part.
std::string ofOneCache(const Latent &l) {
  const std::string q = fmt::format("tensor<?x{}x?x{}x{}>", l.heads, l.width(), l.type);
  const std::string k = fmt::format("tensor<?x{}x?x{}x{}>", l.kvHeads, l.width(), l.type);
  const std::string v = fmt::format("tensor<?x{}x?x{}x{}>", l.kvHeads, l.values, l.type);
  const std::string y = fmt::format("tensor<?x{}x?x{}x{}>", l.heads, l.values, l.type);
  return fmt::format(R"(
    func.func @main(%q: {0} {{nn.dims = ["b", {4}, "q", {7}]}}, %k: {1} {{nn.dims = ["b", {5}, "k", {7}]}}{8}) -> {3} {{
      %v = nn.slice %k {{starts = [0, 0, 0, 0], sizes = ["b", {5}, "k", {6}], steps = array<i64: 1, 1, 1, 1>}} : ({1}) -> {2}
      %y = nn.attention %q, %k, %v{9} {{{10}}} : ({0}, {1}, {2}{11}) -> {3}
      return %y : {3}
    }})",
                     q, k, v, y, l.heads, l.kvHeads, l.values, l.width(), maskArgument(l),
                     l.mask.empty() ? "" : ", %m", l.attributes,
                     l.mask.empty() ? "" : fmt::format(", tensor<{}>", l.mask));
}

/// Two caches, and queries in two parts. The keys are put together in the region.
std::string ofTwoCaches(const Latent &l, bool joinsQueries = true) {
  auto tensor = [&](int heads, int width) {
    return fmt::format("tensor<?x{}x?x{}x{}>", heads, width, l.type);
  };
  const std::string qn = tensor(l.heads, l.values), qr = tensor(l.heads, l.rotated),
                    kn = tensor(l.kvHeads, l.values), kr = tensor(l.kvHeads, l.rotated),
                    q = tensor(l.heads, l.width()), k = tensor(l.kvHeads, l.width());
  const std::string queries =
      joinsQueries
          ? fmt::format(
                R"(%qn: {0} {{nn.dims = ["b", {2}, "q", {3}]}}, %qr: {1} {{nn.dims = ["b", {2}, "q", {4}]}})",
                qn, qr, l.heads, l.values, l.rotated)
          : fmt::format(R"(%qa: {0} {{nn.dims = ["b", {1}, "q", {2}]}})", q, l.heads, l.width());
  return fmt::format(
      R"(
    func.func @main({0}, %kn: {1} {{nn.dims = ["b", {2}, "k", {3}]}}, %kr: {4} {{nn.dims = ["b", {2}, "k", {5}]}}) -> {6} {{
      %y = fusion.group "latent_attention" schedule "attention" ({7}, %c = %kn, %r = %kr) : ({8}, {1}, {4}) -> {6} {{
        {9}
        %k = nn.concat %c, %r {{axis = 3 : i64}} : ({1}, {4}) -> {10}
        %p = nn.attention %q, %k, %c {{{11}}} : ({12}, {10}, {1}) -> {6}
        fusion.yield %p : {6}
      }}
      return %y : {6}
    }})",
      queries, kn, l.kvHeads, l.values, kr, l.rotated, qn, joinsQueries ? "%a = %qn, %b = %qr" : "%q = %qa",
      joinsQueries ? qn + ", " + qr : q,
      joinsQueries ? fmt::format("%q = nn.concat %a, %b {{axis = 3 : i64}} : ({}, {}) -> {}", qn, qr, q) : "",
      k, l.attributes, q);
}

std::string run(const std::string &text, const std::string &type, const SymbolValues &sizes) {
  const std::string source = check(attentionSchedule(), {text, sizes, toleranceOf(type)});
  EXPECT_NE(source.find("attention_latent<"), std::string::npos) << source;
  return source;
}

TEST(AttentionLatent, OneCache) {
  for (const char *type : {"bf16", "f16"})
    for (auto [batch, queries, keys] :
         {std::tuple(1, 1, 200), std::tuple(3, 2, 64), std::tuple(2, 9, 131), std::tuple(1, 4, 4)})
      run(ofOneCache({.type = type}), type, sizes(batch, queries, keys));
}

TEST(AttentionLatent, TwoCaches) {
  for (const char *type : {"bf16", "f16"})
    for (auto [batch, queries, keys] : {std::tuple(1, 1, 150), std::tuple(2, 5, 70)})
      for (bool joinsQueries : {true, false})
        run(ofTwoCaches({.type = type}, joinsQueries), type, sizes(batch, queries, keys));
}

TEST(AttentionLatent, HeadsAndWidths) {
  for (auto [heads, values, rotated] :
       {std::tuple(128, 512, 64), std::tuple(5, 256, 32), std::tuple(64, 384, 8), std::tuple(1, 512, 0),
        std::tuple(20, 128, 256)})
    run(ofOneCache({.heads = heads, .values = values, .rotated = rotated}), "bf16", sizes(2, 3, 77));
}

TEST(AttentionLatent, SeveralHeadsOfKeys) {
  run(ofOneCache({.heads = 6, .kvHeads = 2}), "bf16", sizes(2, 30, 100));
}

TEST(AttentionLatent, MasksAndLimits) {
  struct Mask {
    const char *type, *dims;
  };
  for (const char *attributes : {"scale = 0.05 : f32", "scale = 0.05 : f32, causal = true, window = 7 : i64",
                                 "scale = 0.05 : f32, softcap = 3.0 : f32"})
    run(ofOneCache({.attributes = attributes}), "bf16", sizes(2, 6, 90));
  for (Mask mask : {Mask{"?x1x?x?xi1", "\"b\", 1, \"q\", \"k\""}, Mask{"?x?xf32", "\"q\", \"k\""},
                    Mask{"?x16x?x?xbf16", "\"b\", 16, \"q\", \"k\""}})
    run(ofOneCache({.attributes = "scale = 0.05 : f32, zero_masked_rows = true",
                    .mask = mask.type,
                    .maskDims = mask.dims}),
        "bf16", sizes(2, 6, 90));
}

TEST(AttentionLatent, NoKeys) {
  run(ofOneCache({.attributes = "scale = 0.05 : f32"}), "bf16", sizes(2, 3, 0));
}

/// Blocks of a cluster share keys; where there are few for them some have none.
TEST(AttentionLatent, ClustersByTheirNumber) {
  const std::string text = ofOneCache({.heads = 128});
  for (auto [batch, blocks] :
       {std::pair(1, 8), std::pair(10, 5), std::pair(19, 3), std::pair(30, 2), std::pair(40, 1)})
    for (int keys : {30, 300}) {
      const std::string source = run(text, "bf16", sizes(batch, 1, keys));
      EXPECT_NE(source.find(fmt::format("cluster = {}, splits = 1,", blocks)), std::string::npos) << source;
    }
}

/// As the one head of a picture's decoder has them, too.
TEST(AttentionLatent, ValuesOfTheirOwn) {
  for (auto [heads, width, valueWidth] :
       {std::tuple(16, 576, 512), std::tuple(1, 512, 512), std::tuple(4, 64, 384)}) {
    Attention a{"bf16", heads, 1, width, valueWidth, "", "", "scale = 0.05 : f32, causal = true"};
    run(module(a), "bf16", sizes(2, 70 / heads, 140));
  }
}

TEST(AttentionLatent, Refusals) {
  auto reason = [](const std::string &text) { return refusal(attentionSchedule(), text); };
  EXPECT_NE(reason(ofOneCache({.values = 320, .rotated = 0})).find("multiples of 128"), std::string::npos);
  EXPECT_NE(reason(ofOneCache({.values = 512, .rotated = 72})).find("not at most 576"), std::string::npos);
  EXPECT_NE(reason(ofOneCache({.type = "f32"})).find("f32 has no matrix products"), std::string::npos);
  EXPECT_NE(reason(ofTwoCaches({.values = 128})).find("in two tensors"), std::string::npos);
  EXPECT_NE(reason(ofTwoCaches({.values = 288, .rotated = 96})).find("288"), std::string::npos);
}

} // namespace
} // namespace fusion::test
