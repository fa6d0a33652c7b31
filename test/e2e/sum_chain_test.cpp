// Chains of sums over ranks with a residual that stays scattered between them: changing sizes, and with them
// the algorithm of the sums, and many runs in a row. On emulated kernels, or on GPUs with
// FUSION_TEST_DEVICE=cuda.
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
/// `links` links of `hidden` columns, each with partial sums of its own; every third result is a norm, the
/// others are eight bits with a scale given beforehand, or one a row.
Graph chain(int links, int hidden) {
  const std::string row = fmt::format("tensor<?x{}xbf16>", hidden),
                    bits = fmt::format("tensor<?x{}xf8E4M3FN>", hidden),
                    dims = fmt::format("nn.dims = [\"tokens\", {}]", hidden);
  std::string arguments, body, results, types, residual = "%r";
  for (int i = 0; i < links; ++i) {
    arguments += fmt::format("%x{0}: {1} {{nn.name = \"x{0}\", {2}}}, ", i, row, dims);
    body += fmt::format(
        "  %a{0} = nn.all_reduce %x{0} : ({1}) -> {1}\n  %s{0} = nn.add %a{0}, {2} : ({1}, {1}) -> {1}\n"
        "  %n{0} = nn.rms_norm %s{0}, %w {{eps = 1.0e-6 : f32}} : ({1}, tensor<{3}xbf16>) -> {1}\n",
        i, row, residual, hidden);
    residual = fmt::format("%s{}", i);
    const std::string comma = i ? ", " : "";
    if (i % 3 == 0) {
      body += fmt::format("  %q{0} = nn.quantize %n{0}, %scale : ({1}, tensor<f32>) -> {2}\n", i, row, bits);
    } else if (i % 3 == 1) {
      body += fmt::format("  %q{0}, %t{0} = nn.dynamic_quantize %n{0} {{group_size = 0 : i64}} : ({1}) -> "
                          "({2}, tensor<?x1xf32>)\n",
                          i, row, bits);
      results += fmt::format("{}%t{}", comma, i);
      types += fmt::format("{}tensor<?x1xf32> {{nn.name = \"t{}\"}}", comma, i);
    }
    const bool isNorm = i % 3 == 2;
    results += fmt::format("{}%{}{}", results.empty() ? "" : ", ", isNorm ? "n" : "q", i);
    types += fmt::format("{}{} {{nn.name = \"y{}\"}}", types.empty() ? "" : ", ", isNorm ? row : bits, i);
  }
  std::string plain;
  for (size_t at = 0; at < types.size();) {
    const size_t open = types.find(" {", at), close = types.find('}', open);
    plain += types.substr(at, open - at);
    at = close + 1;
  }
  const std::string text = fmt::format("func.func @main({0}%r: {1} {{nn.name = \"r\", {2}}}, %w: "
                                       "tensor<{3}xbf16> {{nn.name = \"w\"}}, %scale: tensor<f32> "
                                       "{{nn.name = \"scale\"}}) -> ({4}) {{\n{5}  return {6} : {7}\n}}\n",
                                       arguments, row, dims, hidden, types, body, results, plain);
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / fmt::format("sum-chain-{}.mlir", getpid());
  std::ofstream(file) << text;
  auto graph = Graph::load(file.string());
  std::filesystem::remove(file);
  EXPECT_TRUE(bool(graph)) << graph.error().message << text;
  return graph ? std::move(*graph) : Graph();
}

NamedTensors randomInputs(const Graph &graph, int64_t tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  NamedTensors inputs;
  for (const Port &port : graph.inputs()) {
    Shape shape;
    for (const Dim &dim : port.shape)
      shape.push_back(dim.constant().value_or(tokens));
    std::vector<float> values(static_cast<size_t>(elementCount(shape)));
    for (float &value : values)
      value = port.name == "scale" ? 0.02f : port.name == "w" ? 1 + 0.1f * normal(random) : normal(random);
    inputs[port.name] = Tensor::of<float>(DType::F32, shape, values).convertedTo(port.type);
  }
  return inputs;
}

int ranksHere() { return onGpus() && cuda::deviceCount() < 4 ? 2 : 4; }

TEST(SumChain, AlgorithmsChangeFromRunToRun) {
  const int ranks = ranksHere();
  if (onGpus() && cuda::deviceCount() < ranks)
    GTEST_SKIP() << "fewer than 2 GPUs";
  const Graph graph = chain(4, 1024);
  auto reference = compile(graph, {.device = RunOn::Cpu, .tensorParallel = ranks});
  auto kernels = compile(graph, {.device = onGpus() ? RunOn::Cuda : RunOn::Emulate,
                                 .profit = ProfitMode::Model,
                                 .tensorParallel = ranks});
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  ASSERT_TRUE(bool(kernels)) << kernels.error().message;
  EXPECT_EQ(kernels->report().fired("all_reduce_add_norm_quant"), 3) << kernels->report().markdown();
  // One-shot up to 96 tokens in emulation of 4 ranks, up to some hundreds on GPUs, two-shot from there on.
  for (int64_t tokens : onGpus() ? std::vector<int64_t>{5, 1500, 1, 3001, 33, 1027}
                                 : std::vector<int64_t>{3, 130, 1, 97, 96, 0, 131}) {
    SCOPED_TRACE(tokens);
    const NamedTensors inputs = randomInputs(graph, tokens, static_cast<unsigned>(tokens));
    auto expected = reference->run(inputs), actual = kernels->run(inputs);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    for (const auto &[name, value] : *expected) {
      auto difference = compare(actual->at(name), value);
      ASSERT_TRUE(bool(difference)) << difference.error().message;
      // A norm that lies at the middle between two numbers of eight bits goes either way.
      EXPECT_LE(difference->relativeL2, value.type() == DType::BF16  ? 2e-3
                                        : value.type() == DType::F32 ? 1e-2
                                                                     : 8e-3)
          << name;
    }
  }
}

/// Rows as long and as many as the shape of the kernels for many rows asks for.
TEST(SumChain, ManyLongRows) {
  const int ranks = ranksHere();
  if (onGpus() && cuda::deviceCount() < ranks)
    GTEST_SKIP() << "fewer than 2 GPUs";
  const Graph graph = chain(2, 8192);
  auto reference = compile(graph, {.device = RunOn::Cpu, .tensorParallel = ranks});
  auto kernels = compile(graph, {.device = onGpus() ? RunOn::Cuda : RunOn::Emulate,
                                 .profit = ProfitMode::Model,
                                 .tensorParallel = ranks});
  ASSERT_TRUE(bool(reference) && bool(kernels));
  const NamedTensors inputs = randomInputs(graph, 259, 1);
  auto expected = reference->run(inputs), actual = kernels->run(inputs);
  ASSERT_TRUE(bool(expected)) << expected.error().message;
  ASSERT_TRUE(bool(actual)) << actual.error().message;
  for (const auto &[name, value] : *expected) {
    auto difference = compare(actual->at(name), value);
    ASSERT_TRUE(bool(difference)) << difference.error().message;
    EXPECT_LE(difference->relativeL2, value.type() == DType::F32 ? 1e-2 : 8e-3) << name;
  }
}

/// Replays of a recorded graph with inputs that change every time: what a run leaves behind in areas,
/// residuals and counters must not show in a later one.
TEST(SumChain, ManyRunsOfChangingData) {
  if (onGpus() && cuda::deviceCount() < 2)
    GTEST_SKIP() << "fewer than 2 GPUs";
  for (const char *algorithm : {"one-shot", "two-shot"})
    for (int64_t tokens : {3, 37}) {
      SCOPED_TRACE(fmt::format("{} {}", algorithm, tokens));
      setenv("FUSION_COLLECTIVE", algorithm, 1);
      const Graph graph = chain(onGpus() ? 12 : 3, 1024);
      auto program =
          compile(graph, {.device = onGpus() ? RunOn::Cuda : RunOn::Emulate, .tensorParallel = ranksHere()});
      unsetenv("FUSION_COLLECTIVE");
      ASSERT_TRUE(bool(program)) << program.error().message;
      std::vector<NamedTensors> inputs;
      for (unsigned i = 0; i < 5; ++i)
        inputs.push_back(randomInputs(graph, tokens, i));
      expectTheSameBitsAgain(*program, inputs);
    }
}
} // namespace
