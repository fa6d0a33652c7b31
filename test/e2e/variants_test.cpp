// Programs that choose what they run by dims that turn out to be 1 and are broadcast.
#include "VariantsCase.h"

#include "ir/base/Progress.h"

#include <gmock/gmock.h>

#include <thread>

using namespace fusion;
using namespace fusion::test;
using testing::HasSubstr;

namespace {
TEST_F(Variants, ADimThatIs1IsBroadcastOnEveryDevice) {
  struct Case {
    int64_t batch, sequence;
    const char *known; ///< what loads the graph that is expected
    uint64_t variants; ///< that there are then
  };
  for (RunOn device : {RunOn::Cpu, kernelDevice()}) {
    Program any = program(maskedDecoder(), device);
    for (const Case &one : {Case{2, 2, "", 1},
                            {1, 7, "batch", 2},
                            {1, 1, "", 2},
                            {1, 4, "batch", 2},
                            {3, 1, "sequence", 3},
                            {3, 3, "", 3},
                            {1, 7, "batch", 3},
                            {5, 1, "sequence", 3}}) {
      SCOPED_TRACE(testing::Message() << one.batch << " x " << one.sequence);
      const NamedTensors inputs = decoderInputs(one.batch, one.sequence, 3);
      LoadOptions known;
      if (*one.known)
        known.dims[one.known] = 1;
      Program expected = program(maskedDecoder(), RunOn::Cpu, known);
      const NamedTensors outputs = run(any, inputs);
      expectSame(outputs, run(expected, inputs));
      // [3, 2, 1, total] and a mask [3, total]: so many queries come out.
      EXPECT_EQ(outputs.at("y").shape(), (Shape{one.batch, 2, std::max(one.batch, one.sequence), 8}));
      if (device != RunOn::Cpu)
        EXPECT_EQ(any.statistics().variants, one.variants);
    }
  }
}

TEST_F(Variants, DimsThatDifferAndAreNot1AreTheErrorThatTheyWere) {
  Program any = program(maskedDecoder(), kernelDevice());
  const std::string before = whyNot(any, decoderInputs(2, 3, 3));
  EXPECT_THAT(before, HasSubstr("batch is 2"));
  EXPECT_THAT(before, HasSubstr("sequence is 3"));
  EXPECT_EQ(before.find('\n'), std::string::npos);
  run(any, decoderInputs(1, 3, 3));
  EXPECT_EQ(whyNot(any, decoderInputs(2, 3, 3)), before);
  NamedTensors short_mask = decoderInputs(1, 3, 3); // the other dim of the mask
  short_mask["mask"] = normal({1, 4}, 5);
  EXPECT_THAT(whyNot(any, short_mask), HasSubstr("total is 4"));
  EXPECT_EQ(any.statistics().variants, 2u);
}

/// A 1 that an op cannot broadcast: no program is compiled for it, and others run as before.
TEST_F(Variants, A1ThatIsNotBroadcastIsTheErrorThatItWas) {
  ModelBuilder model;
  model.input("x", f32, {"n", "k"}).input("y", f32, {"m", "p"}).output("z");
  model.node("MatMul", {"x", "y"}, {"z"});
  Program any = program(model, kernelDevice());
  const NamedTensors wrong = {{"x", normal({2, 1}, 1)}, {"y", normal({3, 4}, 2)}};
  for (int time = 0; time < 2; ++time)
    EXPECT_THAT(whyNot(any, wrong), HasSubstr("m is 3"));
  EXPECT_EQ(any.statistics().variants, 1u);
  EXPECT_EQ(run(any, {{"x", normal({2, 3}, 1)}, {"y", normal({3, 4}, 2)}}).at("z").shape(), (Shape{2, 4}));
  EXPECT_EQ(run(any, {{"x", normal({2, 1}, 1)}, {"y", normal({1, 4}, 2)}}).at("z").shape(), (Shape{2, 4}));
}

/// Prompt and steps of one sequence run by two programs, which hand the cache to each other.
TEST_F(Variants, CachesInPlaceGoFromOneToTheOther) {
  Program plain = program(maskedDecoder(), RunOn::Cpu);
  options.kvCapacity = 16;
  Program inPlace = program(maskedDecoder(), kernelDevice());
  NamedTensors copied = {{"past", Tensor::zeros(DType::F32, {1, 2, 0, 8})}}, views = copied;
  int64_t past = 0;
  for (int64_t sequence : {5, 1, 1, 3, 1}) { // more than one position: the variant
    SCOPED_TRACE(testing::Message() << sequence << " after " << past);
    NamedTensors inputs = decoderInputs(1, sequence, past, static_cast<unsigned>(past) + 7), others = inputs;
    inputs["past"] = views["past"];
    others["past"] = copied["past"];
    auto outputs = inPlace.run(inputs);
    ASSERT_TRUE(bool(outputs)) << outputs.error().message;
    if (past > 0)
      EXPECT_EQ(outputs->at("present").data(), views["past"].data()); // where it lay
    const NamedTensors expected = run(plain, others);
    auto fetched = inPlace.fetch(*outputs);
    ASSERT_TRUE(bool(fetched)) << fetched.error().message;
    expectSame(*fetched, expected);
    views["past"] = outputs->at("present");
    copied["past"] = expected.at("present");
    past += sequence;
  }
  EXPECT_EQ(inPlace.statistics().variants, 2u);
}

TEST_F(Variants, ThreadsShareThem) {
  for (RunOn device : {RunOn::Cpu, kernelDevice()}) {
    Program any = program(maskedDecoder(), device);
    std::vector<NamedTensors> inputs, expected;
    for (auto [batch, sequence] : {std::pair(1, 4), {2, 2}, {3, 1}, {1, 6}}) {
      inputs.push_back(decoderInputs(batch, sequence, 2));
      Program alone = program(maskedDecoder(), RunOn::Cpu);
      expected.push_back(run(alone, inputs.back()));
    }
    std::vector<std::thread> threads;
    for (size_t first = 0; first < 4; ++first)
      threads.emplace_back([&, first] {
        for (size_t i = 0; i < 12; ++i)
          expectSame(run(any, inputs[(first + i) % 4]), expected[(first + i) % 4]);
      });
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_EQ(any.statistics().variants, 3u);
  }
}

/// Results that one has queued are the inputs of another.
TEST_F(Variants, QueuedResultsAreThereForTheNext) {
  ModelBuilder model;
  model.input("x", f32, {"n", "4"}).input("y", f32, {"m", "4"}).output("z");
  model.node("Add", {"x", "y"}, {"z"});
  Program any = program(model, kernelDevice());
  NamedTensors inputs = {{"x", normal({1, 4}, 1)}, {"y", normal({3, 4}, 2)}};
  auto wide = any.run(inputs, Results::Queued);
  ASSERT_TRUE(bool(wide)) << wide.error().message;
  auto doubled = any.run({{"x", wide->at("z")}, {"y", wide->at("z")}}, Results::Queued);
  ASSERT_TRUE(bool(doubled)) << doubled.error().message;
  const std::vector<float> z = any.fetch({{"z", doubled->at("z")}})->at("z").toFloats();
  const std::vector<float> x = inputs["x"].toFloats(), y = inputs["y"].toFloats();
  for (size_t i = 0; i < z.size(); ++i)
    EXPECT_FLOAT_EQ(z[i], 2 * (x[i % 4] + y[i]));
  auto streamed = any.enqueue({{"x", inputs["x"]}, {"y", doubled->at("z")}}, nullptr);
  ASSERT_TRUE(bool(streamed)) << streamed.error().message;
  const std::vector<float> sum = any.fetch(*streamed)->at("z").toFloats();
  for (size_t i = 0; i < sum.size(); ++i)
    EXPECT_FLOAT_EQ(sum[i], x[i % 4] + z[i]);
  EXPECT_EQ(any.statistics().variants, 2u);
  EXPECT_EQ(any.statistics().runs, 3u);
}

TEST_F(Variants, OneProgramMakesSoManyOfThem) {
  ModelBuilder model;
  model.input("x", f32, {"a", "b", "c", "d"}).input("y", f32, {"e", "f", "g", "h"}).output("z");
  model.node("Add", {"x", "y"}, {"z"});
  Program any = program(model, kernelDevice());
  std::string refused;
  for (unsigned which = 0; which < 16; ++which) {
    Shape shape;
    for (unsigned axis = 0; axis < 4; ++axis)
      shape.push_back(which >> axis & 1 ? 1 : 2);
    refused = whyNot(any, {{"x", normal(shape, 1)}, {"y", normal({2, 2, 2, 2}, 2)}});
    if (!refused.empty()) {
      EXPECT_EQ(which, 9u);
      break;
    }
  }
  EXPECT_THAT(refused, HasSubstr("the program has 8 variants for other such runs already"));
  EXPECT_THAT(refused, HasSubstr("--dim=a=1,d=1"));
  EXPECT_EQ(whyNot(any, {{"x", normal({1, 2, 2, 2}, 1)}, {"y", normal({2, 2, 2, 2}, 2)}}), "");
  EXPECT_EQ(any.statistics().variants, 9u);
}

/// What is copied to the device or prepared there for one is read there by the other.
TEST_F(Variants, WeightsAreThereOnce) {
  ModelBuilder model = maskedDecoder();
  model.graph().mutable_output()->rbegin()->set_name("u");
  model.weight("v", {64, 64}).weight("s", {64, 64}).ints("flat", {1, -1});
  model.node("Mul", {"v", "s"}, {"vs"});          // of weights alone: prepared
  model.node("Reshape", {"vs", "flat"}, {"row"}); // [1, 4096]
  model.node("ReduceSum", {"row"}, {"sum"});
  model.node("Add", {"y", "sum"}, {"u"});
  model.output("present");
  Program any = program(model, kernelDevice());
  run(any, decoderInputs(2, 2, 3));
  const uint64_t before = any.statistics().weightBytes;
  EXPECT_GT(before, 0u);
  const uint64_t peak = any.statistics().peakBytes, prepared = 64 * 64 * 4;
  Program cpu = program(model, RunOn::Cpu);
  for (int64_t sequence : {4, 2}) {
    const NamedTensors inputs = decoderInputs(1, sequence, 3);
    expectSame(run(any, inputs), run(cpu, inputs));
  }
  EXPECT_EQ(any.statistics().variants, 2u);
  EXPECT_EQ(any.statistics().weightBytes, before);
  EXPECT_LT(any.statistics().peakBytes, peak + prepared);
}

/// Kernels and plans of a variant are in the cache as those of others.
TEST_F(Variants, AreInTheCache) {
  auto entries = [&] {
    size_t count = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(options.cacheFolder))
      count += entry.is_regular_file();
    return count;
  };
  const NamedTensors inputs = decoderInputs(1, 4, 2);
  options.device = kernelDevice();
  const Graph graph = load(maskedDecoder());
  Program first = *compile(graph, options);
  const size_t shared = entries();
  run(first, inputs);
  const size_t both = entries();
  EXPECT_GT(both, shared);
  Program second = *compile(graph, options);
  run(second, inputs);
  EXPECT_EQ(entries(), both);
}

/// The largest run says which one is compiled first.
TEST_F(Variants, TheLargestRunChooses) {
  const NamedTensors inputs = decoderInputs(1, 4, 2);
  options.largestRun = inputs;
  setQuiet(true);
  Program any = program(maskedDecoder(), kernelDevice());
  setQuiet(false);
  EXPECT_EQ(any.statistics().variants, 1u);
  run(any, inputs);
  EXPECT_EQ(any.statistics().variants, 1u);
  run(any, decoderInputs(2, 2, 2));
  EXPECT_EQ(any.statistics().variants, 2u);
}

TEST_F(Variants, ModelsInMemoryAreReadAgain) {
  auto bytes = std::make_shared<std::string>(maskedDecoder().model.SerializeAsString());
  auto graph = Graph::load(ModelBytes{std::as_bytes(std::span(*bytes)), bytes, "mine.onnx"});
  bytes.reset();
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  options.device = kernelDevice();
  auto any = compile(*graph, options);
  graph = Graph();
  const NamedTensors inputs = decoderInputs(1, 4, 2);
  Program cpu = program(maskedDecoder(), RunOn::Cpu);
  expectSame(run(*any, inputs), run(cpu, inputs));
}

/// What is not there any more cannot be read again: then the graph is what it was.
TEST_F(Variants, AChangedFileIsNotReadAgain) {
  Program any = program(maskedDecoder(), kernelDevice());
  std::filesystem::remove(file);
  testing::internal::CaptureStderr();
  EXPECT_THAT(whyNot(any, decoderInputs(1, 4, 2)), HasSubstr("say so before compiling: --dim=batch=1"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot be read again"));
  EXPECT_EQ(whyNot(any, decoderInputs(2, 2, 2)), "");
}

/// One line, once.
TEST_F(Variants, ANoteSaysSo) {
  Program any = program(maskedDecoder(), kernelDevice());
  for (const char *expected : {"variant: batch is 1 and broadcast to sequence (nn.attention at node_mixed): "
                               "compiled for such runs\n",
                               ""}) {
    testing::internal::CaptureStderr();
    run(any, decoderInputs(1, 4, 2));
    const std::string notes = testing::internal::GetCapturedStderr();
    EXPECT_EQ(notes.find("variant") != std::string::npos, *expected != 0) << notes;
    EXPECT_THAT(notes, HasSubstr(expected));
  }
}

/// A graph as text has no importer that could be told.
TEST_F(Variants, GraphsAsTextSayWhatToDo) {
  const std::string text = folder / "model.mlir";
  writeFile(text, load(maskedDecoder()).text());
  auto graph = Graph::load(text, {.trustPaths = true});
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  options.device = kernelDevice();
  auto any = compile(*graph, options);
  ASSERT_TRUE(bool(any)) << any.error().message;
  EXPECT_THAT(whyNot(*any, decoderInputs(1, 4, 2)), HasSubstr("--dim=batch=1"));
}

} // namespace
