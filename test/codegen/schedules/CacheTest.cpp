// The rotations of queries and keys and the writes into the caches, in one kernel.
#include "Harness.h"

#include <fmt/format.h>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) { return type == "f16" ? 6e-4 : type == "bf16" ? 5e-3 : 3e-6; }

struct Cache {
  std::string type = "f32", table = "f32";
  int queries = 4, keys = 2, width = 32, valueWidth = 32, rotary = 32;
  bool interleaved = false;
  std::string norm = {};       ///< attributes of the norm; empty: no norm
  bool positionsFirst = false; ///< the cache lies as [batch, positions, heads, width]
};

/// q, k and v are slices of one packed product, read transposed. `p` positions are cached, `n` are new.
std::string module(const Cache &c) {
  auto heads = [&](int count, int width, const char *length) {
    return fmt::format("\"b\", {}, {}, {}", count, length, width);
  };
  auto tensor = [&](int count, int width) {
    return fmt::format("tensor<?x{}x?x{}x{}>", count, width, c.type);
  };
  auto split = [&](int count, int width) {
    return fmt::format("tensor<?x?x{}x{}x{}>", count, width, c.type);
  };
  auto flat = [&](int width) { return fmt::format("tensor<?x?x{}x{}>", width, c.type); };
  const int qWidth = c.queries * c.width, kWidth = c.keys * c.width, vWidth = c.keys * c.valueWidth;
  auto part = [&](const char *name, int start, int count, int width) {
    return fmt::format("%{0}_s = nn.slice %x {{starts = [0, 0, {1}], sizes = [\"b\", \"n\", {2}], steps = "
                       "array<i64: 1, 1, 1>}} : ({3}) -> {4}\n"
                       "%{0}_h = nn.reshape %{0}_s {{shape = [\"b\", \"n\", {5}, {6}]}} : ({4}) -> {7}\n"
                       "%{0} = nn.transpose %{0}_h {{perm = array<i64: 0, 2, 1, 3>}} : ({7}) -> {8}\n",
                       name, start, count * width, flat(qWidth + kWidth + vWidth), flat(count * width), count,
                       width, split(count, width), tensor(count, width));
  };
  const std::string table = fmt::format("tensor<1x1x?x{}x{}>", c.rotary, c.table);
  const std::string weight = fmt::format("tensor<{}x{}>", c.width, c.type);
  auto chain = [&](const char *name, int count) {
    std::string from = fmt::format("%{}_in", name), text;
    if (!c.norm.empty()) {
      text = fmt::format("%{0}_n = nn.rms_norm {1}, %w {{{2}}} : ({3}, {4}) -> {3}\n", name, from, c.norm,
                         tensor(count, c.width), weight);
      from = fmt::format("%{}_n", name);
    }
    return text + fmt::format("%{0}_r = nn.rope {1}, %c, %s {{interleaved = {2}, rotary_dim = {3} : i64}} : "
                              "({4}, {5}, {5}) -> {4}\n",
                              name, from, c.interleaved, c.rotary, tensor(count, c.width), table);
  };
  // In the cache's order of dims.
  auto stored = [&](int width) { return c.positionsFirst ? split(c.keys, width) : tensor(c.keys, width); };
  auto storedDims = [&](int width) {
    return c.positionsFirst ? fmt::format("\"b\", \"p\", {}, {}", c.keys, width)
                            : heads(c.keys, width, "\"p\"");
  };
  std::string writes;
  auto write = [&](const char *name, const char *from, int width) {
    std::string value = from;
    if (c.positionsFirst) {
      writes += fmt::format("%{}_t = nn.transpose {} {{perm = array<i64: 0, 2, 1, 3>}} : ({}) -> {}\n", name,
                            value, tensor(c.keys, width), stored(width));
      value = fmt::format("%{}_t", name);
    }
    writes += fmt::format("%{0}_c = nn.concat %{0}_past, {1} {{axis = {2} : i64}} : ({3}, {3}) -> {3}\n",
                          name, value, c.positionsFirst ? 1 : 2, stored(width));
  };
  write("k", "%k_r", c.width);
  write("v", "%v_in", c.valueWidth);
  return fmt::format(
      R"(
    func.func @main(%x: {0} {{nn.dims = ["b", "n", {1}]}}, %kp: {2} {{nn.dims = [{3}]}}, %vp: {4} {{nn.dims = [{5}]}},
                    %cos: {6} {{nn.dims = [1, 1, "n", {7}]}}, %sin: {6} {{nn.dims = [1, 1, "n", {7}]}},
                    %weight: {8}) -> ({9}, {2}, {4}) {{
      {10}{11}{12}
      %y:3 = fusion.group "rope_kv_write" schedule "row" (%q_in = %q, %k_in = %k, %v_in = %v, %k_past = %kp, %v_past = %vp,
                                                          %c = %cos, %s = %sin, %w = %weight)
          : ({9}, {13}, {14}, {2}, {4}, {6}, {6}, {8}) -> ({9}, {2}, {4}) {{
        {15}{16}{17}
        fusion.yield %q_r, %k_c, %v_c : {9}, {2}, {4}
      }}
      return %y#0, %y#1, %y#2 : {9}, {2}, {4}
    }})",
      flat(qWidth + kWidth + vWidth), qWidth + kWidth + vWidth, stored(c.width), storedDims(c.width),
      stored(c.valueWidth), storedDims(c.valueWidth), table, c.rotary, weight, tensor(c.queries, c.width),
      part("q", 0, c.queries, c.width), part("k", qWidth, c.keys, c.width),
      part("v", qWidth + kWidth, c.keys, c.valueWidth), tensor(c.keys, c.width), tensor(c.keys, c.valueWidth),
      chain("q", c.queries), chain("k", c.keys), writes);
}

SymbolValues sizes(int64_t batch, int64_t past, int64_t fresh) {
  return {{"b", batch}, {"p", past}, {"n", fresh}};
}

TEST(Cache, Sizes) {
  for (const char *type : {"f32", "f16", "bf16"})
    for (auto [queries, keys] : {std::pair(4, 2), std::pair(7, 1), std::pair(3, 3)})
      for (auto [batch, past, fresh] :
           {std::tuple(1, 0, 1), std::tuple(2, 7, 1), std::tuple(1, 33, 5), std::tuple(3, 1, 0)})
        check(rowSchedule(),
              {module({type, type, queries, keys}), sizes(batch, past, fresh), toleranceOf(type)});
}

TEST(Cache, WidthsPartsAndPairs) {
  for (auto [width, valueWidth] :
       {std::pair(64, 64), std::pair(128, 128), std::pair(96, 64), std::pair(20, 33)})
    for (bool interleaved : {false, true})
      for (int rotary : {width, width / 2})
        check(rowSchedule(), {module({"bf16", "f32", 3, 1, width, valueWidth, rotary, interleaved}),
                              sizes(2, 5, 3), toleranceOf("bf16")});
}

TEST(Cache, Norms) {
  for (const char *norm :
       {"eps = 1.0e-6 : f32", "eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32"})
    for (const char *type : {"f32", "f16", "bf16"})
      check(rowSchedule(),
            {module({type, type, 6, 2, 128, 128, 128, false, norm}), sizes(2, 9, 2), toleranceOf(type)});
}

TEST(Cache, PositionsFirst) {
  for (const char *type : {"f32", "f16"})
    check(rowSchedule(),
          {module({type, type, 4, 2, 64, 64, 64, false, {}, true}), sizes(2, 6, 3), toleranceOf(type)});
}

/// Past and new rows are moved 16 bytes at a time.
TEST(Cache, CopiesVectors) {
  std::string source = check(rowSchedule(), {module({"f16", "f16", 4, 2, 64, 64, 64}), sizes(1, 3, 1), 6e-4});
  EXPECT_EQ(source.find("= load("), std::string::npos) << source;
  EXPECT_NE(source.find("load_vec<f16, 8>"), std::string::npos) << source;
}

} // namespace
} // namespace fusion::test
