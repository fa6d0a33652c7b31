// PagedAttention over pages that several runs share: written where they lie, and read through the block
// table.
#include "GraphCase.h"
#include "TestDevice.h"

#include <gtest/gtest.h>


using namespace fusion;
using namespace fusion::test;

namespace {
constexpr int64_t pages = 11, pageSize = 8, heads = 4, groups = 2, size = 16;

/// One node, with rotation, window and cap.
Result<Graph> oneNode(const std::string &name = "paged_rotary_window_cap") {
  return Graph::load(std::string(FUSION_SOURCE_DIR) + "/test/import/contrib/test_" + name + "/model.onnx");
}

Tensor integers(std::vector<int32_t> values, Shape shape = {}) {
  if (shape.empty())
    shape = {static_cast<int64_t>(values.size())};
  return Tensor::of<int32_t>(DType::I32, shape, values);
}

Tensor normals(Shape shape, std::mt19937 &random) {
  Tensor tensor = Tensor::zeros(DType::F32, std::move(shape));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.as<float>()[i] = normal(random);
  return tensor;
}

/// What three sequences bring, after what they have: pages in no order, the last ones not used yet.
NamedTensors step(const std::vector<int32_t> &fresh, const std::vector<int32_t> &past, std::mt19937 &random) {
  std::vector<int32_t> starts{0};
  for (int32_t count : fresh)
    starts.push_back(starts.back() + count);
  const int64_t tokens = starts.back();
  NamedTensors inputs;
  inputs["query"] = normals({tokens, heads * size}, random);
  inputs["key"] = normals({tokens, groups * size}, random);
  inputs["value"] = normals({tokens, groups * size}, random);
  inputs["cumulative"] = integers(starts);
  inputs["past"] = integers(past);
  inputs["table"] = integers({7, 2, -1, 9, -1, -1, 0, 10, 3}, {3, 3});
  return inputs;
}

/// Several steps of one node, which scatters and gathers on the CPU, and works in place as kernels.
void expectSteps(const std::string &name, const NamedTensors &weights) {
  auto graph = oneNode(name);
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  auto reference = compile(*graph, {.device = RunOn::Cpu});
  auto program = compile(*graph, {.device = kernelDevice(), .profit = ProfitMode::Model, .kvCapacity = 1});
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  ASSERT_TRUE(bool(program)) << program.error().message;
  EXPECT_EQ(program->report().fired("paged_attention"), 1) << program->report().markdown();
  EXPECT_EQ(program->report().fired("rope_kv_write"), 1) << program->report().markdown();
  ASSERT_EQ(program->caches().size(), 2u);

  std::mt19937 random(5);
  const Tensor cos = normals({24, size / 2}, random), sin = normals({24, size / 2}, random);
  NamedTensors own, views; // the caches as the reference and as the program left them
  for (const char *cache : {"key_cache", "value_cache"})
    own[cache] = views[cache] = normals({pages, pageSize, groups, size}, random);
  const std::vector<float> before = own["key_cache"].toFloats();
  const Tensor first = own["key_cache"];
  std::vector<int32_t> past(3);
  // A prompt and an empty sequence, a token each, one sequence alone up to its page's end and beyond.
  for (const std::vector<int32_t> &fresh :
       std::vector<std::vector<int32_t>>{{5, 0, 9}, {1, 1, 1}, {2, 0, 0}, {1, 0, 12}}) {
    SCOPED_TRACE("past " + std::to_string(past[0]));
    NamedTensors inputs = step(fresh, past, random), others;
    inputs["cos"] = cos, inputs["sin"] = sin;
    for (const auto &[name, value] : weights)
      inputs[name] = value;
    others = inputs;
    for (const auto &[name, value] : own) {
      inputs[name] = value;
      others[name] = views.at(name);
    }
    auto expected = reference->run(inputs), actual = program->run(others);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    expectClose(*program, *actual, *expected);
    for (const char *cache : {"key_cache", "value_cache"}) {
      const Tensor &left = actual->at(std::string(cache) + "_out");
      if (past[0] > 0)
        EXPECT_EQ(left.data(), views.at(cache).data()) << cache << " was copied";
      views[cache] = left;
      own[cache] = expected->at(std::string(cache) + "_out");
    }
    for (size_t i = 0; i < past.size(); ++i)
      past[i] += fresh[i];
  }
  EXPECT_EQ(first.toFloats(), before) << "the caller's pages were written";
}

TEST(PagedCache, StepsInPlaceAreStepsThatCopy) { expectSteps("paged_rotary_window_cap", {}); }

TEST(PagedCache, StepsWithSinks) {
  expectSteps("paged_sink_window_cap",
              {{"sink", Tensor::of<float>(DType::F32, {heads}, std::vector<float>{-20, 0.5, 2, 30})}});
}

TEST(PagedCache, PagesOutOfRangeAreErrors) {
  auto graph = oneNode();
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  for (RunOn device : {RunOn::Cpu, kernelDevice()}) {
    auto program = compile(*graph, {.device = device});
    ASSERT_TRUE(bool(program)) << program.error().message;
    std::mt19937 random(5);
    NamedTensors inputs = step({1, 1, 1}, {0, 0, 0}, random);
    inputs["cos"] = inputs["sin"] = normals({24, size / 2}, random);
    inputs["key_cache"] = inputs["value_cache"] = normals({pages, pageSize, groups, size}, random);
    EXPECT_TRUE(bool(program->run(inputs)));
    inputs["table"] = integers({7, 2, -1, 9, pages, -1, 0, 10, 3}, {3, 3});
    auto outputs = program->run(inputs);
    ASSERT_FALSE(bool(outputs));
    EXPECT_EQ(outputs.error().message,
              "input table: index 11 is out of range for a table of 11 rows (-11 to 10)");
  }
}

} // namespace
