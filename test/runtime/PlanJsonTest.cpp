#include "PlanVariants.h"

#include "codegen/plan/Json.h"
#include "codegen/target/TargetInfo.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::test;

TEST(PlanJson, RoundTripIsExact) {
  ProgramPlan plan = samplePlan();
  plan.buffers.push_back({BufferPlan::Kind::Weight, "f", DType::BF16, {2, 3}, FileSpan{"/w.bin", 256, 12}});
  plan.kernels[0].features = static_cast<uint32_t>(Feature::Wgmma | Feature::Clusters);
  pointer(onlyLaunch(plan, 1), 3).mayReplace = {0, 1};
  plan.kernels[1].emulatable = false;
  plan.kernels[1].whyNotEmulatable = "it uses \"wgmma\"";
  std::string text = toJson(plan);
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  EXPECT_EQ(back->kernels[0].source, plan.kernels[0].source);
  EXPECT_EQ(pointer(onlyLaunch(*back, 1), 2).byteOffset, Dim::symbol("n") * 4);
  EXPECT_EQ(pointer(onlyLaunch(*back, 1), 3).mayReplace, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(std::get<FileSpan>(back->buffers.back().contents).offset, 256u);
  EXPECT_EQ(std::get<Tensor>(back->buffers[3].contents).toFloats(), floats({4}, 1, 0.5f).toFloats());
  EXPECT_EQ(back->report, plan.report);
}

TEST(PlanJson, NamesOfKernelsAreIdentifiers) {
  for (const char *name : {"", "a b", "1a", "a\n", "a\"", "a;b", "caf\xc3\xa9"}) {
    ProgramPlan plan = samplePlan();
    plan.kernels[0].name = name;
    EXPECT_FALSE(programPlanFromJson(toJson(plan))) << name;
  }
}

TEST(PlanJson, RanksAreKept) {
  const std::string text = toJson(twoRanks());
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  EXPECT_EQ(back->ranks, 2);
  EXPECT_EQ(back->axis, "tp");
  EXPECT_EQ(back->launches()[2]->sumsOver, "tp");
  EXPECT_EQ(back->inputs[0].shard->count, 2);
  EXPECT_TRUE(back->kernels[3].isLibraryCall);
  const Alternative &twoShot = back->steps[2].alternatives[0];
  EXPECT_TRUE(std::holds_alternative<ExchangeArgument>(twoShot.launches[0].arguments.back()));
  ASSERT_TRUE(twoShot.collective);
  EXPECT_EQ(twoShot.collective->algorithm, CollectiveAlgorithm::TwoShot);
  EXPECT_EQ(twoShot.collective->roundBytes, Dim::symbol("n") * 8);
  EXPECT_EQ(twoShot.link, Alternative::Link::Last);
  ASSERT_TRUE(twoShot.linked);
  EXPECT_EQ(twoShot.linked->kernel, 2u);
}

TEST(PlanJson, TextThatIsNoPlanIsAnError) {
  for (const char *text : {"", "{", "[]", "17", "{\"format\": 1}", "{\"format\": \"x\"}"})
    EXPECT_FALSE(programPlanFromJson(text)) << text;
  auto other = programPlanFromJson("{\"format\": 999}");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("format 999"), std::string::npos) << other.error().message;
}

TEST(PlanJson, EveryTruncationAndMostCorruptionsAreErrorsAndNoneCrashes) {
  std::string text = toJson(samplePlan());
  for (size_t length = 0; length + 1 < text.size(); length += 13)
    EXPECT_FALSE(programPlanFromJson(std::string_view(text).substr(0, length)));
  for (size_t i = 0; i < text.size(); i += 7) {
    std::string broken = text;
    broken[i] = static_cast<char>(broken[i] == '9' ? '[' : '9');
    if (auto plan = programPlanFromJson(broken))
      EXPECT_TRUE(verify(*plan));
  }
}

TEST(PlanJson, MissingFieldsAreNamed) {
  auto object = nlohmann::json::parse(toJson(samplePlan()));
  object["kernels"][1].erase("source");
  auto plan = programPlanFromJson(object.dump());
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("kernels[1]: field 'source' is missing"), std::string::npos)
      << plan.error().message;
}

TEST(PlanJson, EveryKindOfArgumentRoundTrips) {
  const std::string text = toJson(tiledPlan());
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  const auto &map = std::get<TensorMapArgument>(onlyLaunch(*back, 1).arguments[1]);
  EXPECT_EQ(map.buffer, 1u);
  EXPECT_EQ(map.shape[1], Dim::symbol("n"));
  EXPECT_EQ(map.box, (std::vector<uint32_t>{8, 16}));
  EXPECT_EQ(map.swizzle, TensorMapArgument::Swizzle::Bytes64);
  EXPECT_EQ(map.l2Promotion, TensorMapArgument::L2Promotion::Bytes128);
  EXPECT_EQ(map.outOfBounds, TensorMapArgument::OutOfBounds::NaN);
  const auto &workspace = std::get<WorkspaceArgument>(onlyLaunch(*back, 1).arguments[2]);
  EXPECT_EQ(workspace.bytes, Dim::symbol("batch") * 64);
  EXPECT_EQ(workspace.contents, WorkspaceArgument::Contents::KeptZero);
  EXPECT_EQ(back->kernels[1].clusterX, 2u);
  EXPECT_TRUE(back->kernels[1].cooperative);
}

TEST(PlanJson, RepetitionsRoundTrip) {
  ProgramPlan plan = samplePlan();
  plan.repetitions = {{0, 1, Dim::symbol("n")}, {1, 2, 3}};
  const std::string text = toJson(plan);
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  EXPECT_EQ(back->repetitions[0].count, Dim::symbol("n"));
  EXPECT_EQ(back->repetitions[1].end, 2u);
}

TEST(PlanJson, RangesRoundTrip) {
  std::string text = toJson(rangedPlan());
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  EXPECT_EQ(firstOf(*back)[0].when[0].size, Dim::symbol("batch") * Dim::symbol("n"));
  EXPECT_EQ(firstOf(*back)[1].when[0].least, 5);
  EXPECT_TRUE(back->steps[1].alternatives[0].when.empty());
}

TEST(Base64, RoundTripsEveryLength) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    auto text = encodeBase64(std::as_bytes(std::span(bytes)));
    auto back = decodeBase64(text);
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, bytes);
    bytes.push_back(static_cast<char>(i * 37));
  }
  EXPECT_FALSE(decodeBase64("abc"));
  EXPECT_FALSE(decodeBase64("ab?="));
  EXPECT_FALSE(decodeBase64("=abc"));
  EXPECT_FALSE(decodeBase64("ab==abcd"));
}
