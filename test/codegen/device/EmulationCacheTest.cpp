// Compiled kernels are found again, and what cannot be compiled says why.
#include "test/codegen/device/Emulation.h"

#include <cstdlib>
#include <fstream>
#include <sys/wait.h>
#include <thread>

using namespace fusion;
using namespace fusion::samples;

static KernelPlan constant(const std::string &name, int value) {
  return kernel(name, 32, {"i64 *x"}, "x[thread_x()] = " + std::to_string(value) + ";\n");
}

static int64_t valueOf(const EmulatedKernel &kernel) {
  int64_t x[32] = {};
  int64_t *pointer = x;
  void *arguments[] = {&pointer};
  Status status = kernel.launch(1, 1, 1, arguments);
  EXPECT_TRUE(status) << messageOf(status);
  return x[31];
}

static std::vector<std::filesystem::path> librariesIn(const std::string &folder) {
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".so")
      files.push_back(entry.path());
  return files;
}

static size_t filesIn(const std::string &folder) { return librariesIn(folder).size(); }

TEST(EmulationCache, BatchesAndFindsAgain) {
  TemporaryFolder folder;
  std::vector<KernelPlan> plans;
  for (int i = 0; i < 20; ++i)
    plans.push_back(constant(i % 2 ? "same" : "other" + std::to_string(i), i));
  plans.push_back(plans[3]);
  std::vector<std::string> done;
  int64_t total = 0;
  auto count = [&](std::string_view name, int64_t ofThese) {
    done.emplace_back(name);
    total = ofThese;
  };
  auto first = EmulatedKernel::compileAll(plans, folder.path, count);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(done.size(), 20u);
  EXPECT_EQ(total, 20);
  EXPECT_EQ(filesIn(folder.path), 20u);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(valueOf(*(*first)[i]), i);
  EXPECT_EQ(valueOf(*(*first)[20]), 3);

  const auto before =
      std::filesystem::last_write_time(librariesIn(folder.path).front());
  auto second = EmulatedKernel::compileAll(std::span(plans).subspan(4, 3), folder.path, count);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(valueOf(*(*second)[2]), 6);
  EXPECT_EQ(done.size(), 20u) << "what is in the cache is not compiled";
  EXPECT_EQ(before,
            std::filesystem::last_write_time(librariesIn(folder.path).front()));
}

TEST(EmulationCache, ReplacesADamagedFile) {
  TemporaryFolder folder;
  ASSERT_TRUE(EmulatedKernel::compile(constant("damaged", 9), folder.path));
  const auto file = librariesIn(folder.path).front();
  std::filesystem::remove(file);
  std::ofstream(file) << "\x7f"
                         "ELF, but not quite";
  auto kernel = EmulatedKernel::compile(constant("damaged", 9), folder.path);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(valueOf(**kernel), 9);
}

TEST(EmulationCache, OpensOnlyWhatItWroteItself) {
  TemporaryFolder folder;
  auto original = EmulatedKernel::compile(constant("authentic", 9), folder.path);
  ASSERT_TRUE(original) << original.error().message;
  original->reset();
  const auto file = librariesIn(folder.path).front();
  std::ifstream in(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  // 9 as another number somewhere in the code, a code that is missing, another's.
  std::string other = whole, cut = whole.substr(0, whole.size() - 28), forged = whole;
  other[whole.size() / 2] ^= 1;
  forged.back() ^= 1;
  for (const std::string &text : {other, cut, forged}) {
    std::filesystem::remove(file);
    std::ofstream(file, std::ios::binary) << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    auto kernel = EmulatedKernel::compile(constant("authentic", 9), folder.path);
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_EQ(valueOf(**kernel), 9);
    std::ifstream again(file, std::ios::binary);
    EXPECT_NE(std::string((std::istreambuf_iterator<char>(again)), {}), text);
  }
}

TEST(EmulationCache, AFolderOfSomebodyElsesIsNotOpened) {
  TemporaryFolder folder;
  ASSERT_TRUE(EmulatedKernel::compile(constant("trusted", 3), folder.path));
  const auto file = librariesIn(folder.path).front();
  std::filesystem::permissions(folder.path, std::filesystem::perms::all); // anybody can have put it there
  std::ofstream(file) << "";
  auto kernel = EmulatedKernel::compile(constant("trusted", 3), folder.path);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(valueOf(**kernel), 3);
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
  std::filesystem::permissions(folder.path, std::filesystem::perms::owner_all);
}

TEST(EmulationCache, ProcessesShareIt) {
  TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    pid_t child = fork();
    if (child == 0) {
      auto kernel = EmulatedKernel::compile(constant("shared", 5), folder.path);
      _exit(kernel && valueOf(**kernel) == 5 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(filesIn(folder.path), 1u);
}

TEST(EmulationCache, RunsWithoutAWritableFolder) {
  auto kernel = EmulatedKernel::compile(constant("homeless", 4), "/proc/nowhere/cache");
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(valueOf(**kernel), 4);
}

TEST(EmulationCache, SaysWhichKernelDoesNotCompileAndWhere) {
  TemporaryFolder folder;
  std::vector<KernelPlan> plans = {constant("fine", 1),
                                   kernel("broken", 32, {"f32 *x"}, "x[0] = 1.f;\noops;\n")};
  auto kernels = EmulatedKernel::compileAll(plans, folder.path);
  ASSERT_FALSE(kernels);
  EXPECT_EQ(kernels.error().kind, ErrorKind::Environment);
  EXPECT_NE(kernels.error().message.find("kernel broken: "), std::string::npos) << kernels.error().message;
  EXPECT_NE(kernels.error().message.find("broken:3"), std::string::npos) << kernels.error().message;
  EXPECT_NE(kernels.error().message.find("oops"), std::string::npos) << kernels.error().message;
}

TEST(EmulationCache, SaysWhatIsMissing) {
  KernelPlan plan = constant("tma", 1);
  plan.emulatable = false;
  plan.whyNotEmulatable = "uses TMA";
  TemporaryFolder folder;
  auto kernel = EmulatedKernel::compile(plan, folder.path);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().kind, ErrorKind::Environment);
  EXPECT_EQ(kernel.error().message, "kernel tma cannot be emulated: uses TMA");

  setenv("FUSION_HOST_CXX", "/no/such/compiler", 1);
  kernel = EmulatedKernel::compile(constant("any", 1), folder.path);
  unsetenv("FUSION_HOST_CXX");
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().kind, ErrorKind::Environment);
  EXPECT_EQ(kernel.error().message, "FUSION_HOST_CXX=/no/such/compiler: no such program");

  const std::string path = getenv("PATH");
  setenv("PATH", folder.path.c_str(), 1);
  kernel = EmulatedKernel::compile(constant("any", 1), folder.path);
  setenv("PATH", path.c_str(), 1);
  if (!kernel)
    EXPECT_EQ(kernel.error().kind, ErrorKind::Environment);
  EXPECT_FALSE(kernel);
}

TEST(EmulationCache, WorksWithGcc) {
  TemporaryFolder folder;
  setenv("FUSION_HOST_CXX", "g++", 1);
  auto kernel = EmulatedKernel::compile(constant("gnu", 8), folder.path);
  unsetenv("FUSION_HOST_CXX");
  if (!kernel && kernel.error().message.find("no such program") != std::string::npos)
    GTEST_SKIP() << kernel.error().message;
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(valueOf(**kernel), 8);
}
