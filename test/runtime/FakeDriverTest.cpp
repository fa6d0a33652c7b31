// The CUDA backend and the executor's use of it, over the stand-in driver: what a machine without a GPU can
// check of recording, staging, lifetimes and failures.
#include "ExecutorChecks.h"
#include "FakeGpu.h"
#include "StepChecks.h"

#include "runtime/cuda/Nvrtc.h"

using namespace fusion;
using namespace fusion::test;

namespace {

TEST_F(FakeGpu, RunsAnyShape) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->device(), "Fake GPU (sm_90a)");
  checkShapes(*executor);
  EXPECT_GT(counters().replays, 0);
}

TEST_F(FakeGpu, TheSecondRunRecordsAndLaterOnesReplay) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  NamedTensors inputs = sampleInputs(2, 8);
  for (int run = 0; run < 5; ++run) {
    expectSum(executor->run(inputs), inputs);
    EXPECT_EQ(counters().replays, run);
    EXPECT_EQ(counters().launches, 2 * (run + 1));
    EXPECT_EQ(counters().overlapping, run + 1);
  }
}

TEST_F(FakeGpu, StepsReplayOneGraph) {
  auto executor = make(stepPlan());
  ASSERT_TRUE(executor);
  checkSteps(*executor);
  EXPECT_EQ(static_cast<uint64_t>(counters().changes), executor->statistics().changedLaunches);
  EXPECT_LT(counters().changes,
            230); // a launch a step, and now and then more when an input has outgrown its memory
  EXPECT_EQ(static_cast<uint64_t>(counters().replays), executor->statistics().replays);
}

TEST_F(FakeGpu, AnotherBatchAndBack) {
  auto executor = make(stepPlan());
  ASSERT_TRUE(executor);
  checkBatchesAndBack(*executor);
}

TEST_F(FakeGpu, OtherLaunchesFromAStepOn) {
  auto executor = make(stepPlan(6));
  ASSERT_TRUE(executor);
  checkOtherLaunchesFromAStepOn(*executor);
}

TEST_F(FakeGpu, ResultsThatAreKeptStayAsTheyAre) {
  ExecutorOptions chosen = options(stepPlan());
  chosen.keepOutputsOnDevice = true;
  auto executor = make(stepPlan(), chosen);
  ASSERT_TRUE(executor);
  checkResultsThatAreKept(*executor);
}

TEST_F(FakeGpu, RecordingCanBeTurnedOff) {
  ExecutorOptions chosen = options(samplePlan());
  chosen.recordGraphs = false;
  auto executor = make(samplePlan(), chosen);
  ASSERT_TRUE(executor);
  checkShapes(*executor);
  EXPECT_EQ(counters().replays, 0);
}

TEST_F(FakeGpu, CachesAreExtendedWhereTheyLie) {
  auto executor = make(cachePlan());
  ASSERT_TRUE(executor);
  checkCache(*executor);
}

TEST_F(FakeGpu, TheCallersInputsStayAsTheyWere) {
  auto executor = make(inPlacePlan());
  ASSERT_TRUE(executor);
  checkInPlace(*executor);
}

TEST_F(FakeGpu, ResultsOnTheDeviceSurviveLaterRunsAndTheExecutor) {
  ExecutorOptions chosen = options(samplePlan());
  chosen.keepOutputsOnDevice = true;
  auto producer = make(samplePlan(), chosen);
  auto consumer = make(samplePlan());
  ASSERT_TRUE(producer && consumer);
  std::vector<NamedTensors> results;
  for (int round = 0; round < 5; ++round) {
    NamedTensors inputs = sampleInputs(2, 8);
    inputs["y"].as<float>()[3] = static_cast<float>(round);
    auto outputs = producer->run(inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ((*outputs)["sum"].device().kind, Device::Kind::Cuda);
    results.push_back(*outputs);
  }
  producer.reset();
  for (int round = 0; round < 5; ++round) {
    NamedTensors before = sampleInputs(2, 8), inputs = before, expected = before;
    before["y"].as<float>()[3] = static_cast<float>(round);
    inputs["x"] = results[round]["sum"];
    expected["x"] = sampleResult(before);
    auto outputs = consumer->run(inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ((*outputs)["sum"].toFloats(), sampleResult(expected).toFloats());
  }
}

TEST_F(FakeGpu, LargeWeightsArriveWhole) {
  ProgramPlan plan = samplePlan();
  int64_t count = (40 << 20) / 4 + 3; // more than the staging chunks, and not a multiple
  Tensor weights = floats({count}, 0);
  plan.buffers[3].shape = {count};
  plan.buffers[3].contents = weights;
  plan.outputs.push_back({"w", DType::F32, {count}, 3, 0});
  auto executor = make(plan);
  ASSERT_TRUE(executor);
  EXPECT_GE(executor->weightBytes(), weights.bytes());
  auto outputs = executor->run(sampleInputs(2, 8));
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_TRUE((*outputs)["w"].toFloats() == weights.toFloats());
}

TEST_F(FakeGpu, TiedWeightsAreLoadedOnce) {
  ProgramPlan plan = samplePlan();
  plan.buffers.push_back(plan.buffers[3]);
  plan.outputs.push_back({"w", DType::F32, {4}, 3, 0});
  plan.outputs.push_back({"tied", DType::F32, {4}, 6, 0});
  auto executor = make(plan);
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->weightBytes(), 256u);
  auto outputs = executor->run(sampleInputs(2, 8));
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ((*outputs)["w"].toFloats(), (*outputs)["tied"].toFloats());
  EXPECT_EQ((*outputs)["tied"].toFloats(), floats({4}, 1, 0.5f).toFloats());
}

TEST_F(FakeGpu, EveryFailedAllocationIsAnErrorAndNothingLeaks) {
  ProgramPlan plan = samplePlan();
  bool succeeded = false;
  for (int allowed = 0; !succeeded && allowed < 20; ++allowed) {
    counters().failAfter = allowed;
    auto executor = Executor::create(plan, options(plan));
    NamedTensors inputs = sampleInputs(2, 8);
    auto outputs = executor ? (*executor)->run(inputs) : Result<NamedTensors>(executor.error());
    succeeded = bool(outputs);
    if (!succeeded) {
      EXPECT_EQ(outputs.error().kind, ErrorKind::Environment);
      EXPECT_NE(outputs.error().message.find("out of memory"), std::string::npos) << outputs.error().message;
      EXPECT_NE(outputs.error().message.find("MiB"), std::string::npos) << outputs.error().message;
    }
    if (executor && !succeeded) { // memory came back: the same executor works again
      counters().failAfter = -1;
      expectSum((*executor)->run(inputs), inputs);
    }
  }
  EXPECT_TRUE(succeeded);
}

/// A kernel that reads foreign memory, or a GPU that is gone: an error for this run and all that follow, in
/// whichever run and with graphs that are recorded by then; what the executor holds is given back.
TEST_F(FakeGpu, AFaultIsAnErrorAndNothingLeaks) {
  const ProgramPlan plan = samplePlan();
  const NamedTensors inputs = sampleInputs(2, 8);
  for (int good : {0, 1, 2, 3, 5, 8}) { // kernels
    auto executor = make(plan);
    counters().faultAfter = good;
    int failed = 0;
    for (int run = 0; run < 8; ++run) {
      auto outputs = executor->run(inputs);
      if (outputs) {
        EXPECT_EQ(failed, 0) << "a run after the fault";
        continue;
      }
      ++failed;
      EXPECT_EQ(outputs.error().kind, ErrorKind::Environment);
      EXPECT_NE(outputs.error().message.find("CUDA_ERROR_FAKE"), std::string::npos)
          << outputs.error().message;
      EXPECT_EQ(outputs.error().message.find('\n'), std::string::npos) << outputs.error().message;
    }
    EXPECT_GE(failed, 3) << good;
    executor.reset();
    EXPECT_EQ(counters().memory + counters().hostMemory + counters().graphs + counters().events, 0);
    counters().faultAfter = -1;
    counters().fault = 0;
  }
}

TEST_F(FakeGpu, WhatADriverDoesNotLoadNamesItsVersion) {
  const ProgramPlan plan = samplePlan();
  for (auto [code, isOld] : {std::pair(200, true), {209, true}, {222, true}, {1, false}}) {
    counters().loadError = code;
    auto executor = Executor::create(plan, options(plan));
    ASSERT_FALSE(executor);
    EXPECT_EQ(executor.error().kind, ErrorKind::Environment);
    EXPECT_EQ(
        executor.error().message.find("the driver is one for CUDA 13.0, what compiled the kernel may be "
                                      "newer") != std::string::npos,
        isOld)
        << executor.error().message;
  }
}

TEST_F(FakeGpu, AKernelThatTheCubinLacksIsNamed) {
  ProgramPlan plan = samplePlan();
  plan.kernels[1].name = "subtract";
  auto executor = Executor::create(plan, options(plan));
  ASSERT_FALSE(executor);
  EXPECT_NE(executor.error().message.find("kernel subtract"), std::string::npos) << executor.error().message;
}

/// Compiled on this machine, and not in a bundle.
static ExecutorOptions withoutCubins(const TemporaryFolder &folder) {
  ExecutorOptions chosen;
  chosen.cacheFolder = folder.path;
  return chosen;
}

TEST_F(FakeGpu, KernelsOfOtherSizesAreCompiledWhenTheyCome) {
  if (auto nvrtc = Nvrtc::instance(); !nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  TemporaryFolder folder;
  auto executor = make(rangedPlan(), withoutCubins(folder));
  ASSERT_TRUE(executor);
  EXPECT_EQ(counters().modules, 1); // what every run needs
  const NamedTensors few = sampleInputs(1, 4), many = sampleInputs(2, 8);
  expectSum(executor->run(few), few);
  EXPECT_EQ(counters().modules, 2);
  for (int run = 0; run < 3; ++run) // the second records
    expectSum(executor->run(many), many);
  expectSum(executor->run(few), few);
  EXPECT_EQ(counters().modules, 3);
}

TEST_F(FakeGpu, ABundlesKernelsAreLoadedAtTheStart) {
  auto executor = make(rangedPlan());
  ASSERT_TRUE(executor);
  EXPECT_EQ(counters().modules, 1); // the stand-in's cubins are all the same
  const NamedTensors few = sampleInputs(1, 4);
  expectSum(executor->run(few), few);
  EXPECT_EQ(counters().modules, 1);
}

TEST_F(FakeGpu, AKernelOfSomeSizesThatDoesNotCompileFailsTheirRuns) {
  if (auto nvrtc = Nvrtc::instance(); !nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  TemporaryFolder folder;
  ProgramPlan plan = rangedPlan();
  plan.kernels[2].source.insert(plan.kernels[2].source.find("pdl_wait"), "nobody_declared_this();\n  ");
  auto executor = make(plan, withoutCubins(folder));
  ASSERT_TRUE(executor);
  const NamedTensors few = sampleInputs(1, 4), many = sampleInputs(2, 8);
  for (int round = 0; round < 2; ++round) {
    auto outputs = executor->run(few);
    ASSERT_FALSE(outputs);
    EXPECT_EQ(outputs.error().kind, ErrorKind::BadInput);
    EXPECT_NE(outputs.error().message.find("scale_few"), std::string::npos) << outputs.error().message;
    expectSum(executor->run(many), many);
  }
  plan.kernels[2] = rangedPlan().kernels[2];
  plan.kernels[1].source.insert(plan.kernels[1].source.find("pdl_wait"), "nobody_declared_this();\n  ");
  auto refused = Executor::create(plan, withoutCubins(folder)); // one that every run needs
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("add"), std::string::npos) << refused.error().message;
}

/// x + a mark that is zero: the stand-in's kernel `tile` with a tensor map of x from its second row on.
static ProgramPlan markedPlan(WorkspaceArgument::Contents contents) {
  using Kind = KernelPlan::Parameter::Kind;
  const Dim rows = Dim::symbol("rows");
  ProgramPlan plan = samplePlan();
  plan.buffers = {{BufferPlan::Kind::Input, "x", DType::F32, {rows + 1, 8}, {}},
                  {BufferPlan::Kind::Output, "y", DType::F32, {rows, 8}, {}}};
  plan.inputs = {{"x", DType::F32, {rows + 1, 8}, 0, 0}};
  plan.outputs = {{"y", DType::F32, {rows, 8}, 1, 0}};
  plan.equalities.clear();
  plan.kernels.resize(1);
  plan.kernels[0].name = "tile";
  plan.kernels[0].parameters = {{Kind::TensorMap, "const GRID_CONSTANT TensorMap", "from"},
                                {Kind::Pointer, "f32 *", "to"},
                                {Kind::Workspace, "f32 *", "marks"}};
  KernelLaunch launch;
  launch.arguments = {TensorMapArgument{0, 32, false, DType::F32, {rows, 8}, {8, 1}, {4, 8}},
                      PointerArgument{1, 0, true}, WorkspaceArgument{rows * 4, contents}};
  plan.steps.clear();
  plan.add(launch);
  return plan;
}

TEST_F(FakeGpu, TensorMapsAndWorkspaceChangeInRecordedGraphs) {
  for (auto contents : {WorkspaceArgument::Contents::KeptZero, WorkspaceArgument::Contents::Zeroed}) {
    SetUp();
    auto executor = make(markedPlan(contents));
    ASSERT_TRUE(executor);
    std::vector<Tensor> held; // so that x lies elsewhere in each run
    for (int run = 0; run < 12; ++run) {
      const int64_t rows = 5 + run / 3;
      held.push_back(floats({rows + 1, 8}, static_cast<float>(run)));
      auto outputs = executor->run({{"x", held.back()}});
      ASSERT_TRUE(outputs) << outputs.error().message;
      const std::vector<float> x = held.back().toFloats();
      EXPECT_EQ(outputs->at("y").toFloats(), std::vector<float>(x.begin() + 8, x.end())) << run;
    }
    EXPECT_GT(counters().replays, 6);
    EXPECT_GT(counters().fills, 0);
    if (contents == WorkspaceArgument::Contents::KeptZero)
      EXPECT_LE(counters().fills, 4); // as often as it has grown
  }
}

TEST_F(FakeGpu, BenchAndProfileReadTheDevicesClock) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  auto times = executor->bench(sampleInputs(2, 8), 3);
  ASSERT_TRUE(times) << times.error().message;
  ASSERT_EQ(times->size(), 3u);
  EXPECT_NEAR((*times)[2], 4.0, 0.01);
  EXPECT_EQ(counters().fills, 0);
  ASSERT_TRUE(executor->bench(sampleInputs(2, 8), 3, /*cold=*/true));
  EXPECT_EQ(counters().fills, 3); // the cache is emptied before each run
  auto timings = executor->profile(sampleInputs(2, 8));
  ASSERT_TRUE(timings) << timings.error().message;
  ASSERT_EQ(timings->size(), 2u);
  EXPECT_NEAR((*timings)[0].microseconds, 2.0, 0.01);
  EXPECT_NEAR(executor->peaks().bytesPerMicrosecond, 4.917e6, 1e3);
  EXPECT_NEAR(executor->peaks().flopsPerMicrosecond, 1.0705e9, 1e6);
  EXPECT_NE(executor->peaks().source.find("Fake GPU by its attributes: 4917 GB/s"), std::string::npos);
}

} // namespace
