// What every device that records must do with the steps of a decode loop.
#pragma once

#include "SamplePlan.h"

#include "runtime/Executor.h"

#include <gtest/gtest.h>

namespace fusion::test {

inline void expectStep(Executor &executor, int64_t batch, int64_t n, int64_t p) {
  SCOPED_TRACE("batch " + std::to_string(batch) + " n " + std::to_string(n) + " p " + std::to_string(p));
  NamedTensors inputs = stepInputs(batch, n, p);
  auto outputs = executor.run(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  auto host = executor.fetch(*outputs);
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_EQ(host->at("sum").toFloats(), stepResult(inputs));
}

/// One step after another: a graph is recorded once, and each step changes one launch of it, before the run.
inline void checkSteps(Executor &executor) {
  for (int64_t p = 0; p < 200; ++p) {
    expectStep(executor, 2, 8, p);
    const RunStatistics now = executor.statistics();
    EXPECT_EQ(now.whyOneByOne.empty(), p > 0);
    EXPECT_EQ(now.replays, static_cast<uint64_t>(p));
  }
  RunStatistics now = executor.statistics();
  EXPECT_EQ(now.plans, 1u);
  EXPECT_EQ(now.recordings, 1u);
  EXPECT_EQ(now.speculated, 198u); // the first has no step before it, the second begins to speculate
  // Expressions of what depends on p only.
  const uint64_t before = now.evaluations;
  expectStep(executor, 2, 8, 200);
  EXPECT_LE(executor.statistics().evaluations - before, 4u);
  // Not the step that was speculated, and back.
  for (int64_t p : {300, 17, 17, 201, 0, 202})
    expectStep(executor, 2, 8, p);
  now = executor.statistics();
  EXPECT_EQ(now.plans, 1u);
  EXPECT_EQ(now.recordings, 1u);
}

/// Another batch is another set of launches; the first is there when it comes back.
inline void checkBatchesAndBack(Executor &executor) {
  for (int64_t p = 0; p < 4; ++p)
    expectStep(executor, 2, 8, p);
  for (int64_t p = 4; p < 8; ++p)
    expectStep(executor, 5, 8, p);
  EXPECT_EQ(executor.statistics().plans, 2u);
  EXPECT_EQ(executor.statistics().recordings, 2u);
  const uint64_t replays = executor.statistics().replays;
  for (int64_t p = 8; p < 40; ++p)
    expectStep(executor, p % 3 == 0 ? 5 : 2, 8, p);
  EXPECT_EQ(executor.statistics().plans, 2u);
  EXPECT_EQ(executor.statistics().recordings, 2u);
  EXPECT_EQ(executor.statistics().replays, replays + 32);
}

/// For stepPlan(6): from p = 6 on another launch takes the place of one.
inline void checkOtherLaunchesFromAStepOn(Executor &executor) {
  for (int64_t p = 0; p < 20; ++p) {
    expectStep(executor, 2, 8, p);
    EXPECT_EQ(executor.statistics().plans, p < 6 ? 1u : 2u);
    EXPECT_EQ(executor.statistics().whyOneByOne.empty(), p != 0 && p != 6) << p;
  }
  expectStep(executor, 2, 8, 3);
  EXPECT_EQ(executor.statistics().plans, 2u);
  EXPECT_EQ(executor.statistics().recordings, 2u);
}

/// With results on the device: those that the caller holds stay as they are, whatever is replayed.
inline void checkResultsThatAreKept(Executor &executor) {
  std::vector<std::pair<NamedTensors, NamedTensors>> kept;
  for (int64_t p = 0; p < 24; ++p) {
    NamedTensors inputs = stepInputs(3, 4, p);
    auto outputs = executor.run(inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    kept.push_back({inputs, *outputs});
    if (p % 3 == 2) // some longer, some shorter
      kept.erase(kept.begin());
    for (const auto &[given, results] : kept) {
      auto host = executor.fetch(results);
      ASSERT_TRUE(host) << host.error().message;
      EXPECT_EQ(host->at("sum").toFloats(), stepResult(given));
    }
  }
  EXPECT_EQ(executor.statistics().plans, 1u);
  EXPECT_EQ(executor.statistics().recordings, 1u);
}

} // namespace fusion::test
