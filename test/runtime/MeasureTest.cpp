#include "SamplePlan.h"
#include "TimingBackend.h"

#include "runtime/Measure.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::test;

namespace {
double costOf(const KernelPlan &kernel, const Backend::Launch &) {
  return kernel.name == "add" ? 3 : kernel.name == "scale" ? 2 : 0.5;
}

Result<std::unique_ptr<Backend>> stopwatch(std::span<const KernelPlan> kernels) {
  return std::unique_ptr<Backend>(std::make_unique<TimingBackend>(kernels, costOf));
}

std::vector<Result<double>> measure(const std::vector<ProgramPlan> &plans, const SymbolValues &sizes,
                                    const BackendFactory &makeBackend = stopwatch,
                                    const MeasureOptions &options = {}) {
  std::vector<const ProgramPlan *> pointers;
  for (const ProgramPlan &plan : plans)
    pointers.push_back(&plan);
  return measurePlans(pointers, sizes, makeBackend, options);
}

TEST(Measure, TheTimeOfOneRun) {
  auto times = measure({samplePlan(), rangedPlan()}, {{"batch", 2}, {"n", 8}});
  ASSERT_TRUE(times[0] && times[1]);
  EXPECT_DOUBLE_EQ(*times[0], 5);
  EXPECT_DOUBLE_EQ(*times[1], 5);
  auto few = measure({rangedPlan()}, {{"batch", 1}, {"n", 4}});
  ASSERT_TRUE(few[0]);
  EXPECT_DOUBLE_EQ(*few[0], 3.5);
}

TEST(Measure, OnlyKernelsThatAreLaunchedAreMade) {
  size_t made = 0;
  auto counting = [&](std::span<const KernelPlan> kernels) {
    made = kernels.size();
    return stopwatch(kernels);
  };
  ASSERT_TRUE(measure({rangedPlan(), samplePlan()}, {{"batch", 1}, {"n", 4}}, counting)[0]);
  EXPECT_EQ(made, 3u);
  ASSERT_TRUE(measure({rangedPlan(), samplePlan()}, {{"batch", 3}, {"n", 4}}, counting)[0]);
  EXPECT_EQ(made, 2u);
}

TEST(Measure, WhatCannotBeMeasuredSaysWhyAndCostsOnlyItself) {
  SymbolValues sizes = {{"batch", 2}, {"n", 8}};
  ProgramPlan contradiction = samplePlan();
  contradiction.equalities = {{Dim::symbol("n"), Dim::symbol("batch"), "layers.0 (nn.add)"}};
  ProgramPlan broken = samplePlan();
  broken.kernels[0].name = "broken";
  broken.kernels[0].source = "broken";
  auto picky = [](std::span<const KernelPlan> kernels) -> Result<std::unique_ptr<Backend>> {
    for (const KernelPlan &kernel : kernels)
      if (kernel.name == "broken")
        return badInput("kernel broken does not compile");
    return stopwatch(kernels);
  };
  auto times = measure({samplePlan(), contradiction, broken, samplePlan()}, sizes, picky);
  EXPECT_TRUE(times[0] && *times[0] == 5);
  EXPECT_TRUE(times[3] && *times[3] == 5);
  ASSERT_FALSE(times[1]);
  EXPECT_NE(times[1].error().message.find("n and batch (layers.0 (nn.add))"), std::string::npos);
  ASSERT_FALSE(times[2]);
  EXPECT_NE(times[2].error().message.find("does not compile"), std::string::npos);

  auto nothing = measure({samplePlan()}, {{"batch", 0}, {"n", 8}});
  ASSERT_FALSE(nothing[0]);
  EXPECT_NE(nothing[0].error().message.find("nothing is launched"), std::string::npos);
  EXPECT_FALSE(measure({samplePlan()}, {{"batch", 2}})[0]);
}

TEST(Measure, BuffersHaveALimit) {
  MeasureOptions options;
  options.mostBytes = 4 << 20;
  EXPECT_TRUE(measure({samplePlan()}, {{"batch", 100}, {"n", 1000}}, stopwatch, options)[0]);
  auto large = measure({samplePlan()}, {{"batch", 1000}, {"n", 1000}}, stopwatch, options);
  ASSERT_FALSE(large[0]);
  EXPECT_NE(large[0].error().message.find("the limit of a measurement is 4 MiB"), std::string::npos)
      << large[0].error().message;
}
} // namespace
