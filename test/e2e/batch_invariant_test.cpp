// With CompileOptions::batchInvariant a sequence gets the same bits whatever runs beside it, and wherever it
// stands.
#include "GraphCase.h"
#include "TestDevice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

using namespace fusion;
using namespace fusion::test;
using testing::HasSubstr;
using testing::Not;

namespace {
/// A norm of rows that lie at no aligned places, a choice of experts, and their weighted sum.
constexpr const char *expertsText = R"(
func.func @main(%x: tensor<?x?x40xbf16> {nn.name = "x", nn.dims = ["batch", "sequence", 40]},
                %w: tensor<40xbf16> {nn.name = "w"}, %r: tensor<40x8xbf16> {nn.name = "r"},
                %u: tensor<8x24x40xbf16> {nn.name = "u"}, %d: tensor<8x40x24xbf16> {nn.name = "d"},
                %v: tensor<40x1001xbf16> {nn.name = "v"}, %s: tensor<1001xbf16> {nn.name = "s"})
    -> (tensor<?x?x40xbf16> {nn.name = "y"}, tensor<?x?x1001xbf16> {nn.name = "odd"}) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-5 : f32} : (tensor<?x?x40xbf16>, tensor<40xbf16>) -> tensor<?x?x40xbf16>
  %l = nn.matmul %n, %r : (tensor<?x?x40xbf16>, tensor<40x8xbf16>) -> tensor<?x?x8xbf16>
  %p = nn.softmax %l {axis = 2 : i64} : (tensor<?x?x8xbf16>) -> tensor<?x?x8xbf16>
  %i = nn.top_k %p {axis = 2 : i64, k = [2]} : (tensor<?x?x8xbf16>) -> tensor<?x?x2xi64>
  %c = nn.gather_elements %p, %i {axis = 2 : i64} : (tensor<?x?x8xbf16>, tensor<?x?x2xi64>) -> tensor<?x?x2xbf16>
  %f = nn.reshape %c {shape = ["batch", "sequence", 2, 1]} : (tensor<?x?x2xbf16>) -> tensor<?x?x2x1xbf16>
  %q = nn.reshape %n {shape = ["batch", "sequence", 1, 40]} : (tensor<?x?x40xbf16>) -> tensor<?x?x1x40xbf16>
  %h = nn.expert_matmul %q, %u, %i {transpose_w = true} : (tensor<?x?x1x40xbf16>, tensor<8x24x40xbf16>, tensor<?x?x2xi64>) -> tensor<?x?x2x24xbf16>
  %a = nn.silu %h : (tensor<?x?x2x24xbf16>) -> tensor<?x?x2x24xbf16>
  %o = nn.expert_matmul %a, %d, %i {transpose_w = true} : (tensor<?x?x2x24xbf16>, tensor<8x40x24xbf16>, tensor<?x?x2xi64>) -> tensor<?x?x2x40xbf16>
  %m = nn.mul %o, %f : (tensor<?x?x2x40xbf16>, tensor<?x?x2x1xbf16>) -> tensor<?x?x2x40xbf16>
  %k = nn.reduce %m {kind = "sum", axes = array<i64: 2>, keepdims = false} : (tensor<?x?x2x40xbf16>) -> tensor<?x?x40xbf16>
  %y = nn.add %k, %x : (tensor<?x?x40xbf16>, tensor<?x?x40xbf16>) -> tensor<?x?x40xbf16>
  %t = nn.matmul %y, %v : (tensor<?x?x40xbf16>, tensor<40x1001xbf16>) -> tensor<?x?x1001xbf16>
  %z = nn.layer_norm %t, %s {eps = 1.0e-5 : f32} : (tensor<?x?x1001xbf16>, tensor<1001xbf16>) -> tensor<?x?x1001xbf16>
  return %y, %z : tensor<?x?x40xbf16>, tensor<?x?x1001xbf16>
})";

struct Case {
  const char *name, *graph, *target; ///< graph: empty: expertsText
  int64_t sequence, past;
  RunOn device = RunOn::Emulate;
};

Graph load(const Case &test) {
  const std::string text = expertsText;
  auto graph = *test.graph ? Graph::load(graphFile(test.graph, "model.onnx"))
                           : Graph::load(ModelBytes{std::as_bytes(std::span(text)), nullptr, "experts.mlir"});
  EXPECT_TRUE(bool(graph)) << graph.error().message;
  return *graph;
}

bool hasBatch(const Port &port) { return !port.shape.empty() && !port.shape[0].constant(); }

size_t bytesOf(const Tensor &tensor) { return static_cast<size_t>(tensor.size()) * byteSize(tensor.type()); }

/// The entry of a tensor along its first dim, and what has it in the place of another.
std::string entry(const Tensor &tensor, int64_t index) {
  const size_t bytes = bytesOf(tensor) / static_cast<size_t>(tensor.shape()[0]);
  return {tensor.as<char>() + static_cast<size_t>(index) * bytes, bytes};
}
Tensor withEntry(const Tensor &tensor, int64_t index, const std::string &bytes) {
  Tensor changed = tensor.clone();
  std::memcpy(changed.as<char>() + static_cast<size_t>(index) * bytes.size(), bytes.data(), bytes.size());
  return changed;
}

/// How many outputs of one sequence differ between a run alone and runs with others beside it.
int differences(const Case &test, bool batchInvariant) {
  const Graph graph = load(test);
  const bool onGpu = onGpus() && test.device != RunOn::Cpu;
  auto reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
  auto program = compile(graph, {.target = onGpu ? Target::current() : Target{test.target},
                                 .device = onGpu ? RunOn::Cuda : test.device,
                                 .profit = ProfitMode::Model,
                                 .batchInvariant = batchInvariant});
  EXPECT_TRUE(bool(program)) << program.error().message;
  std::mt19937 random(5);
  const NamedTensors alone = makeInputs(graph.inputs(), 1, test.sequence, test.past, random);
  auto expected = program->run(alone);
  EXPECT_TRUE(bool(expected)) << expected.error().message;
  int found = 0;
  for (auto [batch, places] :
       {std::pair(int64_t(1), std::vector<int64_t>{0}), {3, {0, 2}}, {8, {5}}, {33, {0, 32}}})
    for (int64_t place : places) {
      NamedTensors inputs = makeInputs(graph.inputs(), batch, test.sequence, test.past, random);
      for (const Port &port : graph.inputs())
        inputs[port.name] = hasBatch(port)
                                ? withEntry(inputs[port.name], place, entry(alone.at(port.name), 0))
                                : alone.at(port.name);
      if (auto mask = inputs.find("attention_mask");
          mask != inputs.end() && batch > 1) // a neighbour is shorter
        mask->second =
            withEntry(mask->second, place == 0 ? 1 : 0, std::string(entry(mask->second, 0).size(), '\0'));
      auto actual = program->run(inputs);
      EXPECT_TRUE(bool(actual)) << actual.error().message;
      auto exact = reference->run(inputs);
      EXPECT_TRUE(bool(exact)) << exact.error().message;
      for (const auto &[name, value] : *exact) {
        auto difference = compare(actual->at(name), value);
        EXPECT_TRUE(bool(difference) && difference->relativeL2 <= modelTolerance(value.type()))
            << name << " of " << batch << ": " << difference->relativeL2;
      }
      for (const auto &[name, value] : *expected)
        if (entry(actual->at(name), place) != entry(value, 0)) {
          ++found;
          if (batchInvariant)
            ADD_FAILURE() << name << " of sequence " << place << " of " << batch
                          << " differs from that alone";
        }
    }
  return found;
}

class BatchInvariant : public testing::TestWithParam<Case> {};

TEST_P(BatchInvariant, ARowIsTheSameInEveryBatch) { EXPECT_EQ(differences(GetParam(), true), 0); }

INSTANTIATE_TEST_SUITE_P(
    Models, BatchInvariant,
    testing::Values(Case{"Llama", "llama-fp16-decode", "sm_90a", 1, 5},
                    Case{"LlamaSm80", "llama-fp32-op18", "sm_80", 3, 0},
                    Case{"Gpt2", "gpt2-fp16-decode", "sm_90a", 1, 5},
                    Case{"Gemma", "gemma-bf16-op23", "sm_90a", 3, 0}, Case{"Experts", "", "sm_90a", 3, 0},
                    Case{"LlamaOnTheHost", "llama-fp16-decode", "sm_90a", 1, 5, RunOn::Cpu}),
    [](const auto &info) { return std::string(info.param.name); });

/// What the promise is for: kernels that are chosen by the number of rows add up in other orders.
TEST(BatchDependent, WithoutTheOptionRowsDiffer) {
  EXPECT_GT(differences({"Experts", "", "sm_90a", 3, 0}, false), 0);
}

/// A library chooses by the number of rows how it adds up; kernels are the same for all numbers of sequences.
TEST(BatchInvariantPlan, HasNoLibraryAndNoChoiceByBatch) {
  const Graph graph = load({"", "llama-fp16-decode", "", 0, 0});
  auto usual = explain(graph, {.target = {"sm_90a"}}, Emit::Plan);
  auto fixed = explain(graph, {.target = {"sm_90a"}, .batchInvariant = true}, Emit::Plan);
  ASSERT_TRUE(bool(usual)) << usual.error().message;
  ASSERT_TRUE(bool(fixed)) << fixed.error().message;
  EXPECT_THAT(usual->text, HasSubstr("library_matmul"));
  EXPECT_THAT(usual->text, HasSubstr(" when "));
  EXPECT_THAT(fixed->text, Not(HasSubstr("library_matmul")));
  EXPECT_THAT(fixed->text, Not(HasSubstr(" when ")));
}

/// In which order blocks and threads take turns decides nothing.
TEST(Determinism, TurnsChangeNothing) {
  for (const Case &test : {Case{"", "llama-fp16-decode", "sm_90a", 1, 5}, Case{"", "", "sm_90a", 3, 0}}) {
    const Graph graph = load(test);
    auto program =
        compile(graph, {.target = {test.target}, .device = RunOn::Emulate, .profit = ProfitMode::Model});
    ASSERT_TRUE(bool(program)) << program.error().message;
    std::mt19937 random(5);
    const NamedTensors inputs = makeInputs(graph.inputs(), 3, test.sequence, test.past, random);
    auto expected = program->run(inputs);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    for (const char *seed : {"1", "2", "3"}) {
      setenv("FUSION_EMULATE_ORDER", seed, 1);
      auto actual = program->run(inputs);
      unsetenv("FUSION_EMULATE_ORDER");
      ASSERT_TRUE(bool(actual)) << actual.error().message;
      for (const auto &[name, value] : *expected)
        for (int64_t i = 0; i < value.shape()[0]; ++i)
          EXPECT_TRUE(entry(actual->at(name), i) == entry(value, i)) << name << " in order " << seed;
    }
  }
}

TEST(BatchInvariantPlan, IsForOneRank) {
  auto program = compile(load({"", "llama-fp16-decode", "", 0, 0}),
                         {.device = RunOn::Emulate, .tensorParallel = 2, .batchInvariant = true});
  ASSERT_FALSE(bool(program));
  EXPECT_THAT(program.error().message, HasSubstr("a batch-invariant program runs on one rank"));
}
} // namespace
