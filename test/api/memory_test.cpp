// Graphs whose bytes and weights are the caller's memory, and ranks that find each other through the caller.
#include "api/Fusion.h"
#include "runtime/collective/Bootstrap.h"
#include "runtime/collective/TcpRendezvous.h"
#include "test/import/ModelBuilder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>

namespace fusion {
namespace {
using test::ModelBuilder;
using test::TemporaryFolder;
constexpr int32_t f32 = onnx::proto::TensorProto::FLOAT;

/// y = x + w, of `dim` columns; w is an initialiser where it is not an input.
ModelBuilder addition(bool weightIsInput = false) {
  ModelBuilder model;
  model.input("x", f32, {"rows", "32"}).output("y");
  if (weightIsInput)
    model.input("w", f32, {"32"});
  else
    model.weight("w", {32});
  model.node("Add", {"x", "w"}, {"y"});
  return model;
}

ModelBytes bytesOf(const ModelBuilder &model) {
  auto bytes = std::make_shared<std::string>(model.model.SerializeAsString());
  return {std::as_bytes(std::span(*bytes)), bytes, "mine.onnx"};
}

Tensor filled(Shape shape, float value) {
  Tensor tensor = Tensor::zeros(DType::F32, std::move(shape));
  std::fill_n(tensor.as<float>(), tensor.size(), value);
  return tensor;
}

std::vector<float> rowOf(Program &program, float x) {
  auto outputs = program.run({{"x", filled({1, 32}, x)}});
  EXPECT_TRUE(outputs) << outputs.error().message;
  return outputs ? outputs->at("y").toFloats() : std::vector<float>();
}

Result<Program> compiled(const ModelBytes &model, const LoadOptions &options, RunOn device = RunOn::Cpu) {
  auto graph = Graph::load(model, options);
  if (!graph)
    return graph.error();
  CompileOptions wanted;
  wanted.device = device;
  return compile(*graph, wanted);
}

std::string whyNot(const ModelBytes &model, const LoadOptions &options = {}) {
  auto graph = Graph::load(model, options);
  return graph ? "" : graph.error().message;
}

TEST(Memory, BytesAreReadWhereTheyAreAsLongAsAProgramLives) {
  for (RunOn device : {RunOn::Cpu, RunOn::Emulate}) {
    ModelBytes model = bytesOf(addition());
    std::weak_ptr<const void> bytes = model.owner;
    {
      auto program = compiled(model, {}, device);
      ASSERT_TRUE(program) << program.error().message;
      model.owner.reset();
      EXPECT_FALSE(bytes.expired());
      EXPECT_EQ(rowOf(*program, 0.5f)[31], 31.5f);
    }
    EXPECT_TRUE(bytes.expired());
  }
}

TEST(Memory, WeightsAreTheCallersTensors) {
  for (bool isInput : {false, true})
    for (RunOn device : {RunOn::Cpu, RunOn::Emulate}) {
      Tensor weight = filled({32}, 7);
      std::weak_ptr<void> memory = weight.storage();
      {
        auto program = compiled(bytesOf(addition(isInput)), {.weights = {{"w", weight}}}, device);
        ASSERT_TRUE(program) << program.error().message;
        ASSERT_EQ(program->inputs().size(), 1u);
        EXPECT_EQ(rowOf(*program, 0.5f)[3], 7.5f);
        weight.as<float>()[3] = 9; // not copied
        EXPECT_EQ(rowOf(*program, 0.5f)[3], 9.5f);
        weight = Tensor();
        EXPECT_FALSE(memory.expired());
      }
      EXPECT_TRUE(memory.expired());
    }
}

TEST(Memory, GraphsOfOneShapeHaveWeightsOfTheirOwn) {
  // The second finds the first's plan in the cache, and must not find its weights.
  auto first = compiled(bytesOf(addition()), {.weights = {{"w", filled({32}, 1)}}}, RunOn::Emulate);
  auto second = compiled(bytesOf(addition()), {.weights = {{"w", filled({32}, 2)}}}, RunOn::Emulate);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(rowOf(*first, 0)[0], 1);
  EXPECT_EQ(rowOf(*second, 0)[0], 2);
  first = compiled(bytesOf(addition()), {.weights = {{"w", filled({32}, 3)}}}, RunOn::Emulate);
  ASSERT_TRUE(first);
  EXPECT_EQ(rowOf(*first, 0)[0], 3);
  EXPECT_EQ(rowOf(*second, 0)[0], 2);
}

TEST(Memory, WeightsThatDoNotFitAreNamed) {
  const ModelBytes model = bytesOf(addition());
  EXPECT_EQ(whyNot(model, {.weights = {{"v", filled({32}, 0)}}}),
            "mine.onnx: the graph has no initializer or input 'v' for a weight");
  EXPECT_EQ(whyNot(model, {.weights = {{"w", filled({31}, 0)}}}),
            "mine.onnx: weight 'w': 31 f32 is given, the graph has 32 FLOAT");
  EXPECT_EQ(whyNot(model, {.weights = {{"w", Tensor::zeros(DType::I32, {32})}}}),
            "mine.onnx: weight 'w': 32 i32 is given, the graph has 32 FLOAT");
  EXPECT_EQ(whyNot(bytesOf(addition(true)), {.weights = {{"w", filled({2, 16}, 0)}}}),
            "mine.onnx: weight 'w': its shape 2x16 is not the input's");
}

// An address that is no memory of a GPU, or a machine without one: compiling for the host names the weight.
TEST(Memory, WeightsOnAGpuAreFetchedForTheHost) {
  char elsewhere = 0;
  const LoadOptions options{
      .weights = {{"w", Tensor::wrap(DType::F32, {32}, &elsewhere, nullptr, {Device::Kind::Cuda, 0})}}};
  EXPECT_EQ(whyNot(bytesOf(addition()), options), "");
  auto program = compiled(bytesOf(addition()), options, RunOn::Cpu);
  const std::string error = program ? "" : program.error().message;
  EXPECT_TRUE(error.starts_with("weight w: ")) << error;
}

/// `addition` with its weight at `location`.
ModelBytes external(const std::string &location) {
  ModelBuilder model = addition();
  auto &tensor = *model.graph().mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::proto::TensorProto::EXTERNAL);
  auto *entry = tensor.add_external_data();
  entry->set_key("location");
  entry->set_value(location);
  return bytesOf(model);
}

TEST(Memory, ExternalDataIsInMemoryOrBesideTheModel) {
  const Tensor weight = filled({32}, 4);
  const Tensor bytes = Tensor::wrap(DType::U8, {128}, const_cast<void *>(weight.data()), weight.storage());
  auto program = compiled(external("weights.bin"), {.files = {{"weights.bin", bytes}}});
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(rowOf(*program, 1)[0], 5);
  EXPECT_NE(whyNot(external("weights.bin")).find("'weights.bin' is missing"), std::string::npos);
  const TemporaryFolder folder;
  test::writeFile(folder / "weights.bin", {static_cast<const char *>(weight.data()), 128});
  ModelBytes beside = external("weights.bin");
  beside.path = folder / "model.onnx"; // is no file
  program = compiled(beside, {});
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(rowOf(*program, 2)[0], 6);
}

TEST(Memory, AModelCannotNameTheMemoryOfAnother) {
  auto victim = Graph::load(bytesOf(addition()));
  ASSERT_TRUE(victim);
  for (int number = 1; number < 20; ++number)
    EXPECT_NE(whyNot(external("/@memory/" + std::to_string(number))).find("lies outside the model's folder"),
              std::string::npos);
}

TEST(Memory, TextIsAGraphToo) {
  ModelBuilder doubled;
  doubled.input("x", f32, {"rows", "32"}).output("y").node("Add", {"x", "x"}, {"y"});
  auto graph = Graph::load(bytesOf(doubled));
  ASSERT_TRUE(graph);
  const std::string text = graph->text();
  auto program = compiled({std::as_bytes(std::span(text)), nullptr, "mine.mlir"}, {});
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(rowOf(*program, 3)[0], 6);
  const ModelBytes half{std::as_bytes(std::span(text)).first(text.size() / 2), nullptr, "mine.mlir"};
  EXPECT_EQ(whyNot(half).find("mine.mlir:"), 0u);
  EXPECT_EQ(whyNot({half.bytes, nullptr, "mine.onnx"}).find("mine.onnx: not an ONNX model"), 0u);
}

TEST(Memory, ABundleHasItsOwnWeights) {
  const TemporaryFolder folder;
  {
    auto graph = Graph::load(bytesOf(addition()), {.weights = {{"w", filled({32}, 6)}}});
    ASSERT_TRUE(graph);
    CompileOptions options;
    options.target = Target{"sm_90a"};
    Status status = writeBundle(*graph, options, folder / "bundle");
    ASSERT_TRUE(status) << status.error().message;
  }
  CompileOptions options;
  options.device = RunOn::Emulate;
  auto program = Program::open(folder / "bundle", options);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(rowOf(*program, 1)[0], 7);
}

/// Threads that stand for processes, and what they bring together.
class Gathering {
public:
  explicit Gathering(int ranks) : answers(static_cast<size_t>(ranks)), barrier(ranks) {}
  AllGather of(int rank) {
    return [this, rank](const std::string &mine) -> Result<std::vector<std::string>> {
      answers[static_cast<size_t>(rank)] = mine;
      barrier.arrive_and_wait();
      return answers;
    };
  }

private:
  std::vector<std::string> answers;
  std::barrier<> barrier;
};

TEST(Bootstrap, RanksMeetThroughTheirCaller) {
  constexpr int ranks = 3;
  Gathering gathering(ranks);
  std::vector<std::string> seen(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto place = bootstrapRank(rank, ranks, "", gathering.of(rank));
      ASSERT_TRUE(place) << place.error().message;
      EXPECT_EQ(place->address, "127.0.0.1");
      EXPECT_TRUE(place->onOneHost);
      EXPECT_EQ(place->secret.size(), 64u); // or who has none could join
      auto met = joinTcpRendezvous(*place, {});
      ASSERT_TRUE(met) << met.error().message;
      auto all = (*met)->gather(std::to_string(rank));
      ASSERT_TRUE(all) << all.error().message;
      for (const auto &part : *all)
        seen[static_cast<size_t>(rank)] += part;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(seen, std::vector<std::string>(ranks, "012"));
}

TEST(Bootstrap, AnswersThatAreNoneAreRefused) {
  auto reason = [](std::vector<std::string> answers) {
    auto place = bootstrapRank(1, 2, "", [&](const std::string &) { return answers; });
    return place ? "" : place.error().message;
  };
  EXPECT_EQ(reason({"one"}), "allGather brought 1 answers of 2 ranks");
  EXPECT_EQ(reason({"one", "two"}), "what allGather brought from rank 0 is not what rank 0 of 2 gave");
  EXPECT_EQ(reason({R"({"rank": "0"})", "two"}),
            "what allGather brought from rank 0 is not what rank 0 of 2 gave");
  auto failed = bootstrapRank(0, 2, "", [](const std::string &) -> Result<std::vector<std::string>> {
    return environment("no MPI");
  });
  EXPECT_EQ(failed.error().message, "no MPI");
}

TEST(Bootstrap, ARankMustBeOneOfTheProgram) {
  auto graph = Graph::load(bytesOf(addition()));
  ASSERT_TRUE(graph);
  CompileOptions options;
  options.device = RunOn::Emulate;
  options.tensorParallel = 2;
  options.processRank = ProcessRank{2, 2, 0, Gathering(1).of(0), ""};
  EXPECT_EQ(compile(*graph, options).error().message,
            "processRank is rank 2 of 2 on GPU 0: they count from 0");
  options.processRank->ranks = 3;
  EXPECT_EQ(compile(*graph, options).error().message,
            "processRank is one of 3 ranks, but the program is for 2");
  options.processRank = ProcessRank{0, 2};
  EXPECT_EQ(compile(*graph, options).error().message,
            "processRank has no allGather: the ranks cannot find each other");
}

} // namespace
} // namespace fusion
