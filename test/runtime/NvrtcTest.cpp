#include "SamplePlan.h"

#include "runtime/CompileKernels.h"
#include "runtime/cuda/Nvrtc.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace fusion;
using namespace fusion::test;

static bool haveNvrtc() { return bool(Nvrtc::instance()); }

TEST(Nvrtc, CompilesForEveryTargetWithoutSpills) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  ProgramPlan plan = samplePlan();
  for (const char *arch : {"sm_80", "sm_89", "sm_90", "sm_90a", "sm_100"}) {
    auto kernels = compileKernels(plan.kernels, arch, nullptr);
    ASSERT_TRUE(kernels) << kernels.error().message;
    for (const CompiledKernel &kernel : *kernels) {
      EXPECT_TRUE(kernel.bytes.starts_with("\x7f"
                                           "ELF"));
      EXPECT_GT(kernel.registers, 0) << kernel.log;
      EXPECT_EQ(kernel.spillBytes, 0) << kernel.log;
    }
  }
}

TEST(Nvrtc, TheSecondTimeComesFromTheCache) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  TemporaryFolder folder;
  KernelCache cache(folder.path);
  ProgramPlan plan = samplePlan();
  auto first = compileKernels(plan.kernels, "sm_90a", &cache);
  auto second = compileKernels(plan.kernels, "sm_90a", &cache);
  auto other = compileKernels(plan.kernels, "sm_80", &cache);
  ASSERT_TRUE(first && second && other);
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    EXPECT_FALSE((*first)[i].fromCache);
    EXPECT_TRUE((*second)[i].fromCache);
    EXPECT_FALSE((*other)[i].fromCache);
    EXPECT_EQ((*first)[i].bytes, (*second)[i].bytes);
    EXPECT_EQ((*first)[i].registers, (*second)[i].registers);
    EXPECT_EQ((*first)[i].log, (*second)[i].log);
  }
}

TEST(Nvrtc, AnOldOneIsRefused) {
  const char *before = std::getenv("FUSION_NVRTC");
  const std::string kept = before ? before : "";
  setenv("FUSION_NVRTC", FUSION_FAKE_NVRTC, 1);
  auto nvrtc = Nvrtc::open();
  if (before)
    setenv("FUSION_NVRTC", kept.c_str(), 1);
  else
    unsetenv("FUSION_NVRTC");
  ASSERT_FALSE(nvrtc);
  EXPECT_EQ(nvrtc.error().kind, ErrorKind::Environment);
  EXPECT_NE(nvrtc.error().message.find("is NVRTC 12.4, which is too old: version 12.8 or newer is needed"),
            std::string::npos)
      << nvrtc.error().message;
  EXPECT_EQ(nvrtc.error().message.find('\n'), std::string::npos);
}

TEST(Nvrtc, CommentsDoNotMatter) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  TemporaryFolder folder;
  KernelCache cache(folder.path);
  std::vector<KernelPlan> kernels = {samplePlan().kernels[0]};
  ASSERT_TRUE(compileKernels(kernels, "sm_90a", &cache));
  kernels[0].source = "// layers.3\n" + kernels[0].source + "  // the end\n";
  auto again = compileKernels(kernels, "sm_90a", &cache);
  ASSERT_TRUE(again);
  EXPECT_TRUE((*again)[0].fromCache);
}

TEST(Nvrtc, AWrongKernelIsNamedWithTheCompilersWords) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  std::vector<KernelPlan> kernels = samplePlan().kernels;
  kernels[1].source = "KERNEL(128) add(i64 count) { undeclared_name(); }\n";
  auto result = compileKernels(kernels, "sm_90a", nullptr);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("kernel add"), std::string::npos);
  EXPECT_NE(result.error().message.find("undeclared_name"), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
}

TEST(Nvrtc, TargetsAreChecked) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  std::vector<KernelPlan> kernels = samplePlan().kernels;
  EXPECT_FALSE(compileKernels(kernels, "hopper", nullptr));
  EXPECT_FALSE(compileKernels(kernels, "sm_12345", nullptr));
  kernels[0].features = static_cast<uint32_t>(Feature::Wgmma);
  auto result = compileKernels(kernels, "sm_80", nullptr);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("kernel scale needs wgmma, which sm_80 lacks"), std::string::npos);
}
