// Queries and keys in one kernel, and attention that writes in the order of its reader.
#include "Parsed.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) { return type == "f16" ? 6e-4 : type == "bf16" ? 5e-3 : 3e-6; }

struct Heads {
  std::string type = "f32", table = "f32", weight = "f32";
  int queries = 4, keys = 2, width = 32, rotary = 32;
  bool interleaved = false, foldedTable = false;
  std::string norm; ///< attributes of the norm; empty: no norm
};

/// q and k lie as [batch, sequence, heads, width], as products leave them, and are read transposed.
std::string module(const Heads &h) {
  auto tensor = [&](int heads) { return fmt::format("tensor<?x{}x?x{}x{}>", heads, h.width, h.type); };
  auto source = [&](int heads) { return fmt::format("tensor<?x?x{}x{}x{}>", heads, h.width, h.type); };
  const int entries = h.foldedTable ? h.rotary / 2 : h.rotary;
  const std::string table = fmt::format("tensor<1x1x?x{}x{}>", entries, h.table);
  const std::string weight = fmt::format("tensor<{}x{}>", h.width, h.weight);
  auto chain = [&](const char *name, int heads, const char *w) {
    std::string from = fmt::format("%{}_in", name), text;
    if (!h.norm.empty()) {
      text += fmt::format("%{0}_n = nn.rms_norm {1}, %{2} {{{3}}} : ({4}, {5}) -> {4}\n", name, from, w,
                          h.norm, tensor(heads), weight);
      from = fmt::format("%{}_n", name);
    }
    return text + fmt::format("%{0}_r = nn.rope {1}, %c, %s {{interleaved = {2}, rotary_dim = {3} : i64}} : "
                              "({4}, {5}, {5}) -> {4}\n",
                              name, from, h.interleaved, h.rotary, tensor(heads), table);
  };
  const std::string order = "{perm = array<i64: 0, 2, 1, 3>}";
  return fmt::format(R"(
    func.func @main(%q0: {0} {{nn.dims = ["b", "n", {6}, {8}]}}, %k0: {1} {{nn.dims = ["b", "n", {7}, {8}]}},
                    %cos: {2} {{nn.dims = [1, 1, "n", {9}]}}, %sin: {2} {{nn.dims = [1, 1, "n", {9}]}},
                    %qw: {3} {{nn.dims = [{8}]}}, %kw: {3} {{nn.dims = [{8}]}}) -> ({4}, {5}) {{
      %q = nn.transpose %q0 {10} : ({0}) -> {4}
      %k = nn.transpose %k0 {10} : ({1}) -> {5}
      %y:2 = fusion.group "rope" schedule "row" (%q_in = %q, %k_in = %k, %c = %cos, %s = %sin, %a = %qw, %d = %kw)
          : ({4}, {5}, {2}, {2}, {3}, {3}) -> ({4}, {5}) {{
        {11}{12}
        fusion.yield %q_r, %k_r : {4}, {5}
      }}
      return %y#0, %y#1 : {4}, {5}
    }})",
                     source(h.queries), source(h.keys), table, weight, tensor(h.queries), tensor(h.keys),
                     h.queries, h.keys, h.width, entries, order, chain("q", h.queries, "a"),
                     chain("k", h.keys, "d"));
}

SymbolValues sizes(int64_t batch, int64_t length) { return {{"b", batch}, {"n", length}}; }

TEST(Heads, QueriesAndKeys) {
  for (const char *type : {"f32", "f16", "bf16"})
    for (auto [queries, keys] : {std::pair(4, 2), std::pair(7, 1), std::pair(3, 3), std::pair(1, 5)})
      for (auto [batch, length] : {std::pair(1, 1), std::pair(2, 9)})
        check(rowSchedule(),
              {module({type, type, type, queries, keys}), sizes(batch, length), toleranceOf(type)});
}

TEST(Heads, PartsPairsAndTables) {
  for (bool interleaved : {false, true})
    for (bool folded : {false, true})
      for (int rotary : {16, 32, 64})
        check(rowSchedule(), {module({"bf16", "f32", "bf16", 4, 2, 64, rotary, interleaved, folded}),
                              sizes(2, 5), toleranceOf("bf16")});
}

TEST(Heads, Norms) {
  for (const char *norm :
       {"eps = 1.0e-6 : f32", "eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32"})
    for (const char *type : {"f32", "f16", "bf16"})
      for (int width : {32, 128, 256})
        for (bool folded : {false, true}) {
          Heads h{type, type, width == 128 ? "f32" : type, 6, 2, width, width / 2, false, folded, norm};
          check(rowSchedule(), {module(h), sizes(2, 3), toleranceOf(type)});
        }
}

/// A thread holds both elements of each pair: nothing is read again after the norm.
TEST(Heads, PairsStayInRegisters) {
  for (const char *type : {"f16", "bf16"})
    for (auto [width, rotary] :
         {std::pair(64, 64), std::pair(128, 128), std::pair(256, 256), std::pair(96, 96), std::pair(128, 64)})
      for (bool interleaved : {false, true})
        for (bool folded : {false, true}) {
          Heads h{type, type, type, 5, 3, width, rotary, interleaved, folded, "eps = 1.0e-6 : f32"};
          const std::string source = check(rowSchedule(), {module(h), sizes(2, 3), toleranceOf(type)});
          const size_t norm = source.find("void finish(Pass<0>");
          ASSERT_NE(norm, std::string::npos) << source;
          const std::string after = source.substr(norm, source.find("\n};", norm) - norm);
          EXPECT_EQ(after.find("load_vec"), std::string::npos) << source;
        }
}

/// Tokens first in memory: the heads of one token are neighbours in a block, and nothing divides by a
/// run-time size.
TEST(Heads, RowsInTheOrderOfMemory) {
  Heads h;
  h.norm = "eps = 1.0e-6 : f32";
  const std::string source = check(rowSchedule(), {module(h), sizes(1, 7), toleranceOf("f32")});
  EXPECT_NE(source.find("% 4u"), std::string::npos) << source;
}

/// Chains over rows of different lengths: the block is that of the longest.
TEST(Heads, ChainsOfDifferentLengths) {
  const std::string text = R"(
    func.func @main(%x: tensor<8x64xf32>, %y: tensor<4x4096xf32>, %v: tensor<64xf32>, %w: tensor<4096xf32>)
        -> (tensor<8x64xf32>, tensor<4x4096xf32>) {
      %r:2 = fusion.group "norms" schedule "row" (%a = %x, %b = %y, %c = %v, %d = %w)
          : (tensor<8x64xf32>, tensor<4x4096xf32>, tensor<64xf32>, tensor<4096xf32>)
          -> (tensor<8x64xf32>, tensor<4x4096xf32>) {
        %0 = nn.rms_norm %a, %c {eps = 1.0e-6 : f32} : (tensor<8x64xf32>, tensor<64xf32>) -> tensor<8x64xf32>
        %1 = nn.rms_norm %b, %d {eps = 1.0e-6 : f32} : (tensor<4x4096xf32>, tensor<4096xf32>) -> tensor<4x4096xf32>
        fusion.yield %0, %1 : tensor<8x64xf32>, tensor<4x4096xf32>
      }
      return %r#0, %r#1 : tensor<8x64xf32>, tensor<4x4096xf32>
    })";
  const std::string source = check(rowSchedule(), {text, {}, toleranceOf("f32")});
  EXPECT_NE(source.find("KERNEL(256)"), std::string::npos);
}

std::string attention(const std::string &type, const std::string &after, const std::string &yielded,
                      const std::string &result) {
  const std::string q = fmt::format("tensor<?x4x?x32x{}>", type),
                    v = fmt::format("tensor<?x2x?x16x{}>", type),
                    k = fmt::format("tensor<?x2x?x32x{}>", type),
                    y = fmt::format("tensor<?x4x?x16x{}>", type);
  return fmt::format(R"(
    func.func @main(%q: {0} {{nn.dims = ["b", 4, "q", 32]}}, %k: {1} {{nn.dims = ["b", 2, "k", 32]}},
                    %v: {2} {{nn.dims = ["b", 2, "k", 16]}}) -> {3} {{
      %y = fusion.group "attention_layout" schedule "attention" (%a = %q, %c = %k, %d = %v) : ({0}, {1}, {2}) -> {3} {{
        %0 = nn.attention %a, %c, %d {{scale = 0.25 : f32}} : ({0}, {1}, {2}) -> {4}
        {5}
        fusion.yield {6} : {3}
      }}
      return %y : {3}
    }})",
                     q, k, v, result, y, after, yielded);
}

TEST(AttentionLayout, TransposedAndReshaped) {
  for (const char *type : {"f32", "f16", "bf16"}) {
    const std::string y = fmt::format("tensor<?x4x?x16x{}>", type),
                      t = fmt::format("tensor<?x?x4x16x{}>", type),
                      r = fmt::format("tensor<?x?x64x{}>", type);
    const std::string transpose =
        fmt::format("%1 = nn.transpose %0 {{perm = array<i64: 0, 2, 1, 3>}} : ({}) -> {}\n", y, t);
    const std::string reshape =
        fmt::format("%2 = nn.reshape %1 {{shape = [\"b\", \"q\", 64]}} : ({}) -> {}\n", t, r);
    const SymbolValues values = {{"b", 2}, {"q", 5}, {"k", 9}};
    check(attentionSchedule(), {attention(type, transpose, "%1", t), values, toleranceOf(type)});
    check(attentionSchedule(), {attention(type, transpose + reshape, "%2", r), values, toleranceOf(type)});
  }
}

TEST(AttentionLayout, AnyOrder) {
  const std::string t = "tensor<16x?x?x4xf32>";
  check(attentionSchedule(),
        {attention("f32",
                   "%1 = nn.transpose %0 {perm = array<i64: 3, 0, 2, 1>} : (tensor<?x4x?x16xf32>) -> " + t +
                       "\n",
                   "%1", t),
         {{"b", 2}, {"q", 5}, {"k", 9}},
         toleranceOf("f32")});
}

TEST(AttentionLayout, Refusals) {
  const std::string y = "tensor<?x4x?x16xf32>";
  EXPECT_EQ(refusal(attentionSchedule(), attention("f32", "%1 = nn.silu %0 : (" + y + ") -> " + y, "%1", y)),
            "nn.silu after nn.attention");
}

TEST(Heads, ManyRowsArePrefetched) {
  Parsed parsed(module({"bf16", "bf16", "bf16", 32, 8, 128, 128, false, false, "eps = 1.0e-6 : f32"}));
  ASSERT_TRUE(parsed.target);
  KernelContext context = parsed.kernelContext(90);
  auto plan = rowSchedule().plan(parsed.region, context);
  ASSERT_TRUE(plan) << plan.error().message;
  const std::vector<Predicate> predicates = predicatesOf(*plan, parsed.region);
  ASSERT_EQ(predicates.size(), 2u);
  EXPECT_EQ(predicates[0].front().most + 1, predicates[1].front().least);
  std::vector<std::string> sources;
  for (const Predicate &when : predicates) {
    context.when = when;
    const KernelDraft draft = plan->emit(context);
    checkSpills(draft.kernel, Targets::One);
    sources.push_back(draft.kernel.source);
  }
  EXPECT_EQ(sources[0].find("prefetch_range("), std::string::npos);
  // 3 MB of 40 heads: of the queries four times as many rows as of the keys.
  for (const char *ahead : {"prefetchDistance = 9828;", "prefetchDistance = 2457;"})
    EXPECT_NE(sources[1].find(ahead), std::string::npos) << sources[1];
  // Four blocks of queries, one of keys.
  EXPECT_NE(sources[1].find("block_x() % 5u"), std::string::npos) << sources[1];
}

} // namespace
} // namespace fusion::test
