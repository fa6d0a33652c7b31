// Plans of sums over ranks.
#include "PlanChecks.h"

#include "codegen/plan/Print.h"

#include <set>

namespace fusion::test {
namespace {

TEST(PlanSums, ASumOverRanksHasAnAlternativeForEachAlgorithm) {
  ProgramPlan plan = planOf(
      R"(func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}, %w: tensor<8xf32> {nn.name = "w"}) -> (tensor<?x8xf32>, tensor<?x8xf32>)
      attributes {nn.mesh = {tp = 2 : i64}} {
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
  ASSERT_EQ(plan.steps.size(), 3u) << planText(plan);
  EXPECT_EQ(plan.steps[1].choice, Step::Choice::Ranks);
  const std::vector<Alternative> &algorithms = plan.steps[1].alternatives;
  ASSERT_EQ(algorithms.size(), 3u) << planText(plan);
  EXPECT_EQ(algorithms[0].collective->algorithm, CollectiveAlgorithm::OneShot);
  EXPECT_EQ(algorithms[0].collective->messageBytes.str(), "32*n");
  EXPECT_EQ(algorithms[0].collective->roundBytes.str(), "64*n") << "with what a rank sends itself";
  EXPECT_EQ(algorithms[1].collective->algorithm, CollectiveAlgorithm::TwoShot);
  EXPECT_EQ(algorithms[2].collective->algorithm, CollectiveAlgorithm::Library);
  ASSERT_EQ(algorithms[2].launches.size(), 2u);
  const KernelLaunch &one = algorithms[0].launches.at(0), &call = algorithms[2].launches[0],
                     &norm = algorithms[2].launches[1];
  EXPECT_TRUE(llvm::any_of(
      one.arguments, [](auto &argument) { return std::holds_alternative<ExchangeArgument>(argument); }));
  const KernelPlan &library = plan.kernels[call.kernel];
  EXPECT_TRUE(library.isLibraryCall);
  EXPECT_EQ(library.name, "all_reduce");
  for (const KernelLaunch *launch : {&one, &std::as_const(algorithms)[1].launches.at(0), &call})
    EXPECT_EQ(launch->sumsOver, "tp");
  EXPECT_EQ(norm.sumsOver, "") << "the library sums, the kernel after it does not";
  EXPECT_EQ(library.parameters[0].type, "const f32 *");
  EXPECT_EQ(plan.kernels[norm.kernel].schedule, "row");
  // The library writes the sum where the other algorithms do.
  EXPECT_TRUE(llvm::any_of(one.arguments, [&](auto &argument) {
    return isWritten(argument) && *bufferOf(argument) == *bufferOf(call.arguments[1]);
  }));
  // Whoever comes next knows that the algorithm that ran may have written either.
  EXPECT_EQ(plan.kernels[plan.launches().back()->kernel].source.find("load_early"), std::string::npos);
}

/// A matmul %m, another op %a after it, if any, and the group of a sum of the last one.
static std::string matmulAndSum(const std::string &between = "", const std::string &type = "bf16") {
  std::string text =
      R"(func.func @main(%x: tensor<?x128xT> {nn.dims = ["n", 128]}, %w: tensor<128x1024xT>, %r: tensor<?x1024xT> {nn.dims = ["n", 1024]}, %v: tensor<1024xT>) -> (tensor<?x1024xT>, tensor<?x1024xT>)
      attributes {nn.mesh = {tp = 2 : i64}} {
    %m = nn.matmul %x, %w : (tensor<?x128xT>, tensor<128x1024xT>) -> tensor<?x1024xT>
    BETWEEN
    %y, %s = fusion.group "g" schedule "collective" (%b = ADDEND, %c = %r, %d = %v) : (tensor<?x1024xT>, tensor<?x1024xT>, tensor<1024xT>) -> (tensor<?x1024xT>, tensor<?x1024xT>) {
      %0 = nn.all_reduce %b : (tensor<?x1024xT>) -> tensor<?x1024xT>
      %1 = nn.add %0, %c : (tensor<?x1024xT>, tensor<?x1024xT>) -> tensor<?x1024xT>
      %2 = nn.rms_norm %1, %d {eps = 1.0e-6 : f32} : (tensor<?x1024xT>, tensor<1024xT>) -> tensor<?x1024xT>
      fusion.yield %2, %1 : tensor<?x1024xT>, tensor<?x1024xT>
    }
    return %y, %s : tensor<?x1024xT>, tensor<?x1024xT>
  })";
  text.replace(text.find("BETWEEN"), 7, between);
  text.replace(text.find("ADDEND"), 6, between.empty() ? "%m" : "%a");
  for (size_t at; (at = text.find("xT>")) != std::string::npos;)
    text.replace(at + 1, 1, type);
  return text;
}

static std::vector<const KernelLaunch *> linkedLaunches(const ProgramPlan &plan, size_t step) {
  std::vector<const KernelLaunch *> linked;
  for (const Alternative &alternative : plan.steps.at(step).alternatives)
    if (alternative.linked)
      linked.push_back(&*alternative.linked);
  return linked;
}

TEST(PlanSums, AMatmulInFrontSendsItsResultItself) {
  const ProgramPlan plan = planOf(matmulAndSum());
  ASSERT_EQ(plan.steps.size(), 2u) << planText(plan);
  const auto senders = linkedLaunches(plan, 0), sums = linkedLaunches(plan, 1);
  EXPECT_EQ(senders.size(), 5u) << "8, 16, 32, 64 and 128 rows\n" << planText(plan);
  ASSERT_FALSE(sums.empty()) << planText(plan);
  for (const KernelLaunch *sender : senders) {
    const std::string &source = plan.kernels[sender->kernel].source;
    EXPECT_NE(source.find("sending_epilogue<2>("), std::string::npos) << source;
    EXPECT_EQ(source.find("launches_early"), std::string::npos) << "the sum begins when it has waited";
    EXPECT_EQ(sender->sumsOver, "tp");
  }
  for (const KernelLaunch *launch : {senders.front(), senders.back(), sums.front(), sums.back()})
    checkSpills(plan.kernels[launch->kernel], Targets::One);
  const BufferId addend = *bufferOf(senders.front()->arguments[0]);
  for (const KernelLaunch *sum : sums) {
    const std::string &source = plan.kernels[sum->kernel].source;
    EXPECT_NE(source.find("isSent = true"), std::string::npos) << source;
    for (const KernelArgument &argument : sum->arguments)
      EXPECT_FALSE(bufferOf(argument) && *bufferOf(argument) == addend) << "it reads only what was sent";
  }
  for (const Alternative &alternative : plan.steps[1].alternatives)
    EXPECT_EQ(alternative.linked.has_value(),
              alternative.collective->algorithm == CollectiveAlgorithm::OneShot)
        << "also where one kernel is for two ranges of rows\n"
        << planText(plan);
  EXPECT_TRUE(verify(plan)) << verify(plan).error().message;
}

TEST(PlanSums, OtherAddendsAreNotSentByAMatmul) {
  auto isLinked = [](const std::string &text) {
    const ProgramPlan plan = planOf(text);
    for (size_t step = 0; step < plan.steps.size(); ++step)
      if (!linkedLaunches(plan, step).empty())
        return true;
    return false;
  };
  EXPECT_TRUE(isLinked(matmulAndSum("", "f16")));
  EXPECT_FALSE(isLinked(matmulAndSum("", "f32"))) << "no kernel by swapped operands";
  EXPECT_FALSE(isLinked(matmulAndSum("%a = nn.exp %m : (tensor<?x1024xT>) -> tensor<?x1024xT>")))
      << "another kernel is between";
  std::string ofOther = matmulAndSum();
  ofOther.replace(ofOther.find("%b = %m"), 7, "%b = %r");
  EXPECT_FALSE(isLinked(ofOther)) << "the sum is of another tensor";
}

/// A sum over `axis` of a function on the mesh `mesh`, alone or with the norm after it.
static std::string sumOver(const std::string &axis, const std::string &mesh) {
  return "func.func @main(%x: tensor<?x8xf32> {nn.name = \"x\", nn.dims = [\"n\", 8]}) -> tensor<?x8xf32>" +
         (mesh.empty() ? "" : " attributes {nn.mesh = " + mesh + "}") + R"( {
    %0 = nn.all_reduce %x {group = ")" +
         axis + R"("} : (tensor<?x8xf32>) -> tensor<?x8xf32> loc("layers.0.mlp")
    return %0 : tensor<?x8xf32>
  })";
}

TEST(PlanSums, ASumNamesTheMeshAxisThatItSumsOver) {
  for (const char *axis : {"tp", "ep"}) {
    ProgramPlan plan = planOf(sumOver(axis, std::string("{") + axis + " = 2 : i64}"));
    EXPECT_EQ(plan.axis, axis);
    EXPECT_EQ(plan.ranks, 2);
    ASSERT_FALSE(plan.steps.empty());
    for (const KernelLaunch *launch : std::as_const(plan).launches())
      EXPECT_EQ(launch->sumsOver, axis) << planText(plan);
    EXPECT_NE(planText(plan).find(std::string("one of 2 ranks along ") + axis), std::string::npos)
        << planText(plan);
    EXPECT_EQ(planOf(sumOver(axis, "")).ranks, 1) << "a sum of one addend";
  }
}

TEST(PlanSums, SumsOverOtherAxesThanTheRanksAreRefused) {
  const std::string other =
      "nn.all_reduce at layers.0.mlp sums over the mesh axis \"ep\", but the ranks are the axis \"tp\"; "
      "sums over another axis cannot be run yet";
  EXPECT_EQ(planError(sumOver("ep", "{tp = 2 : i64}")), other);
  EXPECT_EQ(planError(sumOver("ep", "{ep = 2 : i64, tp = 4 : i64}")),
            "the ranks are a mesh of 2 axes (ep = 2, tp = 4); only ranks along one axis can be run yet");
  EXPECT_EQ(
      planError(
          R"(func.func @main(%x: tensor<4x128xf32> {nn.name = "x"}, %w: tensor<128xf32> {nn.name = "w"}) -> tensor<4x128xf32>
      attributes {nn.mesh = {tp = 2 : i64}} {
    %y = fusion.group "all_reduce_norm" schedule "collective" (%a = %x, %v = %w) : (tensor<4x128xf32>, tensor<128xf32>) -> tensor<4x128xf32> {
      %0 = nn.all_reduce %a {group = "ep"} : (tensor<4x128xf32>) -> tensor<4x128xf32> loc("layers.0.mlp")
      %1 = nn.rms_norm %0, %v {eps = 1.0e-6 : f32} : (tensor<4x128xf32>, tensor<128xf32>) -> tensor<4x128xf32>
      fusion.yield %1 : tensor<4x128xf32>
    }
    return %y : tensor<4x128xf32>
  })"),
      other);
}

/// Two sums, each added to what the one before has made, %t0 and %t1, and quantised to `to`; `more` ops
/// after, and what is returned beside the last norm.
static std::string residualChain(const std::string &to, const std::string &more,
                                 const std::string &returned) {
  std::string text =
      R"(func.func @main(%x: tensor<?x1024xbf16> {nn.name = "x", nn.dims = ["n", 1024]}, %r: tensor<?x1024xbf16> {nn.name = "r", nn.dims = ["n", 1024]}, %w: tensor<1024xbf16> {nn.name = "w"}, %scale: tensor<f32> {nn.name = "scale"}) -> (tensor<?x1024xbf16>, Q, tensor<?x1024xbf16>) attributes {nn.mesh = {tp = 2 : i64}} {
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
  for (auto [name, with] : {std::pair<std::string, std::string>("MORE", more),
                            {"RETURNED", returned},
                            {"Q", "tensor<?x1024x" + to + ">"}})
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += with.size())
      text.replace(at, name.size(), with);
  return text;
}

/// How many of the plan's groups gather rows after the norm, not the sum.
static int groupsThatGatherRows(const std::string &text) {
  std::set<std::string> groups;
  ProgramPlan plan = planOf(text);
  for (const KernelLaunch *launch : plan.launches())
    if (plan.kernels[launch->kernel].source.find("row.ranks.gather(") != std::string::npos)
      groups.insert(launch->location + std::to_string(launch->ops.size()) +
                    std::to_string(*bufferOf(launch->arguments[1])));
  return static_cast<int>(groups.size());
}

TEST(PlanSums, ResidualsThatStayScattered) {
  EXPECT_EQ(groupsThatGatherRows(residualChain("f8E4M3FN", "", "%n1")), 3);
  EXPECT_EQ(groupsThatGatherRows(residualChain("f8E4M3FN", "", "%t0")), 0)
      << "the rows after the first sum are as long as the sum";
  EXPECT_EQ(groupsThatGatherRows(residualChain("f8E4M3FN", "", "%t1")), 0)
      << "the second sum is a result, so that all read the first";
  EXPECT_EQ(groupsThatGatherRows(residualChain(
                "f8E4M3FN", "%e = nn.exp %t1 : (tensor<?x1024xbf16>) -> tensor<?x1024xbf16>", "%e")),
            0);
  EXPECT_EQ(groupsThatGatherRows(residualChain("i8", "", "%n1")), 0)
      << "integers are not sent, and nothing else is shorter";
}

TEST(PlanSums, KernelsThatShareScatteredRowsTakeOneAlgorithm) {
  const ProgramPlan plan = planOf(residualChain("f8E4M3FN", "", "%n1"));
  EXPECT_EQ(llvm::count_if(plan.buffers, [](const BufferPlan &buffer) { return buffer.isScattered; }), 2);
  EXPECT_TRUE(verify(plan));
  auto parsed = programPlanFromJson(toJson(plan));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(toJson(*parsed), toJson(plan));

  for (auto change :
       {+[](Collective &collective) { collective.messageBytes = collective.messageBytes * Dim(2); },
        +[](Collective &collective) { collective.roundBytes = collective.roundBytes + Dim(256); },
        +[](Collective &collective) { collective.gathersRows = false; }}) {
    ProgramPlan other = plan;
    for (Alternative &alternative : other.steps.back().alternatives)
      change(*alternative.collective);
    Status status = verify(other);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("may take different algorithms"), std::string::npos)
        << status.error().message;
  }
  ProgramPlan other = plan;
  Step &last = other.steps.back();
  last.choice = Step::Choice::Predicate;
  last.alternatives.erase(last.alternatives.begin(), last.alternatives.end() - 1);
  last.alternatives[0].collective.reset();
  last.alternatives[0].when.clear();
  Status status = verify(other);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("whose rows stay scattered over the ranks"), std::string::npos)
      << status.error().message;
}

TEST(PlanSums, ASumOverRanksThatOnlyTheLibraryMakes) {
  ProgramPlan plan =
      planOf(R"(func.func @main(%x: tensor<?x?xf64> {nn.name = "x", nn.dims = ["n", "m"]}) -> tensor<?x?xf64>
      attributes {nn.mesh = {tp = 2 : i64}} {
    %t = nn.transpose %x {perm = array<i64: 1, 0>} : (tensor<?x?xf64>) -> tensor<?x?xf64>
    %0 = nn.all_reduce %t : (tensor<?x?xf64>) -> tensor<?x?xf64>
    return %0 : tensor<?x?xf64>
  })");
  ASSERT_EQ(plan.steps.size(), 1u) << planText(plan);
  EXPECT_EQ(plan.steps[0].choice, Step::Choice::Predicate);
  const std::vector<KernelLaunch> &launches = plan.steps[0].alternatives.at(0).launches;
  ASSERT_EQ(launches.size(), 2u) << planText(plan); // what lies transposed is copied first
  EXPECT_TRUE(plan.kernels[launches[1].kernel].isLibraryCall);
  EXPECT_EQ(*bufferOf(launches[1].arguments[0]), *bufferOf(launches[0].arguments[1]));
}

} // namespace
} // namespace fusion::test
