// Every kernel of every exported graph compiles for each architecture, without spills.
#include "GraphCase.h"

#include "api/Lower.h"
#include "codegen/BuildPlan.h"
#include "runtime/CompileKernels.h"
#include "runtime/cuda/Nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace fusion;
using namespace fusion::test;

namespace {
constexpr const char *targets[] = {"sm_80", "sm_90a", "sm_100a", "sm_120"};
size_t targetNumber(std::string_view name) { return std::find(std::begin(targets), std::end(targets), name) - targets; }

class CompileKernels : public testing::TestWithParam<const char *> {};

TEST_P(CompileKernels, NoKernelSpills) {
  if (auto nvrtc = Nvrtc::instance(); !nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  std::vector<KernelPlan> kernels;
  std::set<std::string> sources;
  // Fused for every target; what remains without fusion, mostly the same kernels, for one target each.
  size_t number = 0;
  for (const std::string &graph : graphNames())
    for (bool fuse : {true, false}) {
      if (!fuse && ++number % std::size(targets) != targetNumber(GetParam()))
        continue;
      auto context = makeContext();
      auto module = loadModule(*context, graphFile(graph, "model.onnx"));
      ASSERT_TRUE(bool(module)) << module.error().message;
      LowerOptions options;
      options.fuse = fuse;
      options.plan.target = GetParam();
      FusionReport report;
      Status status = lower(**module, options, report);
      ASSERT_TRUE(bool(status)) << status.error().message;
      auto plan = buildPlan(*entryFunction(**module), {GetParam(), ""});
      ASSERT_TRUE(bool(plan)) << plan.error().message;
      for (KernelPlan &kernel : plan->kernels)
        if (!kernel.isLibraryCall && sources.insert(kernel.source).second)
          kernels.push_back(std::move(kernel));
    }
  auto compiled = compileKernels(kernels, GetParam(), nullptr);
  ASSERT_TRUE(bool(compiled)) << compiled.error().message;
  for (size_t i = 0; i < kernels.size(); ++i)
    EXPECT_EQ((*compiled)[i].spillBytes, 0) << kernels[i].source;
}

INSTANTIATE_TEST_SUITE_P(Architectures, CompileKernels, testing::ValuesIn(targets),
                         [](const auto &info) { return std::string(info.param); });
} // namespace
