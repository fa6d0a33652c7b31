// A small program written by hand: sum = scale * x * w + y + offset[n], in two kernels with symbolic sizes.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Safetensors.h"

#include <filesystem>
#include <unistd.h>

namespace fusion::test {

/// Removed with its contents when the test ends.
struct TemporaryFolder {
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fusion-runtime-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

inline Tensor floats(Shape shape, float first, float step = 1) {
  Tensor tensor = Tensor::uninitialized(DType::F32, std::move(shape));
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.as<float>()[i] = first + step * static_cast<float>(i % 97);
  return tensor;
}

inline PointerArgument &pointer(KernelLaunch &launch, size_t argument) {
  return std::get<PointerArgument>(launch.arguments[argument]);
}
/// Of a step without alternatives.
inline KernelLaunch &onlyLaunch(ProgramPlan &plan, size_t step) {
  return plan.steps[step].alternatives.at(0).launches.at(0);
}

/// Inputs: x and y of batch x n, offset of n + 1. Weights: w of n = 4·k is read as w[i % 4].
inline ProgramPlan samplePlan() {
  Dim batch = Dim::symbol("batch"), n = Dim::symbol("n");
  ProgramPlan plan;
  plan.model = "sample";
  plan.target = "sm_90a";
  DimShape matrix = {batch, n};
  plan.buffers = {
      {BufferPlan::Kind::Input, "x", DType::F32, matrix, {}},
      {BufferPlan::Kind::Input, "y", DType::F32, matrix, {}},
      {BufferPlan::Kind::Input, "offset", DType::F32, {n + 1}, {}},
      {BufferPlan::Kind::Weight, "w", DType::F32, {4}, floats({4}, 1, 0.5f)},
      {BufferPlan::Kind::Temporary, "scaled", DType::F32, matrix, {}},
      {BufferPlan::Kind::Output, "sum", DType::F32, matrix, {}},
  };
  plan.inputs = {{"x", DType::F32, matrix, 0, 0},
                 {"y", DType::F32, matrix, 1, 0},
                 {"offset", DType::F32, {n + 1}, 2, 0}};
  plan.outputs = {{"sum", DType::F32, matrix, 5, 0}, {"same_x", DType::F32, matrix, 0, 0}};

  using Kind = KernelPlan::Parameter::Kind;
  KernelPlan scale;
  scale.name = "scale";
  scale.schedule = "pointwise";
  scale.source = R"(KERNEL(128) scale(const f32 *x, const f32 *w, f32 *out, i64 count) {
  pdl_wait();
  i64 i = (i64)block_x() * 128 + thread_x();
  if (i < count)
    out[i] = 2.0f * x[i] * w[i % 4];
}
)";
  scale.parameters = {{Kind::Pointer, "const f32 *", "x"},
                      {Kind::Pointer, "const f32 *", "w"},
                      {Kind::Pointer, "f32 *", "out"},
                      {Kind::Scalar, "i64", "count"}};
  scale.blockX = 128;
  scale.usesPdl = true;
  KernelPlan add = scale;
  add.name = "add";
  add.source = R"(KERNEL(128) add(const f32 *a, const f32 *b, const f32 *offset, f32 *out, i64 count) {
  pdl_wait();
  i64 i = (i64)block_x() * 128 + thread_x();
  if (i < count)
    out[i] = a[i] + b[i] + offset[0];
}
)";
  add.parameters = {{Kind::Pointer, "const f32 *", "a"},
                    {Kind::Pointer, "const f32 *", "b"},
                    {Kind::Pointer, "const f32 *", "offset"},
                    {Kind::Pointer, "f32 *", "out"},
                    {Kind::Scalar, "i64", "count"}};
  plan.kernels = {scale, add};

  Dim count = batch * n, blocks = count.ceilDiv(128);
  auto buffer = [](BufferId id, bool written = false, Dim offset = 0) {
    return PointerArgument{id, offset, written};
  };
  auto number = [](Dim value) { return ScalarArgument{value}; };
  KernelLaunch first;
  first.kernel = 0;
  first.arguments = {buffer(0), buffer(3), buffer(4, true), number(count)};
  first.gridX = blocks;
  first.location = "layers.0.scale";
  first.ops = {"nn.mul"};
  first.bytesRead = first.bytesWritten = count * 4;
  first.flops = count * 2;
  KernelLaunch second = first;
  second.kernel = 1;
  second.arguments = {buffer(4), buffer(1), buffer(2, false, n * 4), buffer(5, true), number(count)};
  second.location = "layers.0.add";
  second.fusion = "pointwise";
  plan.add(first);
  plan.add(second);
  plan.equalities = {{n.mod(4), Dim(0), "layers.0.scale (nn.mul)"}};
  plan.report = "{\"fused\": true}";
  return plan;
}

/// The sample whose weights are made of two others when they are loaded: 2 * a * b.
inline ProgramPlan preparedPlan() {
  ProgramPlan plan = samplePlan();
  plan.buffers[3] = {BufferPlan::Kind::Prepared, "w", DType::F32, {4}, {}};
  plan.buffers.push_back({BufferPlan::Kind::Weight, "a", DType::F32, {4}, floats({4}, 0.5f, 0.25f)});
  plan.buffers.push_back({BufferPlan::Kind::Weight, "b", DType::F32, {4}, floats({4}, 1, 0)});
  KernelLaunch launch = plan.steps[0].alternatives[0].launches[0];
  launch.arguments = {PointerArgument{6}, PointerArgument{7}, PointerArgument{3, 0, /*written=*/true},
                      ScalarArgument{4}};
  launch.gridX = 1;
  plan.preparation.emplace_back().alternatives.push_back({{}, {launch}});
  return plan;
}

/// The sample with an input `past` of [batch, p] that lies in a buffer of [batch, 8], where the result
/// `present` is too.
inline ProgramPlan cachePlan() {
  ProgramPlan plan = samplePlan();
  Dim batch = Dim::symbol("batch"), p = Dim::symbol("p");
  plan.buffers.push_back({BufferPlan::Kind::Input, "past", DType::F32, {batch, 8}, {}});
  plan.inputs.push_back({"past", DType::F32, {batch, p}, 6, 0, {8, 1}});
  plan.outputs.push_back({"present", DType::F32, {batch, p}, 6, 0, {8, 1}});
  return plan;
}

/// The sample with two kernels for the first launch: up to four elements, and more.
inline ProgramPlan rangedPlan() {
  ProgramPlan plan = samplePlan();
  Dim count = Dim::symbol("batch") * Dim::symbol("n");
  KernelPlan small = plan.kernels[0];
  small.name = "scale_few";
  small.source.replace(small.source.find("scale("), 5, small.name);
  plan.kernels.push_back(small);
  Alternative few = plan.steps[0].alternatives[0];
  few.launches[0].kernel = 2;
  few.when = {{count, 1, 4}};
  plan.steps[0].alternatives[0].when = {{count, 5, INT64_MAX}};
  plan.steps[0].alternatives.insert(plan.steps[0].alternatives.begin(), few);
  return plan;
}

/// x → t0 → … → t4 → sum, where `offset` is [p + 1] and only the last of six launches depends on p: the steps
/// of a decode loop. With `boundary`, that launch is another one from p = boundary on.
inline ProgramPlan stepPlan(int64_t boundary = 0) {
  ProgramPlan plan = samplePlan();
  Dim p = Dim::symbol("p");
  plan.buffers[2].shape = plan.inputs[2].shape = {p + 1};
  KernelLaunch scale = onlyLaunch(plan, 0), add = onlyLaunch(plan, 1);
  plan.steps.resize(1);
  BufferId last = 4;
  for (int i = 0; i < 4; ++i) {
    const auto next = static_cast<BufferId>(plan.buffers.size());
    plan.buffers.push_back(plan.buffers[4]);
    pointer(scale, 0).buffer = last;
    pointer(scale, 2).buffer = last = next;
    plan.add(scale);
  }
  pointer(add, 0).buffer = last;
  pointer(add, 2).byteOffset = p * 4;
  plan.add(add);
  if (boundary > 0)
    plan.steps.back().alternatives = {{{{p + 1, 1, boundary}}, {add}},
                                      {{{p + 1, boundary + 1, INT64_MAX}}, {add}}};
  return plan;
}

inline NamedTensors stepInputs(int64_t batch, int64_t n, int64_t p) {
  return {{"x", floats({batch, n}, 1)}, {"y", floats({batch, n}, -5, 0.25f)}, {"offset", floats({p + 1}, 7)}};
}

/// What stepPlan() computes.
inline std::vector<float> stepResult(const NamedTensors &inputs) {
  std::vector<float> result = inputs.find("x")->second.toFloats(), y = inputs.find("y")->second.toFloats(),
                     offset = inputs.find("offset")->second.toFloats();
  for (size_t i = 0; i < result.size(); ++i) {
    for (int scale = 0; scale < 5; ++scale)
      result[i] *= 2.0f * (1 + 0.5f * static_cast<float>(i % 4));
    result[i] += y[i] + offset.back();
  }
  return result;
}

inline NamedTensors sampleInputs(int64_t batch, int64_t n) {
  return {{"x", floats({batch, n}, 1)}, {"y", floats({batch, n}, -5, 0.25f)}, {"offset", floats({n + 1}, 7)}};
}

/// What the program computes.
inline Tensor sampleResult(const NamedTensors &inputs) {
  const Tensor &x = inputs.find("x")->second, &y = inputs.find("y")->second,
               &offset = inputs.find("offset")->second;
  Tensor result = Tensor::uninitialized(DType::F32, x.shape());
  for (int64_t i = 0; i < x.size(); ++i)
    result.as<float>()[i] = 2.0f * x.as<float>()[i] * (1 + 0.5f * static_cast<float>(i % 4)) +
                            y.as<float>()[i] + offset.as<float>()[offset.size() - 1];
  return result;
}

} // namespace fusion::test
