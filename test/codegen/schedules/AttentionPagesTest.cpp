// Attention over keys and values in pages that a block table names.
#include "AttentionCase.h"
#include "Parsed.h"

#include <numeric>
#include <random>

namespace fusion::test {
namespace {

/// Entries "b" have rows of a table of "m" pages each; of a ragged case they are tokens of "s" sequences.
struct Paged {
  std::string type = "bf16";
  int pageSize = 16;
  bool headsFirst = false; ///< pages are [heads, rows, columns], not [rows, heads, columns]
  bool ragged = false, window = false, sink = false;
  std::string codes;        ///< of codes with a scale; empty: elements
  std::string columns = ""; ///< shape of scales of columns, such as "2x1x64"
  std::string table = "i32";
  int width = 64, heads = 8, kvHeads = 2;
  std::string attributes = "scale = 0.2 : f32, zero_masked_rows = true";
};

class Module {
public:
  explicit Module(const Paged &c) : c(c) {}

  std::string text() {
    const std::string q = fmt::format("tensor<?x{}x{}x{}x{}>", c.heads, queries(), c.width, c.type);
    const std::string stored = c.codes.empty() ? c.type : c.codes;
    const std::string page = c.pageSize == 1 ? fmt::format("{}x{}", c.kvHeads, c.width)
                             : c.headsFirst
                                 ? fmt::format("{}x{}x{}", c.kvHeads, c.pageSize, c.width)
                                 : fmt::format("{}x{}x{}", c.pageSize, c.kvHeads, c.width);
    add("q", q, fmt::format(R"("b", {}, {}, {})", c.heads, c.ragged ? "1" : "\"q\"", c.width));
    add("k", fmt::format("tensor<?x{}x{}>", page, stored), R"("pages", )" + commas(page));
    add("v", fmt::format("tensor<?x{}x{}>", page, stored), R"("pages", )" + commas(page));
    add("t", fmt::format("tensor<?x?x{}>", c.table), c.ragged ? R"("s", "m")" : R"("b", "m")");
    add("p", fmt::format("tensor<?x1x{}x1xi64>", queries()),
        fmt::format(R"("b", 1, {}, 1)", c.ragged ? "1" : "\"q\""));
    std::string rows = "%t_";
    if (c.ragged) {
      add("r", fmt::format("tensor<?x{}>", c.table), R"("b")");
      body +=
          fmt::format("%rows = nn.gather %t_, %r_ {{axis = 0 : i64}} : (tensor<?x?x{0}>, tensor<?x{0}>) -> "
                      "tensor<?x?x{0}>\n",
                      c.table);
      rows = "%rows";
    }
    const std::string k = keys("k", page, stored, rows), v = keys("v", page, stored, rows);
    const std::string mask = fmt::format("tensor<?x1x{}x?xi1>", queries());
    const std::string limit = fmt::format("tensor<?x1x{}x1xi64>", queries());
    body += fmt::format(R"(
      %zero = nn.constant {{value = dense<0> : tensor<i64>}} : () -> tensor<i64>
      %one = nn.constant {{value = dense<1> : tensor<i64>}} : () -> tensor<i64>
      %n = nn.iota %zero, %one {{size = ["{0}*m"]}} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
      %above = nn.less_equal %n, %p_ : (tensor<?xi64>, {1}) -> {2}
    )",
                        c.pageSize, limit, mask);
    std::string last = "%above";
    if (c.window) {
      add("l", limit, fmt::format(R"("b", 1, {}, 1)", c.ragged ? "1" : "\"q\""));
      body += fmt::format("%below = nn.greater %n, %l_ : (tensor<?xi64>, {0}) -> {1}\n"
                          "%both = nn.and %above, %below : ({1}, {1}) -> {1}\n",
                          limit, mask);
      last = "%both";
    }
    const std::string scores = c.sink ? fmt::format("tensor<?x{}x{}x?xf32>", c.heads, queries()) : mask;
    const std::string allKeys = c.sink ? front("kp", k, wide(), 2, c.type, "0.0") : k;
    const std::string allValues = c.sink ? front("vp", v, wide(), 2, c.type, "0.0") : v;
    if (c.sink)
      last = withSink(front("mp", last, mask, 3, "i1", "true"), mask, scores);
    return fmt::format(R"(
    func.func @main({0}) -> {1} {{
      %y = fusion.group "paged_attention" schedule "attention" ({2}) : ({3}) -> {1} {{
        {4}
        %a = nn.attention %q_, {5}, {6}, {7} {{{8}}} : ({1}, {9}, {9}, {10}) -> {1}
        fusion.yield %a : {1}
      }}
      return %y : {1}
    }})",
                       arguments, q, bindings, types, body, allKeys, allValues, last, c.attributes, wide(),
                       scores);
  }

private:
  std::string queries() const { return c.ragged ? "1" : "?"; }
  std::string wide() const { return fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, c.width, c.type); }
  static std::string commas(std::string dims) {
    for (size_t at; (at = dims.find('x')) != std::string::npos;)
      dims.replace(at, 1, ", ");
    return dims;
  }
  void add(const std::string &name, const std::string &type, const std::string &dims) {
    arguments += fmt::format("{}%{}: {}{}", arguments.empty() ? "" : ", ", name, type,
                             dims.empty() ? "" : fmt::format(" {{nn.dims = [{}]}}", dims));
    bindings += fmt::format("{}%{}_ = %{}", bindings.empty() ? "" : ", ", name, name);
    types += (types.empty() ? "" : ", ") + type;
  }
  /// x with one entry of `number` in front along `axis`.
  std::string front(const std::string &result, const std::string &x, const std::string &type, int axis,
                    const std::string &element, const std::string &number) {
    body += fmt::format(
        "%{0}0 = nn.constant {{value = dense<{1}> : tensor<{2}>}} : () -> tensor<{2}>\n"
        "%{0} = nn.pad {3}, %{0}0 {{low = [{4}], high = [0, 0, 0, 0]}} : ({5}, tensor<{2}>) -> {5}\n",
        result, number, element, x, axis == 2 ? "0, 0, 1, 0" : "0, 0, 0, 1", type);
    return "%" + result;
  }
  /// The mask of keys and a sink in front of them.
  std::string withSink(const std::string &kept, const std::string &mask, const std::string &scores) {
    add("s", fmt::format("tensor<1x{}x1x1xf32>", c.heads), fmt::format("1, {}, 1, 1", c.heads));
    body += fmt::format(R"(
      %none = nn.constant {{value = dense<0.0> : tensor<f32>}} : () -> tensor<f32>
      %zeros = nn.expand %none {{shape = [1, {0}, 1, "{1}*m"]}} : (tensor<f32>) -> tensor<1x{0}x1x?xf32>
      %all = nn.concat %s_, %zeros {{axis = 3 : i64}}
        : (tensor<1x{0}x1x1xf32>, tensor<1x{0}x1x?xf32>) -> tensor<1x{0}x1x?xf32>
      %low = nn.constant {{value = dense<0xFF800000> : tensor<f32>}} : () -> tensor<f32>
      %sum = nn.where {2}, %all, %low : ({3}, tensor<1x{0}x1x?xf32>, tensor<f32>) -> {4}
    )",
                        c.heads, c.pageSize, kept, mask, scores);
    return "%sum";
  }
  /// Gathers, transposes and joins the pages; decodes.
  std::string keys(const std::string &x, const std::string &page, const std::string &stored,
                   const std::string &rows) {
    const std::string result = fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, c.width, stored);
    const std::string gathered = fmt::format("tensor<?x?x{}x{}>", page, stored);
    body += fmt::format("%{0}g = nn.gather %{0}_, {1} {{axis = 0 : i64}} : (tensor<?x{2}x{3}>, "
                        "tensor<?x?x{4}>) -> {5}\n",
                        x, rows, page, stored, c.table, gathered);
    if (c.headsFirst && c.pageSize > 1) {
      const std::string turned =
          fmt::format("tensor<?x{}x?x{}x{}x{}>", c.kvHeads, c.pageSize, c.width, stored);
      body += fmt::format(
          "%{0}t = nn.transpose %{0}g {{perm = array<i64: 0, 2, 1, 3, 4>}} : ({1}) -> {2}\n"
          "%{0}r = nn.reshape %{0}t {{shape = [\"b\", {3}, \"{4}*m\", {5}]}} : ({2}) -> {6}\n",
          x, gathered, turned, c.kvHeads, c.pageSize, c.width, result);
    } else {
      const std::string joined = fmt::format("tensor<?x?x{}x{}x{}>", c.kvHeads, c.width, stored);
      std::string from = x + "g";
      if (c.pageSize > 1) {
        body +=
            fmt::format("%{0}j = nn.reshape %{0}g {{shape = [\"b\", \"{1}*m\", {2}, {3}]}} : ({4}) -> {5}\n",
                        x, c.pageSize, c.kvHeads, c.width, gathered, joined);
        from = x + "j";
      }
      body += fmt::format("%{0}r = nn.transpose %{1} {{perm = array<i64: 0, 2, 1, 3>}} : ({2}) -> {3}\n", x,
                          from, joined, result);
    }
    if (c.codes.empty())
      return "%" + x + "r";
    if (!c.columns.empty()) {
      const std::string inF32 = fmt::format("tensor<?x{}x?x{}xf32>", c.kvHeads, c.width),
                        scales = fmt::format("tensor<{}xf32>", c.columns);
      add(x + "s", scales, "");
      body += fmt::format(
          "%{0}w = nn.cast %{0}r : ({1}) -> {2}\n%{0}m = nn.mul %{0}w, %{0}s_ : ({2}, {3}) -> {2}\n"
          "%{0}d = nn.cast %{0}m : ({2}) -> {4}\n",
          x, result, inF32, scales, wide());
      return "%" + x + "d";
    }
    add(x + "s", "tensor<f32>", "");
    body +=
        fmt::format("%{0}d = nn.dequantize %{0}r, %{0}s_ : ({1}, tensor<f32>) -> {2}\n", x, result, wide());
    return "%" + x + "d";
  }

  const Paged &c;
  std::string arguments, bindings, types, body;
};

struct Sizes {
  int64_t entries, queries, mostPages;
  int64_t sequences = 0; ///< of a ragged case
  int64_t pages = 0;     ///< 0: as many as the tables name
};

/// Pages in a shuffled order; lengths of all kinds, page ends and empty ones among them; numbers behind a
/// sequence's last page are none of a page, as indices out of range and negative ones.
auto filled(const Paged &c, const Sizes &s) {
  return [c, s](unsigned index, Tensor &tensor) {
    std::mt19937 random(index * 7 + 3);
    const int64_t tables = c.ragged ? s.sequences : s.entries,
                  pages = s.pages ? s.pages : tables * s.mostPages;
    const int64_t most = s.mostPages * c.pageSize;
    auto lengthOf = [&](int64_t sequence) {
      const int64_t lengths[] = {most,     0, 1,       most / 2, std::max<int64_t>(most - c.pageSize, 0),
                                 most - 1, 3, most / 3};
      return lengths[sequence % 8];
    };
    // Tokens of a ragged case: every third sequence has one, the others share the rest, in order.
    auto sequenceOf = [&](int64_t token) {
      return c.ragged ? std::min(token * s.sequences / s.entries, s.sequences - 1) : token;
    };
    switch (index) {
    case 3: {
      std::vector<int64_t> all(static_cast<size_t>(std::max(pages, tables * s.mostPages)));
      std::iota(all.begin(), all.end(), int64_t(0));
      std::shuffle(all.begin(), all.end(), random);
      for (int64_t i = 0; i < tensor.size(); ++i) {
        const bool isUsed = i % s.mostPages * c.pageSize < lengthOf(i / s.mostPages) + c.pageSize;
        const int64_t page = all[static_cast<size_t>(i)] % pages;
        set(tensor, i, static_cast<double>(isUsed ? (i % 3 == 0 ? page - pages : page) : i % 2 ? -1 : 30000));
      }
      return;
    }
    case 4:
      for (int64_t i = 0; i < tensor.size(); ++i) {
        const int64_t entry = i / s.queries, last = lengthOf(sequenceOf(entry)) - 1;
        set(tensor, i, static_cast<double>(last - (c.ragged ? entry % 5 : s.queries - 1 - i % s.queries)));
      }
      return;
    case 5:
      if (c.ragged) {
        for (int64_t i = 0; i < tensor.size(); ++i)
          set(tensor, i, static_cast<double>(sequenceOf(i)));
        return;
      }
      [[fallthrough]];
    default:
      if (tensor.type() == DType::I64) { // of a window
        for (int64_t i = 0; i < tensor.size(); ++i)
          set(tensor, i, static_cast<double>(lengthOf(sequenceOf(i / s.queries)) - 21));
      } else if (tensor.shape() == Shape{1, c.heads, 1, 1}) { // sinks below, among and above the scores
        const double sinks[] = {-90, 0.5, 3, 60};
        for (int64_t i = 0; i < tensor.size(); ++i)
          set(tensor, i, sinks[i % 4]);
      } else if (tensor.shape().empty() || (index > 4 && isFloat(tensor.type()))) {
        for (int64_t i = 0; i < tensor.size(); ++i)
          set(tensor, i, 0.011 + 0.004 * static_cast<double>(i % 7));
      } else if (byteSize(tensor.type()) == 1) {
        for (int64_t i = 0; i < tensor.size(); ++i)
          set(tensor, i, static_cast<double>(static_cast<int64_t>(random() % 241) - 120));
      } else {
        fillRandom(tensor, index + 11);
      }
    }
  };
}

std::string run(const Paged &c, const Sizes &s, uint32_t arch = 90, const std::string &variant = "") {
  const int64_t tables = c.ragged ? s.sequences : s.entries;
  return check(attentionSchedule(),
               {Module(c).text(),
                {{"b", s.entries},
                 {"q", s.queries},
                 {"m", s.mostPages},
                 {"s", s.sequences},
                 {"pages", s.pages ? s.pages : tables * s.mostPages}},
                toleranceOf(c.type), filled(c, s), true, arch, {}, {}, variant});
}

bool uses(const std::string &source, const std::string &kernel) {
  return source.find("attention_" + kernel + "<") != std::string::npos;
}

TEST(AttentionPages, FewQueries) {
  for (int pageSize : {16, 32, 64, 128, 24, 1})
    EXPECT_TRUE(uses(run({.pageSize = pageSize}, {8, 1, 1 + 100 / pageSize}), "decode_mma"));
  run({}, {1, 1, 9});
  run({}, {9, 4, 3});
  run({.pageSize = 24}, {9, 4, 3});
  run({}, {40, 1, 3});
  run({.type = "f16", .headsFirst = true, .table = "i64"}, {8, 1, 5});
  run({}, {3, 1, 20}, 80);
  run({}, {3, 1, 0});
}

TEST(AttentionPages, ManyQueries) {
  for (auto [arch, kernel] : {std::pair(90u, "prefill_sm90"), std::pair(80u, "prefill_mma")}) {
    for (int pageSize : {16, 64, 24, 1})
      EXPECT_TRUE(uses(run({.pageSize = pageSize}, {3, 33, 1 + 100 / pageSize}, arch), kernel));
    run({.headsFirst = true, .table = "i64", .width = 128}, {2, 50, 15}, arch);
  }
}

TEST(AttentionPages, ByTma) {
  auto tma = [](const Paged &c, const Sizes &s) {
    EXPECT_TRUE(uses(run(c, s, 90, otherKernelVariant), "prefill_tma"));
  };
  for (int pageSize : {16, 64, 128, 24})
    tma({.pageSize = pageSize}, {3, 33, 1 + 150 / pageSize});
  tma({.headsFirst = true, .table = "i64", .width = 128}, {2, 70, 15});
  tma({.kvHeads = 8}, {2, 33, 9});
  tma({.heads = 12, .kvHeads = 4}, {2, 33, 9}); // three warps copy the queries
  tma({.window = true, .attributes = "scale = 0.2 : f32, zero_masked_rows = true, softcap = 10.0 : f32"},
      {5, 20, 6});
  tma({.ragged = true}, {70, 1, 12, 1});
  tma({.pageSize = 24, .ragged = true, .window = true}, {45, 1, 6, 17});
  tma({.ragged = true, .heads = 14, .kvHeads = 2}, {30, 1, 9, 9});
}

TEST(AttentionPages, OtherTypesAndHeads) {
  for (int queries : {1, 20}) {
    EXPECT_TRUE(uses(run({.type = "f32"}, {5, queries, 5}), queries == 1 ? "decode_fma" : "prefill_fma"));
    run({.pageSize = 24, .width = 33}, {3, queries, 3});
    run({.kvHeads = 8}, {3, queries, 3});
    run({.kvHeads = 1}, {3, queries, 3});
  }
  for (int width : {72, 128, 256})
    run({.width = width}, {3, 1, 9});
}

TEST(AttentionPages, WindowsAndCaps) {
  for (auto [queries, arch, pageSize] :
       {std::tuple(1, 90u, 16), std::tuple(1, 80u, 24), std::tuple(20, 90u, 24), std::tuple(20, 80u, 16)})
    run({.pageSize = pageSize,
         .window = true,
         .attributes = "scale = 0.2 : f32, zero_masked_rows = true, softcap = 10.0 : f32"},
        {5, queries, 6}, arch);
}

TEST(AttentionPages, Codes) {
  const std::string small = "scale = 0.02 : f32, zero_masked_rows = true";
  for (const char *codes : {"f8E4M3FN", "i8"})
    for (auto [queries, pageSize] : {std::pair(1, 16), std::pair(1, 24), std::pair(20, 16)}) {
      run({.pageSize = pageSize, .codes = codes, .attributes = small}, {3, queries, 6});
      run({.pageSize = pageSize, .codes = codes, .columns = "2x1x64", .attributes = small}, {3, queries, 6},
          80);
    }
}

TEST(AttentionPages, Ragged) {
  for (auto [arch, kernel] : {std::pair(90u, "prefill_sm90"), std::pair(80u, "prefill_mma")}) {
    // Several tiles of one sequence; many sequences of a few tokens.
    EXPECT_TRUE(uses(run({.ragged = true}, {70, 1, 6, 1}, arch), kernel));
    EXPECT_TRUE(uses(run({.pageSize = 24, .ragged = true}, {45, 1, 4, 17}, arch), kernel));
    run({.ragged = true, .window = true, .width = 128}, {40, 1, 5, 9}, arch);
    run({.ragged = true, .codes = "f8E4M3FN", .attributes = "scale = 0.02 : f32, zero_masked_rows = true"},
        {40, 1, 5, 9}, arch);
    run({.ragged = true, .heads = 14, .kvHeads = 2}, {30, 1, 5, 9}, arch);
  }
  // A token each.
  EXPECT_TRUE(uses(run({.ragged = true}, {9, 1, 5, 9}), "decode_mma"));
  EXPECT_TRUE(uses(run({.pageSize = 24, .ragged = true}, {9, 1, 5, 20}), "decode_mma"));
  EXPECT_TRUE(uses(run({.type = "f32", .ragged = true}, {30, 1, 5, 9}), "decode_fma"));
}

TEST(AttentionPages, Sinks) {
  const std::string capped = "scale = 0.2 : f32, zero_masked_rows = true, softcap = 10.0 : f32",
                    small = "scale = 0.02 : f32, zero_masked_rows = true";
  // Parts of the keys of several blocks, merged; entries without keys.
  for (auto [entries, pages] : {std::pair(8, 7), std::pair(40, 3), std::pair(1, 40)})
    EXPECT_TRUE(uses(run({.sink = true}, {entries, 1, pages}), "decode_mma"));
  run({.pageSize = 24, .window = true, .sink = true, .attributes = capped}, {9, 4, 3});
  EXPECT_TRUE(uses(run({.type = "f32", .sink = true}, {5, 1, 5}), "decode_fma"));
  EXPECT_TRUE(uses(run({.type = "f32", .sink = true}, {5, 20, 5}), "prefill_fma"));
  for (auto [arch, kernel] : {std::pair(90u, "prefill_sm90"), std::pair(80u, "prefill_mma")}) {
    EXPECT_TRUE(uses(run({.sink = true}, {3, 33, 5}, arch), kernel));
    run({.window = true, .sink = true, .attributes = capped}, {5, 20, 6}, arch);
    EXPECT_TRUE(uses(run({.ragged = true, .sink = true}, {70, 1, 6, 1}, arch), kernel));
    run({.pageSize = 24, .ragged = true, .window = true, .sink = true, .attributes = capped}, {45, 1, 4, 17},
        arch);
    for (const char *codes : {"f8E4M3FN", "i8"}) {
      run({.ragged = true, .sink = true, .codes = codes, .attributes = small}, {40, 1, 5, 9}, arch);
      for (int queries : {1, 20})
        run({.sink = true, .codes = codes, .columns = "2x1x64", .attributes = small}, {3, queries, 6}, arch);
    }
  }
  EXPECT_TRUE(
      uses(run({.ragged = true, .sink = true}, {45, 1, 6, 17}, 90, otherKernelVariant), "prefill_tma"));
  // A token each.
  EXPECT_TRUE(uses(run({.ragged = true, .window = true, .sink = true}, {9, 1, 5, 9}), "decode_mma"));
}

TEST(AttentionPages, Refusals) {
  auto reason = [](std::string text) { return refusal(attentionSchedule(), text); };
  EXPECT_EQ(reason(Module({}).text()), "");
  EXPECT_EQ(reason(Module({.ragged = true}).text()), "");
  auto replaced = [](std::string text, const std::string &from, const std::string &to) {
    EXPECT_NE(text.find(from), std::string::npos);
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  };
  // The size of a page is a symbol.
  std::string symbolic = replaced(Module({}).text(), "tensor<?x16x2x64", "tensor<?x?x2x64");
  symbolic = replaced(replaced(symbolic, "tensor<?x?x16x2x64", "tensor<?x?x?x2x64"), R"("pages", 16)",
                      R"("pages", "z")");
  symbolic = replaced(symbolic, "16*m", "m*z");
  EXPECT_NE(reason(symbolic).find("the size of a page, z, is not static"), std::string::npos)
      << reason(symbolic);
  // As many elements, in another order: rows of a page before the pages.
  std::string other = Module({.pageSize = 64}).text();
  other = replaced(other, "%kj = nn.reshape %kg",
                   "%ko = nn.transpose %kg {perm = array<i64: 0, 2, 1, 3, 4>} : "
                   "(tensor<?x?x64x2x64xbf16>) -> tensor<?x64x?x2x64xbf16>\n"
                   "%kj = nn.reshape %ko");
  other = replaced(other, "2, 64]} : (tensor<?x?x64x2x64xbf16>) -> tensor<?x?x2x64xbf16>\n%kr",
                   "2, 64]} : (tensor<?x64x?x2x64xbf16>) -> tensor<?x?x2x64xbf16>\n%kr");
  EXPECT_NE(reason(other).find("computed in the region"), std::string::npos) << reason(other);
}

} // namespace
} // namespace fusion::test
