// Where plans take gemm_swap_ab, and what it reads before the kernel before it has finished.
#include "PlanChecks.h"

#include "codegen/plan/Print.h"

using namespace fusion;
using namespace fusion::test;

namespace {

ProgramPlan planOf(const std::string &text, const std::string &target = "sm_90a") {
  auto module = parse(text);
  auto plan = buildPlan(mainOf(*module), {.target = target});
  EXPECT_TRUE(bool(plan)) << plan.error().message;
  return plan ? *plan : ProgramPlan();
}

bool swaps(const KernelPlan &kernel) {
  return kernel.source.find("gemm_swap_ab<Config>") != std::string::npos;
}

constexpr const char *anyRows = R"(
  func.func @main(%x: tensor<?x128xbf16> {nn.dims = ["n", 128]}, %w: tensor<128x192xbf16>) -> tensor<?x192xbf16> {
    %y = nn.matmul %x, %w : (tensor<?x128xbf16>, tensor<128x192xbf16>) -> tensor<?x192xbf16>
    return %y : tensor<?x192xbf16>
  })";

TEST(MatmulSwapAB, RangesOfRows) {
  const ProgramPlan plan = planOf(anyRows);
  std::vector<int64_t> ends;
  for (const Alternative &alternative : plan.steps.front().alternatives)
    if (alternative.variant != libraryVariant && swaps(plan.kernels[alternative.launches.back().kernel]))
      ends.push_back(alternative.when.front().most);
  EXPECT_EQ(ends, (std::vector<int64_t>{8, 16, 32, 64, 128})) << planText(plan);
}

TEST(MatmulSwapAB, OnlyWhereThereAreWarpgroupsAndTma) {
  for (const char *target : {"sm_80", "sm_89", "sm_100a", "sm_120a"}) {
    const ProgramPlan plan = planOf(anyRows, target);
    for (const KernelPlan &kernel : plan.kernels)
      EXPECT_FALSE(swaps(kernel)) << target;
  }
}

/// Two products: the first one's result is the rows, or the columns, of the second.
std::string chain(bool isSecondOperand) {
  return std::string(R"(
  func.func @main(%x: tensor<64x128xbf16>, %w: tensor<128x128xbf16>, %v: tensor<128x128xbf16>) -> tensor<64x64xbf16> {
    %p = nn.matmul %x, %w : (tensor<64x128xbf16>, tensor<128x128xbf16>) -> tensor<64x128xbf16>
    %y = nn.matmul )") +
         (isSecondOperand ? "%x, %p" : "%p, %x") +
         R"( {transpose_b = true} : (tensor<64x128xbf16>, tensor<64x128xbf16>) -> tensor<64x64xbf16>
    return %y : tensor<64x64xbf16>
  })";
}

TEST(MatmulSwapAB, ReadsEarlyOnlyWhatTheKernelBeforeDoesNotWrite) {
  for (bool isSecondOperand : {false, true}) {
    const ProgramPlan plan = planOf(chain(isSecondOperand));
    ASSERT_EQ(plan.steps.size(), 2u);
    const KernelPlan &second = plan.kernels[plan.steps[1].alternatives.front().launches.front().kernel];
    ASSERT_TRUE(swaps(second)) << second.source;
    const char *expected = isSecondOperand ? "weights_before_wait = false" : "weights_before_wait = true";
    EXPECT_NE(second.source.find(expected), std::string::npos) << second.source;
  }
}

TEST(MatmulSwapAB, RunsInAChain) {
  for (bool isSecondOperand : {false, true})
    check(chain(isSecondOperand), {.tolerance = 1e-2, .targets = Targets::One});
}

} // namespace
