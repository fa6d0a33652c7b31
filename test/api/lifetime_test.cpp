// Programs made and ended many times, and used by several threads at once.
#include "Footprint.h"

#include "api/Fusion.h"
#include "test/import/ModelBuilder.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstdio>
#include <functional>
#include <thread>

namespace fusion {
namespace {
using test::ModelBuilder;
constexpr int32_t f32 = onnx::proto::TensorProto::FLOAT;

/// y = relu(x + w) times two, of 32 columns.
ModelBytes model() {
  ModelBuilder model;
  model.input("x", f32, {"rows", "32"}).output("y").weight("w", {32});
  model.node("Add", {"x", "w"}, {"sum"});
  model.node("Relu", {"sum"}, {"positive"});
  model.node("Add", {"positive", "positive"}, {"y"});
  auto bytes = std::make_shared<std::string>(model.model.SerializeAsString());
  return {std::as_bytes(std::span(*bytes)), bytes, "mine.onnx"};
}

Result<Program> compiled(const Graph &graph, RunOn device) {
  CompileOptions options;
  options.device = device;
  return compile(graph, options);
}

/// Elements of a row are 2 max(x + w, 0), where w counts up from 0.
void expectRow(Program &program, float x, int64_t rows) {
  Tensor input = Tensor::zeros(DType::F32, {rows, 32});
  std::fill_n(input.as<float>(), input.size(), x);
  auto outputs = program.run({{"x", input}});
  ASSERT_TRUE(outputs) << outputs.error().message;
  const std::vector<float> y = outputs->at("y").toFloats();
  ASSERT_EQ(y.size(), static_cast<size_t>(rows * 32));
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(y[i], 2 * std::max(x + static_cast<float>(i % 32), 0.f)) << i;
}

void cycle(RunOn device) {
  auto graph = Graph::load(model());
  ASSERT_TRUE(graph) << graph.error().message;
  auto program = compiled(*graph, device);
  ASSERT_TRUE(program) << program.error().message;
  expectRow(*program, -3, 2);
}

/// What `once` leaves behind each time, after it has been called for a while.
void expectFlat(int times, double mostBytes, const std::function<void()> &once) {
  for (int i = 0; i < 20; ++i)
    once();
  const auto before = test::Footprint::now();
  for (int i = 0; i < times && !testing::Test::HasFatalFailure(); ++i)
    once();
  const auto after = test::Footprint::now();
  const double grown = static_cast<double>(after.heap) - static_cast<double>(before.heap);
  std::printf("%.0f bytes after %d times\n", grown, times);
  if (test::heapIsKnown)
    EXPECT_LT(grown / times, mostBytes) << "bytes each time";
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_LE(after.mappings, before.mappings + 8); // of the allocator's arenas
}

constexpr RunOn hosts[] = {RunOn::Cpu, RunOn::Emulate};

TEST(Lifetime, CyclesLeaveNothing) {
  // What the threads' caches of the allocator keep comes to 120 KB, after 100 cycles as after 1000.
  for (RunOn device : hosts)
    expectFlat(test::repeats("FUSION_LIFETIME_CYCLES", 200), 1024, [&] { cycle(device); });
}

TEST(Lifetime, RunsLeaveNothing) {
  auto graph = Graph::load(model());
  ASSERT_TRUE(graph) << graph.error().message;
  for (RunOn device : hosts) {
    auto program = compiled(*graph, device);
    ASSERT_TRUE(program) << program.error().message;
    int64_t rows = 0; // sizes come and go too
    expectFlat(test::repeats("FUSION_LIFETIME_RUNS", 2000), 64,
               [&] {
                 const int64_t row = rows++;
                 expectRow(*program, static_cast<float>(row % 7), 1 + row % 5);
               });
  }
}

TEST(Lifetime, ThreadsLoadCompileAndRunTheirOwn) {
  std::barrier<> start(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      for (int round = 0; round < 3; ++round)
        cycle(i % 2 ? RunOn::Cpu : RunOn::Emulate);
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(Lifetime, ThreadsShareAProgramAndCopiesOfAGraph) {
  auto graph = Graph::load(model());
  ASSERT_TRUE(graph) << graph.error().message;
  for (RunOn device : {RunOn::Cpu, RunOn::Emulate}) {
    auto shared = compiled(*graph, device);
    ASSERT_TRUE(shared) << shared.error().message;
    std::barrier<> start(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i, copy = *graph, program = *shared]() mutable {
        start.arrive_and_wait();
        for (int round = 0; round < 8; ++round)
          expectRow(program, static_cast<float>(i - 3 * round), 1 + (i + round) % 3);
        EXPECT_EQ(copy.inputs().size(), 1u);
        EXPECT_FALSE(copy.text().empty());
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}

} // namespace
} // namespace fusion
