// A group that its schedule no longer takes once it stands in the graph goes back, and the report says so.
#include "api/Lower.h"
#include "codegen/BuildPlan.h"
#include "ir/dialect/Types.h"
#include "passes/fuse/Fuse.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace fusion;

namespace {

/// Takes candidates as the code generator does, and refuses groups of one pattern.
class RefusingOracle : public ScheduleOracle {
public:
  RefusingOracle(std::string pattern, int times) : pattern(std::move(pattern)), times(times) {}
  void begin(mlir::func::FuncOp function, const nn::SymbolicShapes &shapes) override {
    own->begin(function, shapes);
  }
  Result<std::string> schedule(llvm::ArrayRef<mlir::Operation *> ops, const GroupPorts &ports) override {
    return own->schedule(ops, ports);
  }
  std::optional<std::string> refusal(GroupOp group) override {
    if (group.getPattern() == pattern && times-- > 0)
      return "results of different shapes";
    return own->refusal(group);
  }
  bool isView(mlir::Operation *op) const override { return own->isView(op); }
  llvm::SmallVector<mlir::Operation *> launching(mlir::func::FuncOp function) override {
    return own->launching(function);
  }

private:
  std::unique_ptr<ScheduleOracle> own = makeScheduleOracle(TargetInfo::standard());
  std::string pattern;
  int times;
};

constexpr const char *graph = R"(
func.func @main(%x: tensor<4x128xf32>, %r: tensor<4x128xf32>, %w: tensor<128xf32>, %a: tensor<8x64xf32>)
    -> (tensor<4x128xf32>, tensor<8x64xf32>) {
  %0 = nn.add %x, %r : (tensor<4x128xf32>, tensor<4x128xf32>) -> tensor<4x128xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<4x128xf32>, tensor<128xf32>) -> tensor<4x128xf32>
  %2 = nn.relu %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
  %3 = nn.exp %2 : (tensor<8x64xf32>) -> tensor<8x64xf32>
  return %1, %3 : tensor<4x128xf32>, tensor<8x64xf32>
})";

struct Fused {
  std::unique_ptr<mlir::MLIRContext> context = makeContext();
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(graph, context.get());
  FusionReport report;
  std::vector<std::string> groups;

  explicit Fused(ScheduleOracle &oracle) {
    auto entry = entryFunction(*module);
    auto patterns = PatternSet::builtin(context.get());
    Status status = fuse(*entry, *patterns, {}, oracle, report);
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_TRUE(succeeded(mlir::verify(*module)));
    for (auto group : entry->getOps<GroupOp>())
      groups.push_back(group.getPattern().str());
    auto plan = buildPlan(*entry, {});
    EXPECT_TRUE(plan) << plan.error().message;
  }
};

TEST(RefusedGroups, AreDissolvedAndReported) {
  auto willing = makeScheduleOracle(TargetInfo::standard());
  Fused all(*willing);
  EXPECT_EQ(all.groups, (std::vector<std::string>{"add_norm", "pointwise"}));
  for (const char *pattern : {"add_norm", "pointwise"}) {
    RefusingOracle oracle(pattern, 1);
    Fused some(oracle);
    ASSERT_EQ(some.groups.size(), 1u);
    EXPECT_NE(some.groups[0], pattern);
    EXPECT_EQ(some.report.patterns[pattern].fired.size(), 0u);
    ASSERT_EQ(some.report.patterns[pattern].missed.size(), 1u);
    const std::string &reason = some.report.patterns[pattern].missed[0].reason;
    EXPECT_NE(reason.find("dropped: as a group, schedule"), std::string::npos) << reason;
    EXPECT_NE(reason.find("refuses it: results of different shapes"), std::string::npos) << reason;
    EXPECT_EQ(some.report.kernelsAfter, all.report.kernelsAfter + 1);
  }
}

} // namespace
