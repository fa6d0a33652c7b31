// GroupQueryAttention over caches of codes of 4 bits, which are written and read where they lie.
#include "GraphCase.h"
#include "TestDevice.h"

#include <gtest/gtest.h>


using namespace fusion;
using namespace fusion::test;

namespace {
constexpr int64_t batch = 2, heads = 4, groups = 2, capacity = 8, size = 32;

Tensor normals(Shape shape, std::mt19937 &random) {
  Tensor tensor = Tensor::zeros(DType::F32, std::move(shape));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.as<float>()[i] = normal(random);
  return tensor;
}

/// One token after another in two sequences, the second three tokens behind.
TEST(CodedCache, StepsInPlaceAreStepsThatCopy) {
  auto graph =
      Graph::load(std::string(FUSION_SOURCE_DIR) + "/test/import/contrib/test_gqa_codes4_buffer/model.onnx");
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  auto reference = compile(*graph, {.device = RunOn::Cpu});
  auto program =
      compile(*graph, {.device = kernelDevice(), .profit = ProfitMode::Model, .kvCapacity = capacity});
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  ASSERT_TRUE(bool(program)) << program.error().message;
  EXPECT_EQ(program->report().fired("scaled_attention"), 1) << program->report().markdown();
  EXPECT_EQ(program->caches().size(), 2u);

  std::mt19937 random(5);
  NamedTensors own, views; // the caches as the reference and as the program left them
  for (const char *cache : {"key", "value"}) {
    Tensor codes = Tensor::zeros(DType::U8, {batch, groups, capacity, size / 2});
    for (int64_t i = 0; i < codes.size(); ++i)
      codes.as<uint8_t>()[i] = static_cast<uint8_t>(random());
    own[cache] = views[cache] = codes;
  }
  for (int32_t step = 3; step < capacity; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    NamedTensors inputs;
    inputs["q"] = normals({batch, 1, heads * size}, random);
    inputs["k"] = normals({batch, 1, groups * size}, random);
    inputs["v"] = normals({batch, 1, groups * size}, random);
    inputs["seqlens_k"] = Tensor::of<int32_t>(DType::I32, {batch}, std::vector<int32_t>{step, step - 3});
    inputs["k_scale"] = Tensor::of<float>(DType::F32, {1}, std::vector<float>{0.31f});
    inputs["v_scale"] = Tensor::of<float>(DType::F32, {1}, std::vector<float>{0.17f});
    NamedTensors others = inputs;
    for (const char *cache : {"key", "value"}) {
      inputs[std::string("past_") + cache] = own.at(cache);
      others[std::string("past_") + cache] = views.at(cache);
    }
    auto expected = reference->run(inputs), actual = program->run(others);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    expectClose(*program, *actual, *expected);
    auto fetched = program->fetch(*actual);
    ASSERT_TRUE(bool(fetched)) << fetched.error().message;
    for (const char *cache : {"key", "value"}) {
      const std::string result = std::string("present_") + cache;
      EXPECT_EQ(fetched->at(result).toFloats(), expected->at(result).toFloats()) << result;
      if (step > 3)
        EXPECT_EQ(actual->at(result).data(), views.at(cache).data()) << result << " was copied";
      views[cache] = actual->at(result);
      own[cache] = expected->at(result);
    }
  }
}

} // namespace
