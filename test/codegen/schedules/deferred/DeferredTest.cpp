// What the harness of the schedules does on a GPU, over the stand-in driver.
#include "test/codegen/schedules/Deferred.h"
#include "test/codegen/schedules/Harness.h"
#include "test/runtime/FakeGpu.h"

#include "runtime/cuda/Nvrtc.h"

#include <gtest/gtest-spi.h>

using namespace fusion;
using namespace fusion::test;

namespace {

/// A kernel for x + y, which adds y's first element as well: right only where that is 0.
struct Sum : Schedule {
  uint32_t features = 0;
  std::string statement = "out[i] = a[i] + b[i] + offset[0];";

  llvm::StringRef name() const override { return "sum"; }
  Result<SchedulePlan> plan(const Region &, const KernelContext &) const override {
    return SchedulePlan{[this](const KernelContext &context) { return draft(context); }};
  }

private:
  KernelDraft draft(const KernelContext &context) const {
    KernelDraft draft;
    KernelPlan &kernel = draft.kernel;
    kernel.name = "add"; // a kernel that the stand-in driver has
    kernel.schedule = "sum";
    kernel.source = "KERNEL(128) add(const f32 *a, const f32 *b, const f32 *offset, f32 *out, i64 count) {\n"
                    "  i64 i = (i64)block_x() * 128 + thread_x();\n"
                    "  if (i < count)\n"
                    "    " +
                    statement + "\n}\n";
    using Kind = KernelPlan::Parameter::Kind;
    kernel.parameters = {{Kind::Pointer, "const f32 *", "a"},
                         {Kind::Pointer, "const f32 *", "b"},
                         {Kind::Pointer, "const f32 *", "offset"},
                         {Kind::Pointer, "f32 *", "out"},
                         {Kind::Scalar, "i64", "count"}};
    kernel.blockX = 128;
    kernel.features = features;
    using From = KernelDraft::Argument::Kind;
    const Dim count = context.inputs[0].base ? product(context.shape(context.inputs[0].base)) : Dim(0);
    draft.arguments = {{From::Input, 0}, {From::Input, 1}, {From::Input, 1}, {From::Output, 0},
                       {From::Size, 0, count}};
    draft.gridX = count.ceilDiv(int64_t{128});
    return draft;
  }
};

const char *const sum = R"(
  func.func @main(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}, %y: tensor<?x8xf32> {nn.dims = ["n", 8]})
      -> tensor<?x8xf32> {
    %0 = nn.add %x, %y : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  })";

ScheduleCase caseOf(int64_t rows, bool isRight = true) {
  return {.text = sum,
          .symbols = {{"n", rows}},
          .fill =
              [=](unsigned argument, Tensor &tensor) {
                if (argument == 1)
                  set(tensor, 0, isRight ? 0 : 1000);
              },
          .compiles = false};
}

std::vector<std::string> failuresOfRuns() {
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    runDeferred();
  }
  std::vector<std::string> messages;
  for (int i = 0; i < results.size(); ++i)
    messages.push_back(results.GetTestPartResult(i).message());
  return messages;
}

class Deferred : public FakeGpu {
protected:
  void SetUp() override {
    FakeGpu::SetUp();
    if (auto nvrtc = Nvrtc::instance(); !nvrtc)
      GTEST_SKIP() << nvrtc.error().message;
  }
};

TEST_F(Deferred, CasesRunOnTheDeviceAtTheEnd) {
  Sum schedule;
  for (int64_t rows : {1, 16, 40})
    check(schedule, caseOf(rows));
  EXPECT_EQ(counters().launches, 0);
  EXPECT_EQ(failuresOfRuns(), std::vector<std::string>());
  EXPECT_EQ(counters().launches, 3);
  EXPECT_EQ(failuresOfRuns(), std::vector<std::string>());
  EXPECT_EQ(counters().launches, 3) << "they run once";
}

TEST_F(Deferred, WrongNumbersNameTheTest) {
  Sum schedule;
  check(schedule, caseOf(3));
  check(schedule, caseOf(5, /*isRight=*/false));
  check(schedule, caseOf(7));
  const std::vector<std::string> failures = failuresOfRuns();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures[0].find("Deferred.WrongNumbersNameTheTest"), std::string::npos) << failures[0];
  EXPECT_NE(failures[0].find("output 0, worst at"), std::string::npos) << failures[0];
  EXPECT_NE(failures[0].find(schedule.statement), std::string::npos) << failures[0];
  EXPECT_EQ(counters().launches, 3);
}

TEST_F(Deferred, AKernelThatDoesNotCompileFailsAlone) {
  Sum schedule, other;
  other.statement = "no_such_function(out);";
  check(other, caseOf(3));
  check(schedule, caseOf(4));
  const std::vector<std::string> failures = failuresOfRuns();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures[0].find("Deferred.AKernelThatDoesNotCompileFailsAlone"), std::string::npos)
      << failures[0];
  EXPECT_NE(failures[0].find("no_such_function"), std::string::npos) << failures[0];
  EXPECT_EQ(counters().launches, 1);
}

/// Blackwell's kernels are not left out on Hopper.
TEST_F(Deferred, WhatTheDeviceLacksIsEmulated) {
  Sum schedule;
  schedule.features = static_cast<uint32_t>(Feature::Tcgen05);
  check(schedule, caseOf(3));
  check(schedule, caseOf(4, /*isRight=*/false));
  const std::vector<std::string> failures = failuresOfRuns();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures[0].find("Deferred.WhatTheDeviceLacksIsEmulated"), std::string::npos) << failures[0];
  EXPECT_EQ(counters().launches, 0);
}

} // namespace
