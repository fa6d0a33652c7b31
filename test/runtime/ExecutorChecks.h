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
  onlyLaunch(plan, 0).arguments[0] = onlyLaunch(plan, 0).arguments[2] =
      PointerArgument{0, 0, /*written=*/true};
  plan.steps.resize(1);
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

inline void checkCache(Executor &executor) {
  NamedTensors inputs = sampleInputs(2, 8);
  auto run = [&](const Tensor &past) -> Tensor {
    inputs["past"] = past;
    auto outputs = executor.run(inputs);
    EXPECT_TRUE(outputs) << outputs.error().message;
    return outputs ? outputs->at("present") : Tensor();
  };
  auto values = [&](const Tensor &tensor) {
    auto host = executor.fetch({{"tensor", tensor}});
    EXPECT_TRUE(host) << host.error().message;
    return host ? host->at("tensor").toFloats() : std::vector<float>();
  };
  Tensor past = floats({2, 5}, 3);
  Tensor first = run(past);
  EXPECT_EQ(first.strides(), (Shape{8, 1}));
  EXPECT_NE(first.data(), past.data());
  EXPECT_EQ(values(first), past.toFloats());
  // The view comes back: no copy, however often and at whatever length.
  Tensor again = run(first);
  EXPECT_EQ(again.data(), first.data());
  Tensor shorter =
      run(Tensor::wrapStrided(DType::F32, {2, 3}, {8, 1}, first.data(), first.storage(), first.device()));
  EXPECT_EQ(shorter.data(), first.data());
  EXPECT_EQ(values(shorter), (std::vector<float>{3, 4, 5, 8, 9, 10}));
  // Another past while the first is held: another buffer. Free ones are used again.
  Tensor other = run(floats({2, 8}, 50));
  EXPECT_NE(other.data(), first.data());
  EXPECT_EQ(values(first), past.toFloats());
  EXPECT_EQ(values(other), floats({2, 8}, 50).toFloats());
  const void *place = other.data();
  other = Tensor();
  EXPECT_EQ(run(floats({2, 0}, 0)).data(), place);
  // A view with other gaps is copied, and so is a view that is no cache here.
  Tensor wide = floats({2, 16}, 1);
  Tensor corner = run(Tensor::wrapStrided(DType::F32, {2, 4}, {16, 1}, wide.data(), wide.storage()));
  EXPECT_EQ(values(corner), (std::vector<float>{1, 2, 3, 4, 17, 18, 19, 20}));
  inputs["past"] = past;
  inputs["x"] = Tensor::wrapStrided(DType::F32, {2, 8}, {16, 1}, wide.data(), wide.storage());
  auto outputs = executor.run(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  inputs["x"] = inputs["x"].dense();
  EXPECT_EQ(values(outputs->at("sum")), sampleResult(inputs).toFloats());
  inputs["past"] = floats({2, 9}, 0);
  auto full = executor.run(inputs);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::BadInput);
  EXPECT_EQ(full.error().message,
            "output present: dim 1 needs 9 positions, the cache was compiled for a capacity of 8");
}

/// Nobody writes `sum`: poisoned, it must be NaN.
inline ProgramPlan unwrittenPlan() {
  ProgramPlan plan = samplePlan();
  plan.steps.resize(1);
  return plan;
}

} // namespace fusion::test
