#include "Motifs.h"

#include <fmt/format.h>

namespace fusion::fuzz {
namespace {

struct Chosen {
  int index, weights; ///< [s, slots]
};

/// The slots best scores of each row: softmax before or after, normalised or not; of all, or of the best
/// groups.
Chosen choose(GraphBuilder &b, const std::string &experts, const std::string &slots) {
  int scores = b.input({"f32", {"s", experts}});
  const bool before = b.random.chance(40);
  const std::string axis = fmt::format(" {{axis = {} : i64", b.random.chance(70) ? 1 : -1);
  if (before)
    scores = b.maybeShared(b.unary("softmax", scores, axis + "}"));
  else if (b.random.chance(20))
    scores = b.unary("sigmoid", scores);
  int from = scores;
  if (const int64_t count = std::stoll(experts); count % 4 == 0 && b.random.chance(30)) {
    const int groups = b.random.chance(50) && count >= 8 ? 4 : 2; // of two at least
    from = b.build("limit_groups", {scores}, {"f32", {"s", experts}},
                   fmt::format(" {{groups = {} : i64, kept = {} : i64, summed = {} : i64, other = {} : f32}}",
                               groups, groups / 2, b.random.of({"1", "2"}),
                               b.random.of({"0xFF800000", "0.0", "-1.0"})));
    if (b.random.chance(30))
      scores = from;
  }
  const int index =
      b.build("top_k", {from}, {"i64", {"s", slots}}, fmt::format("{}, k = [{}]}}", axis, slots));
  int weights = b.build("gather_elements", {scores, index}, {"f32", {"s", slots}}, axis + "}");
  if (!before && b.random.chance(60))
    weights = b.unary("softmax", weights, axis + "}");
  else if (b.random.chance(50))
    weights = b.binary("div", weights, b.reduce("sum", b.maybeShared(weights)));
  if (b.random.chance(15))
    weights = b.build("mul", {weights, b.number(weights, "2.5")}, b.typeOf(weights));
  return {index, weights};
}

} // namespace

void router(GraphBuilder &b) {
  const std::string experts = b.random.of({"8", "16", "5", "40"}), slots = b.random.of({"1", "2", "4"});
  const Chosen chosen = choose(b, experts, slots);
  if (b.random.chance(40))
    b.cast(chosen.weights, "bf16");
  b.keep(chosen.weights);
}

/// Rows through the experts that they are routed to: gate, up and down, a weighted sum; any part may be
/// missing.
void experts(GraphBuilder &b) {
  const std::string element = b.random.of({"f32", "f16", "bf16"}), count = b.random.of({"4", "8"}),
                    slots = b.random.of({"1", "2", "3"}), inner = b.random.of({"16", "24", "32"});
  Chosen chosen;
  if (b.random.chance(40))
    chosen = choose(b, count, slots);
  else
    chosen = {b.input({b.random.of({"i64", "i32"}), {"s", slots}}, "index"), b.input({"f32", {"s", slots}})};
  const int x = b.input({element, {"s", "32"}});
  auto product = [&](int rows, const std::string &from, const std::string &to) {
    const bool transposed = b.random.chance(60);
    const int w = b.input({element, transposed ? std::vector<std::string>{count, to, from}
                                               : std::vector<std::string>{count, from, to}});
    return b.maybeShared(b.build("expert_matmul", {rows, w, chosen.index}, {element, {"s", slots, to}},
                                 transposed ? " {transpose_w = true}" : ""));
  };
  const int rows = b.reshape(x, {"s", "1", "32"});
  int h;
  if (b.random.chance(40)) {
    const int both = product(rows, "32", std::to_string(2 * std::stoi(inner)));
    h = b.binary("mul", b.activation(b.slice(both, "0", inner)), b.slice(both, inner, inner));
  } else if (b.random.chance(60)) {
    h = b.binary("mul", b.activation(product(rows, "32", inner)), product(rows, "32", inner));
  } else {
    h = b.activation(product(rows, "32", inner));
  }
  if (b.random.chance(20)) {
    b.keep(h);
    return;
  }
  const int y = product(b.maybeShared(h), inner, "32");
  const int weights = b.cast(b.reshape(chosen.weights, {"s", slots, "1"}), element);
  const int sum = b.build("reduce", {b.build("mul", {y, weights}, b.typeOf(y))}, {element, {"s", "32"}},
                          " {kind = \"sum\", axes = array<i64: 1>, keepdims = false}");
  b.keep(b.random.chance(50) ? b.binary("add", sum, x) : sum);
}

/// Ids to rows, and scores to ids.
void tokens(GraphBuilder &b) {
  const std::string element = b.random.of({"f32", "f16", "bf16"});
  const std::string vocabulary = b.random.of({"64", "50", "300"});
  switch (b.random.below(5)) {
  case 0: {
    const int table = b.input({element, {vocabulary, b.width}});
    const int rows = b.build("gather", {table, b.input({"i64", {"b", "s"}}, "index")},
                             {element, {"b", "s", b.width}}, " {axis = 0 : i64}");
    b.keep(b.random.chance(50) ? b.norm(b.maybeShared(rows)) : rows);
    return;
  }
  case 1: {
    std::string attributes = fmt::format(" {{temperature = {} : f32", b.random.of({"0.8", "1.0", "0.1"}));
    if (b.random.chance(50))
      attributes += ", top_k = 5 : i64";
    if (b.random.chance(50))
      attributes += ", top_p = 0.9 : f64";
    b.build("sample", {b.input({element, {"b", vocabulary}}), b.input({"i64", {"2"}}, "seed")},
            {"i64", {"b"}}, attributes + "}");
    return;
  }
  case 2: { // of what is there, or of what a head makes
    int scores = -1;
    if (b.random.chance(80)) {
      const std::string depth = b.random.of({"64", "72", "256"});
      scores = b.matmul(b.input({element, {"b", "s", depth}}), vocabulary);
      if (b.random.chance(40))
        scores = b.binary("add", scores, b.vector(scores));
      if (b.random.chance(20))
        scores = b.cast(scores, "f32");
      scores = b.maybeShared(scores);
    } else {
      scores = b.input({element, {"b", "s", vocabulary}});
    }
    b.build("arg_max", {scores}, {"i64", {"b", "s"}}, " {axis = 2 : i64, keepdims = false}");
    return;
  }
  case 3: {
    const int x = b.input({element, {"b", "s", b.width}});
    const int y =
        b.build("cumsum", {x}, b.typeOf(x),
                fmt::format(" {{axis = {} : i64, exclusive = {}, reverse = {}}}", b.random.of({"1", "2"}),
                            b.random.of({"true", "false"}), b.random.of({"true", "false"})));
    b.keep(b.binary("mul", y, b.vector(y)));
    return;
  }
  default: {
    const int x = b.input({"i64", {"b", "s"}}, "wild"), y = b.input({"i64", {"b", "s"}}, "wild");
    b.build(b.random.of({"add", "sub", "mul", "max", "min", "and", "xor"}), {x, y}, b.typeOf(x));
    b.build(b.random.of({"less", "equal", "greater_equal"}), {x, y}, b.of(x, "i1"));
    b.cast(x, b.random.of({"f32", "i32", "i1", "bf16"}));
  }
  }
}

void linearAttention(GraphBuilder &b) {
  const std::string element = b.random.of({"f32", "bf16", "f16"}), size = b.random.of({"8", "16"});
  const std::string keyHeads = b.random.of({"4", "2"});
  auto directions = [&] {
    const int x = b.input({element, {"b", keyHeads, "s", size}});
    return b.random.chance(60) ? b.binary("div", x, b.unary("sqrt", b.reduce("sum_square", x))) : x;
  };
  const int q = b.maybeShared(directions()), k = directions();
  const int v = b.input({element, {"b", "4", "s", "16"}}), state = b.input({"f32", {"b", "4", size, "16"}});
  std::vector<int> operands = {q, k, v, state};
  const bool decays = b.random.chance(70), deltas = b.random.chance(60);
  if (decays)
    operands.push_back(b.input({"f32", {"b", "4", "s", b.random.chance(70) ? "1" : size}}, "decay"));
  if (deltas)
    operands.push_back(b.input({element, {"b", b.random.chance(80) ? "4" : "1", "s", "1"}}, "share"));
  const std::vector<int> results =
      b.buildAll("linear_attention", operands, {b.typeOf(v), b.typeOf(state)},
                 fmt::format(" {{scale = 0.35 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, {}, {}>}}",
                             int{decays}, int{deltas}));
  b.keep(b.random.chance(50) ? b.transpose(results[0], {0, 2, 1, 3}) : b.norm(results[0]));
}

/// Slices, products and sums over a state of 3 rows and the new ones, as CausalConvWithState is imported;
/// channels last.
void causalConvolution(GraphBuilder &b) {
  const std::string element = b.random.of({"f32", "bf16", "f16"}), channels = b.random.of({"16", "24", "5"});
  const int x = b.input({element, {"b", "s", channels}});
  const int all = b.concat(b.input({element, {"b", "3", channels}}), x, 1, "s + 3");
  auto rowsFrom = [&](const std::string &start, const std::string &count) {
    return b.build(
        "slice", {all}, {element, {"b", count, channels}},
        fmt::format(" {{starts = [0, {}, 0], sizes = [\"b\", {}, {}], steps = array<i64: 1, 1, 1>}}",
                    quoted(start), quoted(count), channels));
  };
  int sum = -1;
  for (const char *start : {"0", "1", "2", "3"}) {
    const int term = b.binary("mul", rowsFrom(start, "s"), b.vector(x));
    sum = sum < 0 ? term : b.maybeShared(b.binary("add", sum, term));
  }
  if (b.random.chance(70))
    b.keep(rowsFrom("s", "3"));
  b.keep(b.random.chance(70) ? b.unary("silu", sum) : sum);
}

} // namespace fusion::fuzz
