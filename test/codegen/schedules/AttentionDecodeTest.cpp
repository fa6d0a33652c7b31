// The kernel for a few rows of queries.
#include "AttentionCase.h"
#include "Parsed.h"

#include <limits>

namespace fusion::test {
namespace {

void checkDecode(const Attention &a, const SymbolValues &symbols,
                 const std::function<void(unsigned, Tensor &)> &fill = {}) {
  const std::string source = check(attentionSchedule(), {module(a), symbols, toleranceOf(a.type), fill});
  if (*Dim::symbol("q").evaluate(symbols) == 0)
    return;
  const bool readsVectors = a.type != "f32" && a.width % 8 == 0 && a.valueWidth % 8 == 0;
  EXPECT_NE(source.find(readsVectors ? "attention_decode_mma<" : "attention_decode_fma<"), std::string::npos)
      << "another kernel\n" << source;
}

TEST(AttentionDecode, HeadSizes) {
  for (const char *type : {"f16", "bf16"})
    for (auto [width, valueWidth] :
         {std::pair(64, 64), std::pair(80, 80), std::pair(96, 96), std::pair(128, 128), std::pair(256, 256),
          std::pair(192, 128), std::pair(8, 24), std::pair(72, 256)})
      checkDecode({type, 8, 2, width, valueWidth, "", "", "scale = 0.1 : f32"}, sizes(2, 1, 133));
}

TEST(AttentionDecode, AnyHeadSizes) {
  for (auto [type, width, valueWidth] :
       {std::tuple("f32", 64, 64), std::tuple("f32", 128, 128), std::tuple("f32", 256, 256),
        std::tuple("f32", 80, 96), std::tuple("f32", 7, 13), std::tuple("f16", 65, 64),
        std::tuple("bf16", 1, 255), std::tuple("f16", 100, 12)})
    checkDecode({type, 8, 2, width, valueWidth, "", "", "scale = 0.1 : f32"}, sizes(2, 1, 133));
}

TEST(AttentionDecode, SharedMemoryOfEachArchitecture) {
  const Attention a{"bf16", 8, 2, 256, 256};
  for (auto [arch, kib] :
       {std::pair(80u, 163u), std::pair(86u, 99u), std::pair(89u, 99u), std::pair(90u, 227u)}) {
    Parsed parsed(module(a));
    ASSERT_TRUE(parsed.target);
    KernelContext context = parsed.kernelContext(arch);
    auto plan = attentionSchedule().plan(parsed.region, context);
    ASSERT_TRUE(plan) << plan.error().message;
    const std::vector<Predicate> predicates = predicatesOf(*plan, parsed.region);
    context.when = predicates.front();
    const KernelDraft draft = plan->emit(context);
    EXPECT_LE(draft.kernel.dynamicSharedBytes, (kib - 26) * 1024) << arch;
  }
}

TEST(AttentionDecode, GroupsAndQueries) {
  for (const char *type : {"bf16", "f32"})
    for (auto [heads, kvHeads] :
         {std::pair(2, 2), std::pair(6, 2), std::pair(8, 2), std::pair(8, 1), std::pair(40, 2)})
      for (int queries : {0, 1, 2, 4})
        checkDecode({type, heads, kvHeads, 64, 64, "", "", "scale = 0.1 : f32, causal = true"},
                    sizes(2, queries, 70));
}

// Rows that fit in one tile have a kernel with one.
TEST(AttentionDecode, TilesOfRows) {
  for (auto [heads, queries, tiles] :
       {std::tuple(8, 2, 1), std::tuple(8, 3, 2), std::tuple(16, 1, 1), std::tuple(32, 1, 2)}) {
    const Attention a{"bf16", heads, 2, 64, 64, "", "", "scale = 0.1 : f32, causal = true"};
    const std::string source =
        check(attentionSchedule(), {module(a), sizes(2, queries, 70), toleranceOf(a.type)});
    EXPECT_NE(source.find(fmt::format("row_tiles = {},", tiles)), std::string::npos)
        << heads << " " << queries << source;
  }
}

// Fewer blocks share the keys of each the more heads there are. Two streams of a warp take turns.
TEST(AttentionDecode, ManyHeads) {
  for (auto [batch, keys] : {std::pair(12, 150), std::pair(20, 700), std::pair(40, 150)})
    for (const char *type : {"f16", "f32"})
      checkDecode({type, 4, 2, 32, 32, "", "", "scale = 0.3 : f32, causal = true"}, sizes(batch, 2, keys));
}

// Where a block has all keys of a head, two such blocks of six warps share a multiprocessor's registers.
TEST(AttentionDecode, OneBlockForAllKeys) {
  for (auto [depth, heads, warps, streams] :
       {std::tuple(64, 4, 6, 2), std::tuple(64, 16, 8, 1), std::tuple(128, 4, 8, 1)})
    for (int keys : {3, 96, 97, 250}) {
      const Attention a{"bf16", heads, 1, depth, depth, "", "", "scale = 0.2 : f32, causal = true"};
      const std::string source =
          check(attentionSchedule(), {module(a), sizes(68, 1, keys), toleranceOf(a.type)});
      EXPECT_NE(source.find("cluster = 1,"), std::string::npos);
      EXPECT_NE(source.find(fmt::format("warps = {},", warps)), std::string::npos) << source;
      EXPECT_NE(source.find(fmt::format("streams = {}", streams)), std::string::npos) << source;
      EXPECT_EQ(source.find("ring = "), std::string::npos) << source;
    }
}

TEST(AttentionDecode, KeyCounts) {
  for (int keys : {0, 1, 15, 16, 17, 64, 65, 512, 513, 1200})
    for (auto [type, zero] : {std::pair("f16", "true"), std::pair("f32", "false")})
      checkDecode({type, 4, 1, 64, 64, "", "", std::string("scale = 0.2 : f32, zero_masked_rows = ") + zero},
                  sizes(1, 1, keys));
}

TEST(AttentionDecode, CausalWindowAndCap) {
  for (const char *attributes :
       {"causal = true, window = 5 : i64", "window = 40 : i64", "causal = true, softcap = 3.0 : f32",
        "causal = true, zero_masked_rows = true", "causal = true, window = 20 : i64, softcap = 2.0 : f32"})
    for (auto [queries, keys] : {std::pair(3, 90), std::pair(1, 90), std::pair(4, 2), std::pair(2, 600)})
      for (const char *type : {"f16", "f32"})
        checkDecode({type, 4, 2, 32, 32, "", "", std::string("scale = 0.3 : f32, ") + attributes},
                    sizes(1, queries, keys));
}

TEST(AttentionDecode, MasksBroadcast) {
  struct Mask {
    const char *type, *dims;
  };
  for (Mask mask : {Mask{"?x1x?x?xi1", "\"b\", 1, \"q\", \"k\""},
                    Mask{"?x4x?x?xf32", "\"b\", 4, \"q\", \"k\""}, Mask{"?x?xf16", "\"q\", \"k\""},
                    Mask{"?x1x1x?xi1", "\"b\", 1, 1, \"k\""}, Mask{"1x1x?x1xf32", "1, 1, \"q\", 1"}})
    for (auto [type, queries] : {std::pair("f16", 1), std::pair("f16", 4), std::pair("f32", 3)}) {
      Attention a{type};
      a.mask = mask.type;
      a.maskDims = mask.dims;
      checkDecode(a, sizes(3, queries, 83));
    }
}

TEST(AttentionDecode, MaskedRowsAndLargeScores) {
  // The first row keeps nothing, and the largest score of the others comes late.
  auto nothing = [](unsigned index, Tensor &tensor) {
    for (int64_t i = 0; index == 3 && i < tensor.size(); ++i)
      set(tensor, i, i < 300 ? -std::numeric_limits<double>::infinity() : i % 300 == 290 ? 50 : 0);
  };
  for (auto [type, zero] :
       {std::pair("bf16", "true"), std::pair("bf16", "false"), std::pair("f32", "true")}) {
    Attention a{type};
    a.mask = "?x1x?x?xf32";
    a.maskDims = "\"b\", 1, \"q\", \"k\"";
    a.attributes = std::string("scale = 0.25 : f32, zero_masked_rows = ") + zero;
    checkDecode(a, sizes(2, 2, 300), nothing);
  }
}

// Weights are not rounded to 16 bits: values that cancel to a thousandth show it.
TEST(AttentionDecode, WeightsKeepTheirDigits) {
  auto cancel = [](unsigned index, Tensor &tensor) {
    for (int64_t i = 0; index == 2 && i < tensor.size(); ++i)
      set(tensor, i, (i / 64 % 2 == 0 ? 1 : -1) * (i / 64 % 4 < 2 ? 1.0 : 0.75));
    for (int64_t i = 0; index == 1 && i < tensor.size(); ++i)
      set(tensor, i,
          0.001 * static_cast<double>(i / 128 % 97 * (i / 64 % 2 == 0 ? 1 : 1)) +
              0.01 * static_cast<double>(i % 7));
  };
  for (const char *type : {"f16", "bf16"})
    checkDecode({type, 4, 1, 64, 64, "", "", "scale = 0.125 : f32"}, sizes(1, 1, 1024), cancel);
}

// Keys and values in place in a cache with room for more, whose rest holds anything.
struct Cache {
  const char *type = "bf16";
  int depth = 64, heads = 4, rows = 200, keys = 77;
  bool byPosition = false; ///< of values: rows of a head lie apart
};

std::string inPlace(const Cache &c) {
  const std::string keys = fmt::format("tensor<?x2x{}x{}x{}>", c.rows, c.depth, c.type),
                    values =
                        c.byPosition ? fmt::format("tensor<?x{}x2x{}x{}>", c.rows, c.depth, c.type) : keys,
                    part = fmt::format("tensor<?x2x?x{}x{}>", c.depth, c.type),
                    queries = fmt::format("tensor<?x{}x?x{}x{}>", c.heads, c.depth, c.type);
  return fmt::format(R"(
    func.func @main(%q: {0} {{nn.dims = ["b", {1}, "q", {2}]}}, %kc: {3} {{nn.dims = ["b", 2, {4}, {2}]}},
                    %vc: {5} {{nn.dims = ["b", {6}, {2}]}}, %l: tensor<?xf32> {{nn.dims = ["k"]}}) -> {0} {{
      %k = nn.slice %kc {{starts = [0, 0, 0, 0], sizes = ["b", 2, "k", {2}], steps = array<i64: 1, 1, 1, 1>}} : ({3}) -> {7}
      %t = nn.transpose %vc {{perm = array<i64: {8}>}} : ({5}) -> {3}
      %v = nn.slice %t {{starts = [0, 0, 0, 0], sizes = ["b", 2, "k", {2}], steps = array<i64: 1, 1, 1, 1>}} : ({3}) -> {7}
      %y = nn.attention %q, %k, %v {{scale = 0.2 : f32, causal = true}} : ({0}, {7}, {7}) -> {0}
      return %y : {0}
    }})",
                     queries, c.heads, c.depth, keys, c.rows, values,
                     c.byPosition ? fmt::format("{}, 2", c.rows) : fmt::format("2, {}", c.rows), part,
                     c.byPosition ? "0, 2, 1, 3" : "0, 1, 2, 3");
}

/// The source of its kernel, checked for so many entries of so many queries.
std::string checkInPlace(const Cache &c, int batch, int queries) {
  auto poison = [&](unsigned index, Tensor &tensor) {
    const int ofValues = c.byPosition ? 2 * c.depth : c.depth;
    for (int64_t i = 0; i < tensor.size(); ++i)
      if ((index == 1 && i / c.depth % c.rows >= c.keys) || (index == 2 && i / ofValues % c.rows >= c.keys))
        set(tensor, i, std::numeric_limits<double>::quiet_NaN());
  };
  return check(attentionSchedule(),
               {inPlace(c), {{"b", batch}, {"q", queries}, {"k", c.keys}}, toleranceOf(c.type), poison});
}

TEST(AttentionDecode, CacheInPlace) {
  for (bool byPosition : {true, false})
    for (int batch : {0, 1, 3})
      EXPECT_EQ(checkInPlace({.byPosition = byPosition}, batch, 2).find("attention_decode_mma<") !=
                    std::string::npos,
                batch > 0);
}

// In a cache of fixed length, where a block has all keys of a head, they come through a ring: of 128 KiB, or
// of 64 where there are more heads than multiprocessors, if that is two tiles. Not where rows lie apart, or
// heads multiples of 4 KiB, or of two tiles of rows.
TEST(AttentionDecode, Ring) {
  auto expect = [](const Cache &c, int batch, int ring) {
    const std::string source = checkInPlace(c, batch, 1);
    EXPECT_NE(source.find("cluster = 1,"), std::string::npos);
    EXPECT_EQ(source.find("ring = ") != std::string::npos, ring > 0) << source;
    if (ring > 0)
      EXPECT_NE(source.find(fmt::format("ring = {};", ring)), std::string::npos) << source;
  };
  for (int keys : {1, 16, 77, 129, 250}) {
    expect({"bf16", 64, 4, 258, keys}, 34, 4);
    expect({"f16", 64, 8, 258, keys}, 67, 2);
    expect({"bf16", 128, 4, 258, keys}, 67, 2);
    expect({"f16", 72, 2, 258, keys}, 34, 3);
    expect({"bf16", 32, 2, 258, keys}, 67, 4);
  }
  expect({"bf16", 64, 4, 1102, 1101}, 34, 4);
  expect({"bf16", 64, 4, 256, 77}, 34, 0);
  expect({"bf16", 64, 4, 258, 77, true}, 34, 0);
  expect({"bf16", 64, 32, 258, 77}, 34, 0);
}

} // namespace
} // namespace fusion::test
