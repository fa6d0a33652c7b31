// The library's way of matrix products in plans.
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
std::string oneProduct(const std::string &x, const std::string &w, const std::string &y, const std::string &attributes = "",
                       const std::string &dims = "") {
  return fmt::format("func.func @main(%x: tensor<{0}>{4}, %w: tensor<{1}>) -> tensor<{2}> {{\n"
                     "  %0 = nn.matmul %x, %w {3} : (tensor<{0}>, tensor<{1}>) -> tensor<{2}>\n"
                     "  return %0 : tensor<{2}>\n}}",
                     x, w, y, attributes, dims);
}

/// The first launch of the library, or nothing.
const KernelLaunch *libraryOf(const ProgramPlan &plan) {
  for (const KernelLaunch &launch : plan.launches)
    if (launch.way == ProductWay::Library)
      return &launch;
  return nullptr;
}

/// m, n, k, count, the lines of a, b and c, and the steps from matrix to matrix.
std::vector<std::string> numbersOf(const KernelLaunch &launch) {
  std::vector<std::string> numbers;
  for (size_t i = 3; i < launch.arguments.size(); ++i)
    numbers.push_back(launch.arguments[i].value.str());
  return numbers;
}
using Numbers = std::vector<std::string>;

TEST(Products, AKernelForEachRangeAndTheLibraryForManyRows) {
  ProgramPlan plan = planOf(R"(func.func @main(%x: tensor<?x96xbf16> {nn.dims = ["n", 96]}, %w: tensor<128x96xbf16>, %b: tensor<128xbf16>) -> tensor<?x128xbf16> {
    %0 = fusion.group "matmul_epilogue" schedule "matmul" (%a = %x, %c = %w, %d = %b) : (tensor<?x96xbf16>, tensor<128x96xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16> {
      %1 = nn.matmul %a, %c {transpose_b = true} : (tensor<?x96xbf16>, tensor<128x96xbf16>) -> tensor<?x128xbf16>
      %2 = nn.add %1, %d : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
      %3 = nn.relu %2 : (tensor<?x128xbf16>) -> tensor<?x128xbf16>
      fusion.yield %3 : tensor<?x128xbf16>
    }
    return %0 : tensor<?x128xbf16>
  })");
  EXPECT_EQ(plan.launchesOfRun(), 1);
  ASSERT_GE(plan.launches.size(), 4u);
  EXPECT_EQ(plan.endOfProducts(0), plan.launches.size());
  const KernelLaunch &call = *libraryOf(plan), &rest = plan.launches.back();
  EXPECT_EQ(&rest - &call, 1);
  EXPECT_EQ(plan.launches.front().way, ProductWay::Kernel);
  EXPECT_EQ(call.when->least, 16);
  EXPECT_EQ(rest.when->least, 16);
  EXPECT_EQ(plan.kernels[call.kernel].product, (KernelPlan::Product{DType::BF16, DType::BF16, DType::BF16, false, true}));
  EXPECT_EQ(numbersOf(call), (Numbers{"n", "128", "96", "1", "96", "96", "128", "0", "0", "128*n"}));
  // The product is rounded to its type in a temporary; the rest ends where our kernels do.
  EXPECT_EQ(plan.buffers[*call.arguments[2].buffer].kind, BufferPlan::Kind::Temporary);
  EXPECT_EQ(plan.buffers[*call.arguments[2].buffer].type, DType::BF16);
  EXPECT_EQ(plan.kernels[rest.kernel].schedule, "pointwise");
  const std::string text = planText(plan), dot = planDot(plan), source = cudaSource(plan);
  EXPECT_NE(text.find("library_matmul_bf16_bf16_bf16_rows_columns"), std::string::npos) << text;
  EXPECT_NE(text.find(" as library when n >= 16  // matmul_epilogue: nn.matmul"), std::string::npos) << text;
  EXPECT_NE(source.find("// by cuBLASLt\n"), std::string::npos) << source;
  EXPECT_EQ(dot.find("launch1 "), std::string::npos) << dot;
}

TEST(Products, LayoutsAreLinesOfElements) {
  auto check = [](const std::string &text, const KernelPlan::Product &product, const Numbers &numbers) {
    ProgramPlan plan = planOf(text);
    const KernelLaunch *call = libraryOf(plan);
    ASSERT_TRUE(call) << planText(plan);
    EXPECT_EQ(plan.kernels[call->kernel].product, product);
    EXPECT_EQ(numbersOf(*call), numbers);
    // Nothing is behind the product: the library writes the result.
    EXPECT_EQ(plan.buffers[*call->arguments[2].buffer].kind, BufferPlan::Kind::Output);
    EXPECT_EQ(plan.launchesOfRun(), 1);
  };
  const DType f16 = DType::F16, f32 = DType::F32;
  check(oneProduct("20x64xf16", "64x80xf16", "20x80xf16"), {f16, f16, f16, false, false},
        {"20", "80", "64", "1", "64", "80", "80", "0", "0", "1600"});
  check(oneProduct("64x20xf32", "64x80xf32", "20x80xf32", "{transpose_a = true}"), {f32, f32, f32, true, false},
        {"20", "80", "64", "1", "20", "80", "80", "0", "0", "1600"});
  check(oneProduct("20x64xf16", "80x64xf16", "20x80xf32", "{transpose_b = true}"), {f16, f16, f32, false, true},
        {"20", "80", "64", "1", "64", "64", "80", "0", "0", "1600"});
  // One second operand for all: the leading dims are rows.
  check(oneProduct("3x20x64xf32", "64x80xf32", "3x20x80xf32"), {f32, f32, f32, false, false},
        {"60", "80", "64", "1", "64", "80", "80", "0", "0", "4800"});
  check(oneProduct("2x3x20x64xf32", "2x3x64x80xf32", "2x3x20x80xf32"), {f32, f32, f32, false, false},
        {"20", "80", "64", "6", "64", "80", "80", "1280", "5120", "1600"});
  // A slice: the first operand begins inside its buffer, and its rows are further apart.
  ProgramPlan sliced = planOf(R"(func.func @main(%x: tensor<20x100xf32>, %w: tensor<64x80xf32>) -> tensor<20x80xf32> {
    %s = nn.slice %x {starts = [0, 36], sizes = [20, 64], steps = array<i64: 1, 1>} : (tensor<20x100xf32>) -> tensor<20x64xf32>
    %0 = nn.matmul %s, %w : (tensor<20x64xf32>, tensor<64x80xf32>) -> tensor<20x80xf32>
    return %0 : tensor<20x80xf32>
  })");
  const KernelLaunch *call = libraryOf(sliced);
  ASSERT_TRUE(call) << planText(sliced);
  EXPECT_EQ(call->arguments[0].byteOffset, Dim(144));
  EXPECT_EQ(call->arguments[7].value, Dim(100));
}

TEST(Products, WhatIsLeftToOurKernels) {
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
    EXPECT_FALSE(plan.launches[0].way);
  }
}
} // namespace
