// What a plan asks for is within bounds before anything is launched: a bundle whose digests were made anew is
// one line.
#include "TilePlan.h"

#include "ir/base/Hash.h"
#include "runtime/Bundle.h"
#include "runtime/ShapePlan.h"

#include <fstream>

using namespace fusion;
using namespace fusion::test;

namespace {
struct Damage {
  const char *expected; ///< in the message
  std::function<void(ProgramPlan &)> make;
};

std::string textOf(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// The same plan in a bundle with the right digests.
Status readSigned(const ProgramPlan &plan) {
  const TemporaryFolder folder;
  std::vector<CompiledKernel> kernels(plan.kernels.size());
  for (CompiledKernel &kernel : kernels)
    kernel.bytes = "\x7f"
                   "ELF";
  const std::string path = folder.path + "/out";
  if (Status status = writeBundle(path, samplePlan(), "sm_90a", std::vector<CompiledKernel>(2, kernels[0]));
      !status)
    return status;
  const std::string text = toJson(plan);
  std::string manifest = textOf(path + "/bundle.json");
  const std::string before = contentHash(textOf(path + "/plan.json"));
  manifest.replace(manifest.find(before), before.size(), contentHash(text));
  std::ofstream(path + "/plan.json", std::ios::binary) << text;
  std::ofstream(path + "/bundle.json", std::ios::binary) << manifest;
  auto bundle = readBundle(path);
  return bundle ? Status() : Status(bundle.error());
}

void expectRefused(ProgramPlan plan, const Damage &damage) {
  damage.make(plan);
  const Status status = readSigned(plan);
  ASSERT_FALSE(status) << damage.expected;
  EXPECT_EQ(status.error().kind, ErrorKind::BadInput);
  EXPECT_NE(status.error().message.find(damage.expected), std::string::npos) << status.error().message;
  EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
}
} // namespace

TEST(VerifySizes, ABundleIsCheckedWhenItIsRead) {
  const std::vector<Damage> all = {
      {"232449 bytes of shared memory, a block has 232448",
       [](auto &plan) { plan.kernels[0].dynamicSharedBytes = 232449; }},
      {"a block of 1025x1x1 threads", [](auto &plan) { plan.kernels[1].blockX = 1025; }},
      {"a block of 0x1x1 threads", [](auto &plan) { plan.kernels[1].blockX = 0; }},
      {"a grid of -1 blocks along x", [](auto &plan) { onlyLaunch(plan, 0).gridX = -1; }},
      {"a grid of 2147483648 blocks along x",
       [](auto &plan) { onlyLaunch(plan, 0).gridX = int64_t(1) << 31; }},
      {"a grid of 65536 blocks along y", [](auto &plan) { onlyLaunch(plan, 1).gridY = 65536; }},
      {"a grid of 1 blocks along z, in clusters of 2", [](auto &plan) { plan.kernels[0].clusterZ = 2; }},
      {"argument 1 (w) begins at byte 17 of buffer w",
       [](auto &plan) { pointer(onlyLaunch(plan, 0), 1).byteOffset = 17; }},
      {"argument 0 (x) begins at byte -4 of buffer x",
       [](auto &plan) { pointer(onlyLaunch(plan, 0), 0).byteOffset = -4; }},
      {"argument 0 (x) names buffer 99 of 6",
       [](auto &plan) { pointer(onlyLaunch(plan, 0), 0).buffer = 99; }},
      {"buffer scaled: its shape [-1] is no size", [](auto &plan) { plan.buffers[4].shape = {-1}; }},
      {"buffer scaled: its shape",
       [](auto &plan) {
         plan.buffers[4].shape = {int64_t(1) << 40, int64_t(1) << 40};
       }},
      {"input x: [batch, n] f32 in a buffer of [batch, 4096] f32",
       [](auto &plan) {
         plan.buffers[0].shape = {Dim::symbol("batch"), 4096};
       }},
      {"input x: ", [](auto &plan) { plan.buffers[0].type = DType::F64; }},
      {"output sum: begins at byte -1 of buffer sum", [](auto &plan) { plan.outputs[0].byteOffset = -1; }},
      {"weight w: shape [5] of f32 needs 20 bytes", [](auto &plan) {
         plan.buffers[3].contents = FileSpan{"weights.bin", 0, 16};
         plan.buffers[3].shape = {5};
       }}};
  EXPECT_TRUE(readSigned([] {
    ProgramPlan plan = samplePlan();
    plan.buffers[3].contents = FileSpan{"weights.bin", 0, 16};
    return plan;
  }()));
  for (const Damage &damage : all)
    expectRefused(samplePlan(), damage);
}

TEST(VerifySizes, WhatOnlyARunKnowsIsCheckedByIt) {
  const Dim n = Dim::symbol("n");
  const std::vector<Damage> all = {
      {"grid x", [&](auto &plan) { onlyLaunch(plan, 0).gridX = n - 9; }},
      {"grid y", [&](auto &plan) { onlyLaunch(plan, 0).gridY = n * 100000; }},
      {"byte offset into x", [&](auto &plan) { pointer(onlyLaunch(plan, 0), 0).byteOffset = n * 1000; }},
      {"byte offset into scaled", [&](auto &plan) { pointer(onlyLaunch(plan, 0), 2).byteOffset = n * -4; }},
      {"output sum: 64 bytes at 32 lie outside", [&](auto &plan) { plan.outputs[0].byteOffset = n * 4; }},
      {"is too large", [&](auto &plan) {
         plan.buffers[4].shape = {n * (int64_t(1) << 30), n * (int64_t(1) << 30)};
       }}};
  const SymbolValues sizes = {{"batch", 2}, {"n", 8}};
  EXPECT_TRUE(planShapes(samplePlan(), sizes));
  for (const Damage &damage : all) {
    ProgramPlan plan = samplePlan();
    damage.make(plan);
    auto shapes = planShapes(plan, sizes);
    ASSERT_FALSE(shapes) << damage.expected;
    EXPECT_EQ(shapes.error().kind, ErrorKind::BadInput);
    EXPECT_NE(shapes.error().message.find(damage.expected), std::string::npos) << shapes.error().message;
  }
}

TEST(VerifySizes, ViewsOfTensorMapsLieInTheirBuffers) {
  auto mapOf = [](ProgramPlan &plan) -> TensorMapArgument & {
    return std::get<TensorMapArgument>(onlyLaunch(plan, 0).arguments[0]);
  };
  auto fixed = [&] { // of sizes that are known
    ProgramPlan plan = tilePlan();
    BufferPlan &buffer = plan.buffers[mapOf(plan).buffer];
    buffer.shape = {64, 32};
    for (PortPlan &port : plan.inputs)
      if (port.buffer == mapOf(plan).buffer)
        port.shape = buffer.shape;
    mapOf(plan).shape = {64, 32};
    mapOf(plan).strides = {32, 1};
    return plan;
  };
  EXPECT_TRUE(verify(fixed()));
  ProgramPlan empty = fixed(); // the second half of each row of none
  empty.buffers[mapOf(empty).buffer].shape = empty.inputs[0].shape = {0, 32};
  mapOf(empty).shape = {0, 16};
  mapOf(empty).byteOffset = 64;
  EXPECT_TRUE(verify(empty));
  const std::vector<Damage> all = {
      {"has a view that ends behind the 8192 bytes of buffer",
       [&](auto &plan) {
         mapOf(plan).shape = {65, 32};
       }},
      {"has a view that ends behind the 8192 bytes of buffer",
       [&](auto &plan) { mapOf(plan).byteOffset = 16; }},
      {"has a view that ends behind the 8192 bytes of buffer",
       [&](auto &plan) {
         mapOf(plan).strides = {36, 1};
       }},
      {"begins at byte -16 of buffer", [&](auto &plan) { mapOf(plan).byteOffset = -16; }},
      {"has a view of",
       [&](auto &plan) {
         mapOf(plan).strides = {-32, 1};
       }},
      {"has a view of",
       [&](auto &plan) {
         mapOf(plan).shape = {-1, 32};
       }},
      {"has a box of 512 elements",
       [&](auto &plan) {
         mapOf(plan).box = {512, 32};
       }},
      {"has less than no bytes",
       [&](auto &plan) {
         for (KernelArgument &argument : onlyLaunch(plan, 0).arguments)
           if (auto *workspace = std::get_if<WorkspaceArgument>(&argument))
             workspace->bytes = -1;
       }},
      {"is a workspace of", [&](auto &plan) {
         for (KernelArgument &argument : onlyLaunch(plan, 0).arguments)
           if (auto *workspace = std::get_if<WorkspaceArgument>(&argument))
             workspace->bytes = int64_t(1) << 60;
       }}};
  for (const Damage &damage : all) {
    ProgramPlan plan = fixed();
    damage.make(plan);
    const Status status = verify(plan);
    ASSERT_FALSE(status) << damage.expected;
    EXPECT_NE(status.error().message.find(damage.expected), std::string::npos) << status.error().message;
  }
}
