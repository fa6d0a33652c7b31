// Matmuls of many rows by the library (or what stands in for it, on emulated kernels; by cuBLASLt with
// FUSION_TEST_DEVICE=cuda) and what is after them in kernels: against the unfused reference, in each type and
// layout.
#include "GraphCase.h"
#include "TestDevice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;

namespace {
struct Case {
  const char *name;
  int products; ///< calls of the library in a run
  /// T stands for the element type, and `%x: tensor<?x…` for the rows.
  const char *function;
  bool inF32 = true; ///< can be of f32, too
};

const Case cases[] = {
    {"Alone", 1, R"(%x: tensor<?x96xT>, %w: tensor<96x72xT>) -> tensor<?x72xT> {
  %0 = nn.matmul %x, %w : (tensor<?x96xT>, tensor<96x72xT>) -> tensor<?x72xT>
  return %0 : tensor<?x72xT> })"},
    {"OfATransposedWeight", 1, R"(%x: tensor<?x72xT>, %w: tensor<96x72xT>) -> tensor<?x96xT> {
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x72xT>, tensor<96x72xT>) -> tensor<?x96xT>
  return %0 : tensor<?x96xT> })"},
    {"OfATransposedInput", 1, R"(%x: tensor<72x?xT>, %w: tensor<72x80xT>) -> tensor<?x80xT> {
  %0 = nn.matmul %x, %w {transpose_a = true} : (tensor<72x?xT>, tensor<72x80xT>) -> tensor<?x80xT>
  return %0 : tensor<?x80xT> })"},
    {"BiasActivationResidual", 1,
     R"(%x: tensor<?x65xT>, %w: tensor<71x65xT>, %b: tensor<71xT>, %r: tensor<?x71xT>) -> tensor<?x71xT> {
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x65xT>, tensor<71x65xT>) -> tensor<?x71xT>
  %1 = nn.add %0, %b : (tensor<?x71xT>, tensor<71xT>) -> tensor<?x71xT>
  %2 = nn.gelu %1 {approximate = "none"} : (tensor<?x71xT>) -> tensor<?x71xT>
  %3 = nn.add %r, %2 : (tensor<?x71xT>, tensor<?x71xT>) -> tensor<?x71xT>
  return %3 : tensor<?x71xT> })"},
    {"Gated", 2, R"(%x: tensor<?x64xT>, %w: tensor<64x72xT>, %v: tensor<64x72xT>) -> tensor<?x72xT> {
  %0 = nn.matmul %x, %w : (tensor<?x64xT>, tensor<64x72xT>) -> tensor<?x72xT>
  %1 = nn.matmul %x, %v : (tensor<?x64xT>, tensor<64x72xT>) -> tensor<?x72xT>
  %2 = nn.silu %0 : (tensor<?x72xT>) -> tensor<?x72xT>
  %3 = nn.mul %2, %1 : (tensor<?x72xT>, tensor<?x72xT>) -> tensor<?x72xT>
  return %3 : tensor<?x72xT> })"},
    {"SideBySide", 3,
     R"(%x: tensor<?x64xT>, %q: tensor<96x64xT>, %k: tensor<72x64xT>, %v: tensor<72x64xT>, %b: tensor<72xT>) -> (tensor<?x96xT>, tensor<?x72xT>, tensor<?x72xT>) {
  %0:3 = fusion.group "qkv_matmul" schedule "matmul" (%a = %x, %c = %q, %d = %k, %e = %v, %f = %b)
      : (tensor<?x64xT>, tensor<96x64xT>, tensor<72x64xT>, tensor<72x64xT>, tensor<72xT>) -> (tensor<?x96xT>, tensor<?x72xT>, tensor<?x72xT>) {
    %1 = nn.matmul %a, %c {transpose_b = true} : (tensor<?x64xT>, tensor<96x64xT>) -> tensor<?x96xT>
    %2 = nn.matmul %a, %d {transpose_b = true} : (tensor<?x64xT>, tensor<72x64xT>) -> tensor<?x72xT>
    %3 = nn.matmul %a, %e {transpose_b = true} : (tensor<?x64xT>, tensor<72x64xT>) -> tensor<?x72xT>
    %4 = nn.add %2, %f : (tensor<?x72xT>, tensor<72xT>) -> tensor<?x72xT>
    fusion.yield %1, %4, %3 : tensor<?x96xT>, tensor<?x72xT>, tensor<?x72xT>
  }
  return %0#0, %0#1, %0#2 : tensor<?x96xT>, tensor<?x72xT>, tensor<?x72xT> })"},
    {"SumInF32", 1, R"(%x: tensor<?x64xT>, %w: tensor<64x72xT>, %b: tensor<72xf32>) -> tensor<?x72xT> {
  %0 = nn.matmul %x, %w : (tensor<?x64xT>, tensor<64x72xT>) -> tensor<?x72xf32>
  %1 = nn.add %0, %b : (tensor<?x72xf32>, tensor<72xf32>) -> tensor<?x72xf32>
  %2 = nn.cast %1 : (tensor<?x72xf32>) -> tensor<?x72xT>
  return %2 : tensor<?x72xT> })",
     false},
    {"Quantised", 1, R"(%x: tensor<?x64xT>, %w: tensor<64x72xT>, %s: tensor<f32>) -> tensor<?x72xi8> {
  %0 = nn.matmul %x, %w : (tensor<?x64xT>, tensor<64x72xT>) -> tensor<?x72xT>
  %1 = nn.relu %0 : (tensor<?x72xT>) -> tensor<?x72xT>
  %2 = nn.quantize %1, %s : (tensor<?x72xT>, tensor<f32>) -> tensor<?x72xi8>
  return %2 : tensor<?x72xi8> })"},
    {"Batched", 1, R"(%x: tensor<3x?x64xT>, %w: tensor<3x64x72xT>, %r: tensor<3x?x72xT>) -> tensor<3x?x72xT> {
  %0 = nn.matmul %x, %w : (tensor<3x?x64xT>, tensor<3x64x72xT>) -> tensor<3x?x72xT>
  %1 = nn.add %0, %r : (tensor<3x?x72xT>, tensor<3x?x72xT>) -> tensor<3x?x72xT>
  return %1 : tensor<3x?x72xT> })"},
    {"LeadingDims", 1, R"(%x: tensor<2x?x64xT>, %w: tensor<64x72xT>) -> tensor<2x?x72xT> {
  %0 = nn.matmul %x, %w : (tensor<2x?x64xT>, tensor<64x72xT>) -> tensor<2x?x72xT>
  return %0 : tensor<2x?x72xT> })"},
};

/// Every dynamic dim of an argument is `rows`.
std::string withDims(std::string arguments) {
  for (size_t at = 0; (at = arguments.find(": tensor<", at)) != std::string::npos;) {
    const size_t from = at + 9, close = arguments.find('>', from);
    std::string shape = arguments.substr(from, close - from);
    at = close;
    if (shape.find('?') == std::string::npos)
      continue;
    shape.resize(shape.rfind('x'));
    std::string dims;
    for (size_t begin = 0; begin <= shape.size();) {
      const size_t end = std::min(shape.find('x', begin), shape.size());
      const std::string dim = shape.substr(begin, end - begin);
      dims += (dims.empty() ? "\"" : ", \"") + (dim == "?" ? "rows" : dim) + "\"";
      begin = end + 1;
    }
    const std::string text = " {nn.dims = [" + dims + "]}";
    arguments.insert(close + 1, text);
    at += text.size();
  }
  return arguments;
}

class MeasuredMatmuls : public testing::TestWithParam<std::tuple<Case, std::string>> {
protected:
  void SetUp() override {
    setenv("FUSION_MATMUL", "library", 1);
    if (!onGpus())
      setenv("FUSION_CUBLASLT", FUSION_FAKE_CUBLASLT, 1);
  }
  void TearDown() override { unsetenv("FUSION_MATMUL"); }
};

/// How often the stand-in has multiplied.
int productsSoFar() {
  using Count = int();
  void *library = dlopen(FUSION_FAKE_CUBLASLT, RTLD_NOW);
  return reinterpret_cast<Count *>(dlsym(library, "fakeCublasLtMatmuls"))();
}

double tolerance(DType type) {
  return type == DType::BF16 ? 1.5e-2 : type == DType::F16 ? 2e-3 : type == DType::I8 ? 1e-2 : 1e-5;
}

TEST_P(MeasuredMatmuls, ComputesWhatTheGraphComputes) {
  const auto &[test, type] = GetParam();
  if (!test.inF32 && type == "f32")
    GTEST_SKIP() << "the case is of a type and f32";
  std::string function = test.function;
  for (size_t at = 0; (at = function.find("xT>", at)) != std::string::npos;)
    function.replace(at + 1, 1, type);
  const size_t body = function.find(") -> ");
  const auto file = std::filesystem::temp_directory_path() /
                    ("fusion-" + std::string(test.name) + type + std::to_string(getpid()) + ".mlir");
  std::ofstream(file) << "func.func @main(" << withDims(function.substr(0, body)) << function.substr(body)
                      << "\n";
  auto graph = Graph::load(file.string());
  std::filesystem::remove(file);
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  auto reference = compile(*graph, {.device = RunOn::Cpu, .fuse = false});
  auto program =
      compile(*graph, {.device = onGpus() ? RunOn::Cuda : RunOn::Emulate, .profit = ProfitMode::Model});
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  ASSERT_TRUE(bool(program)) << program.error().message;
  EXPECT_EQ(program->report().kernelsAfter(), 1);
  std::mt19937 random(11);
  for (int64_t rows : {15, 33, 0, 16, 33, 33, 130}) { // a GPU records and replays
    NamedTensors inputs;
    for (const Port &port : graph->inputs()) {
      Shape shape;
      for (const Dim &dim : port.shape)
        shape.push_back(*dim.evaluate({{"rows", rows}}));
      std::normal_distribution<float> normal;
      std::vector<float> values(static_cast<size_t>(elementCount(shape)));
      for (float &value : values)
        value = shape.empty() ? 0.25f : normal(random);
      inputs[port.name] = Tensor::of<float>(DType::F32, shape, values).convertedTo(port.type);
    }
    const int before = onGpus() ? 0 : productsSoFar();
    auto expected = reference->run(inputs);
    auto actual = program->run(inputs);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    const bool folded = std::string(test.name) == "LeadingDims";
    if (!onGpus())
      EXPECT_EQ(productsSoFar() - before, rows * (folded ? 2 : 1) >= 16 ? test.products : 0)
          << rows << " rows";
    for (const auto &[name, value] : *expected) {
      auto difference = compare(actual->at(name), value);
      ASSERT_TRUE(bool(difference)) << difference.error().message;
      EXPECT_LE(difference->relativeL2, tolerance(value.type())) << name << " of " << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MeasuredMatmuls,
                         testing::Combine(testing::ValuesIn(cases), testing::Values("bf16", "f16", "f32")),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
                         });
} // namespace
