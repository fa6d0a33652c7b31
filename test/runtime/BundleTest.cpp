#include "ExecutorChecks.h"

#include "ir/base/Hash.h"
#include "runtime/Bundle.h"

#include <fstream>
#include <sys/stat.h>

using namespace fusion;
using namespace fusion::test;
namespace fs = std::filesystem;

/// Stand-ins: these tests do not load them on a device.
static std::vector<CompiledKernel> fakeCubins(size_t count) {
  std::vector<CompiledKernel> kernels(count);
  for (size_t i = 0; i < count; ++i)
    kernels[i].bytes = std::string("\x7f"
                                   "ELF\0cubin ",
                                   11) +
                       std::to_string(i);
  return kernels;
}

static ProgramPlan planWithFileWeight(const TemporaryFolder &folder) {
  ProgramPlan plan = samplePlan();
  Tensor weights = floats({4}, 1, 0.5f);
  std::string path = folder.path + "/model.data";
  std::ofstream(path, std::ios::binary) << "12345678" << std::string(weights.as<char>(), weights.bytes());
  plan.buffers[3].contents = FileSpan{path, 8, 16};
  plan.buffers.push_back(
      {BufferPlan::Kind::Weight, "constant", DType::I64, {}, Tensor::zeros(DType::I64, {})});
  plan.buffers.push_back({BufferPlan::Kind::Weight, "w again", DType::F32, {4}, FileSpan{path, 8, 16}});
  return plan;
}

TEST(Bundle, IsCompleteWithoutTheModel) {
  TemporaryFolder folder;
  ProgramPlan plan = planWithFileWeight(folder);
  std::string path = folder.path + "/out";
  Status written = writeBundle(path, plan, "sm_90a", fakeCubins(2));
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_TRUE(isBundle(path));
  fs::remove(folder.path + "/model.data");
  auto bundle = readBundle(path);
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(bundle->arch, "sm_90a");
  EXPECT_EQ(bundle->cubins[1], fakeCubins(2)[1].bytes);
  auto &first = std::get<FileSpan>(bundle->plan.buffers[3].contents);
  auto &again = std::get<FileSpan>(bundle->plan.buffers[7].contents);
  EXPECT_EQ(first.offset % 256, 0u);
  EXPECT_EQ(first.offset, again.offset);
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  options.cacheFolder = FUSION_BINARY_DIR "/test-cache";
  auto executor = Executor::create(bundle->plan, options);
  ASSERT_TRUE(executor) << executor.error().message;
  NamedTensors inputs = sampleInputs(2, 8);
  expectSum((*executor)->run(inputs), inputs);
}

TEST(Bundle, PartsOfAWeightLieSideBySide) {
  TemporaryFolder folder;
  ProgramPlan plan = samplePlan();
  Tensor weights = floats({4}, 1, 0.5f);
  std::string path = folder.path + "/model.data";
  std::ofstream(path, std::ios::binary)
      << std::string(weights.as<char>() + 8, 8) << "??" << std::string(weights.as<char>(), 8);
  plan.buffers[3].parts = {{path, 10, 8}, {path, 0, 8}};
  plan.buffers[3].contents = plan.buffers[3].parts[0];
  Status written = writeBundle(folder.path + "/out", plan, "sm_90a", fakeCubins(2));
  ASSERT_TRUE(written) << written.error().message;
  fs::remove(path);
  auto bundle = readBundle(folder.path + "/out");
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_TRUE(bundle->plan.buffers[3].parts.empty());
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  options.cacheFolder = FUSION_BINARY_DIR "/test-cache";
  auto executor = Executor::create(bundle->plan, options);
  ASSERT_TRUE(executor) << executor.error().message;
  NamedTensors inputs = sampleInputs(2, 8);
  expectSum((*executor)->run(inputs), inputs);
}

TEST(Bundle, KernelsOfOneModuleShareAFile) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/out";
  std::vector<CompiledKernel> cubins = fakeCubins(2);
  cubins[1].bytes = cubins[0].bytes;
  ASSERT_TRUE(writeBundle(path, samplePlan(), "sm_90a", cubins));
  EXPECT_FALSE(fs::exists(path + "/kernels/1.cubin"));
  auto bundle = readBundle(path);
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(bundle->cubins[1], cubins[0].bytes);
}

TEST(Bundle, HoldsTheWeightsOfEveryRank) {
  TemporaryFolder folder;
  ProgramPlan plan = samplePlan();
  std::string path = folder.path + "/out";
  Tensor weights = Tensor::of<float>(DType::F32, {8}, std::vector<float>{9, 9, 9, 9, 1, 1.5f, 2, 2.5f});
  plan.buffers[3].contents = weights;
  plan.buffers[3].window = {{8}, {Dim::symbol("tp_rank") * 4}};
  ASSERT_TRUE(writeBundle(path, plan, "sm_90a", fakeCubins(2)));
  auto bundle = readBundle(path);
  ASSERT_TRUE(bundle) << bundle.error().message;
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  options.cacheFolder = FUSION_BINARY_DIR "/test-cache";
  options.rank = 1;
  auto executor = Executor::create(bundle->plan, options);
  ASSERT_TRUE(executor) << executor.error().message;
  NamedTensors inputs = sampleInputs(2, 8);
  expectSum((*executor)->run(inputs), inputs);
}

TEST(Bundle, HoldsTheFilesOfEveryRank) {
  TemporaryFolder folder;
  ProgramPlan plan = samplePlan();
  std::string path = folder.path + "/out";
  for (int rank : {0, 1}) {
    Tensor weights = floats({4}, rank == 1 ? 1.f : -9.f, 0.5f);
    std::string file = folder.path + "/rank" + std::to_string(rank);
    std::ofstream(file, std::ios::binary)
        << std::string(8 * rank, '?') << std::string(weights.as<char>(), weights.bytes());
    plan.buffers[3].perRank.push_back({file, 8 * static_cast<uint64_t>(rank), 16});
  }
  plan.buffers[3].contents = plan.buffers[3].perRank[0];
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  options.cacheFolder = FUSION_BINARY_DIR "/test-cache";
  options.rank = 1;
  NamedTensors inputs = sampleInputs(2, 8);
  auto before = Executor::create(plan, options);
  ASSERT_TRUE(before) << before.error().message;
  expectSum((*before)->run(inputs), inputs);
  ASSERT_TRUE(writeBundle(path, plan, "sm_90a", fakeCubins(2)));
  for (int rank : {0, 1})
    fs::remove(folder.path + "/rank" + std::to_string(rank));
  auto bundle = readBundle(path);
  ASSERT_TRUE(bundle) << bundle.error().message;
  auto executor = Executor::create(bundle->plan, options);
  ASSERT_TRUE(executor) << executor.error().message;
  expectSum((*executor)->run(inputs), inputs);
  options.rank = 2;
  auto none = Executor::create(bundle->plan, options);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "weight w: there is no file for rank 2");
}

TEST(Bundle, ReplacesABundleButNothingElse) {
  TemporaryFolder folder;
  std::string path = folder.path + "/out";
  ProgramPlan plan = samplePlan();
  ASSERT_TRUE(writeBundle(path, plan, "sm_80", fakeCubins(2)));
  ASSERT_TRUE(writeBundle(path + "/", plan, "sm_90a", fakeCubins(2)));
  EXPECT_EQ(readBundle(path)->arch, "sm_90a");

  std::string other = folder.path + "/photos";
  fs::create_directory(other);
  std::ofstream(other + "/cat.jpg") << "meow";
  Status refused = writeBundle(other, plan, "sm_80", fakeCubins(2));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("not a bundle"), std::string::npos);
  EXPECT_TRUE(fs::exists(other + "/cat.jpg"));
  EXPECT_FALSE(writeBundle(other + "/cat.jpg", plan, "sm_80", fakeCubins(2)));
  for (const auto &entry : fs::directory_iterator(folder.path))
    EXPECT_EQ(entry.path().string().find("partial"), std::string::npos) << entry.path();
}

TEST(Bundle, AFailureLeavesNothingBehind) {
  TemporaryFolder folder;
  ProgramPlan plan = samplePlan();
  plan.buffers[3].contents = FileSpan{folder.path + "/absent.bin", 0, 16};
  Status status = writeBundle(folder.path + "/out", plan, "sm_80", fakeCubins(2));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("absent.bin"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder.path));
}

TEST(Bundle, DamageIsNamed) {
  TemporaryFolder folder;
  std::string path = folder.path + "/out";
  EXPECT_FALSE(readBundle(path));
  ASSERT_TRUE(writeBundle(path, samplePlan(), "sm_80", fakeCubins(2)));
  std::ofstream(path + "/kernels/1.cubin") << "garbage";
  auto bundle = readBundle(path);
  ASSERT_FALSE(bundle);
  EXPECT_NE(bundle.error().message.find("1.cubin"), std::string::npos);
  ASSERT_TRUE(writeBundle(path, samplePlan(), "sm_80", fakeCubins(2)));
  std::ofstream(path + "/plan.json", std::ios::app) << " ";
  EXPECT_FALSE(readBundle(path));
  ASSERT_TRUE(writeBundle(path, samplePlan(), "sm_80", fakeCubins(2)));
  std::ofstream(path + "/bundle.json") << "{}";
  EXPECT_FALSE(readBundle(path));
  ASSERT_TRUE(writeBundle(path, samplePlan(), "sm_80", fakeCubins(2)));
  std::fstream weights(path + "/weights.bin", std::ios::in | std::ios::out | std::ios::binary);
  const int first = weights.get();
  weights.seekp(0).put(static_cast<char>(first ^ 1));
  weights.close();
  bundle = readBundle(path);
  ASSERT_FALSE(bundle);
  EXPECT_NE(bundle.error().message.find("weights.bin is damaged"), std::string::npos)
      << bundle.error().message;
}

/// Writes the plan of a bundle anew, as somebody would who means it.
static void rewritePlan(const std::string &path, const std::string &from, const std::string &to) {
  auto read = [](const std::string &file) {
    std::ifstream in(file, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  std::string plan = read(path + "/plan.json"), manifest = read(path + "/bundle.json");
  const std::string before = contentHash(plan);
  ASSERT_NE(plan.find(from), std::string::npos);
  plan.replace(plan.find(from), from.size(), to);
  manifest.replace(manifest.find(before), before.size(), contentHash(plan));
  std::ofstream(path + "/plan.json", std::ios::binary) << plan;
  std::ofstream(path + "/bundle.json", std::ios::binary) << manifest;
}

TEST(Bundle, ReadsNoFileOutsideOfItself) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/out";
  std::ofstream(folder.path + "/secret") << std::string(4096, 's');
  for (const std::string &outside :
       {folder.path + "/secret", std::string("../secret"), std::string("plan.json")}) {
    ASSERT_TRUE(writeBundle(path, samplePlan(), "sm_80", fakeCubins(2)));
    rewritePlan(path, "weights.bin", outside);
    auto bundle = readBundle(path);
    ASSERT_FALSE(bundle) << outside;
    EXPECT_EQ(bundle.error().kind, ErrorKind::BadInput);
    EXPECT_NE(bundle.error().message.find("is not in weights.bin"), std::string::npos)
        << bundle.error().message;
  }
}

TEST(Bundle, WhatIsNoFileIsNotWaitedFor) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/out";
  for (const char *name : {"plan.json", "weights.bin", "kernels/0.cubin"}) {
    ASSERT_TRUE(writeBundle(path, samplePlan(), "sm_80", fakeCubins(2)));
    fs::remove(path + "/" + name);
    ASSERT_EQ(mkfifo((path + "/" + name).c_str(), 0600), 0);
    EXPECT_FALSE(readBundle(path)) << name;
  }
}
