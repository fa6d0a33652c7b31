#include "SamplePlan.h"

#include "runtime/CompileKernels.h"
#include "runtime/cuda/Nvrtc.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

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

/// So many that some are compiled together whatever the number of threads; the names are their own.
static std::vector<KernelPlan> manyKernels() {
  const size_t count = 16 * std::max(1u, std::thread::hardware_concurrency());
  std::vector<KernelPlan> kernels(count);
  for (size_t i = 0; i < count; ++i) {
    kernels[i].name = "fill_" + std::to_string(i);
    kernels[i].source = "struct Config { static constexpr int value = " + std::to_string(i) +
                        "; };\nKERNEL(128) fill_" + std::to_string(i) +
                        "(i32 *to) { to[thread_x()] = Config::value; }\n";
  }
  return kernels;
}

static std::set<std::string> modulesOf(const std::vector<CompiledKernel> &kernels) {
  std::set<std::string> modules;
  for (const CompiledKernel &kernel : kernels)
    modules.insert(kernel.bytes);
  return modules;
}

TEST(Nvrtc, KernelsOfOneModule) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  TemporaryFolder folder;
  KernelCache cache(folder.path);
  std::vector<KernelPlan> kernels = manyKernels();
  auto first = compileKernels(kernels, "sm_90a", &cache);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_LT(modulesOf(*first).size(), kernels.size() / 2);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_NE((*first)[i].bytes.find(kernels[i].name), std::string::npos);
    EXPECT_NE((*first)[i].log.find("'" + kernels[i].name + "'"), std::string::npos) << (*first)[i].log;
    EXPECT_GT((*first)[i].registers, 0);
  }
  // One of them changes: the others stay where they are.
  kernels[3].source += "// a comment\nstruct More {};\n";
  auto second = compileKernels(kernels, "sm_90a", &cache);
  ASSERT_TRUE(second);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ((*second)[i].fromCache, i != 3);
    if (i != 3)
      EXPECT_EQ((*second)[i].bytes, (*first)[i].bytes);
  }
}

/// A module that the cache has lost comes back.
TEST(Nvrtc, AModuleThatIsGoneIsWrittenAgain) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  TemporaryFolder folder;
  KernelCache cache(folder.path);
  const std::vector<KernelPlan> kernels = manyKernels();
  ASSERT_TRUE(compileKernels(kernels, "sm_90a", &cache));
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(folder.path))
    if (entry.is_regular_file())
      files.push_back(entry.path());
  size_t modules = 0;
  for (const std::filesystem::path &path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(file)), {});
    if (content.find("\x7f" "ELF") != std::string::npos)
      modules += std::filesystem::remove(path);
  }
  EXPECT_GT(modules, 0u);
  ASSERT_TRUE(compileKernels(kernels, "sm_90a", &cache));
  auto again = compileKernels(kernels, "sm_90a", &cache);
  ASSERT_TRUE(again);
  for (const CompiledKernel &kernel : *again)
    EXPECT_TRUE(kernel.fromCache);
}

TEST(Nvrtc, OneThatDoesNotCompileInCompanyIsNamed) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  std::vector<KernelPlan> kernels = manyKernels();
  kernels[5].source = "KERNEL(128) fill_5(i32 *to) { undeclared_name(); }\n";
  auto result = compileKernels(kernels, "sm_90a", nullptr);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("kernel fill_5"), std::string::npos) << result.error().message;
  // What defines macros is compiled by itself.
  kernels[5].source = "#define CONFIG 5\nKERNEL(128) fill_5(i32 *to) { to[0] = CONFIG; }\n";
  auto all = compileKernels(kernels, "sm_90a", nullptr);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ((*all)[5].bytes.find("fill_4"), std::string::npos);
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

namespace {
constexpr const char *filling = "extern \"C\" __global__ void fill(int *to) { *to = 7; }\n";

/// Sets FUSION_NVRTC_PROCESS for its time.
struct NamedProgram {
  explicit NamedProgram(const std::string &file) { setenv("FUSION_NVRTC_PROCESS", file.c_str(), 1); }
  ~NamedProgram() { unsetenv("FUSION_NVRTC_PROCESS"); }
};

/// A program that stands in for fusion-nvrtc.
std::string script(const TemporaryFolder &folder, const std::string &line) {
  const std::string file = folder.path + "/program";
  std::ofstream(file) << "#!/bin/sh\n" << line << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  return file;
}
} // namespace

TEST(NvrtcProcess, CompilesWhatThisProcessDoes) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  ASSERT_FALSE(NvrtcProcess::program().empty());
  const Nvrtc &nvrtc = **Nvrtc::instance();
  NvrtcProcess process(nvrtc.path());
  for (const std::string &source : {std::string(filling), filling + std::string(1 << 20, '\n')}) {
    const Result<Cubin> own = nvrtc.compile(source, "fill", "sm_90a"),
                        other = nvrtc.compile(source, "fill", "sm_90a", &process);
    ASSERT_TRUE(own && other);
    EXPECT_EQ(own->bytes, other->bytes);
    const std::string timed = "Compile time"; // at the end of the log
    EXPECT_EQ(own->log.substr(0, own->log.find(timed)), other->log.substr(0, other->log.find(timed)));
    EXPECT_EQ(own->registers, other->registers);
  }
  const std::string wrong = "wrong";
  EXPECT_EQ(nvrtc.compile(wrong, "fill", "sm_90a").error().message,
            nvrtc.compile(wrong, "fill", "sm_90a", &process).error().message);
  EXPECT_TRUE(nvrtc.compile(filling, "fill", "sm_90a", &process)); // it goes on
}

TEST(NvrtcProcess, WithoutItsProgramTheCallerCompiles) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  const TemporaryFolder folder;
  const Nvrtc &nvrtc = **Nvrtc::instance();
  for (const std::string &named :
       {std::string("0"), std::string("/no/such/program"), script(folder, "exit 2")}) {
    const NamedProgram given(named);
    NvrtcProcess process(nvrtc.path());
    EXPECT_FALSE(process.compile({filling, "fill.cu", {}})) << named;
    EXPECT_TRUE(nvrtc.compile(filling, "fill", "sm_90a", &process)) << named;
  }
}

TEST(NvrtcProcess, AnotherVersionsProgramIsNotUsed) {
  EXPECT_EQ(WEXITSTATUS(std::system((NvrtcProcess::program() + " 0 libnvrtc.so").c_str())), 2);
  EXPECT_EQ(WEXITSTATUS(std::system((NvrtcProcess::program() + " 1 /no/such/library").c_str())), 3);
}

TEST(NvrtcProcess, OneThatCrashesIsAnErrorThatSaysSo) {
  const TemporaryFolder folder;
  const NamedProgram given(script(folder, "kill -SEGV $$"));
  NvrtcProcess process("libnvrtc.so");
  const std::optional<NvrtcAnswer> answer = process.compile({filling, "fill.cu", {}});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error, "its process was ended by signal 11");
}

TEST(NvrtcProcess, OneThatEndedWhileItWaitedIsReplaced) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  const std::string library = (*Nvrtc::instance())->path(), program = NvrtcProcess::program();
  const TemporaryFolder folder;
  const NamedProgram given(script(folder, "exec timeout --foreground -s KILL 1 " + program + " \"$@\""));
  std::unique_ptr<NvrtcProcess> process = NvrtcProcesses::take(library);
  const NvrtcRequest request{filling, "fill.cu", {"--gpu-architecture=sm_90a"}};
  ASSERT_TRUE(process->compile(request));
  const NvrtcProcess *const first = process.get();
  NvrtcProcesses::giveBack(std::move(process));
  process = NvrtcProcesses::take(library);
  EXPECT_EQ(process.get(), first);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const std::optional<NvrtcAnswer> answer = process->compile(request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error, "");
  NvrtcProcesses::giveBack(std::move(process));
  NvrtcProcesses::dismiss();
}

TEST(NvrtcProcess, EndsWhereNothingComes) {
  if (!haveNvrtc())
    GTEST_SKIP() << Nvrtc::instance().error().message;
  const auto library = Library::open({.files = {(*Nvrtc::instance())->path()}});
  ASSERT_TRUE(library);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const std::vector<std::string> request = {"extern \"C\" __global__ void nothing() {}", "nothing.cu"};
  ASSERT_TRUE(sendTexts(ends[1], request));
  answerNvrtcRequests(*NvrtcLibrary::of(*library), ends[0], /*idleMilliseconds=*/1); // comes back
  close(ends[0]);
  const auto answer = receiveTexts(ends[1]); // to what came before
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->size(), 3u);
  EXPECT_EQ((*answer)[0], "");
  EXPECT_FALSE(receiveTexts(ends[1])); // nothing more
  close(ends[1]);
}

TEST(NvrtcProcess, MessagesThatNobodySendsAreRefused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const std::vector<std::string> texts = {"", std::string("a\0b", 3), std::string(100000, 'x')};
  std::thread other([&] { EXPECT_TRUE(sendTexts(ends[0], texts)); });
  EXPECT_EQ(receiveTexts(ends[1]), texts);
  other.join();
  for (const uint64_t count : {uint64_t(65), ~uint64_t(0)}) {
    ASSERT_EQ(write(ends[0], &count, sizeof count), ssize_t(sizeof count));
    EXPECT_FALSE(receiveTexts(ends[1]));
  }
  const uint64_t sizes[] = {1, ~uint64_t(0)};
  ASSERT_EQ(write(ends[0], sizes, sizeof sizes), ssize_t(sizeof sizes));
  EXPECT_FALSE(receiveTexts(ends[1]));
  close(ends[0]);
  EXPECT_FALSE(receiveTexts(ends[1]));
  EXPECT_FALSE(sendTexts(ends[1], texts)); // and no SIGPIPE
  close(ends[1]);
}
