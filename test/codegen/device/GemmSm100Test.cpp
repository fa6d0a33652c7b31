// gemm_sm100.cuh: what it computes in any order of its threads, and that emulation misses each of its waits,
// fences and commits where it is taken out.
#include "codegen/device/tensor_map_abi.h"
#include "codegen/target/TargetInfo.h"
#include "ir/base/DType.h"
#include "test/codegen/device/Emulation.h"

#include <cstdlib>
#include <fstream>
#include <random>

using namespace fusion;
using namespace fusion::samples;

namespace {

constexpr size_t m = 300, n = 128; // six tiles, by one block, in a ring of three steps of 64 along k

KernelPlan tilesOf(const std::string &text, size_t k) {
  KernelPlan plan;
  plan.name = "tiles";
  plan.schedule = "sample";
  plan.blockX = 320;
  using Kind = KernelPlan::Parameter::Kind;
  plan.parameters = {{Kind::Pointer, "bf16 *", "c"},
                     {Kind::TensorMap, "const GRID_CONSTANT TensorMap", "a"},
                     {Kind::TensorMap, "const GRID_CONSTANT TensorMap", "b"}};
  plan.dynamicSharedBytes = 3 * 128 * (128 + 64) + 1024;
  plan.features = static_cast<uint32_t>(Feature::Tcgen05 | Feature::Tma);
  plan.source = text + "\nconstexpr i64 K = " + std::to_string(k) + R"(;
struct Config : GemmConfig {
  using type = bf16;
  using result = bf16;
  static constexpr int tile_n = 64, stages = 3, vector = 8;
  static constexpr bool k_major = true, a_batched = false, b_batched = false;
};
KERNEL(320) tiles(bf16 *c, const GRID_CONSTANT TensorMap a, const GRID_CONSTANT TensorMap b) {
  gemm_sm100<Config>(Sizes{300, 128, K}, 1, Unscaled{}, StoreRounded<bf16>{{c}}, a, b);
}
)";
  return plan;
}

/// Rows of k elements, in boxes of `box` rows.
fusion_emulation::TensorMap rowsOf(std::vector<uint16_t> &data, size_t rows, size_t k, unsigned box) {
  fusion_emulation::TensorMap map = {};
  map.base = reinterpret_cast<unsigned char *>(data.data());
  map.rank = 3;
  map.elementBytes = 2;
  map.swizzle = 3;
  const size_t shape[] = {k, rows, 1}, strides[] = {2, 2 * k, 2 * k};
  const unsigned boxes[] = {64, box, 1};
  for (unsigned dim = 0; dim < 3; ++dim) {
    map.shape[dim] = shape[dim];
    map.strides[dim] = strides[dim];
    map.box[dim] = static_cast<unsigned short>(boxes[dim]);
    map.elementStrides[dim] = 1;
  }
  return map;
}

/// What is wrong; empty: nothing.
std::string faultOf(const std::string &text, size_t k) {
  const KernelPlan plan = tilesOf(text, k);
  std::mt19937 random(3);
  auto made = [&](size_t rows) {
    std::vector<uint16_t> values(rows * k);
    for (uint16_t &value : values)
      value = f32ToBF16(std::uniform_real_distribution<float>(-1, 1)(random));
    return values;
  };
  std::vector<uint16_t> a = made(m), b = made(n), c(m * n);
  fusion_emulation::TensorMap ofA = rowsOf(a, m, k, 128), ofB = rowsOf(b, n, k, 64);
  auto kernel = compiled(plan);
  if (!kernel)
    return "does not compile";
  uint16_t *to = c.data();
  void *arguments[] = {&to, &ofA, &ofB};
  if (Status status = kernel->launch(1, 1, 1, arguments); !status)
    return messageOf(status);
  for (size_t row = 0; row < m; ++row)
    for (size_t column = 0; column < n; ++column) {
      float sum = 0;
      for (size_t i = 0; i < k; ++i)
        sum += bf16ToF32(a[row * k + i]) * bf16ToF32(b[column * k + i]);
      const float got = bf16ToF32(c[row * n + column]);
      if (!(std::abs(got - sum) <= 0.01f * std::max(1.f, std::abs(sum))))
        return "wrong numbers";
    }
  return "";
}

/// The template, with one part of it replaced.
std::string changed(const std::string &from, const std::string &to) {
  std::ifstream file(std::string(FUSION_SOURCE_DIR) + "/codegen/device/gemm_sm100.cuh");
  std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string begin = "#pragma once\n";
  EXPECT_EQ(text.rfind(begin, 0), 0u);
  text.erase(0, begin.size());
  const size_t includes = text.find("#include");
  EXPECT_NE(includes, std::string::npos);
  text.erase(0, includes); // those of the kernel are its first lines
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(GemmSm100, InAnyOrderOfThreads) {
  const std::string text = "#include \"gemm_sm100.cuh\"";
  for (size_t k : {64, 320})
    for (int seed = 0; seed < 4; ++seed) {
      setenv("FUSION_EMULATE_ORDER", std::to_string(seed).c_str(), 1);
      EXPECT_EQ(faultOf(text, k), "") << k << " in order " << seed;
      unsetenv("FUSION_EMULATE_ORDER");
    }
  test::checkSpills(tilesOf(text, 320), test::Targets::All);
}

TEST(GemmSm100, NothingCanBeTakenOut) {
  EXPECT_EQ(faultOf(changed("tcgen05_wait_loads();", "tcgen05_wait_loads(); "), 64), "");
  const std::pair<const char *, const char *> parts[] = {
      {"    mbarrier_wait(ring.drained + sums.stage, sums.parity ^ 1);\n", "tcgen05_"},
      {"      mbarrier_wait(ring.full + at.stage, at.parity);\n", ""},
      {"      tcgen05_commit(ring.empty + at.stage);\n", "wait at an mbarrier"},
      {"    tcgen05_commit(ring.multiplied + sums.stage);\n", "wait at an mbarrier"},
      {"      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);\n", "arrives at an mbarrier"},
      {"      mbarrier_wait(multiplied + sums.stage, sums.parity);\n", ""},
      {"      tcgen05_fence_after_sync();\n      warp_barrier();", "tcgen05_fence_after_sync() is missing"},
      {"    tcgen05_wait_loads();\n", ""},
      {"    tcgen05_fence_before_sync();\n    warp_barrier();\n", "tcgen05_fence_before_sync()"},
      {"    tcgen05_free(memory, Block::allocated);\n", "ends without tcgen05_free()"}};
  for (const auto &[part, message] : parts) { // one step a tile, so that tiles follow each other fast
    const std::string fault = faultOf(changed(part, "    ;\n"), 64);
    EXPECT_NE(fault, "") << "without " << part;
    EXPECT_NE(fault.find(message), std::string::npos) << "without " << part << ": " << fault;
  }
}

} // namespace
