#include "ExecutorChecks.h"
#include "StepChecks.h"
#include "TilePlan.h"

#include "runtime/Bundle.h"
#include "runtime/cuda/Driver.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

using namespace fusion;
using namespace fusion::test;

/// Skipped where there is no GPU.
class Gpu : public testing::Test {
protected:
  void SetUp() override {
    if (cuda::deviceCount() == 0)
      GTEST_SKIP() << cuda::Driver::instance().error().message;
  }
  static std::unique_ptr<Executor> make(ProgramPlan plan, ExecutorOptions options = {}) {
    auto executor = Executor::create(std::move(plan), std::move(options));
    EXPECT_TRUE(executor) << executor.error().message;
    return executor ? std::move(*executor) : nullptr;
  }
};

TEST_F(Gpu, HasProperties) {
  auto properties = cuda::deviceProperties(0);
  ASSERT_TRUE(properties) << properties.error().message;
  EXPECT_FALSE(properties->name.empty());
  EXPECT_GE(properties->target().number, 80);
  EXPECT_GT(properties->multiprocessors, 0);
  EXPECT_GE(properties->maxSharedBytes, 48 << 10);
  EXPECT_FALSE(cuda::deviceProperties(1000));
}

TEST_F(Gpu, RunsAnyShapeWithAndWithoutRecording) {
  for (bool record : {true, false}) {
    ExecutorOptions options;
    options.recordGraphs = record;
    auto executor = make(samplePlan(), options);
    ASSERT_TRUE(executor);
    checkShapes(*executor);
  }
}

TEST_F(Gpu, StepsReplayOneGraph) {
  auto executor = make(stepPlan());
  ASSERT_TRUE(executor);
  checkSteps(*executor);
}

TEST_F(Gpu, OtherBatchesAndOtherLaunches) {
  auto executor = make(stepPlan());
  ASSERT_TRUE(executor);
  checkBatchesAndBack(*executor);
  executor = make(stepPlan(6));
  ASSERT_TRUE(executor);
  checkOtherLaunchesFromAStepOn(*executor);
}

TEST_F(Gpu, ResultsThatAreKeptStayAsTheyAre) {
  ExecutorOptions options;
  options.keepOutputsOnDevice = true;
  auto executor = make(stepPlan(), options);
  ASSERT_TRUE(executor);
  checkResultsThatAreKept(*executor);
}

TEST_F(Gpu, CachesAreExtendedWhereTheyLie) {
  auto executor = make(cachePlan());
  ASSERT_TRUE(executor);
  checkCache(*executor);
}

TEST_F(Gpu, TheCallersInputsStayAsTheyWere) {
  auto executor = make(inPlacePlan());
  ASSERT_TRUE(executor);
  checkInPlace(*executor);
}

TEST_F(Gpu, PoisonShowsUnwrittenOutputs) {
  ExecutorOptions options;
  options.poison = true;
  auto executor = make(unwrittenPlan(), options);
  ASSERT_TRUE(executor);
  auto outputs = executor->run(sampleInputs(2, 8));
  ASSERT_TRUE(outputs) << outputs.error().message;
  for (float value : (*outputs)["sum"].toFloats())
    EXPECT_TRUE(std::isnan(value));
}

TEST_F(Gpu, DeviceTensorsGoInAndOut) {
  ExecutorOptions options;
  options.keepOutputsOnDevice = true;
  auto producer = make(samplePlan(), options), consumer = make(samplePlan());
  ASSERT_TRUE(producer && consumer);
  NamedTensors inputs = sampleInputs(2, 8), chained = inputs;
  for (int round = 0; round < 4; ++round) {
    auto onDevice = producer->run(inputs);
    ASSERT_TRUE(onDevice) << onDevice.error().message;
    EXPECT_EQ((*onDevice)["sum"].device(), (Device{Device::Kind::Cuda, 0}));
    NamedTensors next = inputs;
    next["x"] = (*onDevice)["sum"];
    auto outputs = consumer->run(next);
    ASSERT_TRUE(outputs) << outputs.error().message;
    chained["x"] = sampleResult(inputs);
    EXPECT_EQ((*outputs)["sum"].toFloats(), sampleResult(chained).toFloats());
  }
}

TEST_F(Gpu, RunsABundlesCubins) {
  TemporaryFolder folder;
  auto properties = cuda::deviceProperties(0);
  ASSERT_TRUE(properties);
  ProgramPlan plan = samplePlan();
  auto kernels = compileKernels(plan.kernels, properties->arch(), nullptr);
  ASSERT_TRUE(kernels) << kernels.error().message;
  ASSERT_TRUE(writeBundle(folder.path + "/b", plan, properties->arch(), *kernels));
  auto bundle = readBundle(folder.path + "/b");
  ASSERT_TRUE(bundle) << bundle.error().message;
  ExecutorOptions options;
  options.cubins = bundle->cubins;
  options.cubinArch = bundle->arch;
  auto executor = make(bundle->plan, options);
  ASSERT_TRUE(executor);
  checkShapes(*executor);
}

TEST_F(Gpu, UsesMoreSharedMemoryThanTheDefault) {
  ProgramPlan plan = samplePlan();
  plan.kernels[0].dynamicSharedBytes = 96 << 10;
  auto executor = make(plan);
  ASSERT_TRUE(executor);
  NamedTensors inputs = sampleInputs(2, 8);
  expectSum(executor->run(inputs), inputs);
  plan.kernels[0].dynamicSharedBytes = 10 << 20;
  auto tooMuch = Executor::create(plan, {});
  ASSERT_FALSE(tooMuch);
  EXPECT_EQ(tooMuch.error().kind, ErrorKind::BadInput);
  EXPECT_EQ(tooMuch.error().message,
            fmt::format("kernel scale: 10485760 bytes of shared memory, a block has {}",
                        TargetInfo::find(plan.target)->sharedBytesPerBlock));
}

TEST_F(Gpu, TilesByTmaAndWorkspace) {
  if (!cuda::deviceProperties(0)->target().has(Feature::Tma))
    GTEST_SKIP() << "a device without TMA";
  for (bool record : {true, false}) {
    ExecutorOptions options;
    options.recordGraphs = record;
    auto executor = make(tilePlan(), options);
    ASSERT_TRUE(executor);
    checkTiles(*executor);
  }
}

TEST_F(Gpu, LargeWeightsArriveWhole) {
  ProgramPlan plan = samplePlan();
  int64_t count = (40 << 20) / 4 + 3; // more than the staging chunks, and not a multiple
  plan.buffers[3].shape = {count};
  Tensor weights = floats({count}, 0);
  plan.buffers[3].contents = weights;
  plan.outputs.push_back({"w", DType::F32, {count}, 3, 0});
  auto executor = make(plan);
  ASSERT_TRUE(executor);
  auto outputs = executor->run(sampleInputs(2, 8));
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_TRUE((*outputs)["w"].toFloats() == weights.toFloats());
}

TEST_F(Gpu, TooLargeARunSaysWhatItNeeds) {
  ProgramPlan plan = samplePlan();
  plan.buffers[4].shape.push_back(int64_t(1) << 24);
  auto executor = make(plan);
  ASSERT_TRUE(executor);
  auto outputs = executor->run(sampleInputs(64, 1024));
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error().kind, ErrorKind::Environment);
  const std::string &message = outputs.error().message;
  // 4 bytes of 64 x 1024 x 2^24.
  const std::string need =
      "the program needs 4096.0 GiB (weights 0.2 KiB, temporaries 4096.0 GiB, results 256.0 KiB), ";
  ASSERT_TRUE(message.starts_with(need)) << message;
  double more = 0, available = 0;
  char unit = 0;
  int end = 0;
  std::sscanf(message.c_str() + need.size(), "%lf GiB more than the %lf %ciB there are for it on %n", &more,
              &available, &unit, &end);
  if (unit == 'M')
    available /= 1024;
  EXPECT_GT(available, 0) << message;
  EXPECT_NEAR(more + available, 4096, 0.11) << message; // each is rounded
  EXPECT_EQ(message.substr(need.size() + static_cast<size_t>(end)), executor->device());
}

TEST_F(Gpu, RunsAreQueuedOnTheCallersStreamsAndInItsGraphs) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  const cuda::Driver &driver = **cuda::Driver::instance();
  cuda::Stream streams[3] = {nullptr, nullptr, nullptr}; // the last one: the default stream
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(driver.cuStreamCreate(&streams[i], cuda::nonBlockingStream), 0);
  std::vector<std::pair<NamedTensors, NamedTensors>> kept;
  for (int run = 0; run < 12; ++run) {
    NamedTensors inputs = sampleInputs(64, 1024);
    inputs["y"].as<float>()[3] = static_cast<float>(run);
    auto outputs = executor->enqueue(inputs, streams[run % 3]);
    ASSERT_TRUE(outputs) << outputs.error().message;
    kept.push_back({inputs, *outputs});
  }
  for (auto &[inputs, outputs] : kept)
    expectSum(executor->fetch(outputs), inputs);
  kept.clear();

  NamedTensors inputs = sampleInputs(64, 1024), placed;
  std::vector<cuda::DevicePointer> pointers;
  for (const auto &[name, tensor] : inputs) {
    cuda::DevicePointer &pointer = pointers.emplace_back();
    ASSERT_EQ(driver.cuMemAlloc_v2(&pointer, tensor.bytes()), 0);
    ASSERT_EQ(driver.cuMemcpyHtoDAsync_v2(pointer, tensor.data(), tensor.bytes(), streams[0]), 0);
    placed[name] = Tensor::wrap(tensor.type(), tensor.shape(), reinterpret_cast<void *>(pointer), nullptr,
                                {Device::Kind::Cuda, 0});
  }
  ASSERT_TRUE(executor->enqueue(placed, streams[0]));
  ASSERT_EQ(driver.cuStreamBeginCapture_v2(streams[0], cuda::threadLocalCapture), 0);
  auto outputs = executor->enqueue(placed, streams[0]);
  cuda::Graph graph = nullptr;
  cuda::GraphExec executable = nullptr;
  ASSERT_EQ(driver.cuStreamEndCapture(streams[0], &graph), 0);
  ASSERT_TRUE(outputs) << outputs.error().message;
  ASSERT_EQ(driver.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
  ASSERT_EQ(driver.cuGraphLaunch(executable, streams[0]), 0);
  ASSERT_EQ(driver.cuStreamSynchronize(streams[0]), 0);
  expectSum(executor->fetch(*outputs), inputs);
  driver.cuGraphDestroy(graph);
  driver.cuGraphExecDestroy(executable);
  outputs = NamedTensors();
  for (cuda::DevicePointer pointer : pointers)
    driver.cuMemFree_v2(pointer);
  for (int i = 0; i < 2; ++i)
    driver.cuStreamDestroy_v2(streams[i]);
}

TEST_F(Gpu, BenchAndProfileReportDeviceTime) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  auto times = executor->bench(sampleInputs(64, 1024), 20);
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(times->size(), 20u);
  for (double time : *times)
    EXPECT_GT(time, 0);
  auto timings = executor->profile(sampleInputs(64, 1024));
  ASSERT_TRUE(timings) << timings.error().message;
  ASSERT_EQ(timings->size(), 2u);
  for (const LaunchTiming &timing : *timings)
    EXPECT_GT(timing.microseconds, 0);
}
