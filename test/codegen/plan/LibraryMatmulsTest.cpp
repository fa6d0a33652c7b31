// Matrix multiplications by the library, in plans.
#include "PlanChecks.h"

#include "codegen/plan/Print.h"

#include <fmt/format.h>

using namespace fusion;
using namespace fusion::test;

namespace {

ProgramPlan planOf(const std::string &text) {
  auto module = parse(text);
  auto plan = buildPlan(mainOf(*module), {});
  EXPECT_TRUE(bool(plan)) << plan.error().message;
  return plan ? *plan : ProgramPlan();
}

/// One product of `arguments`, spelled as nn.matmul's operands and attributes.
std::string oneProduct(const std::string &x, const std::string &w, const std::string &y,
                       const std::string &attributes = "", const std::string &dims = "") {
  return fmt::format("func.func @main(%x: tensor<{0}>{4}, %w: tensor<{1}>) -> tensor<{2}> {{\n"
                     "  %0 = nn.matmul %x, %w {3} : (tensor<{0}>, tensor<{1}>) -> tensor<{2}>\n"
                     "  return %0 : tensor<{2}>\n}}",
                     x, w, y, attributes, dims);
}

/// The library's alternative of the first step, or null.
const Alternative *libraryOf(const ProgramPlan &plan) {
  const Alternative &last = plan.steps.front().alternatives.back();
  return last.variant == libraryVariant ? &last : nullptr;
}

const PointerArgument &pointer(const KernelLaunch &launch, size_t argument) {
  return std::get<PointerArgument>(launch.arguments[argument]);
}

/// m, n, k, the number of matrices, leading dimensions and batch strides.
std::vector<std::string> numbersOf(const KernelLaunch &launch) {
  std::vector<std::string> numbers;
  for (size_t i = 3; i < launch.arguments.size(); ++i)
    numbers.push_back(std::get<ScalarArgument>(launch.arguments[i]).value.str());
  return numbers;
}
using Numbers = std::vector<std::string>;

TEST(LibraryMatmuls, AKernelForEachRangeAndTheLibraryForManyRows) {
  ProgramPlan plan = planOf(
      R"(func.func @main(%x: tensor<?x96xbf16> {nn.dims = ["n", 96]}, %w: tensor<128x96xbf16>, %b: tensor<128xbf16>) -> tensor<?x128xbf16> {
    %0 = fusion.group "matmul_epilogue" schedule "matmul" (%a = %x, %c = %w, %d = %b) : (tensor<?x96xbf16>, tensor<128x96xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16> {
      %1 = nn.matmul %a, %c {transpose_b = true} : (tensor<?x96xbf16>, tensor<128x96xbf16>) -> tensor<?x128xbf16>
      %2 = nn.add %1, %d : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
      %3 = nn.relu %2 : (tensor<?x128xbf16>) -> tensor<?x128xbf16>
      fusion.yield %3 : tensor<?x128xbf16>
    }
    return %0 : tensor<?x128xbf16>
  })");
  EXPECT_EQ(plan.launchesOfRun(), 1);
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].choice, Step::Choice::Measurement);
  ASSERT_GE(plan.steps[0].alternatives.size(), 3u);
  EXPECT_EQ(plan.steps[0].alternatives.front().variant, kernelVariant);
  const Alternative *library = libraryOf(plan);
  ASSERT_TRUE(library);
  ASSERT_EQ(library->when.size(), 1u);
  EXPECT_EQ(library->when[0].least, 16);
  ASSERT_EQ(library->launches.size(), 2u);
  const KernelLaunch &call = library->launches[0], &rest = library->launches[1];
  EXPECT_EQ(plan.kernels[call.kernel].matmul,
            (LibraryMatmul{DType::BF16, DType::BF16, DType::BF16, false, true}));
  EXPECT_EQ(numbersOf(call), (Numbers{"n", "128", "96", "1", "96", "96", "128", "0", "0", "128*n"}));
  // The product is rounded to its type in a temporary; the rest ends where our kernels do.
  EXPECT_EQ(plan.buffers[pointer(call, 2).buffer].kind, BufferPlan::Kind::Temporary);
  EXPECT_EQ(plan.buffers[pointer(call, 2).buffer].type, DType::BF16);
  EXPECT_EQ(plan.kernels[rest.kernel].schedule, "pointwise");
  const std::string text = planText(plan), dot = planDot(plan), source = cudaSource(plan);
  EXPECT_NE(text.find("library_matmul_bf16_bf16_bf16_rows_columns"), std::string::npos) << text;
  EXPECT_NE(text.find("0: the fastest on the device of "), std::string::npos) << text;
  EXPECT_NE(text.find("  library when n >= 16:\n    library_matmul"), std::string::npos) << text;
  EXPECT_NE(source.find(" as library when n >= 16\n"), std::string::npos) << source;
  EXPECT_NE(source.find("// by cuBLASLt\n"), std::string::npos) << source;
  EXPECT_EQ(dot.find("launch1 "), std::string::npos) << dot;
}

/// Beside two kernels of ours it is the third variant.
TEST(LibraryMatmuls, IsMeasuredBesideTwoKernels) {
  const std::string text = oneProduct("?x96xbf16", "96x128xbf16", "?x128xbf16", "", " {nn.dims = [\"n\", 96]}");
  auto module = parse(text);
  auto plan = buildPlan(mainOf(*module), {.target = "sm_100a"});
  ASSERT_TRUE(bool(plan)) << plan.error().message;
  ASSERT_TRUE(bool(verify(*plan)));
  const Step &step = plan->steps.at(0);
  EXPECT_EQ(step.choice, Step::Choice::Measurement);
  const auto taken = candidates(step, [&](uint32_t i) {
    return llvm::all_of(step.alternatives[i].when, [](const SizeRange &range) { return range.holds(100); });
  });
  ASSERT_EQ(taken.size(), 3u) << planText(*plan);
  const std::pair<const char *, const char *> variants[] = {
      {kernelVariant, "gemm_mma<Config>"}, {otherKernelVariant, "gemm_sm100<Config>"}, {libraryVariant, ""}};
  for (auto [candidate, expected] : llvm::zip(taken, variants)) {
    const Alternative &alternative = step.alternatives[candidate];
    EXPECT_EQ(alternative.variant, expected.first);
    const KernelPlan &kernel = plan->kernels[alternative.launches.front().kernel];
    EXPECT_NE(kernel.source.find(expected.second), std::string::npos) << kernel.source;
  }
  auto invariant = buildPlan(mainOf(*module), {.target = "sm_100a", .batchInvariant = true});
  ASSERT_TRUE(bool(invariant)) << invariant.error().message;
  EXPECT_EQ(invariant->steps.at(0).alternatives.size(), 1u);
}

TEST(LibraryMatmuls, LayoutsAreLinesOfElements) {
  auto check = [](const std::string &text, const LibraryMatmul &matmul, const Numbers &numbers) {
    ProgramPlan plan = planOf(text);
    const Alternative *library = libraryOf(plan);
    ASSERT_TRUE(library) << planText(plan);
    const KernelLaunch &call = library->launches.at(0);
    EXPECT_EQ(plan.kernels[call.kernel].matmul, matmul);
    EXPECT_EQ(numbersOf(call), numbers);
    // Nothing is after the product: the library writes the result.
    EXPECT_EQ(plan.buffers[pointer(call, 2).buffer].kind, BufferPlan::Kind::Output);
    EXPECT_EQ(plan.launchesOfRun(), 1);
  };
  const DType f16 = DType::F16, f32 = DType::F32;
  check(oneProduct("20x64xf16", "64x80xf16", "20x80xf16"), {f16, f16, f16, false, false},
        {"20", "80", "64", "1", "64", "80", "80", "0", "0", "1600"});
  check(oneProduct("64x20xf32", "64x80xf32", "20x80xf32", "{transpose_a = true}"),
        {f32, f32, f32, true, false}, {"20", "80", "64", "1", "20", "80", "80", "0", "0", "1600"});
  check(oneProduct("20x64xf16", "80x64xf16", "20x80xf32", "{transpose_b = true}"),
        {f16, f16, f32, false, true}, {"20", "80", "64", "1", "64", "64", "80", "0", "0", "1600"});
  // One second operand for all: the leading dims are rows.
  check(oneProduct("3x20x64xf32", "64x80xf32", "3x20x80xf32"), {f32, f32, f32, false, false},
        {"60", "80", "64", "1", "64", "80", "80", "0", "0", "4800"});
  check(oneProduct("2x3x20x64xf32", "2x3x64x80xf32", "2x3x20x80xf32"), {f32, f32, f32, false, false},
        {"20", "80", "64", "6", "64", "80", "80", "1280", "5120", "1600"});
  // A slice: the first operand begins inside its buffer, and its rows are further apart.
  ProgramPlan sliced =
      planOf(R"(func.func @main(%x: tensor<20x100xf32>, %w: tensor<64x80xf32>) -> tensor<20x80xf32> {
    %s = nn.slice %x {starts = [0, 36], sizes = [20, 64], steps = array<i64: 1, 1>} : (tensor<20x100xf32>) -> tensor<20x64xf32>
    %0 = nn.matmul %s, %w : (tensor<20x64xf32>, tensor<64x80xf32>) -> tensor<20x80xf32>
    return %0 : tensor<20x80xf32>
  })");
  const Alternative *library = libraryOf(sliced);
  ASSERT_TRUE(library) << planText(sliced);
  EXPECT_EQ(pointer(library->launches.at(0), 0).byteOffset, Dim(144));
  EXPECT_EQ(std::get<ScalarArgument>(library->launches[0].arguments[7]).value, Dim(100));
}

TEST(LibraryMatmuls, WhatIsLeftToOurKernels) {
  for (const std::string &text :
       {oneProduct("15x64xf32", "64x80xf32", "15x80xf32"),   // few rows
        oneProduct("20x63xf32", "63x80xf32", "20x80xf32"),   // short sums
        oneProduct("20x64xf32", "64x63xf32", "20x63xf32"),   // few columns
        oneProduct("20x64xi8", "64x80xi8", "20x80xi32"),     // integers
        oneProduct("20x64xbf16", "64x80xf16", "20x80xf32"),  // of two types
        // One matrix for every second one of the batch.
        oneProduct("4x3x20x64xf32", "4x1x64x80xf32", "4x3x20x80xf32")}) {
    ProgramPlan plan = planOf(text);
    EXPECT_FALSE(libraryOf(plan)) << planText(plan);
    EXPECT_EQ(plan.steps[0].choice, Step::Choice::Predicate);
  }
}
} // namespace
