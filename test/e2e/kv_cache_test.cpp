// Decode graphs: the writes into the caches of past keys and values, and caches that are extended in place.
#include "GraphCase.h"
#include "TestDevice.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

using namespace fusion;
using namespace fusion::test;

namespace {
bool isPast(const std::string &name) { return name.starts_with("past"); }

/// The result that is the next step's `past_key_0`.
std::string presentOf(std::string past) { return "present" + past.substr(4); }

class Cache : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    auto loaded = Graph::load(graphFile(GetParam(), "model.onnx"));
    ASSERT_TRUE(bool(loaded)) << loaded.error().message;
    graph = std::move(*loaded);
  }
  Graph graph;
};

/// Norm, products of q, k and v, rotation with the writes, attention, product, norm, gated product, product.
TEST_P(Cache, LayerIsEightKernels) {
  auto program = compile(graph, {.device = RunOn::Cpu});
  ASSERT_TRUE(bool(program)) << program.error().message;
  auto report = nlohmann::json::parse(program->report().json());
  EXPECT_EQ(program->report().fired("rope_kv_write"), 2);
  ASSERT_EQ(report["layers"].size(), 2u);
  // The mask of all layers is computed in the first.
  EXPECT_LE(report["layers"][1]["kernels"].get<int>(), 8) << program->report().markdown();
}

/// One token after another, each from the caches that the step before left: as the plain program does, which
/// copies.
TEST_P(Cache, StepsInPlaceAreStepsThatCopy) {
  constexpr int64_t batch = 2, past = 3, capacity = 8;
  auto plain = compile(graph, {.device = kernelDevice()});
  // What was measured on a GPU may speak for other kernels.
  auto inPlace =
      compile(graph, {.device = kernelDevice(), .profit = ProfitMode::Model, .kvCapacity = capacity});
  ASSERT_TRUE(bool(plain)) << plain.error().message;
  ASSERT_TRUE(bool(inPlace)) << inPlace.error().message;
  EXPECT_EQ(inPlace->report().fired("rope_kv_write"), 2);
  EXPECT_EQ(inPlace->report().fired("rope_attention"), 2) << inPlace->report().markdown();
  std::mt19937 random(3);
  NamedTensors pasts, views;
  for (int64_t step = past; step <= capacity; ++step) {
    SCOPED_TRACE("past " + std::to_string(step));
    NamedTensors inputs = makeInputs(graph.inputs(), batch, 1, step, random), others = inputs;
    for (auto &[name, value] : inputs)
      if (isPast(name) && step > past)
        value = pasts.at(name);
    for (auto &[name, value] : others)
      if (isPast(name))
        value = step > past ? views.at(name) : inputs.at(name);
    auto actual = inPlace->run(others);
    if (step == capacity) {
      ASSERT_FALSE(bool(actual));
      EXPECT_EQ(actual.error().kind, ErrorKind::BadInput);
      EXPECT_NE(actual.error().message.find("needs 9 positions, the cache was compiled for a capacity of 8"),
                std::string::npos)
          << actual.error().message;
      break;
    }
    auto expected = plain->run(inputs);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    auto fetched = inPlace->fetch(*actual);
    ASSERT_TRUE(bool(fetched)) << fetched.error().message;
    for (const auto &[name, value] : *expected) {
      const Tensor &host = fetched->at(name);
      EXPECT_TRUE(host.isDense());
      auto difference = compare(host, value);
      ASSERT_TRUE(bool(difference)) << difference.error().message;
      // Attention that makes new keys itself adds them up in another order: only what the first writes is the
      // same to the last bit.
      if (name.starts_with("present") && name.ends_with("_0"))
        EXPECT_EQ(difference->maxAbs, 0) << name;
      else
        EXPECT_LE(difference->relativeL2, value.type() == DType::BF16 ? 8e-3 : 1e-3) << name;
    }
    for (const Port &port : graph.inputs()) {
      if (!isPast(port.name))
        continue;
      const Tensor &present = actual->at(presentOf(port.name));
      EXPECT_FALSE(present.isDense());
      if (step > past) // the buffer is the one that the caller gave back
        EXPECT_EQ(present.data(), views.at(port.name).data()) << port.name;
      views[port.name] = present;
      pasts[port.name] = expected->at(presentOf(port.name));
    }
  }
}

/// A prompt, then one token after another: the steps replay one graph each program, which they change where
/// it depends on the past; with caches that are extended in place, and with those that are copied.
TEST_P(Cache, StepsReplayOneGraph) {
  constexpr int64_t batch = 2, first = 3, last = 24;
  for (int64_t capacity : {int64_t(0), last + 1}) {
    SCOPED_TRACE("capacity " + std::to_string(capacity));
    auto program =
        compile(graph, {.device = kernelDevice(), .profit = ProfitMode::Model, .kvCapacity = capacity});
    auto reference = compile(graph, {.device = RunOn::Cpu});
    ASSERT_TRUE(bool(program)) << program.error().message;
    ASSERT_TRUE(bool(reference)) << reference.error().message;
    std::mt19937 random(7);
    NamedTensors previous, expectedBefore;
    RunStatistics before;
    for (int64_t past = first; past <= last; ++past) {
      SCOPED_TRACE("past " + std::to_string(past));
      NamedTensors inputs = makeInputs(graph.inputs(), batch, 1, past, random), others = inputs;
      for (auto &[name, value] : inputs)
        if (isPast(name) && past > first) {
          value = expectedBefore.at(presentOf(name));
          others[name] = previous.at(presentOf(name));
        }
      auto actual = program->run(others), expected = reference->run(inputs);
      ASSERT_TRUE(bool(actual)) << actual.error().message;
      ASSERT_TRUE(bool(expected)) << expected.error().message;
      expectClose(*program, *actual, *expected);
      const RunStatistics now = program->statistics();
      EXPECT_EQ(now.whyOneByOne.empty(), past > first) << now.whyOneByOne;
      EXPECT_EQ(now.plans, 1u);
      EXPECT_EQ(now.recordings, past > first ? 1u : 0u);
      previous = std::move(*actual);
      expectedBefore = std::move(*expected);
    }
  }
}

/// A past of the caller's own is copied; views that the caller still holds keep what they show.
TEST_P(Cache, TwoSequencesDoNotMeet) {
  auto program = compile(graph, {.device = kernelDevice(), .kvCapacity = 16});
  auto reference = compile(graph, {.device = RunOn::Cpu, .kvCapacity = 16});
  ASSERT_TRUE(bool(program)) << program.error().message;
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  std::mt19937 random(5);
  std::vector<NamedTensors> results, expected;
  for (int64_t past : {3, 0, 7, 3}) {
    NamedTensors inputs = makeInputs(graph.inputs(), 1, 1, past, random);
    auto outputs = program->run(inputs), wanted = reference->run(inputs);
    ASSERT_TRUE(bool(outputs)) << outputs.error().message;
    ASSERT_TRUE(bool(wanted)) << wanted.error().message;
    results.push_back(*outputs);
    expected.push_back(*wanted);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    expectClose(*program, results[i], expected[i]);
  }
}

/// q and k are [b, t, 2, 8], v is [b, t, 2, 4].
constexpr const char *linearAttention = R"(
func.func @main(%q: tensor<?x?x2x8xf16> {nn.name = "q", nn.dims = ["b", "t", 2, 8]},
                %k: tensor<?x?x2x8xf16> {nn.name = "k", nn.dims = ["b", "t", 2, 8]},
                %v: tensor<?x?x2x4xf16> {nn.name = "v", nn.dims = ["b", "t", 2, 4]},
                %past: tensor<?x2x8x4xf32> {nn.name = "past_state", nn.dims = ["b", 2, 8, 4]})
    -> (tensor<?x?x8xf16> {nn.name = "y"}, tensor<?x2x8x4xf32> {nn.name = "present_state"}) {
  %0 = nn.transpose %q {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x8xf16>) -> tensor<?x2x?x8xf16>
  %1 = nn.transpose %k {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x8xf16>) -> tensor<?x2x?x8xf16>
  %2 = nn.transpose %v {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x4xf16>) -> tensor<?x2x?x4xf16>
  %y, %s = nn.linear_attention %0, %1, %2, %past {scale = 0.25 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}
    : (tensor<?x2x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x4xf16>, tensor<?x2x8x4xf32>) -> (tensor<?x2x?x4xf16>, tensor<?x2x8x4xf32>)
  %3 = nn.transpose %y {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x2x?x4xf16>) -> tensor<?x?x2x4xf16>
  %4 = nn.reshape %3 {shape = ["b", "t", 8]} : (tensor<?x?x2x4xf16>) -> tensor<?x?x8xf16>
  return %4, %s : tensor<?x?x8xf16>, tensor<?x2x8x4xf32>
})";

/// A state that a run has made is replaced where it lies; the caller's own, which lies in memory alike, is
/// not.
TEST(State, IsReplacedInPlace) {
  const std::string path = testing::TempDir() + "linear_attention.mlir";
  std::ofstream(path) << linearAttention;
  auto graph = Graph::load(path);
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  auto plain = compile(*graph, {.device = kernelDevice()}),
       inPlace = compile(*graph, {.device = kernelDevice(), .kvCapacity = 4});
  ASSERT_TRUE(bool(plain)) << plain.error().message;
  ASSERT_TRUE(bool(inPlace)) << inPlace.error().message;
  ASSERT_EQ(inPlace->caches().size(), 1u);
  EXPECT_EQ(inPlace->report().fired("attention_layout"), 1);
  std::mt19937 random(11);
  Tensor state, view;
  for (int64_t step = 0; step < 3; ++step) {
    NamedTensors inputs = makeInputs(graph->inputs(), 2, step == 0 ? 5 : 1, 0, random), others;
    inputs["past_state"] = step == 0 ? Tensor::zeros(DType::F32, {2, 2, 8, 4}) : state;
    for (int64_t i = 0; step == 0 && i < inputs["past_state"].size(); ++i)
      inputs["past_state"].as<float>()[i] = static_cast<float>(i % 7) - 3;
    const Tensor own = inputs["past_state"];
    const std::vector<float> before(own.as<float>(), own.as<float>() + own.size());
    others = inputs;
    if (step > 0)
      others["past_state"] = view;
    auto expected = plain->run(inputs), actual = inPlace->run(others);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    EXPECT_TRUE(std::equal(before.begin(), before.end(), own.as<float>()))
        << "the caller's state was written";
    if (step > 0)
      EXPECT_EQ(actual->at("present_state").data(), view.data());
    auto fetched = inPlace->fetch(*actual);
    ASSERT_TRUE(bool(fetched)) << fetched.error().message;
    for (const auto &[name, value] : *expected)
      EXPECT_EQ(compare(fetched->at(name), value)->maxAbs, 0) << name << " of step " << step;
    view = actual->at("present_state");
    state = expected->at("present_state");
  }
}

const std::string staticCache =
    std::string(FUSION_SOURCE_DIR) + "/test/import/contrib/test_static_cache_chunk/model.onnx";

/// Inputs of a step of two sequences, the second two tokens behind.
NamedTensors stepOf(const Graph &graph, int64_t written, int64_t fresh, std::mt19937 &random) {
  NamedTensors inputs = makeInputs(graph.inputs(), 2, fresh, 0, random);
  std::vector<int64_t> starts = {written, written - 2}, lengths, positions;
  for (int64_t start : starts) {
    lengths.push_back(start + fresh);
    for (int64_t i = 0; i < fresh; ++i)
      positions.push_back(start + i);
  }
  inputs["write_indices"] = Tensor::of<int64_t>(DType::I64, {2}, starts);
  inputs["lengths"] = Tensor::of<int64_t>(DType::I64, {2}, lengths);
  inputs["positions"] = Tensor::of<int64_t>(DType::I64, {2, fresh}, positions);
  return inputs;
}

/// Caches of heads side by side, of a fixed length: a prompt, and tokens after it.
TEST(StaticCache, StepsInPlaceAreStepsThatCopy) {
  auto graph = Graph::load(staticCache), token = Graph::load(staticCache, {.dims = {{"new", 1}}});
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  ASSERT_TRUE(bool(token)) << token.error().message;
  auto plain = compile(*graph, {.device = kernelDevice()}),
       many = compile(*graph, {.device = kernelDevice(), .profit = ProfitMode::Model, .kvCapacity = 12}),
       one = compile(*token, {.device = kernelDevice(), .profit = ProfitMode::Model, .kvCapacity = 12});
  ASSERT_TRUE(bool(plain)) << plain.error().message;
  ASSERT_TRUE(bool(many)) << many.error().message;
  ASSERT_TRUE(bool(one)) << one.error().message;
  EXPECT_EQ(one->report().fired("rope_kv_write"), 1) << one->report().markdown();
  EXPECT_EQ(many->caches().size(), 2u);
  std::mt19937 random(5);
  NamedTensors kept, views;
  for (int64_t written = 2; written < 12; written += written == 2 ? 4 : 1) {
    SCOPED_TRACE("written " + std::to_string(written));
    NamedTensors inputs = stepOf(*graph, written, written == 2 ? 4 : 1, random), others = inputs;
    for (const auto &[cache, present] : {std::pair("key_cache", "keys"), {"value_cache", "values"}})
      if (written > 2) {
        inputs[cache] = kept.at(present);
        others[cache] = views.at(present);
      }
    // The cache goes from one program to the other.
    Program &program = written > 7 ? *one : *many;
    auto expected = plain->run(inputs), actual = program.run(others);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    auto fetched = program.fetch(*actual);
    ASSERT_TRUE(bool(fetched)) << fetched.error().message;
    for (const auto &[name, value] : *expected)
      EXPECT_EQ(compare(fetched->at(name), value)->maxAbs, 0) << name;
    for (const char *present : {"keys", "values"}) {
      if (written > 2 && written != 8)
        EXPECT_EQ(actual->at(present).data(), views.at(present).data()) << present;
      views[present] = written == 7 ? fetched->at(present) : actual->at(present);
      kept[present] = expected->at(present);
    }
  }
}

TEST(KvCapacity, RefusedWhereThereIsNoCache) {
  auto graph = Graph::load(graphFile("llama-fp32-op18", "model.onnx"));
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  auto program = compile(*graph, {.device = RunOn::Cpu, .kvCapacity = 16});
  ASSERT_FALSE(bool(program));
  EXPECT_EQ(program.error().kind, ErrorKind::BadInput);
  EXPECT_NE(program.error().message.find(
                "no input is extended by Concat(past, new) or GroupQueryAttention into a result"),
            std::string::npos)
      << program.error().message;
  EXPECT_FALSE(bool(compile(*graph, {.device = RunOn::Cpu, .kvCapacity = -1})));
}

std::vector<std::string> decodeGraphs() {
  std::vector<std::string> names;
  for (const std::string &name : graphNames())
    if (name.find("decode") != std::string::npos)
      names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Exported, Cache, testing::ValuesIn(decodeGraphs()), [](const auto &info) {
  std::string name = info.param;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
});
} // namespace
