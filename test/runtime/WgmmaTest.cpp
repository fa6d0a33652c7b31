// Operands of warpgroup products in shared memory, emulated: what the asynchronous proxy may not see yet.
#include "SamplePlan.h"

#include "codegen/target/TargetInfo.h"
#include "runtime/Executor.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::test;

/// 64 x 16 ones times 16 x 8 twos, which threads write to shared memory.
static constexpr const char *productSource = R"(#include "prelude.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
KERNEL(128) product(f32 *result) {
  u16 *tiles = reinterpret_cast<u16 *>(aligned_shared(1024));
  for (u32 i = thread_x(); i < 72u * 64u; i += 128u)
    tiles[i] = i < 64u * 64u ? 0x3f80u : 0x4000u;
  fence_proxy_async();
  barrier();
  f32 sums[1][4];
  warpgroup_arrive();
  wgmma_rows<bf16>(sums, wgmma_descriptor(tiles, 8192), wgmma_descriptor(tiles + 64 * 64, 1024), false);
  warpgroup_commit();
  warpgroup_wait<0>();
  for (u32 i = 0; i < 4u; ++i)
    result[4u * thread_x() + i] = sums[0][i];
}
)";

static Result<NamedTensors> run(const std::string &source) {
  ProgramPlan plan;
  plan.model = "product";
  plan.target = "sm_90a";
  plan.buffers = {{BufferPlan::Kind::Output, "result", DType::F32, {512}, {}}};
  plan.outputs = {{"result", DType::F32, {512}, 0, 0}};
  KernelPlan kernel;
  kernel.name = "product";
  kernel.schedule = "matmul";
  kernel.source = source;
  kernel.parameters = {{KernelPlan::Parameter::Kind::Pointer, "f32 *", "result"}};
  kernel.blockX = 128;
  kernel.dynamicSharedBytes = 72 * 128 + 1024;
  kernel.features = static_cast<uint32_t>(Feature::Wgmma);
  plan.kernels = {kernel};
  KernelLaunch launch;
  launch.arguments = {PointerArgument{0, 0, /*written=*/true}};
  launch.location = "product";
  plan.add(launch);
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  auto executor = Executor::create(std::move(plan), options);
  return executor ? (*executor)->run({}) : executor.error();
}

TEST(Wgmma, ReadsWhatThreadsHavePublished) {
  auto outputs = run(productSource);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at("result").toFloats(), std::vector<float>(512, 32.f));
}

TEST(Wgmma, AMissingFenceIsFound) {
  std::string source = productSource;
  const std::string fence = "fence_proxy_async();";
  source.erase(source.find(fence), fence.size());
  auto outputs = run(source);
  ASSERT_FALSE(outputs);
  EXPECT_NE(outputs.error().message.find("wgmma: reads what a thread has written without fence_proxy_async()"),
            std::string::npos)
      << outputs.error().message;
}
