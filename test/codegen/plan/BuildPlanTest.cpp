#include "PlanChecks.h"

#include "codegen/plan/Comments.h"
#include "codegen/plan/Print.h"

#include <set>

namespace fusion::test {
namespace {

TEST(BuildPlan, ResultsThatNeedNoKernelOrACopy) {
  // The argument itself, a whole reshape of it, a transpose of it, a row of it, a kernel's result twice, a
  // constant.
  check(R"(func.func @main(%x: tensor<?x4xf32> {nn.name = "x", nn.dims = ["n", 4]})
      -> (tensor<?x4xf32>, tensor<4x?xf32>, tensor<4x?xf32>, tensor<1x4xf32>, tensor<?x4xf32>, tensor<?x2x2xf32>, tensor<2xf32>) {
    %r = nn.reshape %x {shape = [4, "n"]} : (tensor<?x4xf32>) -> tensor<4x?xf32>
    %t = nn.transpose %x {perm = array<i64: 1, 0>} : (tensor<?x4xf32>) -> tensor<4x?xf32>
    %s = nn.slice %x {starts = [1, 0], sizes = [1, 4], steps = array<i64: 1, 1>} : (tensor<?x4xf32>) -> tensor<1x4xf32>
    %e = nn.square %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %f = nn.reshape %e {shape = ["n", 2, 2]} : (tensor<?x4xf32>) -> tensor<?x2x2xf32>
    %c = nn.constant {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    return %x, %r, %t, %s, %e, %f, %c : tensor<?x4xf32>, tensor<4x?xf32>, tensor<4x?xf32>, tensor<1x4xf32>, tensor<?x4xf32>, tensor<?x2x2xf32>, tensor<2xf32>
  })",
        {.symbols = {{"n", 3}}, .tolerance = 0, .launches = 4});
}

TEST(BuildPlan, LayersShareKernels) {
  ProgramPlan plan =
      planOf(R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}) -> tensor<?x8xf32> {
    %0 = nn.silu %x : (tensor<?x8xf32>) -> tensor<?x8xf32> loc("layers.0")
    %1 = nn.silu %0 : (tensor<?x8xf32>) -> tensor<?x8xf32> loc("layers.1")
    return %1 : tensor<?x8xf32>
  })");
  EXPECT_EQ(plan.kernels.size(), 1u);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.launches()[1]->location, "layers.1");
  EXPECT_EQ(plan.launches()[0]->bytesRead.str(), "32*n");
  EXPECT_NE(cudaSource(plan).find("nn.silu at layers.0"), std::string::npos) << cudaSource(plan);
  EXPECT_NE(planText(plan).find("layers.1"), std::string::npos);
  EXPECT_NE(planDot(plan).find("launch0 -> launch1"), std::string::npos) << planDot(plan);
}

/// Everything that a graph file can name. `NAME` stands for the names, as MLIR text.
static std::string named(std::string text, const std::string &name) {
  for (size_t at; (at = text.find("NAME")) != std::string::npos;)
    text.replace(at, 4, name);
  return text;
}

TEST(BuildPlan, NamesAreCommentsAndNothingElse) {
  const std::string text =
      R"(module @"mNAME" { func.func @main(%x: tensor<?x8xf32> {nn.name = "xNAME", nn.dims = ["`nNAME`", 8]},
                       %r: tensor<?x8xf32> {nn.name = "rNAME", nn.dims = ["`nNAME`", 8]}) -> (tensor<?x8xf32> {nn.name = "yNAME"}) {
    %w = nn.constant {value = dense<2.0> : tensor<8xf32>} : () -> tensor<8xf32> loc("weightNAME")
    %0 = nn.silu %x : (tensor<?x8xf32>) -> tensor<?x8xf32> loc("layers.0NAME"("nodeNAME"))
    %1 = fusion.group "add_normNAME" schedule "row" (%a = %0, %b = %r, %v = %w) : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32> {
      %s = nn.add %a, %b : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32> loc("addNAME")
      %n = nn.rms_norm %s, %v {eps = 1.0e-6 : f32} : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32> loc("normNAME":3:4)
      fusion.yield %n : tensor<?x8xf32>
    } loc("groupNAME")
    return %1 : tensor<?x8xf32>
  } })";
  const std::string expected = withoutComments(cudaSource(planOf(named(text, "plain"))));
  EXPECT_NE(expected.find("inverse_sqrt_"), std::string::npos) << expected;
  for (const char *name :
       {"\\0A#error\\0A", "\\0D#error\\0D", "\\E2\\80\\A8#error", "\\5C", "\\5C ", "*/ #error /*", "?\?/",
        "\\22'R\\22(", "\\00#error", " Exchange * barrier() @kernel@ $0 {} %s"}) {
    SCOPED_TRACE(name);
    const ProgramPlan plan = planOf(named(text, name));
    const std::string source = cudaSource(plan);
    EXPECT_EQ(withoutComments(source), expected) << source;
    for (const KernelPlan &kernel : plan.kernels)
      EXPECT_TRUE(kernel.usesPdl);
    check(named(text, name), {.symbols = {{*plan.inputs[0].shape[0].symbols().begin(), 3}}});
  }
}

TEST(BuildPlan, WhatMayBeCodeIsNoComment) {
  EXPECT_EQ(withoutComments("// a\nint a;\n  // b\nint b; // c\n"), "int a;\nint b; // c\n");
  for (const char *source : {"// a \\\nint a;\n", "// a \\ \nint a;\n", "// a ?\?/\nint a;\n",
                             "// a\rint a;\n", "int a; /*\n// */ b();\n", "auto x = R\"(\n// a\n)\";\n",
                             "#define A \\\n// a\n", "// \xe2\x80\xa8 int a;\n"})
    EXPECT_EQ(withoutComments(source), source);
}

TEST(BuildPlan, WeightsStayInTheirFiles) {
  ProgramPlan plan =
      planOf(R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}) -> tensor<?x8xf32> {
    %w = nn.weight {name = "scale", path = "model.bin", offset = 64 : i64, length = 32 : i64} : () -> tensor<8xf32>
    %0 = nn.mul %x, %w : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  })");
  auto weight =
      llvm::find_if(plan.buffers, [](auto &buffer) { return buffer.kind == BufferPlan::Kind::Weight; });
  ASSERT_NE(weight, plan.buffers.end());
  auto &span = std::get<FileSpan>(weight->contents);
  EXPECT_EQ(span.path, "/models/model.bin");
  EXPECT_EQ(span.offset, 64u);
}

TEST(BuildPlan, ARankHoldsItsPartOfAWeight) {
  ProgramPlan plan =
      planOf(R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}) -> tensor<?x8xf32> {
    %w = nn.weight {name = "scale", path = "model.bin", offset = 64 : i64, length = 64 : i64, whole = array<i64: 16>, starts = ["8*tp_rank"]} : () -> tensor<8xf32>
    %0 = nn.mul %x, %w : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  })");
  auto weight =
      llvm::find_if(plan.buffers, [](auto &buffer) { return buffer.kind == BufferPlan::Kind::Weight; });
  ASSERT_NE(weight, plan.buffers.end());
  EXPECT_EQ(weight->shape, DimShape{8});
  ASSERT_TRUE(weight->window);
  EXPECT_EQ(weight->window->whole, Shape{16});
  EXPECT_EQ(weight->window->starts, DimShape{Dim::symbol("tp_rank") * 8});
  EXPECT_NE(planText(plan).find("scale, of 16 from [8*tp_rank] on"), std::string::npos) << planText(plan);
}

TEST(BuildPlan, PartsOfAWeightStayInTheirFiles) {
  ProgramPlan plan =
      planOf(R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}) -> tensor<?x8xf32> {
    %w = nn.weight {name = "scale", path = "a.bin", offset = 64 : i64, length = 32 : i64, part_paths = ["a.bin", "b.bin"], part_offsets = array<i64: 64, 0>} : () -> tensor<8xf32>
    %0 = nn.mul %x, %w : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  })");
  auto weight =
      llvm::find_if(plan.buffers, [](auto &buffer) { return buffer.kind == BufferPlan::Kind::Weight; });
  ASSERT_NE(weight, plan.buffers.end());
  ASSERT_EQ(weight->parts.size(), 2u);
  EXPECT_EQ(weight->parts[1].path, "/models/b.bin");
  EXPECT_EQ(weight->parts[1].length, 16u);
  EXPECT_EQ(std::get<FileSpan>(weight->contents).offset, 64u);
}

// What follows from constants and weights alone, through views and several ops, is made once; a result of it
// is copied.
TEST(BuildPlan, WeightsArePreparedOnce) {
  const std::string text =
      R"(func.func @main(%x: tensor<?x6xf32> {nn.name = "x", nn.dims = ["n", 6]}, %s: tensor<f32> {nn.name = "s"}) -> (tensor<?x6xf32>, tensor<2x3xf32>) {
    %a = nn.constant {value = dense<[[1.5, -2.0, 0.25], [3.0, 4.0, -0.5]]> : tensor<2x3xf16>} : () -> tensor<2x3xf16>
    %b = nn.constant {value = dense<[[0.5, 7.0], [2.0, 1.0], [-3.0, 6.0]]> : tensor<3x2xf32>} : () -> tensor<3x2xf32>
    %c = nn.cast %a : (tensor<2x3xf16>) -> tensor<2x3xf32>
    %t = nn.transpose %b {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
    %p = nn.concat %c, %t {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
    %r = nn.slice %p {starts = [1, 0], sizes = [1, 6], steps = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<1x6xf32>
    %y = nn.mul %x, %r : (tensor<?x6xf32>, tensor<1x6xf32>) -> tensor<?x6xf32>
    %m = nn.mul %y, %s : (tensor<?x6xf32>, tensor<f32>) -> tensor<?x6xf32>
    return %m, %c : tensor<?x6xf32>, tensor<2x3xf32>
  })";
  check(text, {.symbols = {{"n", 5}}, .launches = 3});
  const ProgramPlan plan = planOf(text);
  EXPECT_EQ(plan.preparation.size(), 2u) << planText(plan);
  for (const KernelLaunch *launch : plan.launches())
    EXPECT_FALSE(llvm::is_contained(launch->ops, "nn.concat")) << planText(plan);
  EXPECT_NE(planText(plan).find("once, when the weights are loaded"), std::string::npos) << planText(plan);
}

TEST(BuildPlan, WhatNeedsASizeOfTheInputsIsNotPrepared) {
  const ProgramPlan plan =
      planOf(R"(func.func @main(%x: tensor<?xi64> {nn.name = "x", nn.dims = ["n"]}) -> tensor<?xi64> {
    %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %i = nn.iota %zero, %one {size = ["n"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
    %y = nn.add %x, %i : (tensor<?xi64>, tensor<?xi64>) -> tensor<?xi64>
    return %y : tensor<?xi64>
  })");
  EXPECT_TRUE(plan.preparation.empty());
  EXPECT_EQ(plan.steps.size(), 2u);
}

TEST(BuildPlan, FourBitConstantsLieTwoToAByte) {
  const std::string text =
      R"(func.func @main(%x: tensor<1x5xf32> {nn.name = "x"}, %s: tensor<f32> {nn.name = "s"}) -> (tensor<3x5xf32>, tensor<2x3xi4>) {
    %c = nn.constant {value = dense<[[1, -8, 7, 3, -2], [0, 5, -1, 6, 2], [-3, 4, -4, -7, -6]]> : tensor<3x5xi4>} : () -> tensor<3x5xi4>
    %d = nn.dequantize %c, %s : (tensor<3x5xi4>, tensor<f32>) -> tensor<3x5xf32>
    %y = nn.add %x, %d : (tensor<1x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %v = nn.slice %c {starts = [1, 1], sizes = [2, 3], steps = array<i64: 1, 1>} : (tensor<3x5xi4>) -> tensor<2x3xi4>
    return %y, %v : tensor<3x5xf32>, tensor<2x3xi4>
  })";
  check(text, {.tolerance = 1e-6});
  ProgramPlan plan = planOf(text);
  auto weight =
      llvm::find_if(plan.buffers, [](auto &buffer) { return buffer.kind == BufferPlan::Kind::Weight; });
  ASSERT_NE(weight, plan.buffers.end());
  EXPECT_EQ(weight->type, DType::I4);
  EXPECT_EQ(std::get<Tensor>(weight->contents).bytes(), 8u);
}

TEST(BuildPlan, DeadOpsAndUnusedConstantsCostNothing) {
  ProgramPlan plan = planOf(R"(func.func @main(%x: tensor<4xf32> {nn.name = "x"}) -> tensor<4xf32> {
    %0 = nn.exp %x : (tensor<4xf32>) -> tensor<4xf32>
    %c = nn.constant {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
    %1 = nn.mul %x, %c : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  })");
  EXPECT_EQ(plan.launches().size(), 1u);
  EXPECT_EQ(plan.buffers.size(), 2u);
}

TEST(BuildPlan, EqualitiesNameTheirOp) {
  ProgramPlan plan = planOf(
      R"(func.func @main(%x: tensor<?xf32> {nn.name = "x", nn.dims = ["a"]}, %y: tensor<?xf32> {nn.name = "y", nn.dims = ["b"]}) -> tensor<?xf32> {
    %0 = nn.add %x, %y : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32> loc("layers.3")
    return %0 : tensor<?xf32>
  })");
  ASSERT_EQ(plan.equalities.size(), 1u);
  EXPECT_EQ(plan.equalities[0].reason, "nn.add at layers.3");
}

TEST(BuildPlan, ADimOfAtMostOneElementIsBroadcast) {
  const char *text =
      R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["rows", 8]}, %y: tensor<?x8xf32> {nn.name = "y", nn.dims = ["SIZE", 8]}) -> tensor<?x8xf32> {
    %0 = nn.add %y, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  })";
  auto planAt = [&](const char *size) {
    std::string own = text;
    return planOf(own.replace(own.find("SIZE"), 4, size));
  };
  for (const char *always : {"min(1, rows)", "1 - max(0, 1 - rows)"}) {
    ProgramPlan plan = planAt(always);
    EXPECT_TRUE(plan.equalities.empty()) << always;
    EXPECT_EQ(plan.outputs[0].shape[0], Dim::symbol("rows")) << always;
  }
  // One row for 5 rows, none for none; not one of several columns for no row.
  ProgramPlan plan = planAt("min(1, columns)");
  ASSERT_EQ(plan.equalities.size(), 1u);
  EXPECT_EQ(plan.equalities[0].right, Dim::min(1, Dim::symbol("rows")));
  EXPECT_EQ(plan.outputs[0].shape[0], Dim::symbol("rows"));
}

TEST(BuildPlan, ALaunchForEachRangeOfRows) {
  const char *text =
      R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}, %w: tensor<6x8xf32> {nn.name = "w"}) -> tensor<?x6xf32> {
    %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x8xf32>, tensor<6x8xf32>) -> tensor<?x6xf32>
    %1 = nn.exp %0 : (tensor<?x6xf32>) -> tensor<?x6xf32>
    return %1 : tensor<?x6xf32>
  })";
  ProgramPlan plan = planOf(text);
  EXPECT_EQ(plan.launchesOfRun(), 2);
  EXPECT_EQ(plan.kernels.size(), 5u);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].choice, Step::Choice::Predicate);
  const std::vector<Alternative> &alternatives = plan.steps[0].alternatives;
  ASSERT_EQ(alternatives.size(), 4u);
  EXPECT_EQ(alternatives[0].when.at(0).most, 1);
  EXPECT_EQ(alternatives[3].when.at(0).most, INT64_MAX);
  EXPECT_TRUE(plan.steps[1].alternatives.at(0).when.empty());
  EXPECT_NE(planText(plan).find("5 kernels, 2 launches"), std::string::npos) << planText(plan);
  EXPECT_NE(planText(plan).find("0: the first that fits of 4 alternatives\n"), std::string::npos)
      << planText(plan);
  EXPECT_NE(planText(plan).find("  when n in 5 … 8: "), std::string::npos) << planText(plan);
  EXPECT_NE(cudaSource(plan).find(" when n >= 9\n"), std::string::npos) << cudaSource(plan);
  // One node for all of them.
  std::string dot = planDot(plan);
  EXPECT_NE(dot.find("launch0 "), std::string::npos) << dot;
  EXPECT_EQ(dot.find("launch2 "), std::string::npos) << dot;
  for (int64_t rows : {0, 1, 3, 8, 9})
    check(text, {.symbols = {{"n", rows}}, .tolerance = 1e-5, .launches = 2});
}

TEST(BuildPlan, OnlyWhatTheLaunchBeforeWritesIsReadAfterTheWait) {
  // Rows of a block each; shorter ones share what they read in the L1.
  ProgramPlan plan = planOf(
      R"(func.func @main(%x: tensor<?x1024xf16> {nn.name = "x", nn.dims = ["n", 1024]}, %w: tensor<1024xf16>)
      -> (tensor<?x1024xf16>, tensor<?x1024xf16>) {
    %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x1024xf16>, tensor<1024xf16>) -> tensor<?x1024xf16>
    %1 = nn.softmax %0 {axis = -1 : i64} : (tensor<?x1024xf16>) -> tensor<?x1024xf16>
    %2 = nn.softmax %x {axis = -1 : i64} : (tensor<?x1024xf16>) -> tensor<?x1024xf16>
    return %1, %2 : tensor<?x1024xf16>, tensor<?x1024xf16>
  })");
  std::vector<bool> early;
  for (const Step &step : plan.steps) {
    const KernelLaunch &launch = step.alternatives.front().launches.front(); // others are for more rows
    const std::string &source = plan.kernels[launch.kernel].source;
    EXPECT_TRUE(plan.kernels[launch.kernel].usesPdl);
    const size_t load = source.find("load_early_vec");
    early.push_back(load != std::string::npos);
    EXPECT_EQ(early.back(), source.find("BeforeWait") < load && load < source.find("AfterWait")) << source;
  }
  EXPECT_EQ(early, (std::vector{true, false, true}));
}

/// A kernel that lets the next one start before it has waited: what was written before it may not be there
/// yet.
TEST(BuildPlan, InALoopEachKernelFollowsAllOthers) {
  // The second kernel reads what the first does not write; without a loop it would read it early.
  ProgramPlan plan = planOf(R"(!t = tensor<?x1024xf16>
  func.func private @step(%s: !t {nn.dims = ["n", 1024]}, %x: !t {nn.dims = ["n", 1024]}) -> !t {
    %0 = nn.softmax %s {axis = -1 : i64} : (!t) -> !t
    %1 = nn.softmax %x {axis = -1 : i64} : (!t) -> !t
    %2 = nn.add %0, %1 : (!t, !t) -> !t
    return %2 : !t
  }
  func.func @main(%s: !t {nn.name = "s", nn.dims = ["n", 1024]}, %x: !t {nn.name = "x", nn.dims = ["n", 1024]}) -> !t {
    %0 = nn.loop %s, %x {body = @step, steps = [3]} : (!t, !t) -> !t
    return %0 : !t
  })");
  ASSERT_EQ(plan.repetitions.size(), 1u);
  EXPECT_GE(plan.repetitions[0].end - plan.repetitions[0].first, 3u);
  for (uint32_t step = plan.repetitions[0].first; step < plan.repetitions[0].end; ++step)
    for (const Alternative &alternative : plan.steps[step].alternatives)
      for (const KernelLaunch &launch : alternative.launches)
        EXPECT_EQ(plan.kernels[launch.kernel].source.find("load_early"), std::string::npos)
            << plan.kernels[launch.kernel].source;
}

TEST(BuildPlan, BehindKernelsThatLaunchEarlyNothingTheyFollowIsReadEarly) {
  for (auto [between, ranks, early] :
       {std::tuple("softmax", 1, false), std::tuple("exp", 1, true), std::tuple("softmax", 2, false)}) {
    const std::string rows = "tensor<?x1024xf16>",
                      attributes = between == std::string("exp") ? "" : " {axis = -1 : i64}";
    ProgramPlan plan = planOf(
        "func.func @main(%x: " + rows + " {nn.name = \"x\", nn.dims = [\"n\", 1024]}, %y: " + rows +
        " {nn.name = \"y\", nn.dims = [\"n\", 1024]}) -> (" + rows + ", " + rows + ")" +
        (ranks > 1 ? " attributes {nn.mesh = {tp = 2 : i64}}" : "") + " {\n" +
        "%0 = nn.softmax %x {axis = -1 : i64} : (" + rows + ") -> " + rows + "\n%1 = nn." + between + " %y" +
        attributes + " : (" + rows + ") -> " + rows + "\n%2 = nn.softmax %0 {axis = -1 : i64} : (" + rows +
        ") -> " + rows + "\nreturn %1, %2 : " + rows + ", " + rows + "\n}");
    ASSERT_EQ(plan.steps.size(), 3u);
    auto sourceOf = [&](size_t step) {
      return plan.kernels[plan.steps[step].alternatives.front().launches.front().kernel].source;
    };
    EXPECT_EQ(sourceOf(0).find("launches_early = true") != std::string::npos, true) << sourceOf(0);
    EXPECT_EQ(sourceOf(2).find("load_early_vec") != std::string::npos, early)
        << between << ranks << sourceOf(2);
  }
}

/// Angles of one position, which is how long the past is: from constants alone, and of one shape in all runs.
TEST(BuildPlan, WhatASizeOfTheRunDecidesIsNotPreparedOnce) {
  const char *text =
      R"(func.func @main(%past: tensor<?x8xf32> {nn.name = "past", nn.dims = ["past", 8]}, %x: tensor<4x8xf32> {nn.name = "x"}) -> tensor<4x8xf32> {
    %0 = nn.constant {value = dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : tensor<8xf32>} : () -> tensor<8xf32>
    %1 = fusion.group "pointwise" schedule "pointwise" (%a = %0) : (tensor<8xf32>) -> tensor<8xf32> {
      %3 = nn.dim_constant {values = ["past"]} : () -> tensor<1xi64>
      %4 = nn.cast %3 : (tensor<1xi64>) -> tensor<1xf32>
      %5 = nn.mul %4, %a : (tensor<1xf32>, tensor<8xf32>) -> tensor<8xf32>
      %6 = nn.cos %5 : (tensor<8xf32>) -> tensor<8xf32>
      fusion.yield %6 : tensor<8xf32>
    }
    %2 = nn.mul %x, %1 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  })";
  EXPECT_TRUE(planOf(text).preparation.empty());
  for (int64_t past : {0, 5})
    check(text, {.symbols = {{"past", past}}, .targets = Targets::One});
}

/// 17 rows of each picture: what is for 1, or 2 to 4 rows, is not emitted, and the others are for all sizes.
TEST(BuildPlan, SizesThatNoneReach) {
  auto module = [](const std::string &rows, const std::string &dims) {
    const std::string x = "tensor<" + rows + "x64xbf16>", y = "tensor<" + rows + "x32xbf16>";
    return "func.func @main(%x: " + x + " {nn.name = \"x\", nn.dims = [" + dims +
           ", 64]}, %w: tensor<64x32xbf16> {nn.name = \"w\"}) -> " + y + " {\n%0 = nn.matmul %x, %w : (" + x +
           ", tensor<64x32xbf16>) -> " + y + "\nreturn %0 : " + y + "\n}";
  };
  auto leastRows = [](const ProgramPlan &plan) {
    std::vector<int64_t> least;
    for (const Alternative &alternative : plan.steps.at(0).alternatives)
      if (alternative.variant == plan.steps[0].alternatives.front().variant && !alternative.when.empty())
        least.push_back(alternative.when.at(0).least);
    return least;
  };
  const ProgramPlan any = planOf(module("?", "\"n\"")), pictures = planOf(module("?x17", "\"n\", 17"));
  EXPECT_LT(pictures.kernels.size(), any.kernels.size());
  const std::vector<int64_t> least = leastRows(pictures);
  EXPECT_TRUE(least.empty() || least.front() == 1); // together they are for all
  for (const Alternative &alternative : pictures.steps.at(0).alternatives)
    for (const SizeRange &range : alternative.when)
      EXPECT_GE(range.most / 17 * 17, range.least);
  for (int64_t n : {1, 2, 9})
    check(module("?x17", "\"n\", 17"),
          {.symbols = {{"n", n}}, .tolerance = 8e-3, .launches = 1, .targets = Targets::One});
}

/// A norm before products: one kernel for few rows, two for many. What follows the group reads its sum, which
/// either the last kernel before it or the one before that has written.
TEST(BuildPlan, TwoKernelsForManyRows) {
  const char *text =
      R"(func.func @main(%x: tensor<?x1024xf32> {nn.name = "x", nn.dims = ["n", 1024]}, %r: tensor<?x1024xf32> {nn.name = "r", nn.dims = ["n", 1024]},
      %g: tensor<1024xf32> {nn.name = "g"}, %w: tensor<16x1024xf32> {nn.name = "w"}) -> (tensor<?x16xf32>, tensor<?x1024xf32>, tensor<?x1024xf32>) {
    %y:2 = fusion.group "norm_matmul" schedule "matmul" (%a = %x, %b = %r, %v = %g, %c = %w)
        : (tensor<?x1024xf32>, tensor<?x1024xf32>, tensor<1024xf32>, tensor<16x1024xf32>) -> (tensor<?x16xf32>, tensor<?x1024xf32>) {
      %s = nn.add %a, %b : (tensor<?x1024xf32>, tensor<?x1024xf32>) -> tensor<?x1024xf32>
      %h = nn.rms_norm %s, %v {eps = 1.0e-6 : f32} : (tensor<?x1024xf32>, tensor<1024xf32>) -> tensor<?x1024xf32>
      %m = nn.matmul %h, %c {transpose_b = true} : (tensor<?x1024xf32>, tensor<16x1024xf32>) -> tensor<?x16xf32>
      fusion.yield %m, %s : tensor<?x16xf32>, tensor<?x1024xf32>
    }
    %0 = nn.softmax %y#1 {axis = -1 : i64} : (tensor<?x1024xf32>) -> tensor<?x1024xf32>
    %1 = nn.softmax %x {axis = -1 : i64} : (tensor<?x1024xf32>) -> tensor<?x1024xf32>
    return %y#0, %0, %1 : tensor<?x16xf32>, tensor<?x1024xf32>, tensor<?x1024xf32>
  })";
  ProgramPlan plan = planOf(text);
  EXPECT_EQ(plan.launchesOfRun(), 3);
  ASSERT_EQ(plan.steps.size(), 3u);
  auto few = [](const Alternative &alternative) { return alternative.when.at(0).most < 9; };
  const std::vector<Alternative> &alternatives = plan.steps[0].alternatives;
  const auto many = llvm::find_if_not(alternatives, few);
  ASSERT_NE(many, alternatives.end());
  EXPECT_EQ(many->when.at(0).least, 9);
  for (const Alternative &alternative : alternatives)
    EXPECT_EQ(alternative.launches.size(), few(alternative) ? 1u : 2u);
  EXPECT_EQ(many->launches[0].fusion, "norm_matmul");
  EXPECT_EQ(many->launches[0].ops, (std::vector<std::string>{"nn.add", "nn.rms_norm"}));
  EXPECT_EQ(many->launches[1].ops, std::vector<std::string>{"nn.matmul"});
  auto isEarly = [&](const Step &step) {
    const std::string &source = plan.kernels[step.alternatives.front().launches.front().kernel].source;
    return source.find("load_early_vec") != std::string::npos;
  };
  EXPECT_FALSE(isEarly(plan.steps[1])); // the sum
  EXPECT_TRUE(isEarly(plan.steps[2]));
  for (int64_t rows : {0, 1, 3, 8, 9, 17})
    check(text, {.symbols = {{"n", rows}}, .tolerance = 1e-5, .launches = 3});
}

TEST(BuildPlan, AnOpThatNobodyTakesIsAnErrorWithTheReasonsOfThoseForIt) {
  std::string error = planError(R"(func.func @main(%x: tensor<4xi1> {nn.name = "x"}) -> tensor<4xi1> {
    %0 = nn.all_reduce %x {group = "tp"} : (tensor<4xi1>) -> tensor<4xi1> loc("layers.0.mlp")
    return %0 : tensor<4xi1>
  })");
  EXPECT_NE(error.find("nn.all_reduce at layers.0.mlp: no kernel computes it (pointwise: "),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("; collective: "), std::string::npos) << error;
  EXPECT_EQ(error.find("scan: "), std::string::npos) << error;
}

TEST(BuildPlan, AGroupWithAnUnknownSchedule) {
  std::string error = planError(R"(func.func @main(%x: tensor<4xf32> {nn.name = "x"}) -> tensor<4xf32> {
    %0 = fusion.group "mine" schedule "magic" (%a = %x) : (tensor<4xf32>) -> tensor<4xf32> {
      %1 = nn.exp %a : (tensor<4xf32>) -> tensor<4xf32>
      fusion.yield %1 : tensor<4xf32>
    }
    return %0 : tensor<4xf32>
  })");
  EXPECT_NE(error.find("there is no schedule \"magic\""), std::string::npos) << error;
}

} // namespace
} // namespace fusion::test
