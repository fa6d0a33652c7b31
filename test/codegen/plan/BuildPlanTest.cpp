#include "PlanChecks.h"

#include "codegen/plan/Print.h"

#include <set>

namespace fusion::test {
namespace {

ProgramPlan planOf(const std::string &text) {
  auto module = parse(text);
  auto plan = buildPlan(mainOf(*module), {.baseFolder = "/models"});
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : ProgramPlan();
}

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
  ASSERT_EQ(plan.launches.size(), 2u);
  EXPECT_EQ(plan.launches[1].location, "layers.1");
  EXPECT_EQ(plan.launches[0].bytesRead.str(), "32*n");
  EXPECT_NE(cudaSource(plan).find("nn.silu at layers.0"), std::string::npos) << cudaSource(plan);
  EXPECT_NE(planText(plan).find("layers.1"), std::string::npos);
  EXPECT_NE(planDot(plan).find("launch0 -> launch1"), std::string::npos) << planDot(plan);
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

TEST(BuildPlan, FourBitConstantsLieTwoToAByte) {
  const std::string text = R"(func.func @main(%x: tensor<1x5xf32> {nn.name = "x"}, %s: tensor<f32> {nn.name = "s"}) -> (tensor<3x5xf32>, tensor<2x3xi4>) {
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
  EXPECT_EQ(plan.launches.size(), 1u);
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
  const char *text = R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["rows", 8]}, %y: tensor<?x8xf32> {nn.name = "y", nn.dims = ["SIZE", 8]}) -> tensor<?x8xf32> {
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
  const char *text = R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}, %w: tensor<6x8xf32> {nn.name = "w"}) -> tensor<?x6xf32> {
    %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x8xf32>, tensor<6x8xf32>) -> tensor<?x6xf32>
    %1 = nn.exp %0 : (tensor<?x6xf32>) -> tensor<?x6xf32>
    return %1 : tensor<?x6xf32>
  })";
  ProgramPlan plan = planOf(text);
  EXPECT_EQ(plan.launchesOfRun(), 2);
  EXPECT_EQ(plan.launches.size(), plan.kernels.size());
  ASSERT_EQ(plan.launches.size(), 5u);
  EXPECT_EQ(plan.launches[0].when->most, 1);
  EXPECT_EQ(plan.launches[3].when->most, INT64_MAX);
  EXPECT_FALSE(plan.launches[4].when);
  EXPECT_NE(planText(plan).find("5 kernels, 2 launches"), std::string::npos) << planText(plan);
  EXPECT_NE(planText(plan).find(" when n in 5 … 8  // nn.matmul"), std::string::npos) << planText(plan);
  EXPECT_NE(cudaSource(plan).find(" when n >= 9\n"), std::string::npos) << cudaSource(plan);
  // One node for all of them.
  std::string dot = planDot(plan);
  EXPECT_NE(dot.find("launch0 "), std::string::npos) << dot;
  EXPECT_EQ(dot.find("launch1 "), std::string::npos) << dot;
  for (int64_t rows : {0, 1, 3, 8, 9})
    check(text, {.symbols = {{"n", rows}}, .tolerance = 1e-5, .launches = 2});
}

TEST(BuildPlan, OnlyWhatTheLaunchBeforeWritesIsReadAfterTheWait) {
  // Rows of a block each; shorter ones share what they read in the L1.
  ProgramPlan plan = planOf(R"(func.func @main(%x: tensor<?x1024xf16> {nn.name = "x", nn.dims = ["n", 1024]}, %w: tensor<1024xf16>)
      -> (tensor<?x1024xf16>, tensor<?x1024xf16>) {
    %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x1024xf16>, tensor<1024xf16>) -> tensor<?x1024xf16>
    %1 = nn.softmax %0 {axis = -1 : i64} : (tensor<?x1024xf16>) -> tensor<?x1024xf16>
    %2 = nn.softmax %x {axis = -1 : i64} : (tensor<?x1024xf16>) -> tensor<?x1024xf16>
    return %1, %2 : tensor<?x1024xf16>, tensor<?x1024xf16>
  })");
  std::vector<bool> early;
  for (const KernelLaunch &launch : plan.launches) {
    if (launch.when && launch.when->least > 1)
      continue; // the same for more rows
    const std::string &source = plan.kernels[launch.kernel].source;
    const size_t load = source.find("load_settled_vec"), wait = source.find("pdl_wait");
    ASSERT_NE(wait, std::string::npos) << source;
    early.push_back(load < wait);
    EXPECT_EQ(early.back(), load != std::string::npos) << source;
  }
  EXPECT_EQ(early, (std::vector{true, false, true}));
}

/// A norm ahead of products: one kernel for few rows, two for many. What follows the group reads its sum, which either the
/// last kernel before it or the one before that has written.
TEST(BuildPlan, TwoKernelsForManyRows) {
  const char *text = R"(func.func @main(%x: tensor<?x1024xf32> {nn.name = "x", nn.dims = ["n", 1024]}, %r: tensor<?x1024xf32> {nn.name = "r", nn.dims = ["n", 1024]},
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
  EXPECT_TRUE(plan.launches[0].ahead);
  EXPECT_EQ(plan.launches[0].when->least, 9);
  EXPECT_EQ(plan.launches[0].fusion, "norm_matmul");
  EXPECT_EQ(plan.launches[0].ops, (std::vector<std::string>{"nn.add", "nn.rms_norm"}));
  std::vector<KernelLaunch> launches;
  for (const KernelLaunch &launch : plan.launches)
    if (!launch.when || launch.when->least < 1000) // not the same for more rows
      launches.push_back(launch);
  EXPECT_EQ(launches.end()[-3].ops, std::vector<std::string>{"nn.matmul"});
  auto isEarly = [&](const KernelLaunch &launch) {
    const std::string &source = plan.kernels[launch.kernel].source;
    return source.find("load_settled_vec") < source.find("pdl_wait");
  };
  EXPECT_FALSE(isEarly(launches.end()[-2])); // the sum
  EXPECT_TRUE(isEarly(launches.end()[-1]));
  for (int64_t rows : {0, 1, 3, 8, 9, 17})
    check(text, {.symbols = {{"n", rows}}, .tolerance = 1e-5, .launches = 3});
}

TEST(BuildPlan, AnOpThatNobodyTakesIsAnErrorWithEveryReason) {
  std::string error = planError(R"(func.func @main(%x: tensor<4xi1> {nn.name = "x"}) -> tensor<4xi1> {
    %0 = nn.all_reduce %x {group = "tp"} : (tensor<4xi1>) -> tensor<4xi1> loc("layers.0.mlp")
    return %0 : tensor<4xi1>
  })");
  EXPECT_NE(error.find("nn.all_reduce at layers.0.mlp: no kernel computes it (pointwise: "),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("scan: "), std::string::npos) << error;
}

TEST(BuildPlan, TheWaysToSumOverRanksFollowEachOther) {
  ProgramPlan plan = planOf(R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}, %w: tensor<8xf32> {nn.name = "w"}) -> (tensor<?x8xf32>, tensor<?x8xf32>)
      attributes {nn.ranks = 2 : i64} {
    %e = nn.exp %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %y, %s = fusion.group "all_reduce_norm" schedule "collective" (%a = %e, %v = %w) : (tensor<?x8xf32>, tensor<8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
      %0 = nn.all_reduce %a : (tensor<?x8xf32>) -> tensor<?x8xf32>
      %1 = nn.rms_norm %0, %v {eps = 1.0e-6 : f32} : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
      fusion.yield %1, %0 : tensor<?x8xf32>, tensor<?x8xf32>
    }
    %z = nn.add %y, %s : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %z, %y : tensor<?x8xf32>, tensor<?x8xf32>
  })");
  EXPECT_EQ(plan.ranks, 2);
  ASSERT_EQ(plan.launches.size(), 6u) << planText(plan);
  const KernelLaunch &one = plan.launches[1], &two = plan.launches[2], &call = plan.launches[3], &norm = plan.launches[4];
  EXPECT_EQ(one.collective->form, CollectiveForm::OneShot);
  EXPECT_EQ(one.collective->messageBytes.str(), "32*n");
  EXPECT_EQ(one.collective->roundBytes.str(), "32*n");
  EXPECT_EQ(two.collective->form, CollectiveForm::TwoShot);
  EXPECT_EQ(call.collective->form, CollectiveForm::Library);
  EXPECT_EQ(norm.collective->form, CollectiveForm::Library);
  EXPECT_TRUE(one.arguments.back().exchange || llvm::any_of(one.arguments, [](auto &argument) { return argument.exchange; }));
  const KernelPlan &library = plan.kernels[call.kernel];
  EXPECT_TRUE(library.isLibraryCall);
  EXPECT_EQ(library.name, "all_reduce");
  EXPECT_EQ(library.parameters[0].type, "const f32 *");
  EXPECT_EQ(plan.kernels[norm.kernel].schedule, "row");
  // The library writes the sum where the other forms do.
  EXPECT_TRUE(llvm::any_of(one.arguments, [&](auto &argument) { return argument.written && argument.buffer == call.arguments[1].buffer; }));
  // Whoever comes next knows that the form that ran may have written either.
  EXPECT_EQ(plan.kernels[plan.launches[5].kernel].source.find("load_settled"), std::string::npos);
}

/// Two sums, each added to what the one before has made, %t0 and %t1, and quantised to `to`; `more` ops behind, and what is
/// returned beside the last norm.
static std::string residualChain(const std::string &to, const std::string &more, const std::string &returned) {
  std::string text = R"(func.func @main(%x: tensor<?x1024xbf16> {nn.name = "x", nn.dims = ["n", 1024]}, %r: tensor<?x1024xbf16> {nn.name = "r", nn.dims = ["n", 1024]}, %w: tensor<1024xbf16> {nn.name = "w"}, %scale: tensor<f32> {nn.name = "scale"}) -> (tensor<?x1024xbf16>, Q, tensor<?x1024xbf16>) attributes {nn.ranks = 2 : i64} {
    %q0, %t0 = fusion.group "g" schedule "collective" (%a = %x, %b = %r, %v = %w, %s = %scale) : (tensor<?x1024xbf16>, tensor<?x1024xbf16>, tensor<1024xbf16>, tensor<f32>) -> (Q, tensor<?x1024xbf16>) {
      %0 = nn.all_reduce %a : (tensor<?x1024xbf16>) -> tensor<?x1024xbf16>
      %1 = nn.add %0, %b : (tensor<?x1024xbf16>, tensor<?x1024xbf16>) -> tensor<?x1024xbf16>
      %2 = nn.rms_norm %1, %v {eps = 1.0e-6 : f32} : (tensor<?x1024xbf16>, tensor<1024xbf16>) -> tensor<?x1024xbf16>
      %3 = nn.quantize %2, %s : (tensor<?x1024xbf16>, tensor<f32>) -> Q
      fusion.yield %3, %1 : Q, tensor<?x1024xbf16>
    }
    %n1, %t1 = fusion.group "g" schedule "collective" (%a = %x, %b = %t0, %v = %w) : (tensor<?x1024xbf16>, tensor<?x1024xbf16>, tensor<1024xbf16>) -> (tensor<?x1024xbf16>, tensor<?x1024xbf16>) {
      %0 = nn.all_reduce %a : (tensor<?x1024xbf16>) -> tensor<?x1024xbf16>
      %1 = nn.add %0, %b : (tensor<?x1024xbf16>, tensor<?x1024xbf16>) -> tensor<?x1024xbf16>
      %2 = nn.rms_norm %1, %v {eps = 1.0e-6 : f32} : (tensor<?x1024xbf16>, tensor<1024xbf16>) -> tensor<?x1024xbf16>
      fusion.yield %2, %1 : tensor<?x1024xbf16>, tensor<?x1024xbf16>
    }
    %n2 = fusion.group "g" schedule "collective" (%a = %n1, %b = %t1, %v = %w) : (tensor<?x1024xbf16>, tensor<?x1024xbf16>, tensor<1024xbf16>) -> tensor<?x1024xbf16> {
      %0 = nn.all_reduce %a : (tensor<?x1024xbf16>) -> tensor<?x1024xbf16>
      %1 = nn.add %0, %b : (tensor<?x1024xbf16>, tensor<?x1024xbf16>) -> tensor<?x1024xbf16>
      %2 = nn.rms_norm %1, %v {eps = 1.0e-6 : f32} : (tensor<?x1024xbf16>, tensor<1024xbf16>) -> tensor<?x1024xbf16>
      fusion.yield %2 : tensor<?x1024xbf16>
    }
    MORE
    return %n2, %q0, RETURNED : tensor<?x1024xbf16>, Q, tensor<?x1024xbf16>
  })";
  for (auto [name, with] : {std::pair<std::string, std::string>("MORE", more), {"RETURNED", returned}, {"Q", "tensor<?x1024x" + to + ">"}})
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += with.size())
      text.replace(at, name.size(), with);
  return text;
}

/// How many of the plan's groups send finished rows.
static int finishing(const std::string &text) {
  std::set<std::string> groups;
  ProgramPlan plan = planOf(text);
  for (const KernelLaunch &launch : plan.launches)
    if (plan.kernels[launch.kernel].source.find("inReply") != std::string::npos)
      groups.insert(launch.location + std::to_string(launch.ops.size()) + std::to_string(*launch.arguments[1].buffer));
  return static_cast<int>(groups.size());
}

TEST(BuildPlan, ResidualsThatOwnersKeep) {
  EXPECT_EQ(finishing(residualChain("f8E4M3FN", "", "%n1")), 3);
  EXPECT_EQ(finishing(residualChain("f8E4M3FN", "", "%t0")), 0) << "what is behind the first sum is as long as before";
  EXPECT_EQ(finishing(residualChain("f8E4M3FN", "", "%t1")), 0) << "the second sum is a result, so that all read the first";
  EXPECT_EQ(finishing(residualChain("f8E4M3FN", "%e = nn.exp %t1 : (tensor<?x1024xbf16>) -> tensor<?x1024xbf16>", "%e")), 0);
  EXPECT_EQ(finishing(residualChain("i8", "", "%n1")), 0) << "integers are not sent, and nothing else is shorter";
}

TEST(BuildPlan, WhoSharesOwnersRowsTakesOneForm) {
  const ProgramPlan plan = planOf(residualChain("f8E4M3FN", "", "%n1"));
  EXPECT_EQ(llvm::count_if(plan.buffers, [](const BufferPlan &buffer) { return buffer.ownersRows; }), 2);
  EXPECT_TRUE(verify(plan));
  auto parsed = programPlanFromJson(toJson(plan));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(toJson(*parsed), toJson(plan));

  auto refused = [&](llvm::function_ref<void(KernelLaunch &)> change, const char *why) {
    ProgramPlan other = plan;
    change(other.launches.back());
    Status status = verify(other);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find(why), std::string::npos) << status.error().message;
  };
  const size_t begin = [&] {
    size_t at = 0;
    for (size_t end; (end = plan.endOfCollective(at)) < plan.launches.size();)
      at = std::max(end, at + 1);
    return at;
  }();
  for (auto change : {+[](KernelLaunch::Collective &way) { way.messageBytes = way.messageBytes * Dim(2); },
                      +[](KernelLaunch::Collective &way) { way.roundBytes = way.roundBytes + Dim(256); },
                      +[](KernelLaunch::Collective &way) { way.finishedRows = false; }}) {
    ProgramPlan other = plan;
    for (size_t i = begin; i < other.launches.size(); ++i)
      change(*other.launches[i].collective);
    Status status = verify(other);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("may take different forms"), std::string::npos) << status.error().message;
  }
  refused([](KernelLaunch &launch) { launch.collective.reset(); }, "of which ranks have their own rows only");
}

TEST(BuildPlan, ASumOverRanksThatOnlyTheLibraryMakes) {
  ProgramPlan plan = planOf(R"(func.func @main(%x: tensor<?x?xf64> {nn.name = "x", nn.dims = ["n", "m"]}) -> tensor<?x?xf64>
      attributes {nn.ranks = 2 : i64} {
    %t = nn.transpose %x {perm = array<i64: 1, 0>} : (tensor<?x?xf64>) -> tensor<?x?xf64>
    %0 = nn.all_reduce %t : (tensor<?x?xf64>) -> tensor<?x?xf64>
    return %0 : tensor<?x?xf64>
  })");
  ASSERT_EQ(plan.launches.size(), 2u) << planText(plan); // what lies transposed is copied first
  EXPECT_FALSE(plan.launches[1].collective);
  EXPECT_TRUE(plan.kernels[plan.launches[1].kernel].isLibraryCall);
  EXPECT_EQ(plan.launches[1].arguments[0].buffer, plan.launches[0].arguments[1].buffer);
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
