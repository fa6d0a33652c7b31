// tcgen05, emulated: products by the descriptors' bits against loops of the host, and what a device leaves
// undefined is an error.
#include "codegen/target/TargetInfo.h"
#include "ir/base/DType.h"
#include "test/codegen/device/Emulation.h"

#include <cstring>
#include <random>

using namespace fusion;
using namespace fusion::samples;

namespace {

/// C = A B of 128 x n x 128 bytes along k, each of 16-byte vectors that threads write as TMA swizzles them.
struct Product {
  std::string a = "bf16", b = "bf16";
  int n = 64;
  bool kMajor = true; ///< of B; else [k][n] in panels of 64
};

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string textOf(const Product &p) {
  std::string text = R"(
  u8 *tile_a = aligned_shared(1024), *tile_b = tile_a + 128 * 128;
  SHARED(u64, done, 1);
  SHARED(u32, address, 1);
  auto copy = [](u8 *to, const u8 *from, int rows, i64 pitch) { // rows of 128 bytes
    for (int i = (int)thread_x(); i < rows * 8; i += 128)
      store_vec<u8, 16>(to + i / 8 * 128 + (i % 8 ^ i / 8 % 8) * 16,
                        load_vec<u8, 16>(from + i / 8 * pitch + i % 8 * 16));
  };
  copy(tile_a, a, 128, 128);
  if (K_MAJOR)
    copy(tile_b, b, N, 128);
  else
    for (int panel = 0; panel < N / 64; ++panel)
      copy(tile_b + panel * 64 * 128, b + panel * 128, 64, N * 2);
  fence_proxy_async();
  if (thread_x() == 0) {
    mbarrier_init(done, 1);
    fence_mbarrier_init();
  }
  if (thread_x() / 32 == 2) {
    tcgen05_allocate(address, COLUMNS);
    tcgen05_relinquish();
  }
  barrier();
  const u32 memory = *address;
  if (thread_x() == 5) {
    const u32 from_a = tcgen05_address(tile_a), from_b = tcgen05_address(tile_b);
    for (u32 k = 0; k < 4; ++k)
      tcgen05_multiply<TA>(memory, tcgen05_descriptor(from_a + 32 * k, 16),
                           tcgen05_descriptor(from_b + k * (K_MAJOR ? 32 : 16 * 128),
                                              K_MAJOR ? 16 : 64 * 128),
                           tcgen05_instruction<TA, TB>(N, K_MAJOR), k > 0);
    tcgen05_commit(done);
  }
  warp_barrier();
  mbarrier_wait(done, 0);
  tcgen05_fence_after_sync();
  warp_barrier();
  const u32 warp = thread_x() / 32;
  for (u32 column = 0; column < N; column += 32)
    for (u32 half = 0; half < 2; ++half) {
      u32 sums[4][4];
      tcgen05_load(sums, memory + (32 * warp + 16 * half << 16) + column);
      tcgen05_wait_loads();
      for (u32 i = 0; i < 16; ++i) {
        const u32 row = 32 * warp + 16 * half + lane_id() / 4 + i % 4 / 2 * 8;
        c[row * N + column + i / 4 * 8 + lane_id() % 4 * 2 + i % 2] = sums[i / 4][i % 4];
      }
    }
  tcgen05_fence_before_sync();
  barrier();
  tcgen05_fence_after_sync();
  if (warp == 2)
    tcgen05_free(memory, COLUMNS);
)";
  for (auto [from, to] : {std::pair(std::string("TA"), p.a),
                          {"TB", p.b},
                          {"K_MAJOR", p.kMajor ? "true" : "false"},
                          {"COLUMNS", p.n <= 32    ? "32"
                                      : p.n <= 64  ? "64"
                                      : p.n <= 128 ? "128"
                                                   : "256"}})
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  return "constexpr int N = " + std::to_string(p.n) + ";\n" + text;
}

KernelPlan planOf(const Product &p, const std::string &text) {
  KernelPlan plan = kernel("products", 128, {"const u8 *a", "const u8 *b", "u32 *c"}, text,
                           "#include \"bytes.cuh\"\n#include \"tcgen05.cuh\"\n");
  plan.dynamicSharedBytes = static_cast<uint32_t>(128 * (128 + p.n) + 1024);
  plan.features = static_cast<uint32_t>(Feature::Tcgen05) | static_cast<uint32_t>(Feature::Tma);
  return plan;
}

double valueOf(const std::string &type, const uint8_t *from, size_t index) {
  uint16_t wide = 0;
  if (type == "bf16" || type == "f16")
    std::memcpy(&wide, from + 2 * index, 2);
  return type == "bf16"     ? bf16ToF32(wide)
         : type == "f16"    ? f16ToF32(wide)
         : type == "f8e4m3" ? f8e4m3ToF32(from[index])
         : type == "f8e5m2" ? f8e5m2ToF32(from[index])
         : type == "u8"     ? from[index]
                            : static_cast<int8_t>(from[index]);
}

/// What is wrong, or whether the numbers are.
struct Outcome {
  std::string error;
  bool agrees = true;
};

Outcome outcomeOf(const Product &p, const std::string &text) {
  std::mt19937 random(7);
  const bool wide = p.a == "bf16" || p.a == "f16", integers = p.a == "u8" || p.a == "i8";
  const size_t k = wide ? 64 : 128, n = static_cast<size_t>(p.n);
  alignas(16) static uint8_t a[128 * 128], b[256 * 128];
  auto fill = [&](const std::string &type, uint8_t *to) {
    for (size_t i = 0; i < (to == a ? 128 : n) * k; ++i) {
      const float value = std::uniform_real_distribution<float>(-2, 2)(random);
      const uint16_t bits = type == "bf16" ? f32ToBF16(value) : f32ToF16(value);
      if (wide)
        std::memcpy(to + 2 * i, &bits, 2);
      else
        to[i] = type == "f8e4m3"   ? f32ToF8E4M3(value)
                : type == "f8e5m2" ? f32ToF8E5M2(value)
                                   : static_cast<uint8_t>(random());
    }
  };
  fill(p.a, a);
  fill(p.b, b);
  std::vector<uint32_t> c(128 * n);
  if (Status status = run(planOf(p, text), 1, static_cast<uint8_t *>(a), static_cast<uint8_t *>(b), c.data());
      !status)
    return {messageOf(status), false};
  for (size_t row = 0; row < 128; ++row)
    for (size_t column = 0; column < n; ++column) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i)
        sum += valueOf(p.a, a, row * k + i) * valueOf(p.b, b, p.kMajor ? column * k + i : i * n + column);
      float real;
      std::memcpy(&real, &c[row * n + column], 4);
      const double got = integers ? static_cast<int32_t>(c[row * n + column]) : real;
      if (!(std::abs(got - sum) <= (integers ? 0 : 1e-4)))
        return {"", false};
    }
  return {};
}

void expectError(const std::string &from, const std::string &to, const std::string &message) {
  const Product p;
  const Outcome outcome = outcomeOf(p, replaced(textOf(p), from, to));
  EXPECT_NE(outcome.error.find(message), std::string::npos) << "without " << from << ": " << outcome.error;
}

} // namespace

TEST(TensorMemory, ProductsOfEachType) {
  for (const Product &p : {Product{}, Product{"f16", "f16", 256}, Product{"bf16", "bf16", 192, false},
                           Product{"f16", "f16", 64, false}, Product{"f8e4m3", "f8e4m3", 96},
                           Product{"f8e5m2", "f8e4m3", 32}, Product{"f8e4m3", "f8e5m2", 64},
                           Product{"u8", "i8", 64}, Product{"i8", "u8", 32}, Product{"i8", "i8", 256}}) {
    const Outcome outcome = outcomeOf(p, textOf(p));
    EXPECT_TRUE(outcome.agrees) << p.a << " " << p.b << " " << p.n << ": " << outcome.error;
  }
}

TEST(TensorMemory, ProductsCompileWithoutSpills) {
  for (const Product &p : {Product{}, Product{"f16", "f16", 192, false}, Product{"f8e5m2", "f8e4m3", 32}})
    test::checkSpills(planOf(p, textOf(p)), test::Targets::All);
}

TEST(TensorMemory, WrongDescriptorsGiveWrongNumbers) {
  for (auto [from, to] : {std::pair("tcgen05_descriptor(from_a + 32 * k, 16)",
                                    "tcgen05_descriptor(from_a + 32 * k, 16) ^ 3ull << 37"), // stride 512
                          {"tcgen05_descriptor(from_a + 32 * k, 16)",
                           "(tcgen05_descriptor(from_a + 32 * k, 16) ^ 6ull << 61)"}, // 64-byte swizzle
                          {"from_a + 32 * k", "from_a + 16 * k"},
                          {"(N, true)", "(N, true) ^ 1u << 7"},   // A of another type
                          {"(N, true)", "(N, true) ^ 1u << 15"}}) // A by depth
  {
    const Product p;
    const Outcome outcome = outcomeOf(p, replaced(textOf(p), from, to));
    EXPECT_EQ(outcome.error, "") << to;
    EXPECT_FALSE(outcome.agrees) << to;
  }
  // By depth the distance of panels is what tells them apart.
  const Product byDepth{"bf16", "bf16", 192, false};
  EXPECT_FALSE(outcomeOf(byDepth, replaced(textOf(byDepth), "16 : 64 * 128)", "16 : 64 * 64)")).agrees);
}

TEST(TensorMemory, BitsThatAreNoDescriptor) {
  expectError("tcgen05_descriptor(from_a + 32 * k, 16)",
              "(tcgen05_descriptor(from_a + 32 * k, 16) ^ 1ull << 46)", "A's descriptor has not 0b001");
  expectError("tcgen05_descriptor(from_a + 32 * k, 16)",
              "(tcgen05_descriptor(from_a + 32 * k, 16) | 1ull << 61)",
              "A's descriptor has a swizzling mode");
  expectError("tcgen05_descriptor(from_a + 32 * k, 16)",
              "tcgen05_descriptor(from_a + 32 * k + 1024 * 200, 16)",
              "A's descriptor leads out of the block's dynamic shared memory");
  expectError("(N, true)", "(N, true) ^ 1u << 4", "types that its kind has not");
  expectError("(N, true)", "(N, true) ^ 1u << 2", "bits that are not emulated");
  expectError("(N, true)", "(N, true) ^ 3u << 26", "64 x 64 is no shape");
}

TEST(TensorMemory, MissingWaitsAndFences) {
  expectError("  fence_proxy_async();\n", "", "without fence_proxy_async()");
  expectError("    tcgen05_commit(done);\n", "", "threads wait at an mbarrier");
  expectError("  mbarrier_wait(done, 0);\n", "", "others have read the result's columns");
  expectError("  mbarrier_wait(done, 0);\n  tcgen05_fence_after_sync();\n", "  mbarrier_wait(done, 0);\n",
              "tcgen05_fence_after_sync() is missing after the wait");
  expectError("      tcgen05_wait_loads();\n", "", "tcgen05_wait_loads() is missing");
  expectError("  tcgen05_fence_before_sync();\n", "", "has read there without tcgen05_fence_before_sync()");
  expectError("      tcgen05_wait_loads();\n",
              "      if (thread_x() == 5) tcgen05_multiply<bf16>(memory, 0, 0, 0, false);\n"
              "      tcgen05_wait_loads();\n",
              "the instruction's descriptor has types");
}

TEST(TensorMemory, ProductsOverSumsThatAreRead) {
  const std::string again = "tcgen05_multiply<bf16>(memory, tcgen05_descriptor(tcgen05_address(tile_a), 16), "
                            "tcgen05_descriptor(tcgen05_address(tile_b), 16), "
                            "tcgen05_instruction<bf16, bf16>(N, true), false);\n";
  expectError("      tcgen05_wait_loads();\n",
              "if (thread_x() == 5) " + again + "      tcgen05_wait_loads();\n",
              "still reads the result's columns, tcgen05_wait_loads() is missing");
  expectError("  tcgen05_fence_before_sync();\n", "  barrier(); if (thread_x() == 5) " + again,
              "has read the result's columns without tcgen05_fence_before_sync()");
  expectError("  barrier();\n  tcgen05_fence_after_sync();\n", "  barrier(); if (thread_x() == 5) " + again,
              "others have read the result's columns, tcgen05_fence_after_sync() is missing");
  expectError("  barrier();\n  tcgen05_fence_after_sync();\n",
              "  barrier(); tcgen05_fence_after_sync(); if (thread_x() == 5) " + again + "  barrier();\n",
              "products that write there have not ended");
}

TEST(TensorMemory, Allocation) {
  expectError("tcgen05_allocate(address, 64);", "tcgen05_allocate(address, 96);", "no power of two");
  expectError("tcgen05_allocate(address, 64);", "tcgen05_allocate(address, 16);", "no power of two");
  expectError("tcgen05_allocate(address, 64);", "tcgen05_allocate(address, 32);",
              "columns are not allocated");
  expectError("    tcgen05_relinquish();\n", "    tcgen05_allocate(address, 128);\n",
              "more columns than the allocation before");
  expectError("    tcgen05_relinquish();\n",
              "    tcgen05_relinquish();\n    tcgen05_allocate(address, 64);\n",
              "has relinquished the right");
  expectError("tcgen05_free(memory, 64)", "tcgen05_free(memory, 32)", "not allocated so");
  expectError("  if (warp == 2)\n    tcgen05_free(memory, 64);\n", "", "ends without tcgen05_free()");
}

TEST(TensorMemory, LanesOfOtherWarps) {
  expectError("(32 * warp + 16 * half << 16)", "(16 * half << 16)",
              "tcgen05_load: lane 0 on is not for warp 1 of a warpgroup to read");
  expectError("(32 * warp + 16 * half << 16)", "(lane_id() << 16)", "name different places of tensor memory");
}
