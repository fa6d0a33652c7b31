// Programs with variants: the graph that they are tested with, and how.
#pragma once

#include "TestDevice.h"

#include "api/Fusion.h"
#include "test/import/ModelBuilder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace fusion::test {

inline constexpr int32_t f32 = onnx::proto::TensorProto::FLOAT;

inline Tensor normal(Shape shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  std::generate(values.begin(), values.end(), [&] { return distribution(random); });
  return Tensor::of<float>(DType::F32, std::move(shape), std::span<const float>(values));
}

/// Attention of one layer over a cache, whose mask [batch, total] meets [queries, keys]; then a matmul.
inline ModelBuilder maskedDecoder() {
  ModelBuilder model;
  for (const char *name : {"q", "k"})
    model.input(name, f32, {"batch", "2", "sequence", "8"});
  model.input("mask", f32, {"batch", "total"}).input("past", f32, {"batch", "2", "past", "8"});
  model.output("y").output("present").weight("w", {8, 8});
  ModelBuilder::attribute(model.node("Concat", {"past", "k"}, {"present"}), "axis", int64_t(2));
  ModelBuilder::attribute(model.node("Transpose", {"present"}, {"keys"}), "perm",
                          std::vector<int64_t>{0, 1, 3, 2});
  model.node("MatMul", {"q", "keys"}, {"scores"});
  model.node("Add", {"scores", "mask"}, {"masked"});
  ModelBuilder::attribute(model.node("Softmax", {"masked"}, {"p"}), "axis", int64_t(-1));
  model.node("MatMul", {"p", "present"}, {"mixed"});
  model.node("MatMul", {"mixed", "w"}, {"y"});
  return model;
}

inline NamedTensors decoderInputs(int64_t batch, int64_t sequence, int64_t past, unsigned seed = 1) {
  return {{"q", normal({batch, 2, sequence, 8}, seed)},
          {"k", normal({batch, 2, sequence, 8}, seed + 1)},
          {"mask", normal({batch, past + sequence}, seed + 2)},
          {"past", normal({batch, 2, past, 8}, seed + 3)}};
}

class Variants : public testing::Test {
protected:
  Graph load(const ModelBuilder &model, const LoadOptions &options = {}) {
    file = folder / (std::to_string(++files) + ".onnx"); // one that changes is not read again
    writeFile(file, model.model.SerializeAsString());
    auto graph = Graph::load(file, options);
    EXPECT_TRUE(bool(graph)) << graph.error().message;
    return graph ? *graph : Graph();
  }

  Program program(const ModelBuilder &model, RunOn device, const LoadOptions &loading = {}) {
    options.device = device;
    auto made = compile(load(model, loading), options);
    EXPECT_TRUE(bool(made)) << made.error().message;
    return std::move(*made);
  }

  static NamedTensors run(Program &program, const NamedTensors &inputs) {
    auto outputs = program.run(inputs);
    EXPECT_TRUE(bool(outputs)) << outputs.error().message;
    auto fetched = program.fetch(outputs ? *outputs : NamedTensors());
    EXPECT_TRUE(bool(fetched)) << fetched.error().message;
    return fetched ? *fetched : NamedTensors();
  }

  static std::string whyNot(Program &program, const NamedTensors &inputs) {
    auto outputs = program.run(inputs);
    return outputs ? "" : outputs.error().message;
  }

  static void expectSame(const NamedTensors &actual, const NamedTensors &expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto &[name, value] : expected) {
      ASSERT_TRUE(actual.contains(name)) << name;
      ASSERT_EQ(actual.at(name).shape(), value.shape()) << name;
      const std::vector<float> is = actual.at(name).toFloats(), was = value.toFloats();
      for (size_t i = 0; i < is.size(); ++i)
        ASSERT_NEAR(is[i], was[i], 1e-4 * (1 + std::abs(was[i]))) << name << " " << i;
    }
  }

  TemporaryFolder folder;
  std::string file;
  int files = 0;
  CompileOptions options{.target = {"sm_90a"}, .cacheFolder = folder / "cache"};
};

} // namespace fusion::test
