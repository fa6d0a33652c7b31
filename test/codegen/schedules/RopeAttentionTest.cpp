// Rotations, writes into caches in place and the attention of few new positions, in one kernel.
#include "Harness.h"
#include "RopeAttentionCase.h"

namespace fusion::test {
namespace {

bool has(const std::string &source, const std::string &part) {
  return source.find(part) != std::string::npos;
}

std::string run(const RopeAttention &c, int64_t batch, int64_t past, int64_t fresh = 1) {
  ScheduleCase test{
      module(c), {{"b", batch}, {"p", past}, {"n", fresh}, {"k", past + fresh}}, toleranceOf(c.type)};
  if (c.fresh == "n")
    test.variant = "other kernel";
  const std::string source = check(ropeAttentionSchedule(), test);
  EXPECT_EQ(has(source, "make_queries<Config"), c.rotatesQueries) << source;
  return source;
}

RopeAttention withoutRotations(const char *type) {
  RopeAttention c;
  c.type = type;
  c.rotatesQueries = c.rotatesKeys = false;
  return c;
}

TEST(RopeAttention, TypesAndPasts) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int past : {0, 1, 15, 16, 17, 127, 700}) {
      RopeAttention c;
      c.type = type;
      const bool onTensorCores = c.type != "f32";
      EXPECT_EQ(has(run(c, 2, past), "attention_decode_mma<Config>"), onTensorCores);
    }
}

TEST(RopeAttention, HeadSizes) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (auto [width, valueWidth, rotary] :
         {std::tuple(128, 128, 128), std::tuple(256, 256, 256), std::tuple(64, 64, 32),
          std::tuple(96, 64, 96), std::tuple(80, 80, 40), std::tuple(20, 33, 20)}) {
      RopeAttention c;
      c.type = type;
      c.width = width;
      c.valueWidth = valueWidth;
      c.rotary = rotary;
      run(c, 1, 140);
    }
}

/// Groups of heads in one tile of rows, in two, and in several clusters, which all make the same keys.
TEST(RopeAttention, GroupsAndNewPositions) {
  for (auto [heads, kvHeads] :
       {std::pair(2, 2), std::pair(6, 2), std::pair(8, 1), std::pair(32, 2), std::pair(20, 1)})
    for (const char *fresh : {"1", "2", "3", "4"})
      for (const char *type : {"bf16", "f32"}) {
        RopeAttention c;
        c.type = type;
        c.heads = heads;
        c.kvHeads = kvHeads;
        c.fresh = fresh;
        c.merged = heads != 6;
        c.attributes = "scale = 0.2 : f32, causal = true";
        run(c, 2, 70, std::stoi(fresh));
      }
}

TEST(RopeAttention, Norms) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (bool interleaved : {false, true})
      for (const char *norm :
           {"eps = 1.0e-6 : f32", "eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32"}) {
        RopeAttention c;
        c.type = type;
        c.width = c.valueWidth = 128;
        c.rotary = interleaved ? 64 : 128;
        c.interleaved = interleaved;
        c.fresh = "2";
        c.attributes = "scale = 0.1 : f32, causal = true";
        (interleaved ? c.after : c.norm) = norm;
        run(c, 2, 33, 2);
      }
}

TEST(RopeAttention, MasksWindowsAndCaps) {
  for (const char *type : {"bf16", "f32"})
    for (const char *attributes : {"scale = 0.3 : f32, causal = true, window = 20 : i64",
                                   "scale = 0.3 : f32, causal = true, softcap = 3.0 : f32"})
      for (bool masked : {false, true}) {
        RopeAttention c;
        c.type = type;
        c.attributes = attributes;
        c.masked = masked;
        c.fresh = "3";
        run(c, 2, 90, 3);
      }
}

/// Sizes of a run: one kernel for few new positions, with blocks for each number of pairs.
TEST(RopeAttention, SizesOfARun) {
  for (const char *type : {"f16", "f32"})
    for (auto [batch, past, fresh] : {std::tuple(1, 40, 1), std::tuple(3, 0, 2), std::tuple(12, 33, 4),
                                      std::tuple(20, 300, 1), std::tuple(40, 20, 3)}) {
      RopeAttention c;
      c.type = type;
      c.fresh = "n";
      c.width = c.valueWidth = c.rotary = 32;
      c.attributes = "scale = 0.2 : f32, causal = true";
      run(c, batch, past, fresh);
    }
}

/// Caches of fixed length whose keys come through a ring: new ones are not among them.
TEST(RopeAttention, Rings) {
  for (const char *type : {"f16", "bf16"})
    for (auto [batch, past, fresh] : {std::tuple(34, 0, 1), std::tuple(34, 1, 2), std::tuple(67, 16, 1),
                                      std::tuple(34, 129, 2), std::tuple(67, 250, 1)}) {
      RopeAttention c;
      c.type = type;
      c.capacity = "258";
      c.fresh = std::to_string(fresh);
      c.rotatesQueries = c.rotatesKeys = batch == 34;
      c.attributes = "scale = 0.2 : f32, causal = true";
      EXPECT_TRUE(has(run(c, batch, past, fresh), batch > 66 ? "ring = 2;" : "ring = 4;"));
    }
}

/// Entries are as long as data says; rows beside them are those of the past, or cleared.
TEST(RopeAttention, RowsThatDataPlaces) {
  for (const char *type : {"bf16", "f32"})
    for (bool grows : {false, true})
      for (auto [batch, fresh] : {std::pair(1, 1), std::pair(3, 1), std::pair(3, 3)}) {
        RopeAttention c;
        c.type = type;
        c.placed = true;
        c.grows = grows;
        c.rotatesQueries = c.rotatesKeys = (fresh == 3) != grows;
        c.fresh = std::to_string(fresh);
        c.capacity = "60";
        c.heads = 6;
        const int64_t past = 40;
        ScheduleCase test{module(c), {{"b", batch}, {"p", past}, {"k", past + fresh}}, toleranceOf(c.type)};
        test.fill = [&, fresh = fresh](unsigned index, Tensor &tensor) {
          constexpr int64_t starts[] = {37, 0, 21};
          for (int64_t i = 0; index == 7 && i < tensor.size(); ++i)
            set(tensor, i, static_cast<double>(starts[i / fresh] + i % fresh));
        };
        const std::string source = check(ropeAttentionSchedule(), test);
        EXPECT_TRUE(has(source, "extends_keys = false")) << source;
        EXPECT_TRUE(has(source, "bounded_above = true")) << source;
      }
}

/// What is new is quantised as it is written, and decoded as it is read.
TEST(RopeAttention, Codes) {
  for (const char *type : {"f16", "bf16"})
    for (const char *codes : {"i8", "f8E4M3FN"})
      for (auto [width, batch, fresh] : {std::tuple(64, 1, 1), std::tuple(128, 2, 3), std::tuple(36, 3, 2)}) {
        RopeAttention c;
        c.type = type;
        c.codes = codes;
        c.rotatesQueries = c.rotatesKeys = width != 64;
        c.width = c.valueWidth = c.rotary = width;
        c.fresh = std::to_string(fresh);
        ScheduleCase test{module(c), {{"b", batch}, {"p", 45}, {"k", 45 + fresh}}, toleranceOf(c.type)};
        test.fill = [](unsigned index, Tensor &tensor) {
          if (index == 8)
            set(tensor, 0, 0.02);
        };
        EXPECT_EQ(has(check(ropeAttentionSchedule(), test), "make_queries<Config"), c.rotatesQueries);
      }
}

/// New keys and values are only written, and queries are read as they are.
TEST(RopeAttention, NoRotations) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (int past : {0, 1, 15, 16, 127, 700}) {
      RopeAttention c = withoutRotations(type);
      c.kvHeads = past % 2 == 0 ? 2 : 4;
      const std::string source = run(c, 2, past);
      EXPECT_TRUE(has(source, " write_attention_decode_")) << source;
      EXPECT_EQ(has(source, "attention_decode_mma<Config>"), c.type != "f32");
    }
}

TEST(RopeAttention, NoRotationsOfHeadSizes) {
  for (const char *type : {"f16", "bf16", "f32"})
    for (auto [width, valueWidth] : {std::pair(128, 128), std::pair(256, 256), std::pair(80, 80),
                                     std::pair(96, 64), std::pair(20, 33), std::pair(36, 36)}) {
      RopeAttention c = withoutRotations(type);
      c.width = width;
      c.valueWidth = valueWidth;
      run(c, 1, 140);
    }
}

TEST(RopeAttention, NoRotationsOfGroupsAndNewPositions) {
  for (auto [heads, kvHeads] : {std::pair(2, 2), std::pair(6, 2), std::pair(32, 2), std::pair(20, 1)})
    for (const char *fresh : {"1", "3", "4"})
      for (const char *type : {"bf16", "f32"}) {
        RopeAttention c = withoutRotations(type);
        c.heads = heads;
        c.kvHeads = kvHeads;
        c.fresh = fresh;
        c.merged = heads != 6;
        c.masked = heads == 6;
        c.attributes = "scale = 0.2 : f32, causal = true";
        run(c, 2, 70, std::stoi(fresh));
      }
}

/// Sizes of a run, with the blocks of each number of pairs.
TEST(RopeAttention, NoRotationsOfSizesOfARun) {
  for (const char *type : {"f16", "f32"})
    for (auto [batch, past, fresh] : {std::tuple(1, 40, 1), std::tuple(3, 0, 2), std::tuple(12, 33, 4),
                                      std::tuple(20, 300, 1), std::tuple(40, 20, 3)}) {
      RopeAttention c = withoutRotations(type);
      c.fresh = "n";
      c.width = c.valueWidth = 32;
      c.attributes = "scale = 0.2 : f32, causal = true";
      run(c, batch, past, fresh);
    }
}

/// Either without the other.
TEST(RopeAttention, OneRotation) {
  for (const char *type : {"f16", "f32"})
    for (bool queries : {false, true}) {
      RopeAttention c;
      c.type = type;
      c.rotatesQueries = queries;
      c.rotatesKeys = !queries;
      c.fresh = "2";
      c.norm = "eps = 1.0e-6 : f32";
      c.attributes = "scale = 0.1 : f32, causal = true";
      EXPECT_TRUE(has(run(c, 2, 33, 2), " rope_attention_decode_"));
    }
}

TEST(RopeAttention, Refuses) {
  auto reason = [](const RopeAttention &c) { return refusal(ropeAttentionSchedule(), module(c)); };
  RopeAttention c;
  c.fresh = "9";
  EXPECT_TRUE(has(reason(c), "one kernel is for 1 to 8 new positions: here there are 9")) << reason(c);
  c.fresh = "0";
  EXPECT_TRUE(has(reason(c), "here there are 0")) << reason(c);
}

} // namespace
} // namespace fusion::test
