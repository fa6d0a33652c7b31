// Graphs of which an input decides which branch runs, as merged decoders are.
#include "VariantsCase.h"

#include <gmock/gmock.h>

#include <thread>

using namespace fusion;
using namespace fusion::test;
using testing::AllOf;
using testing::HasSubstr;

namespace {
/// A decoder in each branch of an If, with the past and without, as optimum merges them. The condition is
/// `use_cache_branch` [1] by way of what exporters put there.
ModelBuilder mergedDecoder() {
  ModelBuilder model;
  model.input("use_cache_branch", onnx::proto::TensorProto::BOOL, {"1"});
  for (const char *name : {"q", "k"})
    model.input(name, f32, {"batch", "2", "sequence", "8"});
  model.input("past", f32, {"batch", "2", "past", "8"}).output("y").output("present").weight("w", {8, 8});
  model.node("Not", {"use_cache_branch"}, {"first"});
  ModelBuilder::attribute(model.node("Cast", {"first"}, {"number"}), "to", int64_t(7));
  model.node("Squeeze", {"number"}, {"scalar"});
  ModelBuilder::attribute(model.node("Cast", {"scalar"}, {"condition"}), "to", int64_t(9));
  auto &choice = model.node("If", {"condition"}, {"y", "present"});
  for (const bool hasPast : {false, true}) {
    auto &branch = *choice.add_attribute();
    branch.set_name(hasPast ? "else_branch" : "then_branch");
    branch.set_type(onnx::proto::AttributeProto::GRAPH);
    auto &graph = *branch.mutable_g();
    auto node = [&](const std::string &op, const std::vector<std::string> &inputs,
                    const std::string &output) -> auto & {
      return ModelBuilder::fill(*graph.add_node(), op, inputs, {output});
    };
    if (hasPast)
      ModelBuilder::attribute(node("Concat", {"past", "k"}, "keys"), "axis", int64_t(2));
    else
      node("Identity", {"k"}, "keys");
    ModelBuilder::attribute(node("Transpose", {"keys"}, "turned"), "perm", std::vector<int64_t>{0, 1, 3, 2});
    node("MatMul", {"q", "turned"}, "scores");
    ModelBuilder::attribute(node("Softmax", {"scores"}, "p"), "axis", int64_t(-1));
    node("MatMul", {"p", "keys"}, "mixed");
    node("MatMul", {"mixed", "w"}, "out");
    for (const char *output : {"out", "keys"})
      graph.add_output()->set_name(output);
  }
  return model;
}

Tensor flag(bool value) {
  const auto byte = static_cast<uint8_t>(value);
  return Tensor::of<uint8_t>(DType::Bool, {1}, std::span<const uint8_t>(&byte, 1));
}

NamedTensors mergedInputs(bool usesCache, int64_t batch, int64_t sequence, int64_t past) {
  NamedTensors inputs = decoderInputs(batch, sequence, past);
  inputs.erase("mask");
  inputs["use_cache_branch"] = flag(usesCache);
  return inputs;
}

TEST_F(Variants, AMergedDecoderIsBothOfIts) {
  const Graph merged = load(mergedDecoder());
  ASSERT_EQ(merged.inputs().size(), 4u);
  EXPECT_EQ(merged.inputs()[0].name, "use_cache_branch");
  EXPECT_EQ(merged.inputs()[0].type, DType::Bool);
  ASSERT_EQ(merged.outputs().size(), 2u);
  // What holds for both: the caches of the one are longer.
  EXPECT_EQ(shapeString(merged.outputs()[0].shape), "[batch, 2, sequence, 8]");
  EXPECT_EQ(shapeString(merged.outputs()[1].shape), "[batch, 2, present_2, 8]");
  for (RunOn device : {RunOn::Cpu, kernelDevice()}) {
    options.device = device;
    auto any = compile(merged, options);
    ASSERT_TRUE(bool(any)) << any.error().message;
    EXPECT_EQ(any->inputs().size(), 4u);
    for (auto [usesCache, sequence, past] :
         {std::tuple(false, 5, 1), {true, 1, 5}, {true, 2, 6}, {false, 3, 0}}) {
      SCOPED_TRACE(testing::Message() << usesCache << " " << sequence << " after " << past);
      NamedTensors inputs = mergedInputs(usesCache, 2, sequence, past);
      const NamedTensors outputs = run(*any, inputs);
      EXPECT_EQ(outputs.at("present").shape(), (Shape{2, 2, usesCache ? past + sequence : sequence, 8}));
      LoadOptions known;
      known.constants["use_cache_branch"] = flag(usesCache);
      Program one = program(mergedDecoder(), RunOn::Cpu, known);
      inputs.erase("use_cache_branch");
      expectSame(outputs, run(one, inputs));
    }
    EXPECT_EQ(any->statistics().variants, 2u);
  }
}

TEST_F(Variants, WhatDecidesIsLookedAt) {
  Program any = program(mergedDecoder(), kernelDevice());
  NamedTensors inputs = mergedInputs(true, 2, 1, 3);
  inputs.erase("use_cache_branch");
  EXPECT_EQ(whyNot(any, inputs), "missing input use_cache_branch (i1 [1])");
  inputs["use_cache_branch"] = Tensor::zeros(DType::F32, {1});
  EXPECT_EQ(whyNot(any, inputs), "input use_cache_branch is f32, expected i1");
  inputs["use_cache_branch"] = Tensor::zeros(DType::Bool, {2});
  EXPECT_THAT(whyNot(any, inputs), HasSubstr("input use_cache_branch dim 0 is 2, expected 1"));
  EXPECT_EQ(any.statistics().variants, 1u); // that with the past is compiled at once
}

/// Who needs one graph before it runs is told how to say which.
TEST_F(Variants, OneGraphIsAskedForWhereNothingRuns) {
  const Graph merged = load(mergedDecoder());
  const std::string says = "input 'use_cache_branch' decides which of two graphs runs: say its value before "
                           "compiling: --constant=use_cache_branch=1";
  EXPECT_THAT(explain(merged, options, Emit::Plan).error().message, HasSubstr(says));
  EXPECT_THAT(writeBundle(merged, options, folder / "bundle").error().message, HasSubstr(says));
  EXPECT_THAT(verifyFusions(merged, options).error().message, HasSubstr(says));
  options.tensorParallel = 2;
  options.device = RunOn::Cpu;
  EXPECT_THAT(compile(merged, options).error().message, HasSubstr(says));
  EXPECT_THAT(merged.text(), HasSubstr("// where use_cache_branch is 1"));
}

/// As Flax hands `deterministic` to its modules: Dropout is one of inference where it is true.
TEST_F(Variants, TheRefusedOneOfTwoIsAnErrorOfItsRuns) {
  ModelBuilder model;
  model.input("x", f32, {"batch", "4"}).input("deterministic", onnx::proto::TensorProto::BOOL, {});
  auto *ratio = model.graph().add_initializer();
  ratio->set_name("ratio");
  ratio->set_data_type(f32);
  ratio->add_float_data(0.5F);
  model.output("y").node("Not", {"deterministic"}, {"training"});
  model.node("Dropout", {"x", "ratio", "training"}, {"kept"});
  model.node("Relu", {"kept"}, {"y"});
  const Graph graph = load(model);
  ASSERT_EQ(graph.inputs().size(), 2u);
  EXPECT_EQ(graph.inputs()[1].name, "deterministic");
  EXPECT_THAT(graph.text(), HasSubstr("training mode is not supported (where deterministic is 0)"));
  const auto given = [](bool value) {
    const auto byte = static_cast<uint8_t>(value);
    return Tensor::of<uint8_t>(DType::Bool, {}, std::span<const uint8_t>(&byte, 1));
  };
  for (RunOn device : {RunOn::Cpu, kernelDevice()}) {
    Program any = program(model, device);
    const NamedTensors outputs =
        run(any, {{"x", Tensor::zeros(DType::F32, {2, 4})}, {"deterministic", given(true)}});
    EXPECT_EQ(outputs.at("y").shape(), (Shape{2, 4}));
    EXPECT_THAT(whyNot(any, {{"x", Tensor::zeros(DType::F32, {2, 4})}, {"deterministic", given(false)}}),
                HasSubstr("training mode is not supported (where deterministic is 0)"));
  }
}

/// Caches in place are those of the branch that has a past; the other has nothing to extend.
TEST_F(Variants, CachesInPlaceOfAMergedDecoder) {
  Program plain = program(mergedDecoder(), RunOn::Cpu);
  options.kvCapacity = 16;
  Program inPlace = program(mergedDecoder(), kernelDevice());
  ASSERT_EQ(inPlace.caches().size(), 1u);
  NamedTensors views = {{"past", Tensor::zeros(DType::F32, {1, 2, 0, 8})}}, copied = views;
  for (int64_t past = 0; int64_t sequence : {4, 1, 1}) {
    NamedTensors inputs = mergedInputs(true, 1, sequence, past), others = inputs;
    inputs["past"] = views["past"];
    others["past"] = copied["past"];
    auto outputs = inPlace.run(inputs);
    ASSERT_TRUE(bool(outputs)) << outputs.error().message;
    const NamedTensors expected = run(plain, others);
    expectSame(*inPlace.fetch(*outputs), expected);
    views["past"] = outputs->at("present");
    copied["past"] = expected.at("present");
    past += sequence;
  }
  EXPECT_THAT(whyNot(inPlace, mergedInputs(false, 1, 4, 0)),
              AllOf(HasSubstr("a capacity for key/value caches, but no input is extended"),
                    HasSubstr("(where use_cache_branch is 0)")));
}

/// Both facts at once: the branch, and a dim that is 1.
TEST_F(Variants, ABranchAndADimThatIs1) {
  ModelBuilder model = mergedDecoder();
  model.input("bias", f32, {"rows", "8"}).output("z");
  model.node("Add", {"y", "bias"}, {"z"});
  for (RunOn device : {RunOn::Cpu, kernelDevice()}) {
    Program any = program(model, device);
    for (auto [usesCache, rows] : {std::pair(true, 1), {false, 1}, {false, 3}, {true, 3}, {true, 1}}) {
      SCOPED_TRACE(testing::Message() << usesCache << " " << rows);
      NamedTensors inputs = mergedInputs(usesCache, 2, 3, 4);
      inputs["bias"] = normal({rows, 8}, 9);
      const NamedTensors outputs = run(any, inputs);
      const std::vector<float> y = outputs.at("y").toFloats(), z = outputs.at("z").toFloats(),
                               bias = inputs["bias"].toFloats();
      for (size_t i = 0; i < z.size(); ++i)
        ASSERT_FLOAT_EQ(z[i], y[i] + bias[rows == 1 ? i % 8 : i % 24]);
    }
    EXPECT_EQ(any.statistics().variants, 4u);
  }
}

TEST_F(Variants, ThreadsShareTheBranches) {
  Program any = program(mergedDecoder(), kernelDevice());
  std::vector<NamedTensors> inputs, expected;
  for (auto [usesCache, sequence] : {std::pair(false, 4), {true, 1}, {false, 2}, {true, 3}}) {
    inputs.push_back(mergedInputs(usesCache, 2, sequence, 3));
    Program alone = program(mergedDecoder(), RunOn::Cpu);
    expected.push_back(run(alone, inputs.back()));
  }
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 4; ++first)
    threads.emplace_back([&, first] {
      for (size_t i = 0; i < 8; ++i)
        expectSame(run(any, inputs[(first + i) % 4]), expected[(first + i) % 4]);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(any.statistics().variants, 2u);
}

/// Two inputs that decide, of which one matters in one branch only.
TEST_F(Variants, SeveralInputsDecide) {
  ModelBuilder model = mergedDecoder();
  model.input("turn", onnx::proto::TensorProto::BOOL, {}).output("z");
  auto &choice = model.node("If", {"turn"}, {"z"});
  for (const bool turns : {false, true}) {
    auto &branch = *choice.add_attribute();
    branch.set_name(turns ? "then_branch" : "else_branch");
    branch.set_type(onnx::proto::AttributeProto::GRAPH);
    auto &graph = *branch.mutable_g();
    if (turns)
      ModelBuilder::attribute(ModelBuilder::fill(*graph.add_node(), "Transpose", {"y"}, {"r"}), "perm",
                              std::vector<int64_t>{3, 0, 1, 2});
    else
      ModelBuilder::fill(*graph.add_node(), "MatMul", {"y", "w"}, {"r"});
    graph.add_output()->set_name("r");
  }
  Program any = program(model, RunOn::Cpu);
  ASSERT_EQ(any.inputs().size(), 5u);
  for (auto [usesCache, turns] : {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
    NamedTensors inputs = mergedInputs(usesCache, 2, 3, 4);
    inputs["turn"] = flag(turns).reshaped({});
    const NamedTensors outputs = run(any, inputs);
    EXPECT_EQ(outputs.at("z").shape(), turns ? (Shape{8, 2, 2, 3}) : (Shape{2, 2, 3, 8}));
    EXPECT_EQ(outputs.at("present").shape()[2], usesCache ? 7 : 3);
  }
  EXPECT_EQ(any.statistics().variants, 4u);
}

} // namespace
