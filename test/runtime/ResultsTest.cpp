// Where results are, what memory a run needs, and the page-locked memory through which results come.
#include "ExecutorChecks.h"
#include "FakeGpu.h"

#include "ir/base/Progress.h"

using namespace fusion;
using namespace fusion::test;

namespace {

TEST_F(FakeGpu, ResultsStayOnTheDeviceUntilTheyAreFetched) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  NamedTensors inputs = sampleInputs(2, 8);
  for (Results where : {Results::Device, Results::Queued}) {
    auto results = executor->run(inputs, where);
    ASSERT_TRUE(results) << results.error().message;
    EXPECT_EQ(results->at("sum").device().kind, Device::Kind::Cuda);
    expectSum(executor->fetch(*results), inputs);
  }
  auto results = executor->run(inputs);
  ASSERT_TRUE(results);
  EXPECT_EQ(results->at("sum").device().kind, Device::Kind::Host);
}

/// Whatever has been queued since, a copy of results waits for their run only.
TEST_F(FakeGpu, AFetchWaitsForTheRunOfItsResults) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  const NamedTensors first = sampleInputs(2, 8), second = sampleInputs(3, 8);
  auto before = executor->run(first, Results::Queued);
  ASSERT_TRUE(before);
  const int marks = counters().marks, waits = counters().waits;
  ASSERT_TRUE(executor->run(second, Results::Queued));
  EXPECT_EQ(counters().marks, marks + 1);
  expectSum(executor->fetch(*before), first);
  EXPECT_EQ(counters().marks, marks + 1);                  // it was marked by its run
  EXPECT_EQ(counters().waits, waits + 2);                  // for each of two results
  EXPECT_NE(counters().lastWaited, counters().lastStream); // which went on
  ASSERT_TRUE(executor->run(second, Results::Device));     // after which nothing is known of runs
  expectSum(executor->fetch(*before), first);
  EXPECT_GT(counters().marks, marks + 1);
  EXPECT_NE(counters().lastWaited, counters().lastStream);
}

/// What is placed on the device is read there: whole, or in parts that differ from run to run.
TEST_F(FakeGpu, WhatIsPlacedIsNotCopiedAgain) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  NamedTensors inputs = sampleInputs(2, 8);
  auto placed = executor->place({{"all", Tensor::zeros(DType::F32, {3, 2, 8})}});
  ASSERT_TRUE(placed) << placed.error().message;
  Tensor &all = placed->at("all");
  ASSERT_EQ(all.device().kind, Device::Kind::Cuda);
  for (int round = 0; round < 3; ++round) {
    float *part = all.as<float>() + ptrdiff_t(16) * round; // the stand-in's device memory is the host's
    const NamedTensors expected = sampleInputs(2, 8);
    std::copy_n(expected.at("x").as<float>(), 16, part);
    part[3] = static_cast<float>(round);
    inputs["x"] = Tensor::wrap(DType::F32, {2, 8}, part, all.storage(), all.device());
    auto results = executor->run(inputs, Results::Queued);
    ASSERT_TRUE(results) << results.error().message;
    NamedTensors seen = inputs;
    seen["x"] = expected.at("x").clone();
    seen["x"].as<float>()[3] = static_cast<float>(round);
    expectSum(executor->fetch(*results), seen);
  }
  EXPECT_EQ(executor->place(*placed)->at("all").data(), all.data());
}

/// Small results of many runs may be held, as tokens are, without memory from the driver in each run.
TEST_F(FakeGpu, SmallResultsAreHeldFromManyRuns) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  const NamedTensors inputs = sampleInputs(2, 8);
  int memory = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<NamedTensors> held;
    for (int run = 0; run < 17; ++run) {
      auto results = executor->run(inputs, Results::Queued);
      ASSERT_TRUE(results);
      held.push_back(std::move(*results));
    }
    for (NamedTensors &results : held)
      expectSum(executor->fetch(results), inputs);
    if (round == 0)
      memory = counters().memory;
    EXPECT_EQ(counters().memory, memory);
  }
}

TEST_F(FakeGpu, PageLockedMemoryIsUsedAgain) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  NamedTensors inputs = sampleInputs(2, 8);
  ASSERT_TRUE(executor->run(inputs, Results::Device));
  EXPECT_EQ(counters().hostMemory, 0);
  for (int run = 0; run < 4; ++run) {
    expectSum(executor->run(inputs), inputs);
    EXPECT_EQ(counters().hostMemory, 2); // of two results
  }
  auto first = executor->run(inputs), second = executor->run(inputs);
  EXPECT_EQ(counters().hostMemory, 4);
  EXPECT_NE(first->at("sum").data(), second->at("sum").data());
  executor.reset(); // results outlive it
  expectSum(std::move(first), inputs);
  expectSum(std::move(second), inputs);
}

/// More than is page-locked for results comes through chunks.
TEST_F(FakeGpu, LargeResultsComeInChunks) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  const Shape matrix = {5000, 7000};
  Tensor x = Tensor::zeros(DType::F32, matrix), y = Tensor::zeros(DType::F32, matrix);
  for (int64_t i = 0; i < x.size(); i += 4999)
    x.as<float>()[i] = static_cast<float>(i);
  const NamedTensors inputs = {{"x", x}, {"y", y}, {"offset", Tensor::zeros(DType::F32, {7001})}};
  auto results = executor->run(inputs); // 133 MiB each, of which 256 are page-locked
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(counters().hostMemory, 1 + 2);
  const Tensor &same = results->at("same_x"); // the second of the two
  for (int64_t i = 0; i < x.size(); i += 4999)
    ASSERT_EQ(same.as<float>()[i], x.as<float>()[i]) << i;
}

TEST_F(FakeGpu, WhatDoesNotFitIsSaidBeforeAnythingIsAllocated) {
  ExecutorOptions chosen = options(samplePlan());
  chosen.memoryLimit = 4096;
  chosen.largestRun = sampleInputs(64, 64);
  setQuiet(true);
  auto executor = Executor::create(samplePlan(), chosen);
  setQuiet(false);
  ASSERT_FALSE(executor);
  EXPECT_EQ(executor.error().kind, ErrorKind::Environment);
  EXPECT_EQ(executor.error().message, "the program needs 32.2 KiB (weights 0.2 KiB, temporaries 16.0 KiB, "
                                      "results 16.0 KiB), 28.2 KiB more than the 4.0 KiB there "
                                      "are for it on Fake GPU (sm_90a)");
  EXPECT_EQ(counters().memory, 0);
  // What the device has is a limit, too: 512 MiB.
  chosen.memoryLimit = 0;
  chosen.largestRun = {{"x", Tensor::wrap(DType::F32, {10000, 10000}, nullptr, nullptr)},
                       {"y", Tensor::wrap(DType::F32, {10000, 10000}, nullptr, nullptr)},
                       {"offset", Tensor::wrap(DType::F32, {10001}, nullptr, nullptr)}};
  setQuiet(true);
  executor = Executor::create(samplePlan(), chosen);
  setQuiet(false);
  ASSERT_FALSE(executor);
  EXPECT_NE(executor.error().message.find("250.9 MiB more than the 512.0 MiB"), std::string::npos)
      << executor.error().message;
}

TEST_F(FakeGpu, ARunThatDoesNotFitIsRefusedAndSmallerOnesGoOn) {
  ExecutorOptions chosen = options(samplePlan());
  chosen.memoryLimit = 4096;
  auto executor = make(samplePlan(), chosen);
  ASSERT_TRUE(executor);
  auto refused = executor->run(sampleInputs(64, 64));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Environment);
  NamedTensors inputs = sampleInputs(2, 8);
  expectSum(executor->run(inputs), inputs);
  EXPECT_GE(executor->statistics().peakBytes,
            executor->statistics().weightBytes + executor->statistics().temporaryBytes);
  EXPECT_LE(executor->statistics().peakBytes, 4096u);
}

} // namespace
