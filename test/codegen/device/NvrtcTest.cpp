// The CUDA prelude and every sample compile for the architectures we name, without spilling.
#include "runtime/cuda/Nvrtc.h"
#include "codegen/device/Includes.h"
#include "test/codegen/device/Samples.h"

#include <gtest/gtest.h>
#include <regex>

using namespace fusion;

static void compileSamplesFor(const char *target) {
  auto nvrtc = Nvrtc::instance();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  // One program: what matters is each kernel's line in the assembler's log.
  std::string source = expandIncludes({"prelude.cuh"}, Flavour::Cuda);
  for (const KernelPlan &plan : samples::all())
    source += plan.source;
  auto cubin = (*nvrtc)->compile(source, "samples", target);
  ASSERT_TRUE(cubin) << cubin.error().message;
  const std::string &log = cubin->log;
  EXPECT_EQ(log.find("warning"), std::string::npos) << log;
  const std::regex spills("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  size_t kernels = 0;
  for (std::sregex_iterator i(log.begin(), log.end(), spills), end; i != end; ++i, ++kernels) {
    EXPECT_EQ((*i)[1], "0") << log;
    EXPECT_EQ((*i)[2], "0") << log;
  }
  EXPECT_GE(kernels, samples::all().size());
}

TEST(Nvrtc, Sm80) { compileSamplesFor("sm_80"); }
TEST(Nvrtc, Sm90a) { compileSamplesFor("sm_90a"); }
TEST(Nvrtc, Sm100) { compileSamplesFor("sm_100"); }

/// A model's kernels are emitted as one program, in which the templates of all of them stand.
TEST(Nvrtc, AllTemplatesInOneProgram) {
  auto nvrtc = Nvrtc::instance();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  std::vector<std::string> files;
  for (const auto &[name, text] : deviceFiles())
    if (name.ends_with(".cuh") && !name.ends_with("_host.cuh"))
      files.emplace_back(name);
  const std::string source =
      expandIncludes(files, Flavour::Cuda) + "KERNEL(32) nothing(u32 *to) { *to = 0; }\n";
  for (const char *target : {"sm_80", "sm_90a", "sm_100a"}) {
    auto cubin = (*nvrtc)->compile(source, "nothing", target);
    EXPECT_TRUE(cubin) << target << ": " << cubin.error().message;
  }
}
