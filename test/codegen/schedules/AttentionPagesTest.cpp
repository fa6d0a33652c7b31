// Attention over keys and values in pages that a block table names.
#include "Parsed.h"
#include "PagedModule.h"

#include <numeric>
#include <random>

namespace fusion::test {
namespace {

struct Sizes {
  int64_t entries, queries, mostPages;
  int64_t sequences = 0; ///< of a ragged case
  int64_t pages = 0;     ///< 0: as many as the tables name
};

/// Pages in a shuffled order; lengths of all kinds, page ends and empty ones among them; numbers behind a
/// sequence's last page are none of a page, as indices out of range and negative ones.
auto filled(const Paged &c, const Sizes &s) {
  return [c, s](unsigned index, Tensor &tensor) {
    if (c.latent > 0 && index >= 2)
      ++index; // the values' pages are no argument
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
          set(tensor, i,
              tensor.type() == DType::U8 ? static_cast<double>(random() % 256)
                                         : static_cast<double>(static_cast<int64_t>(random() % 241) - 120));
      } else {
        fillRandom(tensor, index + 11);
      }
    }
  };
}

std::string run(const Paged &c, const Sizes &s, uint32_t arch = 90, const std::string &variant = "") {
  const int64_t tables = c.ragged ? s.sequences : s.entries;
  return check(attentionSchedule(),
               {PagedModule(c).text(),
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

// Two codes to a byte.
TEST(AttentionPages, Halves) {
  for (auto [queries, pageSize] : {std::pair(1, 16), std::pair(1, 24), std::pair(1, 1), std::pair(20, 16)})
    for (const char *columns : {"", "2x1x64"})
      for (uint32_t arch : {90u, 80u})
        run({.pageSize = pageSize, .sink = pageSize == 24, .codes = "i4", .columns = columns},
            {3, queries, 6}, arch);
  run({.headsFirst = true, .codes = "i4", .width = 128}, {9, 1, 3});
  run({.ragged = true, .window = true, .codes = "i4"}, {40, 1, 5, 9});
  EXPECT_TRUE(uses(run({.codes = "i4", .width = 36}, {3, 1, 6}), "decode_fma"));
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

/// Values that are a part of the keys, in the same pages. Tokens of one sequence are entries by themselves.
TEST(AttentionPages, Latent) {
  auto latent = [](Paged c, const Sizes &s) {
    c.width = 576, c.latent = 512, c.heads = 16, c.kvHeads = 1;
    EXPECT_TRUE(uses(run(c, s), "latent"));
  };
  for (int pageSize : {16, 64, 128, 24})
    latent({.pageSize = pageSize}, {9, 1, 1 + 150 / pageSize});
  latent({.type = "f16", .headsFirst = true, .table = "i64"}, {3, 5, 6});
  latent({.window = true}, {9, 1, 8});
  latent({.sink = true}, {9, 2, 5});
  latent({.ragged = true}, {12, 1, 5, 5});
  latent({}, {2, 1, 0});
  Paged one{.pageSize = 1, .width = 576, .heads = 16, .kvHeads = 1, .latent = 512};
  EXPECT_NE(refusal(attentionSchedule(), PagedModule(one).text()).find("in pages of 1, no multiple of 8"),
            std::string::npos);
}

TEST(AttentionPages, Refusals) {
  auto reason = [](std::string text) { return refusal(attentionSchedule(), text); };
  EXPECT_EQ(reason(PagedModule({}).text()), "");
  EXPECT_EQ(reason(PagedModule({.ragged = true}).text()), "");
  auto replaced = [](std::string text, const std::string &from, const std::string &to) {
    EXPECT_NE(text.find(from), std::string::npos);
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  };
  // The size of a page is a symbol.
  std::string symbolic = replaced(PagedModule({}).text(), "tensor<?x16x2x64", "tensor<?x?x2x64");
  symbolic = replaced(replaced(symbolic, "tensor<?x?x16x2x64", "tensor<?x?x?x2x64"), R"("pages", 16)",
                      R"("pages", "z")");
  symbolic = replaced(symbolic, "16*m", "m*z");
  EXPECT_NE(reason(symbolic).find("the size of a page, z, is not static"), std::string::npos)
      << reason(symbolic);
  // As many elements, in another order: rows of a page before the pages.
  std::string other = PagedModule({.pageSize = 64}).text();
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
