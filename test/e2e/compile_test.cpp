// The kernels of exported graphs compile for each architecture, without spills.
#include "GraphCase.h"

#include "api/Lower.h"
#include "codegen/BuildPlan.h"
#include "runtime/CompileKernels.h"
#include "runtime/cuda/Nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

using namespace fusion;
using namespace fusion::test;

namespace {
constexpr const char *targets[] = {"sm_80", "sm_90a", "sm_100a", "sm_120"};
size_t targetNumber(std::string_view name) {
  return std::find(std::begin(targets), std::end(targets), name) - targets;
}

/// sm_90a has every fused graph and each other target every second one, since graphs of a kind have the same
/// kernels but for types and sizes; without fusion, where most kernels are the same again, each graph has one
/// target. All of them with FUSION_TEST_TARGETS=all.
bool isChosen(bool fuse, size_t graph, size_t target) {
  const char *choice = std::getenv("FUSION_TEST_TARGETS");
  if (choice && std::string_view(choice) == "all")
    return true;
  return fuse ? target == 1 || graph % 2 == target % 2 : graph % std::size(targets) == target;
}

class CompileKernels : public testing::TestWithParam<const char *> {};

TEST_P(CompileKernels, NoKernelSpills) {
  if (auto nvrtc = Nvrtc::instance(); !nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  std::vector<KernelPlan> kernels;
  std::set<std::string> sources;
  size_t number = 0;
  for (const std::string &graph : graphNames())
    for (bool fuse : {true, false}) {
      if (!isChosen(fuse, number += fuse, targetNumber(GetParam())))
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
