// An architecture is a row: a TargetInfo, and nothing else.
#include "api/Lower.h"
#include "codegen/target/TargetInfo.h"
#include "test/recipes/Recipes.h"

#include <gmock/gmock.h>

namespace fusion::test {
namespace {

constexpr MatrixAtom atoms[] = {{"mma.m16n8k16", "16-bit floats", "f32", 16, 8, 16, 32}};

/// Smaller than every GPU in the table, and with block-scaled products, which no kernel uses. Its name says
/// what to compile for.
TargetInfo toyArchitecture() {
  return {.name = "sm_86",
          .number = 86,
          .multiprocessors = 3,
          .l2Bytes = 1 << 20,
          .sharedBytesPerBlock = 48 << 10,
          .sharedBytesPerMultiprocessor = 64 << 10,
          .threadsPerMultiprocessor = 1024,
          .blocksPerMultiprocessor = 8,
          .matrixOpsPerClock = 512,
          .features = static_cast<uint32_t>(Feature::BlockScaledMma | Feature::Tma),
          .atoms = atoms};
}

constexpr const char *text = R"(!x = tensor<?x64xTYPE> !n = tensor<64xTYPE> !y = tensor<?x72xTYPE>
!w = tensor<64x72xTYPE> !b = tensor<72xTYPE>
func.func @main(%x: !x {nn.dims = ["rows", 64]}, %n: !n, %w: !w, %b: !b) -> (!y, !y) {
  %0 = nn.rms_norm %x, %n {eps = 1.0e-6 : f32} : (!x, !n) -> !x
  %1 = nn.matmul %0, %w : (!x, !w) -> !y
  %2 = nn.add %1, %b : (!y, !b) -> !y
  %3 = nn.silu %2 : (!y) -> !y
  %4 = nn.softmax %3 {axis = 1 : i64} : (!y) -> !y
  %5 = nn.exp %4 : (!y) -> !y
  return %3, %5 : !y, !y
})";

TEST(ArchitectureRecipe, ARowPlansAndEmitsEverything) {
  for (const char *type : {"f32", "f16"}) {
    SCOPED_TRACE(type);
    auto module = parse(text, type);
    ASSERT_TRUE(module);
    const PlanOptions options{.device = toyArchitecture()};
    FusionReport report;
    Status status = lower(*module, {.plan = options}, report);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(report.unusedFeatures, std::vector<std::string>{"block-scaled mma"});
    EXPECT_EQ(report.patterns["matmul_epilogue"].fired.size(), 1u);

    auto plan = buildPlan(*entryFunction(*module), options);
    ASSERT_TRUE(plan) << plan.error().message;
    for (const KernelPlan &kernel : plan->kernels) {
      EXPECT_EQ(kernel.features & ~toyArchitecture().features, 0u) << kernel.name;
      EXPECT_LE(kernel.dynamicSharedBytes, toyArchitecture().sharedBytesPerBlock) << kernel.name;
    }
    runsLike(*entryFunction(*module), *plan, {{"rows", 37}});
    compilesFor(*plan, toyArchitecture());
  }
}

/// The same graph has other kernels where the row says more.
TEST(ArchitectureRecipe, TheRowDecides) {
  auto sourcesFor = [](const TargetInfo &target) {
    std::set<std::string> sources;
    auto module = parse(text, "f16");
    auto plan = buildPlan(*entryFunction(*module), {.device = target});
    EXPECT_TRUE(plan) << plan.error().message;
    for (const KernelPlan &kernel : plan->kernels)
      sources.insert(kernel.source);
    return sources;
  };
  EXPECT_NE(sourcesFor(toyArchitecture()), sourcesFor(TargetInfo::standard()));
}

} // namespace
} // namespace fusion::test
