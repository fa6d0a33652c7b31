#include "SamplePlan.h"

#include "runtime/ShapePlan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

using namespace fusion;
using namespace fusion::test;

TEST(ShapePlan, EvaluatesEverySize) {
  auto shapes = planShapes(samplePlan(), {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->placeBytes[4], 1200u);
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
  KernelLaunch middle = onlyLaunch(plan, 0);
  plan.steps.resize(1);
  for (size_t i = 1; i < temporaries; ++i) {
    auto id = static_cast<BufferId>(plan.buffers.size());
    plan.buffers.push_back(temporary);
    pointer(middle, 0).buffer = i == 1 ? BufferId(4) : id - 1;
    pointer(middle, 2) = {id, 0, true, {0}};
    plan.add(middle);
  }
  pointer(middle, 0).buffer = static_cast<BufferId>(plan.buffers.size() - 1);
  pointer(middle, 2) = {5, 0, true, {0}};
  plan.add(middle);
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
  pointer(onlyLaunch(plan, 3), 1).buffer = 4;
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
  pointer(onlyLaunch(plan, 1), 2).mayReplace.clear();
  auto shapes = planShapes(plan, {{"batch", 3}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->arenaBytes, 2560u);
}

TEST(ShapePlan, APlannerGivesWhatAPlanOfItsOwnGives) {
  for (const ProgramPlan &plan : {chain(4), rangedPlan(), samplePlan()}) {
    ShapePlanner planner(plan);
    for (auto [batch, n] :
         {std::pair(3, 100), {3, 101}, {1, 4}, {3, 100}, {0, 8}, {-1, 8}, {3, 100}, {1, 70000}}) {
      auto again = planner.plan({{"batch", batch}, {"n", n}}),
           once = planShapes(plan, {{"batch", batch}, {"n", n}});
      ASSERT_EQ(bool(again), bool(once));
      if (!once) {
        EXPECT_EQ(again.error().message, once.error().message);
        continue;
      }
      EXPECT_EQ(again->placeBytes, once->placeBytes);
      EXPECT_EQ(again->arenaOffsets, once->arenaOffsets);
      EXPECT_EQ(again->arenaBytes, once->arenaBytes);
      EXPECT_EQ(again->outputShapes, once->outputShapes);
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

static void expectSameLaunches(const ShapePlan &actual, const ShapePlan &expected) {
  EXPECT_EQ(actual.symbols, expected.symbols);
  EXPECT_EQ(actual.placeBytes, expected.placeBytes);
  EXPECT_EQ(actual.outputShapes, expected.outputShapes);
  EXPECT_EQ(actual.outputOffsets, expected.outputOffsets);
  EXPECT_EQ(actual.outputStrides, expected.outputStrides);
  EXPECT_EQ(actual.inputStrides, expected.inputStrides);
  ASSERT_EQ(actual.launches.size(), expected.launches.size());
  for (size_t i = 0; i < expected.launches.size(); ++i) {
    const ShapePlan::Launch &one = actual.launches[i], &other = expected.launches[i];
    EXPECT_EQ(one.source, other.source);
    EXPECT_EQ(one.grid, other.grid);
    EXPECT_EQ(one.overlapsPrevious, other.overlapsPrevious);
    ASSERT_EQ(one.arguments.size(), other.arguments.size());
    for (size_t j = 0; j < other.arguments.size(); ++j)
      EXPECT_EQ(one.arguments[j].value, other.arguments[j].value) << i << " " << j;
  }
}

TEST(ShapePlan, AnUpdateGivesThePlanOfTheOtherSizes) {
  for (const ProgramPlan &plan :
       {chain(4), rangedPlan(), samplePlan(), stepPlan(), stepPlan(3), cachePlan()}) {
    ShapePlanner planner(plan), other(plan);
    std::optional<ShapePlan> shapes;
    for (auto [batch, n, p] : {std::tuple(3, 100, 0),
                               {3, 100, 1},
                               {3, 104, 1},
                               {3, 4, 2},
                               {2, 2000, 3},
                               {1, 4, 7},
                               {1, 4, 8},
                               {0, 4, 0},
                               {1, 3, 2},
                               {2, 2, 9},
                               {-1, 8, 1},
                               {3, 100, 0}}) {
      auto expected = other.plan({{"batch", batch}, {"n", n}, {"p", p}});
      if (!shapes) {
        ASSERT_TRUE(expected) << expected.error().message;
        shapes = *expected;
        continue;
      }
      std::vector<int64_t> symbols;
      for (const std::string &name : planner.sizes().table.symbols())
        symbols.push_back(name == "batch" ? batch : name == "n" ? n : name == "p" ? p : DimTable::unknown);
      const ShapePlan before = *shapes;
      const size_t most = planner.launchesThatDepend(before, symbols);
      std::vector<uint32_t> changed;
      if (!planner.update(*shapes, symbols, changed)) {
        expectSameLaunches(*shapes, before); // nothing is half done
        // Another set of launches, or an error.
        EXPECT_TRUE(!expected || expected->states != before.states);
        if (expected)
          shapes = *expected;
        continue;
      }
      ASSERT_TRUE(expected) << expected.error().message;
      expectSameLaunches(*shapes, *expected);
      EXPECT_EQ(shapes->states, expected->states);
      EXPECT_LE(changed.size(), most);
      for (uint32_t i = 0; i < shapes->launches.size(); ++i) {
        bool differs = shapes->launches[i].grid != before.launches[i].grid;
        for (size_t j = 0; j < shapes->launches[i].arguments.size(); ++j)
          differs |= shapes->launches[i].arguments[j].value != before.launches[i].arguments[j].value;
        EXPECT_EQ(std::find(changed.begin(), changed.end(), i) != changed.end(), differs);
      }
      for (BufferId i = 0; i < plan.buffers.size(); ++i)
        if (plan.buffers[i].kind == BufferPlan::Kind::Temporary && expected->roomBytes[i] != SIZE_MAX)
          EXPECT_LE(shapes->arenaOffsets[i] + shapes->placeBytes[i], shapes->arenaBytes);
    }
  }
}

TEST(ShapePlan, TemporariesThatGrowMoveRarely) {
  ProgramPlan plan = chain(4); // with a temporary that is read later, so that there are two places
  pointer(onlyLaunch(plan, 4), 1).buffer = 4;
  ShapePlanner planner(plan);
  auto shapes = planner.plan({{"batch", 3}, {"n", 4}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  int moves = 0;
  for (int64_t n = 8; n < 4000; n += 4) {
    const std::vector<size_t> before = shapes->arenaOffsets;
    std::vector<int64_t> symbols = shapes->symbols;
    for (size_t i = 0; i < symbols.size(); ++i)
      if (planner.sizes().table.symbols()[i] == "n")
        symbols[i] = n;
    std::vector<uint32_t> changed;
    ASSERT_TRUE(planner.update(*shapes, symbols, changed));
    moves += before != shapes->arenaOffsets;
    const size_t first = shapes->arenaOffsets[4], second = shapes->arenaOffsets[6];
    EXPECT_GE(std::max(first, second) - std::min(first, second), shapes->placeBytes[4]);
    EXPECT_GE(shapes->arenaBytes, std::max(first, second) + shapes->placeBytes[6]);
  }
  EXPECT_GT(moves, 2);
  EXPECT_LT(moves, 12);
}

TEST(ShapePlan, AnEmptyGridIsNotLaunched) {
  auto shapes = planShapes(samplePlan(), {{"batch", 0}, {"n", 8}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_TRUE(shapes->launches.empty());
}

TEST(ShapePlan, NoOverlapWhereALaunchIsLeftOut) {
  // The third launch may read early what the first wrote, which the second, now missing, would have waited
  // for.
  ProgramPlan plan = samplePlan();
  plan.add(onlyLaunch(plan, 1));
  onlyLaunch(plan, 1).gridX = Dim::symbol("batch") - 3;
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

TEST(ShapePlan, APredicateOverSeveralSizes) {
  ProgramPlan plan = rangedPlan();
  const Dim batch = Dim::symbol("batch"), n = Dim::symbol("n");
  std::vector<Alternative> &alternatives = plan.steps[0].alternatives;
  alternatives[0].when = {{batch, 1, 4}, {n, 8, 64}};
  alternatives[1].when = {};
  ASSERT_TRUE(verify(plan));
  ShapePlanner planner(plan);
  for (auto [rows, columns, chosen] : {std::tuple(4, 64, 0), {4, 68, 1}, {5, 64, 1}, {1, 4, 1}, {1, 8, 0}}) {
    auto shapes = planner.plan({{"batch", rows}, {"n", columns}});
    ASSERT_TRUE(shapes) << shapes.error().message;
    EXPECT_EQ(shapes->chosen[0], static_cast<uint32_t>(chosen));
    EXPECT_EQ(shapes->launches[0].source, static_cast<uint32_t>(chosen));
    std::vector<int64_t> symbols = shapes->symbols;
    for (size_t i = 0; i < symbols.size(); ++i)
      if (planner.sizes().table.symbols()[i] == "n")
        symbols[i] = columns == 64 ? 68 : 64; // over the edge where the batch is small
    std::vector<uint32_t> changed;
    EXPECT_EQ(planner.update(*shapes, symbols, changed), rows == 5 || columns == 8);
  }
}

TEST(ShapePlan, ErrorsNameTheKernelOrBuffer) {
  auto missing = planShapes(samplePlan(), {{"batch", 1}});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("n"), std::string::npos);

  ProgramPlan plan = samplePlan();
  onlyLaunch(plan, 1).gridY = Dim::symbol("n");
  auto tooMany = planShapes(plan, {{"batch", 1}, {"n", 70000}});
  ASSERT_FALSE(tooMany);
  EXPECT_NE(tooMany.error().message.find("kernel add at layers.0.add: grid y"), std::string::npos);

  plan = samplePlan();
  pointer(onlyLaunch(plan, 1), 2).byteOffset = Dim::symbol("n") * 100;
  auto outside = planShapes(plan, {{"batch", 1}, {"n", 8}});
  ASSERT_FALSE(outside);
  EXPECT_NE(outside.error().message.find("offset"), std::string::npos);

  plan = samplePlan();
  plan.buffers[4].shape = {Dim::symbol("n") - 9};
  EXPECT_FALSE(planShapes(plan, {{"batch", 1}, {"n", 8}}));
  EXPECT_FALSE(planShapes(samplePlan(), {{"batch", int64_t(1) << 40}, {"n", int64_t(1) << 40}}));
}

/// Steps 1 and 2 of the chain, batch - 2 times.
static ProgramPlan repeated() {
  ProgramPlan plan = chain(4); // x -> 4 -> 6 -> 7 -> 8 -> sum
  plan.repetitions.push_back({1, 3, Dim::symbol("batch") - 2});
  return plan;
}

TEST(ShapePlan, RoundsAreCountedAndFollowEachOther) {
  ProgramPlan plan = repeated();
  auto shapes = planShapes(plan, {{"batch", 5}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  ASSERT_EQ(shapes->launches.size(), 5u);
  ASSERT_EQ(shapes->repetitions.size(), 1u);
  EXPECT_EQ(shapes->repetitions[0].first, 1u);
  EXPECT_EQ(shapes->repetitions[0].end, 3u);
  EXPECT_EQ(shapes->repetitions[0].count, 3);
  for (size_t launch : {1, 2, 3}) // the last one follows what may not have run
    EXPECT_FALSE(shapes->launches[launch].overlapsPrevious) << launch;
  shapes = planShapes(plan, {{"batch", 1}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_EQ(shapes->repetitions[0].count, 0);
}

/// What a round reads of before the loop is read in the next one, too.
TEST(ShapePlan, WhatRoundsReadStaysUntilTheLast) {
  auto shapes = planShapes(repeated(), {{"batch", 5}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_NE(shapes->arenaOffsets[4], shapes->arenaOffsets[6]);
  EXPECT_NE(shapes->arenaOffsets[4], shapes->arenaOffsets[7]);
  EXPECT_EQ(shapes->arenaOffsets[7], shapes->arenaOffsets[8]);
}

TEST(ShapePlan, AnotherNumberOfRoundsIsNoUpdate) {
  ProgramPlan plan = repeated();
  ShapePlanner planner(plan);
  auto shapes = planner.plan({{"batch", 5}, {"n", 100}});
  ASSERT_TRUE(shapes) << shapes.error().message;
  std::vector<int64_t> symbols = shapes->symbols;
  std::vector<uint32_t> changed;
  auto set = [&](const std::string &name, int64_t value) {
    const auto &names = planner.sizes().table.symbols();
    symbols[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())] = value;
  };
  set("n", 99);
  EXPECT_TRUE(planner.update(*shapes, symbols, changed));
  set("batch", 4);
  EXPECT_FALSE(planner.update(*shapes, symbols, changed));
}
