// Decode graphs: the writes into the caches of past keys and values.
#include "GraphCase.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace fusion;
using namespace fusion::test;

namespace {
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
