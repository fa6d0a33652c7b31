// Rotations, writes into caches in place and the attention that reads them, in plans.
#include "PlanChecks.h"
#include "test/codegen/schedules/RopeAttentionCase.h"

namespace fusion::test {
namespace {

TEST(RopeAttention, OneLaunch) {
  for (auto [type, rotates] :
       {std::pair("bf16", true), std::pair("f32", true), std::pair("f16", false), std::pair("f32", false)})
    for (auto [heads, kvHeads, batch, past, fresh] :
         {std::tuple(4, 2, 1, 0, 1), std::tuple(4, 2, 3, 200, 1), std::tuple(6, 2, 2, 15, 2),
          std::tuple(32, 2, 2, 130, 3), std::tuple(2, 2, 40, 33, 1)}) {
      RopeAttention c;
      c.type = type;
      c.heads = heads;
      c.kvHeads = kvHeads;
      c.fresh = std::to_string(fresh);
      c.merged = fresh > 1;
      c.attributes = "scale = 0.2 : f32, causal = true";
      c.norm = "eps = 1.0e-6 : f32";
      c.rotatesQueries = c.rotatesKeys = rotates;
      check(module(c), {.symbols = {{"b", batch}, {"p", past}, {"k", past + fresh}},
                        .tolerance = toleranceOf(c.type),
                        .launches = 1,
                        .targets = Targets::One});
    }
}

/// Of an unknown number of new positions, where nothing is measured.
TEST(RopeAttention, PartsWhereNothingIsMeasured) {
  for (int fresh : {1, 3, 40}) {
    RopeAttention c;
    c.type = "f16";
    c.fresh = "n";
    c.rotatesQueries = c.rotatesKeys = fresh != 3;
    c.attributes = "scale = 0.2 : f32, causal = true";
    check(module(c), {.symbols = {{"b", 2}, {"p", 50}, {"n", fresh}, {"k", 50 + fresh}},
                      .tolerance = toleranceOf(c.type),
                      .targets = Targets::One});
  }
}

} // namespace
} // namespace fusion::test
