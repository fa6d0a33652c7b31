// A test over the stand-in driver: nothing may be alive on the device when it ends.
#pragma once

#include "FakeDriver.h"

#include "runtime/Executor.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

namespace fusion::test {

inline FakeDriverCounters &counters() {
  static auto *function = [] {
    void *driver = dlopen(FUSION_FAKE_DRIVER, RTLD_NOW);
    if (!driver) {
      std::fprintf(stderr, "the stand-in driver of these tests cannot be opened: %s\n", dlerror());
      std::exit(1);
    }
    return reinterpret_cast<FakeDriverCounters *(*)()>(dlsym(driver, "fakeDriverCounters"));
  }();
  return *function();
}

class FakeGpu : public testing::Test {
protected:
  static void SetUpTestSuite() {
    setenv("FUSION_CUDA_DRIVER", FUSION_FAKE_DRIVER, 1);
    setenv("FUSION_COLLECTIVE_MEASURE", "0", 1); // nothing runs, so that nothing can be timed
  }
  void SetUp() override {
    FakeDriverCounters &now = counters();
    now.launches = now.overlapping = now.replays = now.changes = now.fills = now.waits = 0;
  }
  void TearDown() override {
    const FakeDriverCounters &alive = counters();
    EXPECT_EQ(alive.memory, 0);
    EXPECT_EQ(alive.hostMemory, 0);
    EXPECT_EQ(alive.modules, 0);
    EXPECT_EQ(alive.streams, 0);
    EXPECT_EQ(alive.events, 0);
    EXPECT_EQ(alive.graphs, 0);
    EXPECT_EQ(alive.contexts, 0);
    counters().failAfter = counters().faultAfter = -1;
    counters().fault = counters().loadError = 0;
    EXPECT_EQ(alive.opened, 0);
    counters().gpus = counters().reachable = 1;
    counters().refusing = counters().shownGpus = -1;
    counters().sameBus = 0;
  }
  static ExecutorOptions options(const ProgramPlan &plan) {
    ExecutorOptions result;
    result.cubins.assign(plan.kernels.size(), "the stand-in does not read it");
    result.cubinArch = "sm_90a";
    return result;
  }
  static std::unique_ptr<Executor> make(const ProgramPlan &plan) { return make(plan, options(plan)); }
  static std::unique_ptr<Executor> make(const ProgramPlan &plan, ExecutorOptions chosen) {
    auto executor = Executor::create(plan, std::move(chosen));
    EXPECT_TRUE(executor) << executor.error().message;
    return executor ? std::move(*executor) : nullptr;
  }
};

} // namespace fusion::test
