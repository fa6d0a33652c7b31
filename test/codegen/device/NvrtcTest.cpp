// The CUDA prelude and every sample compile for the architectures we name, without spilling.
#include "codegen/device/Prelude.h"
#include "test/codegen/device/Samples.h"

#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <regex>

using namespace fusion;

namespace {
struct Nvrtc {
  int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *) = nullptr;
  int (*compile)(void *, int, const char *const *) = nullptr;
  int (*logSize)(void *, size_t *) = nullptr;
  int (*log)(void *, char *) = nullptr;
  int (*destroy)(void **) = nullptr;

  bool open() {
    void *library = nullptr;
    for (const char *name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                             "/usr/local/cuda/lib64/libnvrtc.so", "/usr/local/cuda/lib/libnvrtc.so"})
      if (!library)
        library = dlopen(name, RTLD_NOW);
    if (!library)
      return false;
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(create, "nvrtcCreateProgram") && find(compile, "nvrtcCompileProgram") &&
           find(logSize, "nvrtcGetProgramLogSize") && find(log, "nvrtcGetProgramLog") &&
           find(destroy, "nvrtcDestroyProgram");
  }
};
} // namespace

static void compileSamplesFor(const char *target) {
  Nvrtc nvrtc;
  if (!nvrtc.open())
    GTEST_SKIP() << "no libnvrtc";
  // One program: what matters is each kernel's line in the assembler's log.
  std::string source(cudaPrelude());
  for (const KernelPlan &plan : samples::all())
    source += plan.source;
  void *program = nullptr;
  ASSERT_EQ(nvrtc.create(&program, source.c_str(), "samples.cu", 0, nullptr, nullptr), 0);
  const std::string architecture = std::string("--gpu-architecture=") + target;
  const char *options[] = {architecture.c_str(), "--std=c++17", "--ptxas-options=-v"};
  const int status = nvrtc.compile(program, 3, options);
  size_t size = 0;
  nvrtc.logSize(program, &size);
  std::string log(size, '\0');
  nvrtc.log(program, log.data());
  nvrtc.destroy(&program);
  ASSERT_EQ(status, 0) << log;
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
