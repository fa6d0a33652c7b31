#include "SamplePlan.h"

#include "runtime/ShapePlan.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::test;

TEST(ShapePlan, EvaluatesEverySize) {
  auto shapes = planShapes(samplePlan(), {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->bufferBytes[4], 1200u);
  EXPECT_EQ(shapes->arenaBytes, 1280u);
  EXPECT_EQ(shapes->outputShapes[0], (Shape{3, 100}));
  ASSERT_EQ(shapes->launches.size(), 2u);
  EXPECT_EQ(shapes->launches[0].grid[0], 3u);
  EXPECT_EQ(shapes->launches[1].arguments[2].value, 400u);
  EXPECT_EQ(shapes->launches[1].arguments[4].value, 300u);
  EXPECT_FALSE(shapes->launches[0].overlapsPrevious);
  EXPECT_TRUE(shapes->launches[1].overlapsPrevious);
}

/// x -> t0 -> t1 -> … -> sum, each launch reading the one before; launch i + 1 writes t(i + 1).
static ProgramPlan chain(size_t temporaries) {
  ProgramPlan plan = samplePlan();
  BufferPlan temporary = plan.buffers[4];
  KernelLaunch middle = plan.launches[0];
  plan.launches.resize(1);
  for (size_t i = 1; i < temporaries; ++i) {
    auto id = static_cast<BufferId>(plan.buffers.size());
    plan.buffers.push_back(temporary);
    middle.arguments[0].buffer = i == 1 ? BufferId(4) : id - 1;
    middle.arguments[2] = {id, 0, 0, true, false, {0}};
    plan.launches.push_back(middle);
  }
  middle.arguments[0].buffer = static_cast<BufferId>(plan.buffers.size() - 1);
  middle.arguments[2] = {5, 0, 0, true, false, {0}};
  plan.launches.push_back(middle);
  return plan;
}

TEST(ShapePlan, AResultTakesTheMemoryOfAnInputThatDies) {
  auto shapes = planShapes(chain(4), {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->arenaBytes, 1280u);
  for (BufferId temporary : {4, 6, 7, 8})
    EXPECT_EQ(shapes->arenaOffsets[temporary], 0u);
}

TEST(ShapePlan, AnInputThatIsReadLaterKeepsItsMemory) {
  ProgramPlan plan = chain(3); // 4 -> 6 -> 7 -> sum
  plan.launches[3].arguments[1].buffer = 4;
  auto shapes = planShapes(plan, {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->arenaBytes, 2560u);
  EXPECT_EQ(shapes->arenaOffsets[6], shapes->arenaOffsets[7]);
  EXPECT_NE(shapes->arenaOffsets[4], shapes->arenaOffsets[6]);
}

TEST(ShapePlan, OnlyMemoryThatIsLargeEnoughIsTaken) {
  ProgramPlan plan = chain(2);
  plan.buffers[6].shape.push_back(2);
  auto shapes = planShapes(plan, {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->arenaBytes, 1280u + 2560u);
  std::swap(plan.buffers[4], plan.buffers[6]);
  shapes = planShapes(plan, {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->arenaBytes, 2560u);
}

TEST(ShapePlan, WithoutPermissionNothingIsShared) {
  ProgramPlan plan = chain(2);
  plan.launches[1].arguments[2].mayReplace.clear();
  auto shapes = planShapes(plan, {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->arenaBytes, 2560u);
}

TEST(ShapePlan, APlannerGivesWhatAPlanOfItsOwnGives) {
  for (const ProgramPlan &plan : {chain(4), rangedPlan(), samplePlan()}) {
    ShapePlanner planner(plan);
    for (auto [batch, n] : {std::pair(3, 100), {3, 101}, {1, 4}, {3, 100}, {0, 8}, {-1, 8}, {3, 100}, {1, 70000}}) {
      auto again = planner.plan({{"batch", batch}, {"n", n}}), once = planShapes(plan, {{"batch", batch}, {"n", n}});
      ASSERT_EQ(bool(again), bool(once));
      if (!once) {
        EXPECT_EQ(again.error().message, once.error().message);
        continue;
      }
      EXPECT_EQ(again->bufferBytes, once->bufferBytes);
      EXPECT_EQ(again->arenaOffsets, once->arenaOffsets);
      EXPECT_EQ(again->arenaBytes, once->arenaBytes);
      EXPECT_EQ(again->outputShapes, once->outputShapes);
      EXPECT_EQ(again->bytesMoved, once->bytesMoved);
      ASSERT_EQ(again->launches.size(), once->launches.size());
      for (size_t i = 0; i < once->launches.size(); ++i) {
        EXPECT_EQ(again->launches[i].source, once->launches[i].source);
        EXPECT_EQ(again->launches[i].grid, once->launches[i].grid);
        for (size_t j = 0; j < once->launches[i].arguments.size(); ++j)
          EXPECT_EQ(again->launches[i].arguments[j].value, once->launches[i].arguments[j].value);
      }
    }
    EXPECT_EQ(planner.plan({{"batch", 1}}).error().message, planShapes(plan, {{"batch", 1}}).error().message);
  }
}

TEST(ShapePlan, AnEmptyGridIsNotLaunched) {
  auto shapes = planShapes(samplePlan(), {{"batch", 0}, {"n", 8}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_TRUE(shapes->launches.empty());
}

TEST(ShapePlan, NoOverlapWhereALaunchIsLeftOut) {
  // The third launch may read early what the first wrote, which the second, now missing, would have waited for.
  ProgramPlan plan = samplePlan();
  plan.launches.push_back(plan.launches[1]);
  plan.launches[1].gridX = Dim::symbol("batch") - 3;
  auto shapes = planShapes(plan, {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  ASSERT_EQ(shapes->launches.size(), 2u);
  EXPECT_FALSE(shapes->launches[1].overlapsPrevious);
  shapes = planShapes(plan, {{"batch", 4}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  ASSERT_EQ(shapes->launches.size(), 3u);
  EXPECT_TRUE(shapes->launches[2].overlapsPrevious);
}

TEST(ShapePlan, OneOfTheLaunchesForSeveralSizes) {
  ProgramPlan plan = rangedPlan();
  for (auto [batch, n, source] : {std::tuple(1, 4, 0), {2, 2, 0}, {1, 5, 1}, {3, 100, 1}}) {
    auto shapes = planShapes(plan, {{"batch", batch}, {"n", n}});
    ASSERT_TRUE(shapes) << shapes.error().message;
    ASSERT_EQ(shapes->launches.size(), 2u);
    EXPECT_EQ(shapes->launches[0].source, static_cast<uint32_t>(source));
    EXPECT_EQ(shapes->launches[1].source, 2u);
    EXPECT_TRUE(shapes->launches[1].overlapsPrevious);
  }
  auto nothing = planShapes(plan, {{"batch", 0}, {"n", 8}});
  ASSERT_TRUE(nothing) << nothing.error().message;
  EXPECT_TRUE(nothing->launches.empty());
}

TEST(ShapePlan, ErrorsNameTheKernelOrBuffer) {
  auto missing = planShapes(samplePlan(), {{"batch", 1}});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("n"), std::string::npos);

  ProgramPlan plan = samplePlan();
  plan.launches[1].gridY = Dim::symbol("n");
  auto tooMany = planShapes(plan, {{"batch", 1}, {"n", 70000}});
  ASSERT_FALSE(tooMany);
  EXPECT_NE(tooMany.error().message.find("kernel add at layers.0.add: grid y"), std::string::npos);

  plan = samplePlan();
  plan.launches[1].arguments[2].byteOffset = Dim::symbol("n") * 100;
  auto outside = planShapes(plan, {{"batch", 1}, {"n", 8}});
  ASSERT_FALSE(outside);
  EXPECT_NE(outside.error().message.find("offset"), std::string::npos);

  plan = samplePlan();
  plan.buffers[4].shape = {Dim::symbol("n") - 9};
  EXPECT_FALSE(planShapes(plan, {{"batch", 1}, {"n", 8}}));
  EXPECT_FALSE(planShapes(samplePlan(), {{"batch", int64_t(1) << 40}, {"n", int64_t(1) << 40}}));
}
