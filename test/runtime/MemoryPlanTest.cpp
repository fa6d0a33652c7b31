#include "runtime/MemoryPlan.h"

#include <gtest/gtest.h>

#include <random>

using namespace fusion;

static void check(const std::vector<Lifetime> &lifetimes) {
  MemoryPlan plan = planMemory(lifetimes);
  size_t sum = 0, peak = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    sum += alignedSize(lifetimes[i].bytes);
    EXPECT_EQ(plan.offsets[i] % bufferAlignment, 0u);
    EXPECT_LE(plan.offsets[i] + lifetimes[i].bytes, std::max<size_t>(plan.total, plan.offsets[i]));
    size_t alive = 0;
    for (size_t j = 0; j < lifetimes.size(); ++j) {
      if (lifetimes[j].first <= lifetimes[i].first && lifetimes[i].first <= lifetimes[j].last)
        alive += alignedSize(lifetimes[j].bytes);
      bool together = lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
      if (i >= j || !together || lifetimes[i].bytes == 0 || lifetimes[j].bytes == 0)
        continue;
      bool apart = plan.offsets[i] + lifetimes[i].bytes <= plan.offsets[j] ||
                   plan.offsets[j] + lifetimes[j].bytes <= plan.offsets[i];
      EXPECT_TRUE(apart) << i << " and " << j << " overlap";
    }
    peak = std::max(peak, alive);
  }
  EXPECT_LE(plan.total, sum);
  EXPECT_GE(plan.total, peak);
}

TEST(MemoryPlan, LiveBuffersNeverOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes(random() % 60);
    for (Lifetime &lifetime : lifetimes) {
      lifetime.bytes = random() % 4 == 0 ? 0 : random() % 100000;
      lifetime.first = static_cast<int64_t>(random() % 40);
      lifetime.last = lifetime.first + static_cast<int64_t>(random() % 8);
    }
    check(lifetimes);
  }
}

TEST(MemoryPlan, AChainNeedsTwoBuffers) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 100; ++i)
    chain.push_back({1024, i, i + 1});
  EXPECT_EQ(planMemory(chain).total, 2048u);
}

TEST(MemoryPlan, NothingNeedsNothing) {
  EXPECT_EQ(planMemory({}).total, 0u);
  std::vector<Lifetime> unused = {{0, INT64_MAX, -1}};
  EXPECT_EQ(planMemory(unused).total, 0u);
}
