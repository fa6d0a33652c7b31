// Graphs divided among ranks of this process, on emulated kernels (or on as many GPUs, with
// FUSION_TEST_DEVICE=cuda): against PyTorch, in each algorithm of a collective, and at changing sizes.
#include "GraphCase.h"
#include "RankRuns.h"

#include "runtime/cuda/Driver.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace fusion;
using namespace fusion::test;

namespace {
bool canRun(int ranks) { return !onGpus() || cuda::deviceCount() >= ranks; }

/// FUSION_COLLECTIVE while this lives.
struct Forced {
  explicit Forced(const char *algorithm) { setenv("FUSION_COLLECTIVE", algorithm, 1); }
  ~Forced() { unsetenv("FUSION_COLLECTIVE"); }
};

class TensorParallel : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    auto loaded = Graph::load(graphFile(GetParam(), "model.onnx"));
    ASSERT_TRUE(bool(loaded)) << loaded.error().message;
    graph = std::move(*loaded);
  }
  Graph graph;
};

TEST_P(TensorParallel, MatchesPyTorchInEachAlgorithm) {
  auto inputs = readSafetensors(graphFile(GetParam(), "inputs.safetensors"));
  auto expected = readSafetensors(graphFile(GetParam(), "outputs.safetensors"));
  ASSERT_TRUE(inputs && expected);
  for (int ranks : {2, 4}) {
    if (!canRun(ranks))
      GTEST_SKIP() << "fewer than " << ranks << " GPUs";
    for (const char *algorithm : {"", "one-shot", "two-shot", "library"}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks " + algorithm);
      Forced forced(algorithm);
      auto program = compile(graph, {.device = kernelDevice(), .tensorParallel = ranks});
      ASSERT_TRUE(bool(program)) << program.error().message;
      EXPECT_EQ(program->report().fired("shard"), 4) << program->report().markdown();
      for (int run = 0; run < 4;
           ++run) { // each area of the exchange is used again; a GPU records and replays
        auto outputs = program->run(*inputs);
        ASSERT_TRUE(bool(outputs)) << outputs.error().message;
        for (const Port &port : program->outputs()) {
          auto difference = compare(outputs->at(port.name), expected->at(port.name));
          ASSERT_TRUE(bool(difference)) << difference.error().message;
          EXPECT_LE(difference->relativeL2, modelTolerance(port.type)) << port.name << " in run " << run;
        }
      }
    }
  }
}

/// Prompts and single tokens in turn: areas grow, and what an earlier, larger run left in them is gone.
TEST_P(TensorParallel, SizesChangeFromRunToRun) {
  constexpr int ranks = 2;
  if (!canRun(ranks))
    GTEST_SKIP() << "fewer than " << ranks << " GPUs";
  auto reference = compile(graph, {.device = RunOn::Cpu, .tensorParallel = ranks});
  auto kernels = compile(graph, {.device = kernelDevice(), .tensorParallel = ranks});
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  ASSERT_TRUE(bool(kernels)) << kernels.error().message;
  std::mt19937 random(11);
  for (auto [batch, sequence, past] :
       {std::tuple(1, 3, 2), {2, 21, 0}, {1, 1, 24}, {3, 1, 5}, {1, 33, 0}, {0, 4, 2}, {1, 1, 1}}) {
    NamedTensors inputs = makeInputs(graph.inputs(), batch, sequence, past, random);
    SCOPED_TRACE("batch " + std::to_string(batch) + " sequence " + std::to_string(sequence) + " past " +
                 std::to_string(past));
    auto expected = reference->run(inputs);
    auto actual = kernels->run(inputs);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    for (const auto &[name, value] : *expected) {
      EXPECT_EQ(actual->at(name).shape(), value.shape());
      auto difference = compare(actual->at(name), value);
      ASSERT_TRUE(bool(difference)) << difference.error().message;
      EXPECT_LE(difference->relativeL2, modelTolerance(value.type())) << name;
    }
  }
}

TEST_P(TensorParallel, AWrongInputIsAnErrorOfTheCallAlone) {
  if (!canRun(2))
    GTEST_SKIP() << "fewer than 2 GPUs";
  auto program = compile(graph, {.device = kernelDevice(), .tensorParallel = 2});
  ASSERT_TRUE(bool(program)) << program.error().message;
  auto outputs = program->run({});
  ASSERT_FALSE(bool(outputs));
  EXPECT_EQ(outputs.error().kind, ErrorKind::BadInput);
  EXPECT_NE(outputs.error().message.find(graph.inputs().front().name), std::string::npos)
      << outputs.error().message;
  std::mt19937 random(1);
  auto good = program->run(makeInputs(graph.inputs(), 1, 2, 1, random));
  EXPECT_TRUE(bool(good)) << good.error().message;
  auto queued = program->enqueue(makeInputs(graph.inputs(), 1, 2, 1, random), nullptr);
  ASSERT_FALSE(bool(queued));
  EXPECT_NE(queued.error().message.find("a stream belongs to one GPU"), std::string::npos)
      << queued.error().message;
}

/// Caches that stay on their ranks: the steps compute what the whole graph does, extend each rank's buffers
/// where they lie, and replay one graph.
TEST_P(TensorParallel, StepsInPlaceReplayOneGraph) {
  if (GetParam().find("decode") == std::string::npos)
    GTEST_SKIP() << "no caches";
  constexpr int64_t batch = 2, first = 3, capacity = 12;
  auto isPast = [](const std::string &name) { return name.starts_with("past"); };
  auto presentOf = [](const std::string &past) { return "present" + past.substr(4); };
  auto reference = compile(graph, {.device = RunOn::Cpu});
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  for (int ranks : {2, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    if (!canRun(ranks))
      GTEST_SKIP() << "fewer than " << ranks << " GPUs";
    auto program =
        compile(graph, {.device = kernelDevice(), .tensorParallel = ranks, .kvCapacity = capacity});
    ASSERT_TRUE(bool(program)) << program.error().message;
    ASSERT_FALSE(program->caches().empty());
    std::mt19937 random(13);
    NamedTensors previous, before;
    for (int64_t past = first; past <= capacity; ++past) {
      SCOPED_TRACE("past " + std::to_string(past));
      NamedTensors inputs = makeInputs(graph.inputs(), batch, 1, past, random), others = inputs;
      for (auto &[name, value] : inputs)
        if (isPast(name) && past > first) {
          value = before.at(presentOf(name));
          others[name] = previous.at(presentOf(name));
        }
      if (past == 7) // a past of the caller's own, on the host, in the middle of the loop
        others = inputs;
      auto actual = program->run(others);
      if (past == capacity) {
        ASSERT_FALSE(bool(actual));
        EXPECT_NE(actual.error().message.find("the cache was compiled for a capacity of 12"),
                  std::string::npos)
            << actual.error().message;
        break;
      }
      auto expected = reference->run(inputs);
      ASSERT_TRUE(bool(expected)) << expected.error().message;
      ASSERT_TRUE(bool(actual)) << actual.error().message;
      auto fetched = program->fetch(*actual);
      ASSERT_TRUE(bool(fetched)) << fetched.error().message;
      for (const auto &[name, value] : *expected) {
        const Tensor &host = fetched->at(name);
        EXPECT_EQ(actual->at(name).shape(), value.shape()) << name;
        EXPECT_EQ(actual->at(name).device().ordinal, name.starts_with("present") ? -1 : 0) << name;
        auto difference = compare(host, value);
        ASSERT_TRUE(bool(difference)) << difference.error().message;
        EXPECT_LE(difference->relativeL2, modelTolerance(value.type())) << name;
      }
      const RunStatistics now = program->statistics();
      EXPECT_EQ(now.plans, 1u);
      EXPECT_EQ(now.recordings, past > first ? 1u : 0u);
      EXPECT_EQ(now.whyOneByOne.empty(), past > first) << now.whyOneByOne;
      previous = std::move(*actual);
      before = std::move(*expected);
    }
    // What one program left on its ranks is not another's.
    auto other = compile(graph, {.device = kernelDevice(), .tensorParallel = ranks, .kvCapacity = capacity});
    ASSERT_TRUE(bool(other)) << other.error().message;
    NamedTensors inputs = makeInputs(graph.inputs(), batch, 1, capacity - 1, random);
    for (auto &[name, value] : inputs)
      if (isPast(name))
        value = previous.at(presentOf(name));
    auto refused = other->run(inputs);
    ASSERT_FALSE(bool(refused));
    EXPECT_NE(refused.error().message.find("fetch it first"), std::string::npos) << refused.error().message;
  }
}

std::vector<std::string> graphsToDivide() {
  std::vector<std::string> names;
  for (const std::string &name : graphNames())
    for (const char *model :
         {"llama-fp16-op20", "llama-bf16", "llama-fp16-decode", "qwen3-bf16-op23", "qwen3-fp16", "gemma"})
      if (name.starts_with(model)) {
        names.push_back(name);
        break;
      }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Exported, TensorParallel, testing::ValuesIn(graphsToDivide()), [](const auto &info) {
  std::string name = info.param;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
});
} // namespace
