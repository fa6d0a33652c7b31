// Matmuls whose kernels send their results for the sum over ranks behind them: changing sizes, and many runs
// in a row. On emulated kernels, or on GPUs with FUSION_TEST_DEVICE=cuda.
#include "RankRuns.h"

#include "api/Fusion.h"
#include "runtime/cuda/Driver.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;

namespace {
constexpr int64_t hidden = 1024, inner = 512;

Tensor randomBf16(Shape shape, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values)
    value = scale * normal(random);
  return Tensor::of<float>(DType::F32, shape, values).convertedTo(DType::BF16);
}

/// The file of a graph of `layers` feed-forwards with residual and norm, whose weights --tp divides.
class Model {
public:
  explicit Model(int layers)
      : folder(std::filesystem::path(testing::TempDir()) / fmt::format("linked-sum-{}", getpid())) {
    std::filesystem::create_directories(folder);
    std::ofstream weights(folder / "weights.bin", std::ios::binary);
    std::string body, x = "%x", residual = "%x";
    int64_t offset = 0;
    auto weight = [&](const std::string &name, Shape shape, float scale) {
      const Tensor values = randomBf16(shape, scale, static_cast<unsigned>(offset));
      weights.write(static_cast<const char *>(values.data()), static_cast<std::streamsize>(values.bytes()));
      body += fmt::format("  %{0} = nn.weight {{name = \"{0}\", path = \"weights.bin\", offset = {1} : i64, "
                          "length = {2} : i64}} : () -> tensor<{3}xbf16>\n",
                          name, offset, values.bytes(), fmt::join(shape, "x"));
      offset += static_cast<int64_t>(values.bytes());
    };
    for (int i = 0; i < layers; ++i) {
      weight(fmt::format("up{}", i), {hidden, inner}, 0.03f);
      weight(fmt::format("down{}", i), {inner, hidden}, 0.06f);
      weight(fmt::format("norm{}", i), {hidden}, 1);
      body += fmt::format(
          "  %h{0} = nn.matmul {1}, %up{0} : ({3}, tensor<{5}x{6}xbf16>) -> {4}\n"
          "  %g{0} = nn.silu %h{0} : ({4}) -> {4}\n"
          "  %d{0} = nn.matmul %g{0}, %down{0} : ({4}, tensor<{6}x{5}xbf16>) -> {3}\n"
          "  %s{0} = nn.add {2}, %d{0} : ({3}, {3}) -> {3}\n"
          "  %n{0} = nn.rms_norm %s{0}, %norm{0} {{eps = 1.0e-6 : f32}} : ({3}, tensor<{5}xbf16>) -> {3}\n",
          i, x, residual, rows(hidden), rows(inner), hidden, inner);
      x = fmt::format("%n{}", i);
      residual = fmt::format("%s{}", i);
    }
    std::ofstream(folder / "graph.mlir")
        << fmt::format("func.func @main(%x: {0} {{nn.name = \"x\", nn.dims = [\"tokens\", {1}]}}) -> ({0} "
                       "{{nn.name = \"y\"}}, "
                       "{0} {{nn.name = \"residual\"}}) {{\n{2}  return {3}, {4} : {0}, {0}\n}}\n",
                       rows(hidden), hidden, body, x, residual);
  }
  ~Model() { std::filesystem::remove_all(folder); }
  Graph load() const {
    auto graph = Graph::load((folder / "graph.mlir").string());
    EXPECT_TRUE(bool(graph)) << graph.error().message;
    return graph ? std::move(*graph) : Graph();
  }

private:
  static std::string rows(int64_t columns) { return fmt::format("tensor<?x{}xbf16>", columns); }
  std::filesystem::path folder;
};

CompileOptions kernelOptions() {
  return {
      .device = onGpus() ? RunOn::Cuda : RunOn::Emulate, .profit = ProfitMode::Model, .tensorParallel = 2};
}

NamedTensors inputs(int64_t tokens, unsigned seed) { return {{"x", randomBf16({tokens, hidden}, 1, seed)}}; }

TEST(LinkedSum, SizesChangeFromRunToRun) {
  if (onGpus() && cuda::deviceCount() < 2)
    GTEST_SKIP() << "fewer than 2 GPUs";
  const Model model(2);
  const Graph graph = model.load();
  auto reference = compile(graph, {.device = RunOn::Cpu, .tensorParallel = 2});
  auto kernels = compile(graph, kernelOptions());
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  ASSERT_TRUE(bool(kernels)) << kernels.error().message;
  EXPECT_NE(kernels->report().json().find("sending_epilogue<2>("), std::string::npos)
      << "no matmul sends its result";
  // Up to 128 tokens kernels by swapped operands send; no tokens, and more, are for others.
  for (int64_t tokens : {1, 3, 8, 17, 0, 40, 200, 2, 128, 1}) {
    SCOPED_TRACE(tokens);
    const NamedTensors given = inputs(tokens, static_cast<unsigned>(tokens));
    auto expected = reference->run(given), actual = kernels->run(given);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    for (const auto &[name, value] : *expected) {
      auto difference = compare(actual->at(name), value);
      ASSERT_TRUE(bool(difference)) << difference.error().message;
      EXPECT_LE(difference->relativeL2, 6e-3) << name;
    }
  }
}

/// What a run leaves in the ranks' areas and counters must not show in a later one.
TEST(LinkedSum, ManyRunsOfChangingData) {
  if (onGpus() && cuda::deviceCount() < 2)
    GTEST_SKIP() << "fewer than 2 GPUs";
  const Model model(onGpus() ? 12 : 2);
  const Graph graph = model.load();
  auto program = compile(graph, kernelOptions());
  ASSERT_TRUE(bool(program)) << program.error().message;
  for (int64_t tokens : {1, 7}) {
    SCOPED_TRACE(tokens);
    std::vector<NamedTensors> given;
    for (unsigned i = 0; i < 5; ++i)
      given.push_back(inputs(tokens, i));
    expectTheSameBitsAgain(*program, given);
  }
}
} // namespace
