// Latent attention over two caches: one kernel, or two where several clusters have the keys of a head, give
// what the reference gives.
#include "GraphText.h"
#include "TestDevice.h"

#include "api/Fusion.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <random>

using namespace fusion;
using namespace fusion::test;

namespace {

constexpr int64_t width = 512, rotated = 64;

Tensor random(Shape shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values)
    value = normal(engine);
  return Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(DType::BF16);
}

NamedTensors inputsOf(int64_t heads, int64_t batch, int64_t queries, int64_t keys) {
  return {{"q", random({batch, heads, queries, width}, 1)},
          {"q_rotated", random({batch, heads, queries, rotated}, 2)},
          {"kv", random({batch, 1, keys, width}, 3)},
          {"k_rotated", random({batch, 1, keys, rotated}, 4)}};
}

std::string type(int64_t heads, int64_t columns) {
  return fmt::format("tensor<?x{}x?x{}xbf16>", heads, columns);
}

Graph graphOf(int64_t heads) {
  auto port = [&](const char *name, int64_t heads, const char *rows, int64_t columns) {
    return fmt::format(R"(%{0}: {1} {{nn.name = "{0}", nn.dims = ["b", {2}, "{3}", {4}]}})", name,
                       type(heads, columns), heads, rows, columns);
  };
  const std::string q = type(heads, width + rotated), k = type(1, width + rotated);
  const std::string text = fmt::format(
      R"(func.func @main({0}, {1}, {2}, {3}) -> ({4} {{nn.name = "y"}}) {{
  %qs = nn.concat %q, %q_rotated {{axis = 3 : i64}} : ({4}, {5}) -> {6}
  %ks = nn.concat %kv, %k_rotated {{axis = 3 : i64}} : ({7}, {8}) -> {9}
  %y = nn.attention %qs, %ks, %kv {{scale = 0.07 : f32, causal = true}} : ({6}, {9}, {7}) -> {4}
  return %y : {4}
}}
)",
      port("q", heads, "s", width), port("q_rotated", heads, "s", rotated), port("kv", 1, "t", width),
      port("k_rotated", 1, "t", rotated), type(heads, width), type(heads, rotated), q, type(1, width),
      type(1, rotated), k);
  return parseGraph(text);
}

/// A step over caches that grow, of 16 heads.
Graph stepGraph() {
  auto port = [](const char *name, int64_t heads, const char *rows, int64_t columns) {
    return fmt::format(R"(%{0}: {1} {{nn.name = "{0}", nn.dims = ["b", {2}, {3}, {4}]}})", name,
                       type(heads, columns), heads, rows, columns);
  };
  const std::string kv = type(1, width), pe = type(1, rotated);
  return parseGraph(fmt::format(
      R"(func.func @main({0}, {1}, {2}, {3}, {4}, {5})
    -> ({6} {{nn.name = "y"}}, {7} {{nn.name = "present_kv"}}, {8} {{nn.name = "present_pe"}}) {{
  %kvs = nn.concat %past_kv, %kv {{axis = 2 : i64}} : ({7}, {7}) -> {7}
  %pes = nn.concat %past_pe, %pe {{axis = 2 : i64}} : ({8}, {8}) -> {8}
  %qs = nn.concat %q, %q_rotated {{axis = 3 : i64}} : ({6}, {9}) -> {10}
  %ks = nn.concat %kvs, %pes {{axis = 3 : i64}} : ({7}, {8}) -> {11}
  %y = nn.attention %qs, %ks, %kvs {{scale = 0.07 : f32, causal = true}} : ({10}, {11}, {7}) -> {6}
  return %y, %kvs, %pes : {6}, {7}, {8}
}}
)",
      port("q", 16, "\"s\"", width), port("q_rotated", 16, "\"s\"", rotated), port("kv", 1, "\"s\"", width),
      port("pe", 1, "\"s\"", rotated), port("past_kv", 1, "\"p\"", width),
      port("past_pe", 1, "\"p\"", rotated), type(16, width), kv, pe, type(16, rotated),
      type(16, width + rotated), type(1, width + rotated)));
}

void expectAsOnTheReference(int64_t heads, CompileOptions options,
                            std::initializer_list<std::array<int64_t, 3>> sizes) {
  const Graph graph = graphOf(heads);
  options.device = kernelDevice();
  options.profit = ProfitMode::Model;
  auto program = compile(graph, options), reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
  ASSERT_TRUE(bool(program)) << program.error().message;
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  EXPECT_EQ(program->report().fired("latent_attention"), 1) << program->report().markdown();
  for (auto [batch, queries, keys] : sizes) {
    const NamedTensors inputs = inputsOf(heads, batch, queries, keys);
    auto made = program->run(inputs), wanted = reference->run(inputs);
    ASSERT_TRUE(bool(made)) << made.error().message;
    ASSERT_TRUE(bool(wanted)) << wanted.error().message;
    auto difference = compare(made->at("y"), wanted->at("y"));
    ASSERT_TRUE(bool(difference)) << difference.error().message;
    EXPECT_LE(difference->relativeL2, 4e-3) << batch << " x " << queries << " of " << keys << " keys";
  }
}

TEST(LatentAttention, SeveralClustersHaveTheKeysOfAHead) {
  expectAsOnTheReference(16, {}, {{1, 1, 1}, {1, 1, 700}, {2, 1, 300}, {4, 1, 65}, {1, 9, 40}});
}

TEST(LatentAttention, OneHas) { expectAsOnTheReference(16, {}, {{8, 1, 100}, {17, 1, 40}}); }

/// A sequence's numbers are the same bits whatever is beside it.
TEST(LatentAttention, BatchInvariant) {
  expectAsOnTheReference(16, {.batchInvariant = true}, {{1, 1, 200}, {3, 2, 100}});
}

/// Caches of fixed length, of which a step reads what they hold.
TEST(LatentAttention, CachesInPlace) {
  const Graph graph = stepGraph();
  auto program = compile(graph, {.device = kernelDevice(), .profit = ProfitMode::Model, .kvCapacity = 40});
  auto reference = compile(graph, {.device = RunOn::Cpu, .fuse = false});
  ASSERT_TRUE(bool(program)) << program.error().message;
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  EXPECT_EQ(program->report().fired("latent_attention"), 1) << program->report().markdown();
  EXPECT_EQ(program->caches().size(), 2u);
  NamedTensors own = {{"past_kv", random({2, 1, 9, width}, 5)}, {"past_pe", random({2, 1, 9, rotated}, 6)}},
               views = own;
  for (unsigned step = 0; step < 3; ++step) {
    const int64_t fresh = step == 1 ? 5 : 1;
    NamedTensors inputs = {{"q", random({2, 16, fresh, width}, 10 + step)},
                           {"q_rotated", random({2, 16, fresh, rotated}, 20 + step)},
                           {"kv", random({2, 1, fresh, width}, 30 + step)},
                           {"pe", random({2, 1, fresh, rotated}, 40 + step)}},
                 others = inputs;
    inputs.insert(own.begin(), own.end());
    others.insert(views.begin(), views.end());
    auto wanted = reference->run(inputs), made = program->run(others);
    ASSERT_TRUE(bool(wanted)) << wanted.error().message;
    ASSERT_TRUE(bool(made)) << made.error().message;
    auto difference = compare(made->at("y"), wanted->at("y"));
    ASSERT_TRUE(bool(difference)) << difference.error().message;
    EXPECT_LE(difference->relativeL2, 4e-3) << "step " << step;
    own = {{"past_kv", wanted->at("present_kv")}, {"past_pe", wanted->at("present_pe")}};
    views = {{"past_kv", made->at("present_kv")}, {"past_pe", made->at("present_pe")}};
  }
}

} // namespace
