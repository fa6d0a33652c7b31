// A small program whose kernel works on tiles by TMA, and has workspace of both kinds.
#pragma once

#include "SamplePlan.h"

#include "codegen/target/TargetInfo.h"
#include "runtime/Executor.h"

#include <gtest/gtest.h>

#include <numeric>

namespace fusion::test {

/// twice = 2 x, a tile of 64 x 32 a block: loaded with a swizzle, stored without; total = the sum of all x,
/// which the last block takes from workspace.
inline constexpr const char *tileSource = R"(#include "prelude.cuh"
#include "tma.cuh"
KERNEL(128) double_tiles(const GRID_CONSTANT TensorMap from, const GRID_CONSTANT TensorMap to, f32 *sum, u32 *finished,
                         f32 *total) {
  u8 *tiles = aligned_shared(1024);
  f32 *doubled = reinterpret_cast<f32 *>(tiles + 8192);
  u64 *full = reinterpret_cast<u64 *>(tiles + 16384);
  const i32 column = 32 * (i32)block_x(), row = 64 * (i32)block_y();
  if (thread_x() == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  barrier();
  pdl_wait();
  if (thread_x() == 0) {
    mbarrier_arrive_expect(full, 8192);
    tma_load_tile(tiles, from, full, column, row);
  }
  mbarrier_wait(full, 0);
  f32 mine = 0.f;
  for (u32 i = thread_x(); i < 2048u; i += 128u) {
    const f32 value = load(reinterpret_cast<const f32 *>(tiles + (4u * i ^ (i / 32u % 8u) << 4)));
    store(doubled + i, 2.f * value);
    mine += value;
  }
  atomic_add(sum, mine);
  fence_proxy_async();
  barrier();
  if (thread_x() == 0) {
    tma_store_tile(to, doubled, column, row);
    tma_store_commit();
    tma_store_wait<0>();
    fence_device();
    if (atomic_add(finished, 1u) + 1u == grid_dim_x() * grid_dim_y()) {
      total[0] = atomic_add(sum, 0.f);
      finished[0] = 0u;
    }
  }
}
)";

inline ProgramPlan tilePlan(std::string source = tileSource) {
  using Kind = KernelPlan::Parameter::Kind;
  const Dim rows = Dim::symbol("rows"), columns = Dim::symbol("columns");
  ProgramPlan plan;
  plan.model = "tiles";
  plan.target = "sm_90a";
  plan.buffers = {{BufferPlan::Kind::Input, "x", DType::F32, {rows, columns}, {}},
                  {BufferPlan::Kind::Output, "twice", DType::F32, {rows, columns}, {}},
                  {BufferPlan::Kind::Output, "total", DType::F32, {1}, {}}};
  plan.inputs = {{"x", DType::F32, {rows, columns}, 0, 0}};
  plan.outputs = {{"twice", DType::F32, {rows, columns}, 1, 0}, {"total", DType::F32, {1}, 2, 0}};
  KernelPlan kernel;
  kernel.name = "double_tiles";
  kernel.schedule = "pointwise";
  kernel.source = std::move(source);
  kernel.parameters = {{Kind::TensorMap, "const GRID_CONSTANT TensorMap", "from"},
                       {Kind::TensorMap, "const GRID_CONSTANT TensorMap", "to"},
                       {Kind::Workspace, "f32 *", "sum"},
                       {Kind::Workspace, "u32 *", "finished"},
                       {Kind::Pointer, "f32 *", "total"}};
  kernel.blockX = 128;
  kernel.dynamicSharedBytes = 16384 + 16 + 1024;
  kernel.usesPdl = true;
  kernel.features = static_cast<uint32_t>(Feature::Tma);
  plan.kernels = {kernel};
  TensorMapArgument from{0, 0, false, DType::F32, {rows, columns}, {columns, 1}, {64, 32}}, to = from;
  from.swizzle = TensorMapArgument::Swizzle::Bytes128;
  from.l2Promotion = TensorMapArgument::L2Promotion::Bytes128;
  to.buffer = 1;
  to.written = true;
  KernelLaunch launch;
  launch.arguments = {from, to, WorkspaceArgument{4, WorkspaceArgument::Contents::Zeroed},
                      WorkspaceArgument{4, WorkspaceArgument::Contents::KeptZero},
                      PointerArgument{2, 0, /*written=*/true}};
  launch.gridX = columns.ceilDiv(32);
  launch.gridY = rows.ceilDiv(64);
  launch.location = "layers.0.double";
  plan.add(launch);
  return plan;
}

/// Whole numbers, so that every order of adding them gives the same sum.
inline Tensor wholeNumbers(int64_t rows, int64_t columns, int64_t first) {
  Tensor tensor = Tensor::uninitialized(DType::F32, {rows, columns});
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.as<float>()[i] = static_cast<float>((first + i * 7) % 113 - 50);
  return tensor;
}

/// Several shapes whose tiles reach beyond the tensor, each often enough that graphs are recorded and
/// replayed.
inline void checkTiles(Executor &executor) {
  for (int round = 0; round < 4; ++round)
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{70, 36}, {1, 4}, {64, 32}, {129, 100}}) {
      const Tensor x = wholeNumbers(rows, columns, round);
      auto outputs = executor.run({{"x", x}});
      ASSERT_TRUE(outputs) << outputs.error().message;
      std::vector<float> expected = x.toFloats();
      EXPECT_EQ(outputs->at("total").toFloats()[0], std::accumulate(expected.begin(), expected.end(), 0.f));
      for (float &value : expected)
        value *= 2;
      EXPECT_EQ(outputs->at("twice").toFloats(), expected) << rows << " x " << columns << ", round " << round;
    }
}

} // namespace fusion::test
