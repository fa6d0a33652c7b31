// Modules of one rope_attention, with caches in place.
#pragma once

#include <fmt/format.h>

#include <string>

namespace fusion::test {

inline double toleranceOf(const std::string &type) {
  return type == "f16" ? 1e-3 : type == "bf16" ? 8e-3 : 3e-6;
}

struct RopeAttention {
  std::string type = "bf16";
  int heads = 4, kvHeads = 2, width = 64, valueWidth = 64, rotary = 64;
  std::string fresh = "1"; ///< new positions: a number, or a symbol
  bool interleaved = false, merged = false;
  bool rotatesQueries = true, rotatesKeys = true; ///< else they are read, written as they are
  std::string norm = {}, after = {}; ///< attributes of a norm of queries and keys, before or after rotations
  std::string attributes = "scale = 0.2 : f32";
  bool masked = false;
  std::string capacity = "2048", batch = "b";
  /// New rows go where data says, into caches of a fixed length or longer ones, and a mask leaves the keys up
  /// to each one.
  bool placed = false, grows = false;
  std::string codes = {}; ///< type of the caches, if they hold codes of one scale
};

/// Queries, keys and values are slices of one packed product; `p` positions are cached.
inline std::string module(const RopeAttention &c) {
  const bool isStatic = c.fresh.find_first_not_of("0123456789") == std::string::npos,
             hasBatch = c.batch.find_first_not_of("0123456789") == std::string::npos;
  const std::string n = isStatic ? c.fresh : "?", symbol = isStatic ? c.fresh : "\"" + c.fresh + "\"",
                    b = hasBatch ? c.batch : "?", batch = hasBatch ? c.batch : "\"" + c.batch + "\"";
  auto split = [&](int count, int width) {
    return fmt::format("tensor<{}x{}x{}x{}x{}>", b, n, count, width, c.type);
  };
  auto tensor = [&](int count, int width) {
    return fmt::format("tensor<{}x{}x{}x{}x{}>", b, count, n, width, c.type);
  };
  auto stored = [&](int width, const std::string &type) {
    return fmt::format("tensor<{}x{}x?x{}x{}>", b, c.kvHeads, width, type);
  };
  auto cache = [&](int width) { return stored(width, c.codes.empty() ? c.type : c.codes); };
  auto flat = [&](int width) { return fmt::format("tensor<{}x{}x{}x{}>", b, n, width, c.type); };
  const int qWidth = c.heads * c.width, kWidth = c.kvHeads * c.width, vWidth = c.kvHeads * c.valueWidth;
  auto part = [&](const char *name, int start, int count, int width) {
    return fmt::format("%{0}_s = nn.slice %x {{starts = [0, 0, {1}], sizes = [{9}, {10}, {2}], steps = "
                       "array<i64: 1, 1, 1>}} : ({3}) -> {4}\n"
                       "%{0}_h = nn.reshape %{0}_s {{shape = [{9}, {10}, {5}, {6}]}} : ({4}) -> {7}\n"
                       "%{0} = nn.transpose %{0}_h {{perm = array<i64: 0, 2, 1, 3>}} : ({7}) -> {8}\n",
                       name, start, count * width, flat(qWidth + kWidth + vWidth), flat(count * width), count,
                       width, split(count, width), tensor(count, width), batch, symbol);
  };
  const std::string table =
      fmt::format("tensor<1x1x{}x{}x{}>", n, c.interleaved ? c.rotary / 2 : c.rotary, c.type);
  const std::string weight = fmt::format("tensor<{}x{}>", c.width, c.type);
  auto chain = [&](const char *name, int count, bool rotates) {
    std::string from = fmt::format("%{}_in", name), text;
    if (!rotates)
      return std::pair(text, from);
    auto norm = [&](const char *suffix, const std::string &attributes) {
      if (attributes.empty())
        return;
      text += fmt::format("%{0}_{5} = nn.rms_norm {1}, %w {{{2}}} : ({3}, {4}) -> {3}\n", name, from,
                          attributes, tensor(count, c.width), weight, suffix);
      from = fmt::format("%{}_{}", name, suffix);
    };
    norm("n", c.norm);
    text += fmt::format("%{0}_t = nn.rope {1}, %c, %s {{interleaved = {2}, rotary_dim = {3} : i64}} : "
                        "({4}, {5}, {5}) -> {4}\n",
                        name, from, c.interleaved, c.rotary, tensor(count, c.width), table);
    from = fmt::format("%{}_t", name);
    norm("a", c.after);
    return std::pair(text, from);
  };
  const auto [queryOps, q] = chain("q", c.heads, c.rotatesQueries);
  const auto [keyOps, k] = chain("k", c.kvHeads, c.rotatesKeys);
  const std::string rows = fmt::format("tensor<{}x1x{}x1xi64>", b, n),
                    bound = fmt::format("tensor<{}x1x{}x?xi1>", b, n);
  auto write = [&](const char *name, std::string from, int width) {
    std::string fresh = tensor(c.kvHeads, width), text, decoded;
    if (!c.codes.empty()) {
      const std::string codes = fmt::format("tensor<{}x{}x{}x{}x{}>", b, c.kvHeads, n, width, c.codes);
      text = fmt::format("%{}_q = nn.quantize {}, %sc : ({}, tensor<f32>) -> {}\n", name, from, fresh, codes);
      decoded = fmt::format("%{0}_d = nn.dequantize %{0}_c, %sc : ({1}, tensor<f32>) -> {2}\n", name,
                            cache(width), stored(width, c.type));
      from = fmt::format("%{}_q", name);
      fresh = codes;
    }
    if (c.placed)
      text += fmt::format("%{0}_c = nn.cache_write %{0}_past, {1}, %at {{axis = 2 : i64, grows = {4}}} : "
                          "({2}, {3}, {5}) -> {2}\n",
                          name, from, cache(width), fresh, c.grows, rows);
    else
      text += fmt::format("%{0}_c = nn.concat %{0}_past, {1} {{axis = 2 : i64}} : ({2}, {3}) -> {2}\n", name,
                          from, cache(width), fresh);
    return text + decoded;
  };
  const std::string mask = c.placed ? bound : fmt::format("tensor<{}x1x{}x?xf32>", b, n);
  std::string bounds;
  if (c.placed)
    bounds = fmt::format(
        "%zero = nn.constant {{value = dense<0> : tensor<i64>}} : () -> tensor<i64>\n"
        "%one = nn.constant {{value = dense<1> : tensor<i64>}} : () -> tensor<i64>\n"
        "%numbers = nn.iota %zero, %one {{size = [\"{0}\"]}} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>\n"
        "%seen = nn.less_equal %numbers, %at : (tensor<?xi64>, {1}) -> {2}\n",
        c.grows ? "p + " + c.fresh : "p", rows, bound);
  std::string y = tensor(c.heads, c.valueWidth), tail;
  std::string result = "%y0";
  if (c.merged) {
    const std::string turned = split(c.heads, c.valueWidth);
    tail = fmt::format("%y1 = nn.transpose %y0 {{perm = array<i64: 0, 2, 1, 3>}} : ({}) -> {}\n", y, turned);
    tail += fmt::format("%y2 = nn.reshape %y1 {{shape = [{}, {}, {}]}} : ({}) -> {}\n", batch, symbol,
                        c.heads * c.valueWidth, turned, flat(c.heads * c.valueWidth));
    y = flat(c.heads * c.valueWidth);
    result = "%y2";
  }
  auto argument = [&](const char *name, int width) {
    return fmt::format("%{0}: {1} {{nn.dims = [{2}, {3}, \"p\", {4}], nn.storage = [{2}, {3}, {5}, {4}]}}",
                       name, cache(width), batch, c.kvHeads, width, c.capacity);
  };
  return fmt::format(
      R"(
    func.func @main(%x: {0} {{nn.dims = [{1}, {2}, {3}]}}, {4}, {5}, %cos: {6} {{nn.dims = [1, 1, {2}, {7}]}},
                    %sin: {6} {{nn.dims = [1, 1, {2}, {7}]}}, %weight: {8},
                    %mask: {30} {{nn.dims = [{1}, 1, {2}, "k"]}}, %rows: {31} {{nn.dims = [{1}, 1, {2}, 1]}},
                    %scale: tensor<f32>)
        -> ({10}, {11} {{nn.alias = 1 : i64}}, {12} {{nn.alias = 2 : i64}}) {{
      {13}{14}{15}
      %y:3 = fusion.group "rope_attention" schedule "rope_attention" (%q_in = %q, %k_in = %k, %v_in = %v,
          %k_past = %kp, %v_past = %vp, %c = %cos, %s = %sin, %w = %weight, %m = %mask, %at = %rows,
          %sc = %scale)
          : ({16}, {17}, {18}, {11}, {12}, {6}, {6}, {8}, {30}, {31}, tensor<f32>) -> ({10}, {11}, {12}) {{
        {19}{20}{21}{22}{32}
        %y0 = nn.attention {23}, %k_{33}, %v_{33}{24} {{{25}}} : ({16}, {34}, {35}{26}) -> {27}
        {28}
        fusion.yield {29}, %k_c, %v_c : {10}, {11}, {12}
      }}
      return %y#0, %y#1, %y#2 : {10}, {11}, {12}
    }})",
      flat(qWidth + kWidth + vWidth), batch, symbol, qWidth + kWidth + vWidth, argument("kp", c.width),
      argument("vp", c.valueWidth), table, c.interleaved ? c.rotary / 2 : c.rotary, weight, "", y,
      cache(c.width), cache(c.valueWidth), part("q", 0, c.heads, c.width),
      part("k", qWidth, c.kvHeads, c.width), part("v", qWidth + kWidth, c.kvHeads, c.valueWidth),
      tensor(c.heads, c.width), tensor(c.kvHeads, c.width), tensor(c.kvHeads, c.valueWidth), queryOps, keyOps,
      write("k", k, c.width), write("v", "%v_in", c.valueWidth), q,
      c.placed   ? ", %seen"
      : c.masked ? ", %m"
                 : "",
      c.attributes, c.placed || c.masked ? ", " + mask : "", tensor(c.heads, c.valueWidth), tail, result,
      fmt::format("tensor<{}x1x{}x?xf32>", b, n), rows, bounds, c.codes.empty() ? "c" : "d",
      stored(c.width, c.type), stored(c.valueWidth, c.type));
}

} // namespace fusion::test
