// A schedule is one file and its template: ToyColumns.cpp and toy_columns.cuh, which the project
// does not name.
#include "test/recipes/Recipes.h"
#include "test/recipes/ToyColumns.h"

#include <gmock/gmock.h>

namespace fusion::test {
namespace {

using testing::HasSubstr;

constexpr const char *text = R"(!x = tensor<?x131xTYPE> !y = tensor<131xTYPE>
func.func @main(%x: !x {nn.dims = ["rows", 131]}) -> !y {
  %0 = nn.reduce %x {kind = "sum", axes = array<i64: 0>, keepdims = false} : (!x) -> !y
  %1 = nn.neg %0 : (!y) -> !y
  return %1 : !y
})";

TEST(ScheduleRecipe, ACompilationTakesOneOfTheCallersOwn) {
  CompileOptions options;
  options.schedules = {&toy::columnsSchedule()};
  for (const char *type : {"f32", "f16", "bf16"}) {
    SCOPED_TRACE(type);
    Lowered graph(text, type, options);
    ASSERT_TRUE(graph);
    EXPECT_EQ(graph.schedules(), (std::vector<std::string>{"pointwise", "toy_columns"}));
    EXPECT_THAT(graph.plan().kernels[0].source, HasSubstr("toy_columns<Config>"));
    graph.runsLikeTheReference({{"rows", 37}});
    graph.isVerified();
    graph.compiles();
  }
}

TEST(ScheduleRecipe, ItsRefusalsAreAmongTheReasons) {
  CompileOptions options;
  options.schedules = {&toy::columnsSchedule()};
  auto module = parse(R"(!x = tensor<?x131xi1>
    func.func @main(%x: !x {nn.dims = ["rows", 131]}) -> tensor<131xi1> {
      %0 = nn.reduce %x {kind = "sum", axes = array<i64: 0>, keepdims = false} : (!x) -> tensor<131xi1>
      return %0 : tensor<131xi1> })");
  ASSERT_TRUE(module);
  Driver driver(*module, "toy.mlir", options);
  ASSERT_TRUE(driver.lower(ProfitMode::Model));
  auto plan = driver.plan();
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("toy_columns: a sum of i1; pointwise: "));
  EXPECT_THAT(plan.error().message, HasSubstr("row: nn.reduce sum of i1"));
}

/// Takes what `pointwise` takes, and does not say that a row's result is independent of the other rows.
class Varying : public Schedule {
public:
  llvm::StringRef name() const override { return "varying"; }
  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto plan = builtinSchedules().find("pointwise")->plan(region, context);
    if (plan)
      plan->batchInvariant = false;
    return plan;
  }
};

TEST(ScheduleRecipe, OneThatIsNotBatchInvariantIsPassedOver) {
  const Varying varying;
  CompileOptions options;
  options.schedules = {&varying};
  for (bool batchInvariant : {false, true}) {
    options.batchInvariant = batchInvariant;
    Lowered graph(R"(!x = tensor<?x131xTYPE>
func.func @main(%x: !x {nn.dims = ["rows", 131]}) -> !x {
  %0 = nn.neg %x : (!x) -> !x
  %1 = nn.exp %0 : (!x) -> !x
  return %1 : !x
})",
                  "f32", options);
    ASSERT_TRUE(graph);
    EXPECT_EQ(graph.countIn("varying", "nn.exp"), batchInvariant ? 0u : 1u);
    EXPECT_EQ(graph.countIn("pointwise", "nn.exp"), batchInvariant ? 1u : 0u);
    EXPECT_EQ(graph.plan().kernels.size(), 1u);
  }
}

TEST(ScheduleRecipe, OthersDoNotSeeIt) {
  Lowered graph(text, "f32");
  ASSERT_TRUE(graph);
  EXPECT_THAT(graph.schedules(), testing::Not(testing::Contains("toy_columns")));
  EXPECT_EQ(builtinSchedules().find("toy_columns"), nullptr);
  EXPECT_EQ(ScheduleSet({&toy::columnsSchedule()}).find("toy_columns"), &toy::columnsSchedule());
  EXPECT_EQ(ScheduleSet({&toy::columnsSchedule()}).all().size(), builtinSchedules().all().size() + 1);
}

} // namespace
} // namespace fusion::test
