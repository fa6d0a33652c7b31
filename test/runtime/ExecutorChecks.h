// What every device must do with the sample program.
#pragma once

#include "SamplePlan.h"

#include "runtime/Executor.h"

#include <gtest/gtest.h>

namespace fusion::test {

inline void expectSum(const Result<NamedTensors> &outputs, const NamedTensors &inputs) {
  ASSERT_TRUE(outputs) << outputs.error().message;
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_EQ(outputs->find("sum")->second.shape(), inputs.find("x")->second.shape());
  EXPECT_EQ(outputs->find("sum")->second.toFloats(), sampleResult(inputs).toFloats());
  EXPECT_EQ(outputs->find("same_x")->second.toFloats(), inputs.find("x")->second.toFloats());
}

/// Several shapes, several runs each (so that recordings are made and replayed), results kept throughout.
inline void checkShapes(Executor &executor) {
  std::vector<std::pair<NamedTensors, NamedTensors>> kept;
  for (int round = 0; round < 4; ++round)
    for (auto [batch, n] : {std::pair<int64_t, int64_t>{1, 4}, {3, 100}, {2, 1024}, {0, 8}, {1, 0}}) {
      NamedTensors inputs = sampleInputs(batch, n);
      if (inputs["x"].size() > 0)
        inputs["x"].as<float>()[0] = static_cast<float>(round);
      auto outputs = executor.run(inputs);
      expectSum(outputs, inputs);
      if (outputs)
        kept.push_back({inputs, *outputs});
    }
  for (auto &[inputs, outputs] : kept)
    expectSum(outputs, inputs);
}

/// A kernel that writes its input: the caller's tensor must stay as it was.
inline ProgramPlan inPlacePlan() {
  ProgramPlan plan = samplePlan();
  plan.launches[0].arguments[0] = {0, 0, 0, true};
  plan.launches[0].arguments[2] = {0, 0, 0, true};
  plan.launches.resize(1);
  plan.outputs = {{"scaled_x", DType::F32, plan.inputs[0].shape, 0, 0}};
  return plan;
}

inline void checkInPlace(Executor &executor) {
  for (int round = 0; round < 3; ++round) {
    NamedTensors inputs = sampleInputs(2, 8);
    Tensor before = inputs["x"].clone();
    auto outputs = executor.run(inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ(inputs["x"].toFloats(), before.toFloats());
    EXPECT_EQ((*outputs)["scaled_x"].as<float>()[1], 2.0f * before.as<float>()[1] * 1.5f);
  }
}

/// Nobody writes `sum`: poisoned, it must be NaN.
inline ProgramPlan unwrittenPlan() {
  ProgramPlan plan = samplePlan();
  plan.launches.resize(1);
  return plan;
}

} // namespace fusion::test
