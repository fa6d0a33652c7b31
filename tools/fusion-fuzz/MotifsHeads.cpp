#include "Motifs.h"

#include <fmt/format.h>

namespace fusion::fuzz {
namespace {

/// The sizes of one layer of attention.
struct Heads {
  std::string element, size, queries, keys; ///< keys: heads of keys and values

  explicit Heads(GraphBuilder &b)
      : element(b.random.of({"f32", "f16", "bf16"})), size(b.random.of({"8", "16", "32", "12"})),
        queries("4"), keys(b.random.of({"4", "2", "1"})) {}
  Type of(const std::string &heads, const std::string &rows) const {
    return {element, {"b", heads, rows, size}};
  }
};

/// Tables of cosines and sines, to be used for several rotations.
struct Angles {
  int cos, sin;
  bool interleaved;
  std::string rotated; ///< how many of a head's elements
};

/// Of so many rows.
Angles angles(GraphBuilder &b, const Heads &heads, const std::string &rows = "s") {
  Angles angles;
  angles.interleaved = b.random.chance(25);
  const int size = std::stoi(heads.size);
  angles.rotated = std::to_string(b.random.chance(20) ? size / 2 : size);
  const std::string entries =
      b.random.chance(50) ? angles.rotated : std::to_string(std::stoi(angles.rotated) / 2);
  const Type type = {b.random.chance(25) ? "f32" : heads.element,
                     b.random.chance(50) ? std::vector<std::string>{rows, entries}
                                         : std::vector<std::string>{"1", "1", rows, entries}};
  angles.cos = b.input(type, "angle"), angles.sin = b.input(type, "angle");
  return angles;
}

/// x cos + rotated(x) sin, where every element has an entry.
int ropeByHand(GraphBuilder &b, int x, const Angles &angles) {
  const std::string half = std::to_string(std::stoi(b.last(x)) / 2);
  const int low = b.slice(x, "0", half), high = b.slice(x, half, half);
  const int turned = b.concat(b.maybeShared(b.unary("neg", high)), low, -1, b.last(x));
  const Type type = b.typeOf(x);
  return b.binary("add", b.build("mul", {x, angles.cos}, type), b.build("mul", {turned, angles.sin}, type));
}

int rope(GraphBuilder &b, int x, const Angles &angles) {
  if (!angles.interleaved && b.last(angles.cos) == b.last(x) &&
      b.typeOf(angles.cos).element == b.typeOf(x).element && b.random.chance(40))
    return ropeByHand(b, x, angles);
  return b.build(
      "rope", {x, angles.cos, angles.sin}, b.typeOf(x),
      fmt::format(" {{interleaved = {}, rotary_dim = {} : i64}}", angles.interleaved, angles.rotated));
}

/// The rows `fresh` [b, heads, rows, size] behind those of a past of p rows, at times as codes.
int cached(GraphBuilder &b, int fresh) {
  Type past = b.typeOf(fresh);
  const std::string allRows = "p + " + past.dims[2];
  const bool leaves = b.random.chance(70);
  auto whole = [&](int rows, int axis) {
    const int all = b.concat(b.input(past), rows, axis, allRows);
    return b.maybeShared(leaves ? b.returned(all) : all);
  };
  past.dims[2] = "p";
  if (b.random.chance(25)) {
    const std::string element = past.element, codes = b.random.of({"i8", "f8E4M3FN", "f8E5M2"});
    const bool byHead = b.random.chance(40);
    const int scale = b.input(
        {"f32", byHead ? std::vector<std::string>{past.dims[1]} : std::vector<std::string>{}}, "scale");
    const std::string attributes = byHead ? " {axis = 1 : i64}" : "";
    past.element = codes;
    const int written = b.build("quantize", {fresh, scale}, b.of(fresh, codes), attributes);
    const int all = b.keep(whole(written, 2));
    return b.build("dequantize", {all, scale}, b.of(all, element), attributes);
  }
  return whole(fresh, b.random.chance(70) ? 2 : -2);
}

/// Scores, mask, softmax and products as ops of their own.
int attentionByHand(GraphBuilder &b, int q, int k, int v) {
  const std::string element = b.typeOf(q).element, keys = b.typeOf(k).dims[2], queries = b.typeOf(q).dims[2];
  const Type scores = {element, {"b", b.typeOf(q).dims[1], queries, keys}};
  int y = b.build("matmul", {q, k}, scores, " {transpose_b = true}");
  if (b.random.chance(70))
    y = b.maybeShared(b.build("mul", {y, b.number(q, "0.25")}, scores));
  if (b.random.chance(50))
    y = b.build("add", {y, b.input({element, {b.random.chance(50) ? "b" : "1", "1", queries, keys}})},
                scores);
  if (b.random.chance(30)) {
    const int kept = b.input({"i1", {"b", "1", queries, keys}});
    const std::string lowest = b.random.of({"-1.0e+4", "-6.5e+4", "0xFF800000", "-1.0e+1"});
    if (!lowest.starts_with("0x") || element == "f32")
      y = b.build("where", {kept, y, b.constant(element, lowest)}, scores);
  }
  const bool widens = element != "f32" && b.random.chance(50);
  y = widens ? b.cast(y, "f32") : y;
  y = b.maybeShared(b.unary("softmax", y, " {axis = -1 : i64}"));
  return b.build("matmul", {widens ? b.cast(y, element) : y, v}, b.typeOf(q));
}

/// A mask of the keys up to one that data says for each query, at times from one on.
int maskOfBounds(GraphBuilder &b, const std::string &queries, const std::string &keys) {
  const std::string rows = b.random.chance(70) ? queries : "1";
  const Type limit = {"i64", {"b", "1", rows, "1"}}, mask = {"i1", {"b", "1", rows, keys}};
  const int numbers =
      b.build("iota", {b.constant("i64", "0"), b.constant("i64", b.random.chance(90) ? "1" : "2")},
              {"i64", {keys}}, fmt::format(" {{size = [{}]}}", quoted(keys)));
  const int upTo = b.random.chance(80) ? b.build("less_equal", {numbers, b.input(limit, "rows")}, mask)
                                       : b.build("greater", {b.input(limit, "rows"), numbers}, mask);
  if (b.random.chance(70))
    return b.maybeShared(upTo);
  return b.build("and", {upTo, b.build("greater", {numbers, b.input(limit, "rows")}, mask)}, mask);
}

int attentionOp(GraphBuilder &b, int q, int k, int v) {
  std::string attributes = " {scale = 0.25 : f32";
  if (b.random.chance(50))
    attributes += ", causal = true";
  if (b.random.chance(15))
    attributes += ", softcap = 5.0 : f32";
  if (b.random.chance(15))
    attributes += ", window = 3 : i64, zero_masked_rows = true";
  std::vector<int> operands = {q, k, v};
  if (b.random.chance(25)) {
    operands.push_back(maskOfBounds(b, b.typeOf(q).dims[2], b.typeOf(k).dims[2]));
    if (attributes.find("zero_masked") == std::string::npos)
      attributes += ", zero_masked_rows = true";
  } else if (b.random.chance(40))
    operands.push_back(b.input({b.random.chance(50) ? "i1" : b.typeOf(q).element,
                                {b.random.chance(50) ? "b" : "1", "1", b.typeOf(q).dims[2],
                                 b.typeOf(k).dims[2]}}));
  return b.build("attention", operands, b.typeOf(q), attributes + "}");
}

/// Queries, keys and values [b, heads, s, size] to what goes on.
void attend(GraphBuilder &b, int q, int k, int v) {
  const bool grouped = b.typeOf(k).dims[1] != b.typeOf(q).dims[1];
  int y = grouped || b.random.chance(40) ? attentionOp(b, q, k, v) : attentionByHand(b, q, k, v);
  if (b.random.chance(60)) {
    y = b.maybeShared(b.transpose(y, {0, 2, 1, 3}));
    const std::vector<std::string> dims = b.typeOf(y).dims;
    if (b.random.chance(70))
      y = b.reshape(y, {dims[0], dims[1], std::to_string(std::stoi(dims[2]) * std::stoi(dims[3]))});
  }
  b.keep(y);
}

} // namespace

void attention(GraphBuilder &b) {
  const Heads heads(b);
  const std::string keys = b.random.of({"s", "6", "p"});
  const int q = b.input(heads.of(heads.queries, "s")), k = b.input(heads.of(heads.keys, keys)),
            v = b.input(heads.of(heads.keys, keys));
  attend(b, q, k, v);
}

/// Queries and keys rotated, with norms before or after at times, the keys cached at times, and the
/// attention.
void ropes(GraphBuilder &b) {
  const Heads heads(b);
  const Angles table = angles(b, heads), other = b.random.chance(10) ? angles(b, heads) : table;
  int q = b.input(heads.of(heads.queries, "s")), k = b.input(heads.of(heads.keys, "s")),
      v = b.input(heads.of(heads.keys, "s"));
  const int normed = b.random.below(4); // of four: before, after, neither twice
  if (normed == 0)
    q = b.maybeShared(b.norm(q)), k = b.random.chance(80) ? b.norm(k) : k;
  q = b.maybeShared(rope(b, q, table)), k = b.maybeShared(rope(b, k, other));
  if (normed == 1)
    q = b.norm(q), k = b.random.chance(80) ? b.norm(k) : k;
  if (b.random.chance(60)) {
    k = cached(b, k), v = cached(b, v);
    b.keep(k);
    if (b.random.chance(80))
      b.keep(v);
  }
  if (b.random.chance(25)) {
    b.keep(q);
    b.keep(k);
    return;
  }
  attend(b, q, k, v);
}

/// A step of decode: few new positions, whose number is known, with rotations at times, behind a past.
void decode(GraphBuilder &b) {
  const Heads heads(b);
  const std::string rows = b.random.of({"1", "1", "2", "3"});
  int q = b.input(heads.of(heads.queries, rows)), k = b.input(heads.of(heads.keys, rows)),
      v = b.input(heads.of(heads.keys, rows));
  if (b.random.chance(30))
    q = b.norm(q), k = b.norm(k);
  if (b.random.chance(70)) {
    const Angles table = angles(b, heads, rows);
    if (b.random.chance(90))
      q = rope(b, q, table);
    k = rope(b, k, table);
  }
  k = b.keep(cached(b, k)), v = b.keep(cached(b, v));
  attend(b, q, k, v);
}

/// Rows of a buffer of 16 are replaced where data says, and the buffer is read.
void cacheWrite(GraphBuilder &b) {
  const Heads heads(b);
  const bool grows = b.random.chance(40), each = b.random.chance(50);
  auto written = [&](int fresh, int rows) {
    Type past = b.typeOf(fresh), whole = past;
    past.dims[2] = "16", whole.dims[2] = grows ? "s + 16" : "16";
    return b.build("cache_write", {b.input(past), fresh, rows}, whole,
                   grows ? " {axis = 2 : i64, grows = true}" : " {axis = 2 : i64}");
  };
  const int rows = b.input({"i64", {each ? "b" : "1", "1", "s", "1"}}, "rows");
  int k = b.input(heads.of(heads.keys, "s"));
  if (b.random.chance(60))
    k = rope(b, k, angles(b, heads));
  k = b.keep(b.maybeShared(written(k, rows)));
  const int v = b.keep(written(b.input(heads.of(heads.keys, "s")), rows));
  if (b.random.chance(60))
    attend(b, b.input(heads.of(heads.queries, "s")), k, v);
}

/// Keys and values are gathered from six pages by a table, at times by the row of each entry's sequence, and
/// at times after new rows were written to them.
void pages(GraphBuilder &b) {
  const Heads heads(b);
  const int rows = b.random.below(4) == 0 ? 1 : 4 * (1 + b.random.below(5)); // of a page
  const bool headsFirst = b.random.chance(30), ragged = b.random.chance(40), writes = b.random.chance(40);
  const std::string pageRows = std::to_string(rows), keys = std::to_string(3 * rows), element = heads.element;
  int table = b.input({"i64", {ragged ? "2" : "b", "3"}}, "page");
  if (ragged)
    table = b.build("gather", {table, b.input({"i64", {"b"}}, "sequence")}, {"i64", {"b", "3"}},
                    " {axis = 0 : i64}");
  const int slots = writes ? b.input({"i64", {"4", "1"}}, "slot") : -1;
  auto gathered = [&] {
    const std::vector<std::string> page = headsFirst
                                              ? std::vector{heads.keys, pageRows, heads.size}
                                              : std::vector{pageRows, heads.keys, heads.size};
    auto with = [&](std::vector<std::string> dims) {
      dims.insert(dims.end(), page.begin(), page.end());
      return dims;
    };
    int pool = b.input({element, with({"6"})});
    if (writes && !headsFirst) {
      const Type all = {element, {std::to_string(6 * rows), heads.keys, heads.size}};
      int fresh = b.input({element, {"4", heads.keys, heads.size}});
      pool = b.build("scatter_nd", {b.reshape(pool, all.dims), slots, fresh}, all);
      pool = b.keep(b.reshape(pool, with({"6"})));
    }
    int all = b.build("gather", {pool, table}, {element, with({"b", "3"})}, " {axis = 0 : i64}");
    if (headsFirst)
      return b.reshape(b.transpose(all, {0, 2, 1, 3, 4}), {"b", heads.keys, keys, heads.size});
    all = b.maybeShared(b.reshape(all, {"b", keys, heads.keys, heads.size}));
    return b.transpose(all, {0, 2, 1, 3});
  };
  const int k = gathered(), v = gathered();
  attend(b, b.input(heads.of(heads.queries, ragged && b.random.chance(50) ? "1" : "s")), k, v);
}

/// Queries, keys and values by three matmuls or one, and into heads.
void headsOfMatmul(GraphBuilder &b) {
  const std::string element = b.random.of({"f32", "f16", "bf16"});
  int x = b.input({element, {"b", "s", b.width}});
  if (b.random.chance(40))
    x = b.norm(x);
  auto split = [&](int y, const std::string &heads) {
    return b.transpose(b.maybeShared(b.reshape(y, {"b", "s", heads, "16"})), {0, 2, 1, 3});
  };
  const bool packed = b.random.chance(30), biased = b.random.chance(30), stored = b.random.chance(70);
  auto product = [&](const std::string &columns) {
    const int y = b.matmul(x, columns, stored);
    return biased ? b.binary("add", y, b.vector(y)) : y;
  };
  int q, k, v;
  if (packed) {
    const int all = b.maybeShared(product("128"));
    q = b.slice(all, "0", "64"), k = b.slice(all, "64", "32"), v = b.slice(all, "96", "32");
  } else {
    q = product("64"), k = product("32"), v = product("32");
  }
  attend(b, split(q, "4"), split(k, "2"), split(v, "2"));
}

} // namespace fusion::fuzz
