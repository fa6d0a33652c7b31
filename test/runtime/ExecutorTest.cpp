#include "ExecutorChecks.h"
#include "StepChecks.h"

#include "runtime/WeightRows.h"

#include <cmath>
#include <fstream>
#include <set>
#include <thread>

using namespace fusion;
using namespace fusion::test;

static ExecutorOptions emulated() {
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  options.cacheFolder = FUSION_BINARY_DIR "/test-cache";
  return options;
}

static std::unique_ptr<Executor> make(ProgramPlan plan, ExecutorOptions options = emulated()) {
  auto executor = Executor::create(std::move(plan), std::move(options));
  EXPECT_TRUE(executor) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

TEST(Executor, RunsAnyShape) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  checkShapes(*executor);
  EXPECT_GE(executor->arenaBytes(), 2u * 1024 * 4);
}

TEST(Executor, CachesAreExtendedWhereTheyLie) {
  auto executor = make(cachePlan());
  ASSERT_TRUE(executor);
  checkCache(*executor);
}

TEST(Executor, TheCallersInputsStayAsTheyWere) {
  auto executor = make(inPlacePlan());
  ASSERT_TRUE(executor);
  checkInPlace(*executor);
}

TEST(Executor, AnInputThatIsNotAlignedIsCopied) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  NamedTensors inputs = sampleInputs(2, 8);
  Tensor storage = floats({17}, 1);
  inputs["x"] = Tensor::wrap(DType::F32, {2, 8}, storage.as<float>() + 1, nullptr);
  expectSum(executor->run(inputs), inputs);
}

TEST(Executor, PoisonShowsUnwrittenOutputs) {
  ExecutorOptions options = emulated();
  options.poison = true;
  auto executor = make(unwrittenPlan(), options);
  ASSERT_TRUE(executor);
  auto outputs = executor->run(sampleInputs(2, 8));
  ASSERT_TRUE(outputs);
  for (float value : (*outputs)["sum"].toFloats())
    EXPECT_TRUE(std::isnan(value));
}

TEST(Executor, WeightsComeFromTheirFile) {
  TemporaryFolder folder;
  std::string path = folder.path + "/w.bin";
  ProgramPlan plan = samplePlan();
  Tensor weights = floats({4}, 1, 0.5f);
  for (uint64_t offset : {uint64_t(0), uint64_t(16), uint64_t(5)}) { // the last is not aligned
    std::ofstream(path, std::ios::binary)
        << std::string(offset, '?') << std::string(weights.as<char>(), weights.bytes());
    plan.buffers[3].contents = FileSpan{path, offset, 16};
    auto executor = make(plan);
    ASSERT_TRUE(executor);
    NamedTensors inputs = sampleInputs(2, 8);
    expectSum(executor->run(inputs), inputs);
    std::filesystem::remove(path);
  }
}

// The weights 1, 1.5, 2, 2.5 as rows, columns and the middle of larger tensors, a different part for each
// rank.
TEST(Executor, ARankUploadsItsPartOfAWeight) {
  TemporaryFolder folder;
  std::string path = folder.path + "/w.bin";
  Dim rank = Dim::symbol("tp_rank");
  struct Case {
    Shape whole, part;
    DimShape starts;
  };
  for (const Case &item :
       {Case{{12}, {4}, {rank * 4}}, Case{{3, 4}, {1, 4}, {rank, 0}}, Case{{4, 3}, {4, 1}, {0, rank}},
        Case{{2, 6}, {2, 2}, {0, rank * 2}}, Case{{2, 3, 2}, {2, 1, 2}, {0, rank, 0}},
        Case{{3, 3, 3}, {2, 2, 1}, {1, 1, rank}}, Case{{4, 5, 2}, {2, 1, 2}, {rank, 3, 0}}}) {
    for (int64_t number : {0, 2}) {
      ProgramPlan plan = samplePlan();
      Tensor whole = floats(item.whole, -100);
      Shape begin, index(item.part.size(), 0);
      for (const Dim &start : item.starts)
        begin.push_back(*start.evaluate({{"tp_rank", number}}));
      for (int64_t element = 0; element < 4; ++element) {
        int64_t place = 0, left = element;
        for (size_t i = item.part.size(); i-- > 0; left /= item.part[i])
          index[i] = begin[i] + left % item.part[i];
        for (size_t i = 0; i < index.size(); ++i)
          place = place * item.whole[i] + index[i];
        whole.as<float>()[place] = 1 + 0.5f * static_cast<float>(element);
      }
      std::ofstream(path, std::ios::binary) << std::string(whole.as<char>(), whole.bytes());
      plan.buffers[3].shape = DimShape(item.part.begin(), item.part.end());
      plan.buffers[3].window = {item.whole, item.starts};
      plan.buffers[3].contents = FileSpan{path, 0, whole.bytes()};
      ExecutorOptions options = emulated();
      options.rank = static_cast<int>(number);
      auto executor = make(plan, options);
      ASSERT_TRUE(executor);
      EXPECT_LE(executor->weightBytes(), 256u);
      NamedTensors inputs = sampleInputs(2, 8);
      expectSum(executor->run(inputs), inputs);
      std::filesystem::remove(path);
    }
  }
}

/// The bytes cut into equal parts, which a file holds in reverse order with gaps between them.
static std::vector<FileSpan> writeParts(const std::string &path, const Tensor &whole, size_t parts) {
  std::vector<FileSpan> spans(parts);
  std::ofstream file(path, std::ios::binary);
  const size_t bytes = whole.bytes() / parts;
  for (size_t part = parts, offset = 0; part-- > 0; offset += bytes + 3) {
    file << std::string(whole.as<char>() + part * bytes, bytes) << "???";
    spans[part] = {path, offset, bytes};
  }
  return spans;
}

// The weights 1, 1.5, 2, 2.5 as a part of a tensor that lies in several places; rows and parts end where they
// like.
TEST(Executor, AWeightComesInParts) {
  TemporaryFolder folder;
  std::string path = folder.path + "/w.bin";
  struct Case {
    Shape whole, part, starts;
  };
  for (const Case &item : {Case{{4}, {4}, {0}}, Case{{3, 4}, {1, 4}, {1, 0}}, Case{{4, 3}, {4, 1}, {0, 1}},
                           Case{{2, 6}, {2, 2}, {0, 3}}, Case{{3, 2, 4}, {1, 2, 2}, {2, 0, 1}}})
    for (size_t parts : {1, 2, 3, 4, 6}) {
      if (elementCount(item.whole) % static_cast<int64_t>(parts) != 0)
        continue;
      SCOPED_TRACE(shapeString(item.whole) + " in " + std::to_string(parts));
      Tensor whole = floats(item.whole, -100);
      Shape strides(item.whole.size(), 1);
      for (size_t i = strides.size() - 1; i-- > 0;)
        strides[i] = strides[i + 1] * item.whole[i + 1];
      for (int64_t element = 0; element < 4; ++element) {
        int64_t place = 0, left = element;
        for (size_t i = item.part.size(); i-- > 0; left /= item.part[i])
          place += (item.starts[i] + left % item.part[i]) * strides[i];
        whole.as<float>()[place] = 1 + 0.5f * static_cast<float>(element);
      }
      ProgramPlan plan = samplePlan();
      BufferPlan &weight = plan.buffers[3];
      weight.shape = DimShape(item.part.begin(), item.part.end());
      weight.window = {item.whole, DimShape(item.starts.begin(), item.starts.end())};
      weight.parts = writeParts(path, whole, parts);
      weight.contents = weight.parts.front();
      auto executor = make(plan);
      ASSERT_TRUE(executor);
      NamedTensors inputs = sampleInputs(2, 8);
      expectSum(executor->run(inputs), inputs);
      std::filesystem::remove(path);
    }
}

TEST(Executor, WeightsArePreparedOnce) {
  auto executor = make(preparedPlan());
  ASSERT_TRUE(executor);
  checkShapes(*executor);
  EXPECT_EQ(executor->weightBytes(), 0u) << "only the preparation reads a and b";
  auto back = programPlanFromJson(toJson(preparedPlan()));
  ASSERT_TRUE(back) << back.error().message;
  NamedTensors inputs = sampleInputs(2, 8);
  auto again = make(*back);
  ASSERT_TRUE(again);
  expectSum(again->run(inputs), inputs);
}

TEST(PlanVerify, APreparationMakesAllOfItsBuffersFromWeights) {
  ProgramPlan plan = preparedPlan();
  EXPECT_TRUE(verify(plan));
  plan.preparation.clear();
  EXPECT_EQ(verify(plan).error().message, "buffer w: nothing prepares it");
  plan = preparedPlan();
  plan.preparation[0].alternatives[0].launches[0].arguments[0] = PointerArgument{0};
  EXPECT_EQ(verify(plan).error().message,
            "launch at layers.0.scale: the preparation uses buffer x, which a run fills");
  plan = preparedPlan();
  plan.preparation[0].alternatives[0].launches[0].gridX = Dim::symbol("past");
  EXPECT_EQ(verify(plan).error().message,
            "launch at layers.0.scale: the preparation depends on past, which a run decides");
  plan = preparedPlan();
  plan.steps[0].alternatives[0].launches[0].arguments[2] = PointerArgument{3, 0, /*written=*/true};
  EXPECT_NE(verify(plan).error().message.find("writes what the preparation makes"), std::string::npos);
}

TEST(Executor, APartOutsideOfItsWeightIsRefused) {
  ProgramPlan plan = samplePlan();
  plan.buffers[3].window = {{8}, {Dim::symbol("tp_rank") * 4}};
  plan.buffers[3].contents = floats({8}, 1, 0.5f);
  ExecutorOptions options = emulated();
  options.rank = 2;
  auto executor = Executor::create(plan, options);
  ASSERT_FALSE(executor);
  EXPECT_EQ(executor.error().message, "weight w: rank 2 has no part of it");
}

TEST(WeightRows, FourBitElementsAreTakenInWholeBytes) {
  Dim rank = Dim::symbol("tp_rank");
  BufferPlan weight{BufferPlan::Kind::Weight, "q", DType::U4, {2, 4}, Tensor::zeros(DType::U8, {8}),
                    BufferPlan::Window{{2, 8}, {0, rank * 4}}};
  auto rows = weightRows(weight, 1);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, (std::vector<WeightRows>{{2, 2, 4, 2}}));
  weight.shape = {2, 3};
  EXPECT_FALSE(weightRows(weight, 0));
}

TEST(Executor, AMissingOrShortWeightFileIsNamed) {
  TemporaryFolder folder;
  std::string path = folder.path + "/w.bin";
  ProgramPlan plan = samplePlan();
  plan.buffers[3].contents = FileSpan{path, 8, 16};
  auto missing = Executor::create(plan, emulated());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::BadInput);
  EXPECT_NE(missing.error().message.find("weight w: "), std::string::npos);
  EXPECT_NE(missing.error().message.find(path), std::string::npos) << missing.error().message;
  std::ofstream(path) << "0123456789";
  auto shortFile = Executor::create(plan, emulated());
  ASSERT_FALSE(shortFile);
  EXPECT_NE(shortFile.error().message.find("has 10 bytes, needs 16 at offset 8"), std::string::npos)
      << shortFile.error().message;
}

TEST(Executor, WrongInputsAreErrorsAndTheNextRunWorks) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  EXPECT_FALSE(executor->run({}));
  NamedTensors inputs = sampleInputs(2, 8);
  inputs["y"] = floats({1, 8}, 0);
  auto outputs = executor->run(inputs);
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error().message, "input y dim 0 is 1 but batch is 2 from input x dim 0");
  inputs = sampleInputs(2, 8);
  int dummy = 0;
  inputs["y"] = Tensor::wrap(DType::F32, {2, 8}, &dummy, nullptr, {Device::Kind::Cuda, 0});
  EXPECT_FALSE(executor->run(inputs));
  inputs = sampleInputs(2, 8);
  expectSum(executor->run(inputs), inputs);
}

TEST(Executor, InvalidPlansAreRejected) {
  ProgramPlan plan = samplePlan();
  onlyLaunch(plan, 0).kernel = 9;
  EXPECT_FALSE(Executor::create(plan, emulated()));
  plan = samplePlan();
  plan.inputs.pop_back();
  auto executor = Executor::create(plan, emulated());
  ASSERT_FALSE(executor);
  EXPECT_NE(executor.error().message.find("offset"), std::string::npos);
  plan = samplePlan();
  plan.kernels[0].emulatable = false;
  plan.kernels[0].whyNotEmulatable = "it uses wgmma";
  auto notEmulatable = Executor::create(plan, emulated());
  ASSERT_FALSE(notEmulatable);
  EXPECT_NE(notEmulatable.error().message.find("wgmma"), std::string::npos) << notEmulatable.error().message;
}

TEST(Executor, ManyThreadsMayRunOneProgram) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        NamedTensors inputs = sampleInputs(1 + i, 8 + 4 * round);
        expectSum(executor->run(inputs), inputs);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(Executor, MoreShapesThanItKeeps) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  for (int64_t n = 4; n < 400; n += 8) {
    NamedTensors inputs = sampleInputs(1, n);
    expectSum(executor->run(inputs), inputs);
  }
}

TEST(Executor, ShapesThatGrowMoveMemoryRarely) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  std::set<size_t> sizes;
  constexpr int steps = 60;
  for (int64_t n = 1; n <= steps; ++n) {
    NamedTensors inputs = sampleInputs(16, 256 * n);
    expectSum(executor->run(inputs), inputs);
    sizes.insert(executor->arenaBytes());
  }
  EXPECT_LT(sizes.size(), steps / 3);
}

TEST(Executor, StepsReplayOneGraph) {
  auto executor = make(stepPlan());
  ASSERT_TRUE(executor);
  checkSteps(*executor);
}

TEST(Executor, AnotherBatchAndBack) {
  auto executor = make(stepPlan());
  ASSERT_TRUE(executor);
  checkBatchesAndBack(*executor);
}

TEST(Executor, OtherLaunchesFromAStepOn) {
  auto executor = make(stepPlan(6));
  ASSERT_TRUE(executor);
  checkOtherLaunchesFromAStepOn(*executor);
}

TEST(Executor, ResultsThatAreKeptStayAsTheyAre) {
  auto executor = make(stepPlan());
  ASSERT_TRUE(executor);
  checkResultsThatAreKept(*executor);
}

TEST(Executor, ARunThatIsNoReplaySaysWhy) {
  ExecutorOptions options = emulated();
  options.recordGraphs = false;
  auto executor = make(stepPlan(), options);
  ASSERT_TRUE(executor);
  expectStep(*executor, 1, 4, 0);
  expectStep(*executor, 1, 4, 1);
  EXPECT_EQ(executor->statistics().whyOneByOne, "graphs are turned off");
  executor = make(stepPlan());
  expectStep(*executor, 1, 4, 0);
  EXPECT_EQ(executor->statistics().whyOneByOne, "the first run of these launches: the next one records them");
  expectStep(*executor, 1, 4, 0);
  EXPECT_EQ(executor->statistics().whyOneByOne, "");
  expectStep(*executor, 0, 4, 0);
  expectStep(*executor, 0, 4, 0);
  EXPECT_EQ(executor->statistics().whyOneByOne, "there is nothing to launch");
}

TEST(Executor, BenchAndProfileReportTimes) {
  auto executor = make(samplePlan());
  ASSERT_TRUE(executor);
  auto times = executor->bench(sampleInputs(2, 8), 4);
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(times->size(), 4u);
  auto timings = executor->profile(sampleInputs(2, 8));
  ASSERT_TRUE(timings) << timings.error().message;
  ASSERT_EQ(timings->size(), 2u);
  EXPECT_EQ((*timings)[1].kernel, "add");
  EXPECT_EQ((*timings)[1].location, "layers.0.add");
  EXPECT_EQ((*timings)[1].bytes, 2 * 16 * 4);
  EXPECT_GT((*timings)[1].microseconds, 0);
}

TEST(Executor, WithoutAGpuCudaIsAnEnvironmentError) {
  auto executor = Executor::create(samplePlan(), {});
  if (executor)
    GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(executor.error().kind, ErrorKind::Environment) << executor.error().message;
}
