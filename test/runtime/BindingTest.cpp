#include "SamplePlan.h"

#include "runtime/Binding.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::test;

/// Both ways must find the same.
static std::string problem(const NamedTensors &inputs) {
  const ProgramPlan plan = samplePlan();
  auto values = bindInputs(plan, inputs);
  const ShapeIndex index(plan);
  std::vector<const Tensor *> tensors;
  std::vector<int64_t> numbered;
  Status status = InputBinder(plan, index).bind(inputs, tensors, numbered);
  EXPECT_EQ(bool(status), bool(values));
  if (values && status) {
    for (size_t i = 0; i < numbered.size(); ++i)
      if (values->contains(index.table.symbols()[i]))
        EXPECT_EQ(numbered[i], values->at(index.table.symbols()[i]));
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      EXPECT_EQ(tensors[i], &inputs.at(plan.inputs[i].name));
  }
  if (!values && !status)
    EXPECT_EQ(status.error().message, values.error().message);
  return values ? "" : values.error().message;
}

TEST(Binding, AQuickWayForRunAfterRun) {
  EXPECT_EQ(problem(sampleInputs(3, 8)), "");
  EXPECT_EQ(problem(sampleInputs(0, 4)), "");
  ProgramPlan plan = samplePlan();
  plan.inputs = {plan.inputs[2]}; // n + 1 is solved the long way
  plan.equalities.clear();
  const ShapeIndex index(plan);
  std::vector<const Tensor *> tensors;
  std::vector<int64_t> values;
  NamedTensors inputs = {{"offset", floats({13}, 0)}};
  ASSERT_TRUE(InputBinder(plan, index).bind(inputs, tensors, values));
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], index.table.symbols()[i] == "n" ? 12 : DimTable::unknown);
}

TEST(Binding, SolvesPlainSymbolsAndLinearExpressions) {
  auto values = bindInputs(samplePlan(), sampleInputs(3, 8));
  ASSERT_TRUE(values) << values.error().message;
  EXPECT_EQ(*values, (SymbolValues{{"batch", 3}, {"n", 8}}));

  ProgramPlan plan = samplePlan();
  plan.inputs = {plan.inputs[2]}; // only offset, of n + 1
  plan.inputs[0].buffer = 2;
  auto solved = bindInputs(plan, {{"offset", floats({13}, 0)}});
  ASSERT_TRUE(solved) << solved.error().message;
  EXPECT_EQ(*solved, (SymbolValues{{"n", 12}}));
}

TEST(Binding, NamesTypesAndRanks) {
  NamedTensors inputs = sampleInputs(2, 8);
  inputs.erase("y");
  EXPECT_NE(problem(inputs).find("missing input y (f32 "), std::string::npos) << problem(inputs);
  inputs = sampleInputs(2, 8);
  inputs["z"] = floats({1}, 0);
  EXPECT_EQ(problem(inputs), "unknown input z: expected x, y, offset");
  inputs = sampleInputs(2, 8);
  inputs["x"] = Tensor::zeros(DType::BF16, {2, 8});
  EXPECT_EQ(problem(inputs), "input x is bf16, expected f32");
  inputs = sampleInputs(2, 8);
  inputs["x"] = floats({16}, 0);
  EXPECT_NE(problem(inputs).find("input x has rank 1 (16), expected rank 2"), std::string::npos);
}

TEST(Binding, ContradictionsNameBothInputs) {
  NamedTensors inputs = sampleInputs(2, 8);
  inputs["y"] = floats({2, 12}, 0);
  EXPECT_EQ(problem(inputs), "input y dim 1 is 12 but n is 8 from input x dim 1");
  inputs = sampleInputs(2, 8);
  inputs["offset"] = floats({8}, 0);
  EXPECT_EQ(problem(inputs), "input offset dim 0 is 8 but n + 1 is 9 (n is 8 from input x dim 1)");
}

TEST(Binding, EqualitiesGiveTheirReason) {
  std::string text = problem(sampleInputs(2, 6));
  EXPECT_NE(text.find("layers.0.scale (nn.mul): "), std::string::npos) << text;
  EXPECT_NE(text.find("n is 6 from input x dim 1"), std::string::npos) << text;
}
