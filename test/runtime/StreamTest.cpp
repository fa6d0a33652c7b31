// Runs queued on the caller's streams, over the stand-in driver.
#include "ExecutorChecks.h"
#include "FakeGpu.h"

#include "runtime/cuda/Driver.h"

#include <cstring>

using namespace fusion;
using namespace fusion::test;

namespace {

class Streams : public FakeGpu {
protected:
  void SetUp() override {
    FakeGpu::SetUp();
    executor = make(samplePlan());
    ASSERT_TRUE(executor);
    auto opened = cuda::Driver::instance();
    ASSERT_TRUE(opened);
    driver = *opened;
    for (cuda::Stream *stream : {&first, &second})
      ASSERT_EQ(driver->cuStreamCreate(stream, 0), 0);
  }
  void TearDown() override {
    for (cuda::Stream stream : {first, second})
      driver->cuStreamDestroy_v2(stream);
    executor.reset();
    FakeGpu::TearDown();
  }
  /// The tensors on the GPU: the stand-in's memory is the host's.
  NamedTensors onDevice(const NamedTensors &tensors) {
    NamedTensors placed;
    for (const auto &[name, tensor] : tensors) {
      cuda::DevicePointer pointer = 0;
      EXPECT_EQ(driver->cuMemAlloc_v2(&pointer, tensor.bytes()), 0);
      auto *memory = reinterpret_cast<void *>(pointer);
      std::memcpy(memory, tensor.data(), tensor.bytes());
      auto *owner = driver;
      std::shared_ptr<void> held(memory, [owner, pointer](void *) { owner->cuMemFree_v2(pointer); });
      placed[name] = Tensor::wrap(tensor.type(), tensor.shape(), memory, held, {Device::Kind::Cuda, 0});
    }
    return placed;
  }
  void expectFetched(const Result<NamedTensors> &outputs, const NamedTensors &inputs) {
    ASSERT_TRUE(outputs) << outputs.error().message;
    for (const auto &[name, tensor] : *outputs)
      EXPECT_EQ(tensor.device().kind, Device::Kind::Cuda) << name;
    expectSum(executor->fetch(*outputs), inputs);
  }

  std::unique_ptr<Executor> executor;
  const cuda::Driver *driver = nullptr;
  cuda::Stream first = nullptr, second = nullptr;
};

TEST_F(Streams, WorkGoesToTheCallersStreamAndIsReplayedThere) {
  NamedTensors inputs = sampleInputs(2, 8), placed = onDevice(inputs);
  for (int run = 0; run < 4; ++run) {
    auto outputs = executor->enqueue(placed, first);
    EXPECT_EQ(counters().lastStream, first);
    EXPECT_EQ(counters().replays, run);
    EXPECT_EQ(counters().overlapping, run + 1); // the edge in the graph is a programmatic one
    expectFetched(outputs, inputs);
  }
}

TEST_F(Streams, TheDefaultStreamIsOne) {
  NamedTensors inputs = sampleInputs(2, 8), placed = onDevice(inputs);
  for (int run = 0; run < 3; ++run) {
    auto outputs = executor->enqueue(placed, nullptr);
    EXPECT_EQ(counters().lastStream, nullptr);
    expectFetched(outputs, inputs);
  }
  EXPECT_EQ(counters().replays, 2);
}

TEST_F(Streams, HostInputsAreTakenWhenTheCallReturns) {
  NamedTensors inputs = sampleInputs(2, 8), same = sampleInputs(2, 8);
  auto outputs = executor->enqueue(inputs, first);
  for (auto &[name, tensor] : inputs)
    std::memset(tensor.data(), 0, tensor.bytes());
  expectFetched(outputs, same);
}

TEST_F(Streams, OnlyAnotherStreamWaits) {
  NamedTensors inputs = sampleInputs(2, 8), placed = onDevice(inputs);
  for (int run = 0; run < 3; ++run)
    ASSERT_TRUE(executor->enqueue(placed, first));
  EXPECT_EQ(counters().waits, 0);
  ASSERT_TRUE(executor->enqueue(placed, second)); // temporaries are shared
  EXPECT_EQ(counters().waits, 1);
  expectSum(executor->run(inputs), inputs);
  EXPECT_EQ(counters().waits, 2);
  ASSERT_TRUE(executor->enqueue(placed, second));
  EXPECT_EQ(counters().waits, 3);
}

TEST_F(Streams, AStreamThatStaysIsMarkedWhenAnotherWaits) {
  NamedTensors inputs = sampleInputs(2, 8), placed = onDevice(inputs);
  const int marks = counters().marks;
  for (int run = 0; run < 3; ++run)
    ASSERT_TRUE(executor->enqueue(placed, nullptr));
  EXPECT_EQ(counters().marks, marks);
  ASSERT_TRUE(executor->enqueue(placed, first)); // which may be gone when the next one comes
  EXPECT_EQ(counters().waits, 1);
  EXPECT_EQ(counters().marks, marks + 2);
  expectSum(executor->run(inputs), inputs);
  expectSum(executor->run(inputs), inputs);
  EXPECT_EQ(counters().waits, 2);
  EXPECT_EQ(counters().marks, marks + 2);
  ASSERT_TRUE(executor->enqueue(placed, nullptr));
  EXPECT_EQ(counters().waits, 3);
  EXPECT_EQ(counters().marks, marks + 3);
}

TEST_F(Streams, AResultIsTheNextInput) {
  NamedTensors inputs = sampleInputs(2, 8), placed = onDevice(inputs), expected = inputs;
  for (int step = 0; step < 4; ++step) {
    auto outputs = executor->enqueue(placed, first);
    ASSERT_TRUE(outputs) << outputs.error().message;
    Tensor sum = sampleResult(expected);
    placed["x"] = (*outputs)["sum"];
    expected["x"] = sum;
  }
  auto fetched = executor->fetch({{"x", placed["x"]}});
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_EQ((*fetched)["x"].toFloats(), expected["x"].toFloats());
}

TEST_F(Streams, ACallersGraphTakesTheLaunches) {
  NamedTensors inputs = sampleInputs(2, 8), placed = onDevice(inputs);
  ASSERT_TRUE(executor->enqueue(placed, first)); // allocates
  int launches = counters().launches;
  ASSERT_EQ(driver->cuStreamBeginCapture_v2(first, cuda::threadLocalCapture), 0);
  auto outputs = executor->enqueue(placed, first);
  auto fromHost = executor->enqueue(inputs, first);
  auto larger = executor->enqueue(sampleInputs(64, 64), first);
  cuda::Graph graph = nullptr;
  ASSERT_EQ(driver->cuStreamEndCapture(first, &graph), 0);
  EXPECT_EQ(counters().launches, launches);
  EXPECT_FALSE(fromHost);
  EXPECT_FALSE(larger);
  ASSERT_TRUE(outputs) << outputs.error().message;

  cuda::GraphExec executable = nullptr;
  ASSERT_EQ(driver->cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
  for (int round = 1; round < 4; ++round) {
    NamedTensors large = sampleInputs(128, 64); // moves the temporaries of other runs
    expectSum(executor->run(large), large);
    launches = counters().launches;
    placed["y"].as<float>()[3] = inputs["y"].as<float>()[3] = static_cast<float>(round);
    ASSERT_EQ(driver->cuGraphLaunch(executable, first), 0);
    EXPECT_EQ(counters().launches, launches + 2);
    expectFetched(outputs, inputs);
  }
  driver->cuGraphDestroy(graph);
  driver->cuGraphExecDestroy(executable);
}

TEST_F(Streams, ATensorOfAnotherGpuIsRefused) {
  Tensor elsewhere = Tensor::wrap(DType::F32, {1}, nullptr, nullptr, {Device::Kind::Cuda, 3});
  auto fetched = executor->fetch({{"z", elsewhere}});
  ASSERT_FALSE(fetched);
  EXPECT_NE(fetched.error().message.find("z is on GPU 3"), std::string::npos) << fetched.error().message;
}

} // namespace
