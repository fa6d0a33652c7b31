// A small program of matmuls, each by a kernel or by the library.
#pragma once

#include "SamplePlan.h"

namespace fusion::test {

inline KernelPlan libraryMatmul() {
  using Kind = KernelPlan::Parameter::Kind;
  KernelPlan kernel;
  kernel.name = "library_matmul";
  kernel.schedule = "matmul";
  kernel.isLibraryCall = true;
  kernel.matmul = LibraryMatmul{DType::F32, DType::F32, DType::F32, false, true};
  kernel.parameters = {{Kind::Pointer, "const f32 *", "a"},
                       {Kind::Pointer, "const f32 *", "b"},
                       {Kind::Pointer, "f32 *", "c"}};
  for (const char *name : {"m", "n", "k", "batch", "lda", "ldb", "ldc", "strideA", "strideB", "strideC"})
    kernel.parameters.push_back({Kind::Scalar, "i64", name});
  return kernel;
}

/// y = -(x times w transposed), twice: in one kernel of this repository's, or by the library and a kernel
/// after it.
inline ProgramPlan twoMatmuls() {
  const Dim rows = Dim::symbol("rows");
  using Kind = KernelPlan::Parameter::Kind;
  ProgramPlan plan;
  plan.target = "sm_90a";
  plan.buffers = {{BufferPlan::Kind::Input, "x", DType::F32, {rows, 64}, {}},
                  {BufferPlan::Kind::Weight, "w", DType::F32, {64, 64}, floats({64, 64}, -0.5f, 0.01f)},
                  {BufferPlan::Kind::Temporary, "product", DType::F32, {rows, 64}, {}},
                  {BufferPlan::Kind::Temporary, "y", DType::F32, {rows, 64}, {}},
                  {BufferPlan::Kind::Temporary, "product", DType::F32, {rows, 64}, {}},
                  {BufferPlan::Kind::Output, "z", DType::F32, {rows, 64}, {}}};
  plan.inputs = {{"x", DType::F32, {rows, 64}, 0, 0}};
  plan.outputs = {{"z", DType::F32, {rows, 64}, 5, 0}};
  KernelPlan ours, rest;
  ours.name = "ours";
  ours.schedule = "matmul";
  ours.source = R"(KERNEL(64) ours(const f32 *x, const f32 *w, f32 *y) {
  pdl_wait();
  f32 sum = 0.0f;
  for (i64 k = 0; k < 64; ++k)
    sum += x[(i64)block_x() * 64 + k] * w[(i64)thread_x() * 64 + k];
  y[(i64)block_x() * 64 + thread_x()] = -sum;
}
)";
  rest.name = "rest";
  rest.schedule = "pointwise";
  rest.source = R"(KERNEL(64) rest(const f32 *x, f32 *y) {
  pdl_wait();
  y[(i64)block_x() * 64 + thread_x()] = -x[(i64)block_x() * 64 + thread_x()];
}
)";
  ours.blockX = rest.blockX = 64;
  ours.usesPdl = rest.usesPdl = true;
  ours.parameters = {{Kind::Pointer, "const f32 *", "x"},
                     {Kind::Pointer, "const f32 *", "w"},
                     {Kind::Pointer, "f32 *", "y"}};
  rest.parameters = {{Kind::Pointer, "const f32 *", "x"}, {Kind::Pointer, "f32 *", "y"}};
  plan.kernels = {ours, rest, libraryMatmul()};
  auto argument = [](BufferId buffer, bool written) { return PointerArgument{buffer, 0, written}; };
  for (const auto &[from, between, to] :
       {std::array<BufferId, 3>{0, 2, 3}, std::array<BufferId, 3>{3, 4, 5}}) {
    KernelLaunch one, call, after;
    one.arguments = {argument(from, false), argument(1, false), argument(to, true)};
    one.gridX = rows;
    call.kernel = 2;
    call.arguments = {argument(from, false), argument(1, false), argument(between, true)};
    for (const Dim &number :
         {rows, Dim(64), Dim(64), Dim(1), Dim(64), Dim(64), Dim(64), Dim(0), Dim(0), rows * 64})
      call.arguments.push_back(ScalarArgument{number});
    after.kernel = 1;
    after.gridX = rows;
    after.arguments = {argument(between, false), argument(to, true)};
    plan.steps.push_back(
        {Step::Choice::Measurement,
         {{{}, {one}, kernelVariant}, {{{rows, 16, INT64_MAX}}, {call, after}, libraryVariant}}});
  }
  return plan;
}

} // namespace fusion::test
