// Linear attention of many tokens is two kernels; emulated it gives what the reference gives.
#include "GraphText.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <random>

using namespace fusion;
using namespace fusion::test;

namespace {

struct Form {
  int keyHeads = 1, heads = 2, width = 64, valueWidth = 64;
  bool decays = true, corrects = true;
  double meanDecay = -0.2;
};

Tensor random(DType type, Shape shape, double deviation, double mean, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values)
    value = normal(engine);
  return Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(type);
}

NamedTensors inputsOf(const Form &f, int batch, int tokens) {
  NamedTensors inputs = {
      {"q", random(DType::BF16, {batch, f.keyHeads, tokens, f.width}, 1, 0, 1)},
      {"k", random(DType::BF16, {batch, f.keyHeads, tokens, f.width}, 1 / std::sqrt(f.width), 0, 2)},
      {"v", random(DType::BF16, {batch, f.heads, tokens, f.valueWidth}, 1, 0, 3)},
      {"past", random(DType::F32, {batch, f.heads, f.width, f.valueWidth}, 1, 0, 4)}};
  if (f.decays)
    inputs["decay"] = random(DType::F32, {batch, f.heads, tokens, 1}, 0.05, f.meanDecay, 5);
  if (f.corrects)
    inputs["beta"] = random(DType::BF16, {batch, f.heads, tokens, 1}, 0.1, 0.5, 6);
  return inputs;
}

Graph graphOf(const Form &f) {
  auto port = [](const char *name, int heads, int width, const char *type) {
    return fmt::format(
        "%{0}: tensor<?x{1}x?x{2}x{3}> {{nn.name = \"{0}\", nn.dims = [\"b\", {1}, \"t\", {2}]}}", name,
        heads, width, type);
  };
  const std::string keys = fmt::format("tensor<?x{}x?x{}xbf16>", f.keyHeads, f.width),
                    values = fmt::format("tensor<?x{}x?x{}xbf16>", f.heads, f.valueWidth),
                    state = fmt::format("tensor<?x{}x{}x{}xf32>", f.heads, f.width, f.valueWidth),
                    one = fmt::format("tensor<?x{}x?x1x", f.heads);
  const std::string text = fmt::format(
      R"(func.func @main({}, {}, {}, %past: {} {{nn.name = "past", nn.dims = ["b", {}, {}, {}]}}{}{})
    -> ({} {{nn.name = "y"}}, {} {{nn.name = "state"}}) {{
  %y, %state = nn.linear_attention %q, %k, %v, %past{}{} {{scale = 0.125 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, {}, {}>}}
      : ({}, {}, {}, {}{}{}) -> ({}, {})
  return %y, %state : {}, {}
}}
)",
      port("q", f.keyHeads, f.width, "bf16"), port("k", f.keyHeads, f.width, "bf16"),
      port("v", f.heads, f.valueWidth, "bf16"), state, f.heads, f.width, f.valueWidth,
      f.decays ? ", " + port("decay", f.heads, 1, "f32") : "",
      f.corrects ? ", " + port("beta", f.heads, 1, "bf16") : "", values, state, f.decays ? ", %decay" : "",
      f.corrects ? ", %beta" : "", int(f.decays), int(f.corrects), keys, keys, values, state,
      f.decays ? ", " + one + "f32>" : "", f.corrects ? ", " + one + "bf16>" : "", values, state, values,
      state);
  return parseGraph(text);
}

TEST(LinearAttention, PreparedChunksAsOnTheReference) {
  for (const Form &form : {Form{}, Form{.heads = 1, .width = 128, .valueWidth = 40, .decays = false},
                           Form{.keyHeads = 2, .width = 24, .valueWidth = 136, .meanDecay = -30},
                           Form{.width = 72, .valueWidth = 16, .corrects = false, .meanDecay = 0.01}}) {
    const Graph graph = graphOf(form);
    auto emulated = compile(graph, {.device = RunOn::Emulate}),
         reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
    ASSERT_TRUE(bool(emulated)) << emulated.error().message;
    ASSERT_TRUE(bool(reference)) << reference.error().message;
    for (auto [batch, tokens] : {std::pair(1, 256), std::pair(2, 321), std::pair(1, 255)}) {
      const NamedTensors inputs = inputsOf(form, batch, tokens);
      auto made = emulated->run(inputs), wanted = reference->run(inputs);
      ASSERT_TRUE(bool(made)) << made.error().message;
      ASSERT_TRUE(bool(wanted)) << wanted.error().message;
      for (const char *name : {"y", "state"}) {
        auto difference = compare(made->at(name), wanted->at(name));
        ASSERT_TRUE(bool(difference)) << difference.error().message;
        EXPECT_LE(difference->relativeL2, name[0] == 'y' ? 4e-3 : 1e-4)
            << name << " of " << tokens << " tokens";
      }
    }
  }
}

} // namespace
