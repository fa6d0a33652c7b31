// Programs that read the same weights, over the stand-in driver.
#include "ExecutorChecks.h"
#include "FakeGpu.h"

using namespace fusion;
using namespace fusion::test;

namespace {

class SharedWeight : public FakeGpu {
protected:
  std::unique_ptr<Executor> sharing(const ProgramPlan &plan, size_t memoryLimit = 0) {
    ExecutorOptions chosen = options(plan);
    chosen.sharedWeights = shared;
    chosen.memoryLimit = memoryLimit;
    return make(plan, std::move(chosen));
  }
  static void expectResults(Executor &executor) {
    const NamedTensors inputs = sampleInputs(2, 8);
    expectSum(executor.run(inputs), inputs);
  }
  std::shared_ptr<SharedWeights> shared = std::make_shared<SharedWeights>();
};

TEST_F(SharedWeight, IsOnTheDeviceOnce) {
  auto first = sharing(samplePlan());
  ASSERT_TRUE(first);
  EXPECT_GT(first->weightBytes(), 0u);
  auto second = sharing(samplePlan(), /*memoryLimit=*/1); // there is no room for another
  ASSERT_TRUE(second);
  EXPECT_EQ(second->weightBytes(), 0u);
  second = sharing(samplePlan());
  first.reset(); // what it had stays as long as the other reads it
  expectResults(*second);
  second.reset();
  EXPECT_EQ(counters().memory, 0);
  auto again = sharing(samplePlan()); // nobody has it any more
  ASSERT_TRUE(again);
  EXPECT_GT(again->weightBytes(), 0u);
  expectResults(*again);
}

TEST_F(SharedWeight, IsOneOfTheSameContents) {
  auto first = sharing(samplePlan());
  ProgramPlan plan = samplePlan();
  plan.buffers[3].contents = floats({4}, 3);
  auto second = sharing(plan);
  ASSERT_TRUE(first && second);
  EXPECT_GT(second->weightBytes(), 0u);
  NamedTensors inputs = sampleInputs(1, 4);
  auto outputs = second->run(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_NE(outputs->at("sum").toFloats(), sampleResult(inputs).toFloats());
  expectResults(*first);
}

TEST_F(SharedWeight, IsPreparedOnce) {
  auto first = sharing(preparedPlan());
  ASSERT_TRUE(first);
  const int before = counters().launches;
  EXPECT_GT(before, 0);
  ProgramPlan plan = preparedPlan(); // numbers and names are another plan's own
  std::swap(plan.buffers[6], plan.buffers[7]);
  plan.buffers[3].name = "prepared";
  KernelLaunch &launch = plan.preparation[0].alternatives[0].launches[0];
  std::swap(launch.arguments[0], launch.arguments[1]);
  launch.location = "elsewhere";
  auto second = sharing(plan);
  ASSERT_TRUE(second);
  EXPECT_EQ(counters().launches, before);
  first.reset();
  expectResults(*second);
  std::swap(plan.buffers[6], plan.buffers[7]); // b * a is not a * b
  const int between = counters().launches;
  auto other = sharing(plan);
  ASSERT_TRUE(other);
  EXPECT_GT(counters().launches, between);
  expectResults(*other);
}

/// Of two that are prepared the one that is there already is not prepared again.
TEST_F(SharedWeight, OnlyWhatIsMissingIsPrepared) {
  auto first = sharing(preparedPlan());
  ASSERT_TRUE(first);
  int before = counters().launches;
  ProgramPlan plan = preparedPlan();
  plan.buffers.push_back({BufferPlan::Kind::Prepared, "v", DType::F32, {4}, {}});
  KernelLaunch launch = plan.preparation[0].alternatives[0].launches[0];
  launch.arguments = {PointerArgument{7}, PointerArgument{3}, PointerArgument{8, 0, true}, ScalarArgument{4}};
  plan.preparation.emplace_back().alternatives.push_back({{}, {launch}});
  std::get<PointerArgument>(plan.steps[0].alternatives[0].launches[0].arguments[1]).buffer = 8;
  auto second = sharing(plan);
  ASSERT_TRUE(second);
  EXPECT_EQ(counters().launches, before + 2); // v is made of w, which is not at hand while it is made
  NamedTensors inputs = sampleInputs(2, 8);
  auto outputs = second->run(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message; // twice b * w instead of w
  auto alone = make(plan);
  EXPECT_EQ(outputs->at("sum").toFloats(), alone->run(inputs)->at("sum").toFloats());
  before = counters().launches;
  auto third = sharing(plan);
  ASSERT_TRUE(third);
  EXPECT_EQ(counters().launches, before);
}

} // namespace
