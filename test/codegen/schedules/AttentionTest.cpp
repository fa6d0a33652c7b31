#include "AttentionCase.h"

#include <limits>

namespace fusion::test {
namespace {

TEST(Attention, TypesAndHeadSizes) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (auto [width, valueWidth] :
         {std::pair(32, 32), std::pair(7, 13), std::pair(128, 64), std::pair(256, 256), std::pair(1, 1)}) {
      Attention a{type, 4, 2, width, valueWidth, "", "", "scale = 0.1 : f32"};
      check(attentionSchedule(), {module(a), sizes(2, 5, 70), toleranceOf(type)});
    }
}

TEST(Attention, GroupedHeads) {
  for (auto [heads, kvHeads] : {std::pair(4, 4), std::pair(6, 2), std::pair(8, 1)})
    for (int queries : {1, 3, 33}) {
      Attention a{"f32", heads, kvHeads};
      check(attentionSchedule(), {module(a), sizes(2, queries, 40), toleranceOf("f32")});
    }
}

TEST(Attention, CausalWithPastAndWindow) {
  for (const char *attributes :
       {"causal = true", "causal = true, window = 5 : i64", "window = 9 : i64",
        "causal = true, softcap = 3.0 : f32", "causal = true, zero_masked_rows = true"})
    for (auto [queries, keys] : {std::pair(20, 20), std::pair(1, 90), std::pair(33, 80), std::pair(50, 20)}) {
      Attention a{"f32", 4, 2, 16, 16, "", "", std::string("scale = 0.3 : f32, ") + attributes};
      check(attentionSchedule(), {module(a), sizes(1, queries, keys), 1e-5});
    }
}

TEST(Attention, MasksBroadcast) {
  struct Mask {
    const char *type, *dims;
  };
  for (Mask mask : {Mask{"?x1x?x?xi1", "\"b\", 1, \"q\", \"k\""},
                    Mask{"?x4x?x?xf32", "\"b\", 4, \"q\", \"k\""}, Mask{"?x?xf32", "\"q\", \"k\""},
                    Mask{"?x1x1x?xi1", "\"b\", 1, 1, \"k\""}, Mask{"1x1x?x1xf32", "1, 1, \"q\", 1"}}) {
    Attention a;
    a.mask = mask.type;
    a.maskDims = mask.dims;
    check(attentionSchedule(), {module(a), sizes(2, 19, 37), 1e-5});
  }
}

TEST(Attention, FullyMaskedRows) {
  auto nothing = [](unsigned index, Tensor &tensor) {
    for (int64_t i = 0; index == 3 && i < 37; ++i)
      set(tensor, i, tensor.type() == DType::Bool ? 0 : -std::numeric_limits<double>::infinity());
  };
  for (const char *type : {"i1", "f32"})
    for (const char *zero : {"true", "false"}) {
      Attention a;
      a.mask = std::string("?x1x?x?x") + type;
      a.maskDims = "\"b\", 1, \"q\", \"k\"";
      a.attributes = std::string("scale = 0.25 : f32, zero_masked_rows = ") + zero;
      check(attentionSchedule(), {module(a), sizes(2, 3, 37), 1e-5, nothing});
      check(attentionSchedule(), {module(a), sizes(2, 3, 0), 1e-5});
    }
}

TEST(Attention, MasksOfLargeFiniteNumbersAreAdded) {
  for (const char *type : {"f32", "f16"}) {
    auto lowest = [&](unsigned index, Tensor &tensor) {
      for (int64_t i = 0; index == 3 && i < tensor.size(); ++i)
        set(tensor, i,
            i < 37 || i % 3 == 0 ? (std::string(type) == "f16" ? -65504.0 : -3.4028234663852886e38) : 0);
    };
    Attention a;
    a.type = type;
    a.mask = std::string("?x1x?x?x") + type;
    a.maskDims = "\"b\", 1, \"q\", \"k\"";
    a.attributes = "scale = 0.25 : f32, zero_masked_rows = true";
    check(attentionSchedule(), {module(a), sizes(2, 3, 37), toleranceOf(type) * 3, lowest});
  }
}

TEST(Attention, StridedOperandsAndEmptyBatch) {
  const std::string text = R"(
    func.func @main(%qkv: tensor<?x?x8x32xf16> {nn.dims = ["b", "s", 8, 32]}) -> tensor<?x4x?x32xf16> {
      %t = nn.transpose %qkv {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x8x32xf16>) -> tensor<?x8x?x32xf16>
      %q = nn.slice %t {starts = [0, 0, 0, 0], sizes = ["b", 4, "s", 32], steps = array<i64: 1, 1, 1, 1>}
          : (tensor<?x8x?x32xf16>) -> tensor<?x4x?x32xf16>
      %k = nn.slice %t {starts = [0, 4, 0, 0], sizes = ["b", 2, "s", 32], steps = array<i64: 1, 1, 1, 1>}
          : (tensor<?x8x?x32xf16>) -> tensor<?x2x?x32xf16>
      %v = nn.slice %t {starts = [0, 6, 0, 0], sizes = ["b", 2, "s", 32], steps = array<i64: 1, 1, 1, 1>}
          : (tensor<?x8x?x32xf16>) -> tensor<?x2x?x32xf16>
      %y = nn.attention %q, %k, %v {scale = 0.2 : f32, causal = true}
          : (tensor<?x4x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>) -> tensor<?x4x?x32xf16>
      return %y : tensor<?x4x?x32xf16>
    })";
  check(attentionSchedule(), {text, {{"b", 2}, {"s", 35}}, toleranceOf("f16")});
  check(attentionSchedule(), {text, {{"b", 0}, {"s", 35}}});
}

/// The kernel on tensor cores, which 16-bit types get: by warps, and by warpgroups on sm_90a.
void checkTensor(ScheduleCase test) {
  for (uint32_t arch : {80u, 90u}) {
    test.arch = arch;
    const std::string source = check(attentionSchedule(), test);
    EXPECT_NE(source.find(arch == 90 ? "attention_prefill_tma<" : "attention_prefill_mma<"),
              std::string::npos)
        << source;
  }
}

// Every feature, at sizes around its tiles of 64 to 128 rows and 16 to 128 keys.
TEST(AttentionTensor, HeadSizesAndLengths) {
  for (auto [width, valueWidth] :
       {std::pair(128, 128), std::pair(64, 64), std::pair(80, 80), std::pair(40, 72), std::pair(8, 16),
        std::pair(192, 128), std::pair(256, 256)})
    for (auto [queries, keys] : {std::pair(130, 67), std::pair(17, 1)}) {
      const char *type = width % 16 == 0 ? "bf16" : "f16";
      Attention a{type, 4, 2, width, valueWidth, "", "", "scale = 0.1 : f32"};
      checkTensor({module(a), sizes(1, queries, keys), toleranceOf(type)});
    }
}

TEST(AttentionTensor, GroupedHeads) {
  for (auto [heads, kvHeads] : {std::pair(4, 4), std::pair(6, 2), std::pair(7, 1)})
    for (int queries : {18, 40, 131}) {
      Attention a{"f16", heads, kvHeads, 16, 16, "", "", "scale = 0.2 : f32, causal = true"};
      checkTensor({module(a), sizes(2, queries, 150), toleranceOf("f16")});
    }
}

TEST(AttentionTensor, LengthsAroundTiles) {
  for (int queries : {63, 65, 127, 200, 513})
    for (auto [heads, kvHeads] : {std::pair(2, 2), std::pair(4, 1), std::pair(8, 1)}) {
      const char *type = queries % 2 ? "bf16" : "f16";
      Attention a{type, heads, kvHeads, 64, 64, "", "", "scale = 0.1 : f32, causal = true"};
      checkTensor({module(a), sizes(1, queries, queries + (heads == 8 ? 70 : 0)), toleranceOf(type)});
    }
}

// Blocks that stay take a second tile of rows, and some a third.
TEST(AttentionTensor, MoreTilesThanMultiprocessors) {
  Attention a{"bf16", 4, 4, 16, 16, "", "", "scale = 0.2 : f32, causal = true"};
  checkTensor({module(a), sizes(12, 300, 300), toleranceOf("bf16")});
  checkTensor({module(a), sizes(23, 270, 150), toleranceOf("bf16")});
  a.attributes = "scale = 0.2 : f32";
  checkTensor({module(a), sizes(12, 300, 40), toleranceOf("bf16")});
}

// Sections of one head, of two with one left over, and of three, in an L2 that keeps no more.
TEST(AttentionTensor, HeadsInSectionsThatTheCacheKeeps) {
  Attention a{"bf16", 5, 5, 16, 16, "", "", "scale = 0.2 : f32, causal = true"};
  for (int64_t heads : {0, 2, 3}) {
    ScheduleCase test{module(a), sizes(5, 300, 70), toleranceOf("bf16")};
    test.l2Bytes = heads * 70 * 2 * (16 + 16) * 3 / 2;
    const std::string source = check(attentionSchedule(), test);
    EXPECT_NE(source.find("attention_prefill_tma<"), std::string::npos) << source;
  }
}

// One batch entry's keys for all entries: a stride that TMA does not take.
TEST(AttentionTensor, SharedKeysAreCopiedByThreads) {
  const std::string text = R"(
    func.func @main(%q: tensor<?x4x?x32xbf16> {nn.dims = ["b", 4, "q", 32]}, %k: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "k", 32]},
                    %v: tensor<?x2x?x32xbf16> {nn.dims = ["b", 2, "k", 32]}) -> tensor<?x4x?x32xbf16> {
      %e = nn.expand %k {shape = ["b", 2, "k", 32]}
          : (tensor<1x2x?x32xbf16>) -> tensor<?x2x?x32xbf16>
      %y = nn.attention %q, %e, %v {scale = 0.2 : f32, causal = true}
          : (tensor<?x4x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>) -> tensor<?x4x?x32xbf16>
      return %y : tensor<?x4x?x32xbf16>
    })";
  ScheduleCase test{text, sizes(2, 70, 90), toleranceOf("bf16")};
  const std::string source = check(attentionSchedule(), test);
  EXPECT_NE(source.find("attention_prefill_sm90<"), std::string::npos) << source;
}

TEST(AttentionTensor, CausalWithPastAndWindow) {
  for (const char *attributes :
       {"causal = true", "causal = true, window = 5 : i64", "window = 70 : i64",
        "causal = true, softcap = 3.0 : f32", "causal = true, softcap = 3.0 : f32, window = 90 : i64",
        "causal = true, zero_masked_rows = true"})
    for (auto [queries, keys] :
         {std::pair(150, 150), std::pair(17, 90), std::pair(33, 200), std::pair(140, 20)}) {
      Attention a{"bf16", 4, 2, 32, 32, "", "", std::string("scale = 0.3 : f32, ") + attributes};
      checkTensor({module(a), sizes(1, queries, keys), toleranceOf("bf16")});
    }
  // A scale that turns the order of the scores around, and one that makes them all alike.
  for (const char *scale : {"-0.3", "0.0"}) {
    Attention a{"f16", 4, 2, 32, 32, "", "", fmt::format("scale = {} : f32, causal = true", scale)};
    checkTensor({module(a), sizes(2, 70, 70), toleranceOf("f16")});
  }
}

TEST(AttentionTensor, MasksBroadcast) {
  struct Mask {
    const char *type, *dims;
  };
  for (Mask mask : {Mask{"?x1x?x?xi1", "\"b\", 1, \"q\", \"k\""},
                    Mask{"?x4x?x?xbf16", "\"b\", 4, \"q\", \"k\""}, Mask{"?x?xf32", "\"q\", \"k\""},
                    Mask{"?x1x1x?xi1", "\"b\", 1, 1, \"k\""}, Mask{"1x1x?x1xbf16", "1, 1, \"q\", 1"}})
    for (int width : {32, 128, 256}) {
      Attention a{"bf16", 4, 2, width, width, mask.type, mask.dims, "scale = 0.05 : f32, causal = true"};
      checkTensor({module(a), sizes(2, 39, 77), toleranceOf("bf16")});
    }
}

TEST(AttentionTensor, FullyMaskedRows) {
  auto nothing = [](unsigned index, Tensor &tensor) {
    for (int64_t i = 0; index == 3 && i < 137; ++i)
      set(tensor, i, tensor.type() == DType::Bool ? 0 : -std::numeric_limits<double>::infinity());
  };
  for (const char *type : {"i1", "f16"})
    for (const char *zero : {"true", "false"}) {
      Attention a{"f16", 4, 2, 32, 32, std::string("?x1x?x?x") + type, "\"b\", 1, \"q\", \"k\"",
                  std::string("scale = 0.25 : f32, zero_masked_rows = ") + zero};
      checkTensor({module(a), sizes(2, 17, 137), toleranceOf("f16"), nothing});
      checkTensor({module(a), sizes(2, 17, 0), toleranceOf("f16")});
    }
}

// Scores that are not numbers reach the result, as in the reference; a row's neighbours do not see them.
TEST(AttentionTensor, NotANumber) {
  auto spoil = [](unsigned index, Tensor &tensor) {
    if (index == 0)
      set(tensor, 35 * 32 + 3, std::numeric_limits<double>::quiet_NaN());
  };
  Attention a{"bf16", 4, 4, 32, 32, "", "", "scale = 0.25 : f32, causal = true"};
  checkTensor({module(a), sizes(1, 50, 50), toleranceOf("bf16"), spoil});
}

TEST(AttentionTensor, HeadsThatItDoesNotTakeNameTheReason) {
  for (auto [type, width, valueWidth, reason] :
       {std::tuple("f32", 64, 64, "f32 has no matrix products"),
        std::tuple("f16", 12, 16, "the queries cannot be read 8 elements at a time"),
        std::tuple("f16", 16, 12, "the values cannot be read 8 elements at a time")}) {
    Attention a{type, 4, 2, width, valueWidth};
    const std::string source = check(attentionSchedule(), {module(a), sizes(1, 20, 20), toleranceOf(type)});
    EXPECT_NE(source.find(reason), std::string::npos) << source;
    EXPECT_NE(source.find("attention_prefill_fma<"), std::string::npos) << source;
  }
}

// What a transformer does with the result: [batch, queries, heads * width].
TEST(AttentionTensor, ResultInAnotherOrder) {
  const std::string text = R"(
    func.func @main(%q: tensor<?x4x?x32xbf16> {nn.dims = ["b", 4, "q", 32]}, %k: tensor<?x2x?x32xbf16> {nn.dims = ["b", 2, "k", 32]},
                    %v: tensor<?x2x?x32xbf16> {nn.dims = ["b", 2, "k", 32]}) -> tensor<?x?x128xbf16> {
      %r = fusion.group "attention_layout" schedule "attention" (%a = %q, %c = %k, %d = %v)
          : (tensor<?x4x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>) -> tensor<?x?x128xbf16> {
        %y = nn.attention %a, %c, %d {scale = 0.2 : f32, causal = true}
            : (tensor<?x4x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>) -> tensor<?x4x?x32xbf16>
        %t = nn.transpose %y {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x4x?x32xbf16>) -> tensor<?x?x4x32xbf16>
        %z = nn.reshape %t {shape = ["b", "q", 128]} : (tensor<?x?x4x32xbf16>) -> tensor<?x?x128xbf16>
        fusion.yield %z : tensor<?x?x128xbf16>
      }
      return %r : tensor<?x?x128xbf16>
    })";
  checkTensor({text, sizes(2, 70, 90), toleranceOf("bf16")});
}

TEST(Attention, RefusalsNameTheReason) {
  Attention a;
  a.width = 300;
  EXPECT_NE(refusal(attentionSchedule(), module(a)).find("heads of 300 and 32 columns"), std::string::npos);
}

} // namespace
} // namespace fusion::test
