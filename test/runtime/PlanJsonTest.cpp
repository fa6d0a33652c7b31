#include "SamplePlan.h"

#include "codegen/plan/Json.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::test;

TEST(PlanJson, RoundTripIsExact) {
  ProgramPlan plan = samplePlan();
  plan.buffers.push_back({BufferPlan::Kind::Weight, "f", DType::BF16, {2, 3}, FileSpan{"/w.bin", 256, 12}});
  plan.kernels[0].minimumArch = 89;
  plan.launches[1].arguments[3].mayReplace = {0, 1};
  plan.kernels[1].emulatable = false;
  plan.kernels[1].whyNotEmulatable = "it uses \"wgmma\"";
  std::string text = toJson(plan);
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  EXPECT_EQ(back->kernels[0].source, plan.kernels[0].source);
  EXPECT_EQ(back->launches[1].arguments[2].byteOffset, Dim::symbol("n") * 4);
  EXPECT_EQ(back->launches[1].arguments[3].mayReplace, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(std::get<FileSpan>(back->buffers.back().contents).offset, 256u);
  EXPECT_EQ(std::get<Tensor>(back->buffers[3].contents).toFloats(), floats({4}, 1, 0.5f).toFloats());
  EXPECT_EQ(back->report, plan.report);
}

/// The sample for two ranks: its second kernel exchanges, or is left to the library.
static ProgramPlan twoRanks() {
  ProgramPlan plan = samplePlan();
  plan.ranks = 2;
  plan.inputs[0].shard = PortPlan::Shard{0, 2};
  KernelPlan exchange = plan.kernels[1], call;
  exchange.name = "exchange";
  exchange.parameters.push_back({KernelPlan::Parameter::Kind::Pointer, "Exchange *", "exchange"});
  call.name = call.schedule = "all_reduce";
  call.isLibraryCall = true;
  call.parameters.assign(3, {KernelPlan::Parameter::Kind::Int64, "i64", "n"});
  KernelLaunch launch = plan.launches[1];
  launch.kernel = 2;
  launch.arguments.emplace_back().exchange = true;
  launch.collective = KernelLaunch::Collective{CollectiveForm::TwoShot, Dim::symbol("n") * 4, Dim::symbol("n") * 8};
  plan.kernels.insert(plan.kernels.end(), {exchange, call});
  plan.launches.push_back(launch);
  return plan;
}

TEST(PlanJson, RanksAreKept) {
  const std::string text = toJson(twoRanks());
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  EXPECT_EQ(back->ranks, 2);
  EXPECT_EQ(back->inputs[0].shard->pieces, 2);
  EXPECT_TRUE(back->kernels[3].isLibraryCall);
  EXPECT_TRUE(back->launches[2].arguments.back().exchange);
  ASSERT_TRUE(back->launches[2].collective);
  EXPECT_EQ(back->launches[2].collective->form, CollectiveForm::TwoShot);
  EXPECT_EQ(back->launches[2].collective->roundBytes, Dim::symbol("n") * 8);
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

static std::string whyInvalid(const ProgramPlan &plan) {
  Status status = verify(plan);
  EXPECT_FALSE(status);
  EXPECT_FALSE(programPlanFromJson(toJson(plan)));
  return status ? "" : status.error().message;
}

TEST(PlanVerify, RanksAreChecked) {
  EXPECT_TRUE(verify(twoRanks()));
  ProgramPlan plan = twoRanks();
  plan.ranks = 1;
  EXPECT_NE(whyInvalid(plan).find("exchange memory of several ranks"), std::string::npos);
  plan = twoRanks();
  plan.launches[2].collective.reset();
  EXPECT_NE(whyInvalid(plan).find("exchange memory of several ranks"), std::string::npos);
  plan = twoRanks();
  plan.inputs[0].shard->pieces = 3;
  EXPECT_NE(whyInvalid(plan).find("3 pieces along dim 0 for 2 ranks"), std::string::npos);
  plan = twoRanks();
  plan.kernels[3].source = "text";
  EXPECT_NE(whyInvalid(plan).find("is a library call with one"), std::string::npos);
  plan = twoRanks();
  plan.kernels[3].parameters.pop_back();
  EXPECT_NE(whyInvalid(plan).find("it takes 3"), std::string::npos);
}

TEST(PlanVerify, IndicesAndArgumentsAreChecked) {
  EXPECT_TRUE(verify(samplePlan()));
  ProgramPlan plan = samplePlan();
  plan.launches[0].kernel = 2;
  EXPECT_NE(whyInvalid(plan).find("kernel 2 of 2"), std::string::npos);
  plan = samplePlan();
  plan.launches[0].arguments.pop_back();
  EXPECT_NE(whyInvalid(plan).find("3 arguments for 4 parameters"), std::string::npos);
  plan = samplePlan();
  plan.launches[1].arguments[1].buffer = 6;
  EXPECT_NE(whyInvalid(plan).find("buffer 6 of 6"), std::string::npos);
  plan = samplePlan();
  plan.launches[1].arguments[4].buffer = 1;
  EXPECT_NE(whyInvalid(plan).find("is a buffer but"), std::string::npos);
  plan = samplePlan();
  plan.launches[0].arguments[1].written = true;
  EXPECT_NE(whyInvalid(plan).find("writes a weight"), std::string::npos);
  plan = samplePlan();
  plan.launches[1].arguments[3].mayReplace = {4};
  EXPECT_NE(whyInvalid(plan).find("may not replace argument 4"), std::string::npos);
  plan = samplePlan();
  plan.outputs[0].buffer = 4;
  EXPECT_NE(whyInvalid(plan).find("temporary"), std::string::npos);
  plan = samplePlan();
  plan.inputs[1].name = "x";
  EXPECT_NE(whyInvalid(plan).find("twice"), std::string::npos);
  plan = samplePlan();
  plan.buffers[3].shape = {5};
  EXPECT_NE(whyInvalid(plan).find("needs 20 bytes"), std::string::npos);
  plan = samplePlan();
  plan.buffers[3].contents = std::monostate();
  EXPECT_NE(whyInvalid(plan).find("without contents"), std::string::npos);
  plan = samplePlan();
  plan.kernels[0].blockX = 2048;
  EXPECT_NE(whyInvalid(plan).find("2048x1x1"), std::string::npos);
}

TEST(PlanVerify, RangesOfASizeHaveNoGaps) {
  EXPECT_TRUE(verify(rangedPlan()));
  EXPECT_EQ(rangedPlan().launchesOfRun(), 2);
  ProgramPlan plan = rangedPlan();
  plan.launches[0].when->most = 3;
  EXPECT_NE(whyInvalid(plan).find("behind 1 … 3"), std::string::npos);
  plan = rangedPlan();
  plan.launches[0].when->least = 0;
  EXPECT_NE(whyInvalid(plan).find("is for 0 … 4"), std::string::npos);
  plan = rangedPlan();
  plan.launches[1].when->size = Dim::symbol("n");
  EXPECT_NE(whyInvalid(plan).find("of n, behind"), std::string::npos);
  plan = rangedPlan();
  plan.launches[1].when->most = 70;
  EXPECT_NE(whyInvalid(plan).find("end too early"), std::string::npos);
  plan = rangedPlan();
  plan.launches.erase(plan.launches.begin() + 1);
  EXPECT_NE(whyInvalid(plan).find("end too early"), std::string::npos);
  plan = rangedPlan();
  plan.launches[1].arguments[2].buffer = 5;
  EXPECT_NE(whyInvalid(plan).find("writes other buffers"), std::string::npos);
}

/// For sizes from 5 on the op is two kernels.
static ProgramPlan steppedPlan() {
  ProgramPlan plan = rangedPlan();
  KernelLaunch ahead = plan.launches[1];
  ahead.ahead = true;
  plan.launches.insert(plan.launches.begin(), ahead);
  return plan;
}

TEST(PlanVerify, WhatIsAheadOfLargerSizesStandsInFront) {
  EXPECT_TRUE(verify(steppedPlan()));
  EXPECT_EQ(steppedPlan().launchesOfRun(), 2);
  auto back = programPlanFromJson(toJson(steppedPlan()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(back->launches[0].ahead);
  EXPECT_FALSE(back->launches[1].ahead);
  ProgramPlan plan = steppedPlan();
  plan.launches[0].when.reset();
  EXPECT_NE(whyInvalid(plan).find("is ahead of others for all sizes"), std::string::npos);
  plan = steppedPlan();
  plan.launches[0].when->most = 70;
  EXPECT_NE(whyInvalid(plan).find("is ahead of others for 5 … 70"), std::string::npos);
  plan = steppedPlan();
  plan.launches[0].when->least = 3;
  EXPECT_NE(whyInvalid(plan).find("which another is ahead of from 3 on"), std::string::npos);
  plan = steppedPlan();
  plan.launches[0].when->size = Dim::symbol("n");
  EXPECT_NE(whyInvalid(plan).find("of n"), std::string::npos);
  plan = steppedPlan();
  std::swap(plan.launches[0], plan.launches[1]);
  EXPECT_NE(whyInvalid(plan).find("is ahead of others"), std::string::npos);
  plan = steppedPlan();
  plan.launches[0].arguments[2].buffer = plan.launches[2].arguments[2].buffer = 5;
  EXPECT_NE(whyInvalid(plan).find("writes other buffers"), std::string::npos);
}

TEST(PlanVerify, CachesLieInTheCornerOfTheirBuffer) {
  EXPECT_TRUE(verify(cachePlan()));
  auto back = programPlanFromJson(toJson(cachePlan()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->inputs.back().strides, cachePlan().inputs.back().strides);
  EXPECT_EQ(back->outputs.back().strides, cachePlan().outputs.back().strides);
  ProgramPlan plan = cachePlan();
  plan.inputs.back().strides = {9, 1};
  EXPECT_NE(whyInvalid(plan).find("its strides are not those of its buffer"), std::string::npos);
  plan = cachePlan();
  plan.outputs.back().strides = {1};
  EXPECT_NE(whyInvalid(plan).find("different ranks"), std::string::npos);
  plan = cachePlan();
  plan.inputs.back().strides.clear();
  EXPECT_NE(whyInvalid(plan).find("a buffer that no input with strides fills"), std::string::npos);
}

TEST(PlanVerify, APartOfAWeightLiesInIt) {
  ProgramPlan plan = samplePlan();
  plan.buffers.push_back({BufferPlan::Kind::Weight, "f", DType::BF16, {2, 3}, FileSpan{"/w.bin", 0, 48}});
  BufferPlan &weight = plan.buffers.back();
  Dim rank = Dim::symbol("tp_rank");
  weight.window = {{4, 6}, {rank * 2, 3}};
  EXPECT_TRUE(verify(plan));
  auto back = programPlanFromJson(toJson(plan));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->buffers.back().window->starts, weight.window->starts);
  EXPECT_EQ(back->buffers.back().window->whole, weight.window->whole);
  for (BufferPlan::Window bad : {BufferPlan::Window{{4, 6}, {rank * 2, 4}}, {{4, 6}, {rank * 2}},
                                 {{4, 6}, {Dim::symbol("batch"), 3}}, {{1, 24}, {0, 0}}, {{4, 6}, {-1, 0}}}) {
    weight.window = bad;
    EXPECT_NE(whyInvalid(plan).find("is no part of"), std::string::npos);
  }
  weight.window = {{4, 5}, {0, 0}};
  EXPECT_NE(whyInvalid(plan).find("needs 40 bytes"), std::string::npos);
  plan.buffers.pop_back();
  plan.buffers[0].window = {{4}, {0}};
  EXPECT_NE(whyInvalid(plan).find("only a weight"), std::string::npos);
}

TEST(PlanVerify, EveryRankHasAllBytesOfAWeightOfItsOwn) {
  ProgramPlan plan = samplePlan();
  plan.buffers.push_back({BufferPlan::Kind::Weight, "f", DType::BF16, {2, 3}, FileSpan{"/a.bin", 0, 12}});
  plan.buffers.back().perRank = {{"/a.bin", 0, 12}, {"/b.bin", 8, 12}};
  EXPECT_TRUE(verify(plan));
  auto back = programPlanFromJson(toJson(plan));
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->buffers.back().perRank.size(), 2u);
  EXPECT_EQ(back->buffers.back().perRank[1].path, "/b.bin");
  EXPECT_EQ(back->buffers.back().perRank[1].offset, 8u);
  plan.buffers.back().perRank[1].length = 10;
  EXPECT_NE(whyInvalid(plan).find("do not have 12 bytes of it each"), std::string::npos);
  plan.buffers.pop_back();
  plan.buffers[0].perRank = {{"/a.bin", 0, 12}};
  EXPECT_NE(whyInvalid(plan).find("only a weight"), std::string::npos);
}

TEST(PlanJson, RangesRoundTrip) {
  std::string text = toJson(rangedPlan());
  auto back = programPlanFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(toJson(*back), text);
  EXPECT_EQ(back->launches[0].when->size, Dim::symbol("batch") * Dim::symbol("n"));
  EXPECT_EQ(back->launches[1].when->least, 5);
  EXPECT_FALSE(back->launches[2].when);
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
