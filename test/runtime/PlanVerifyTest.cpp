#include "PlanVariants.h"

#include "codegen/plan/Json.h"

#include <gtest/gtest.h>

using namespace fusion;
using namespace fusion::test;

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
  plan.steps[2].alternatives[0].collective.reset();
  EXPECT_NE(whyInvalid(plan).find("exchange memory of several ranks"), std::string::npos);
  plan = twoRanks();
  onlyLaunch(plan, 2).sumsOver = "ep";
  EXPECT_NE(whyInvalid(plan).find("sums over the mesh axis \"ep\", but the ranks are the axis \"tp\""),
            std::string::npos);
  plan.axis = "ep";
  plan.steps[2].alternatives[0].linked->sumsOver = "ep";
  EXPECT_TRUE(verify(plan));
  plan = twoRanks();
  plan.inputs[0].shard->count = 3;
  EXPECT_NE(whyInvalid(plan).find("3 shards along dim 0 for 2 ranks"), std::string::npos);
  plan = twoRanks();
  plan.kernels[3].source = "text";
  EXPECT_NE(whyInvalid(plan).find("is a library call with one"), std::string::npos);
  plan = twoRanks();
  plan.kernels[3].parameters.pop_back();
  EXPECT_NE(whyInvalid(plan).find("it takes 3"), std::string::npos);
}

TEST(PlanVerify, LinkedLaunchesAreChecked) {
  ProgramPlan plan = twoRanks();
  plan.steps[2].alternatives[0].linked->kernel = 17;
  EXPECT_NE(whyInvalid(plan).find("kernel 17 of 4"), std::string::npos);
  plan = twoRanks();
  plan.steps[2].alternatives[0].link = Alternative::Link::First;
  EXPECT_TRUE(verify(plan));
  plan.steps[2].alternatives[0].launches.push_back(onlyLaunch(plan, 2));
  EXPECT_NE(whyInvalid(plan).find("has a linked launch instead of several"), std::string::npos);
  for (auto link : {Alternative::Link::None, Alternative::Link::Between}) {
    plan = twoRanks();
    plan.steps[2].alternatives[0].link = link;
    EXPECT_NE(whyInvalid(plan).find("has a linked launch without a link"), std::string::npos);
  }
  plan = twoRanks();
  plan.steps[2].alternatives[0].linked.reset();
  EXPECT_NE(whyInvalid(plan).find("is an end of a link without a linked launch"), std::string::npos);
  plan = twoRanks();
  pointer(*plan.steps[2].alternatives[0].linked, 3) = {4, 0, /*written=*/true};
  EXPECT_NE(whyInvalid(plan).find("has a linked launch that writes other buffers"), std::string::npos);
}

TEST(PlanVerify, IndicesAndArgumentsAreChecked) {
  EXPECT_TRUE(verify(samplePlan()));
  ProgramPlan plan = samplePlan();
  onlyLaunch(plan, 0).kernel = 2;
  EXPECT_NE(whyInvalid(plan).find("kernel 2 of 2"), std::string::npos);
  plan = samplePlan();
  onlyLaunch(plan, 0).arguments.pop_back();
  EXPECT_NE(whyInvalid(plan).find("3 arguments for 4 parameters"), std::string::npos);
  plan = samplePlan();
  pointer(onlyLaunch(plan, 1), 1).buffer = 6;
  EXPECT_NE(whyInvalid(plan).find("buffer 6 of 6"), std::string::npos);
  plan = samplePlan();
  onlyLaunch(plan, 1).arguments[4] = PointerArgument{1};
  EXPECT_NE(whyInvalid(plan).find("is a pointer but the parameter is a number"), std::string::npos);
  plan = samplePlan();
  pointer(onlyLaunch(plan, 0), 1).written = true;
  EXPECT_NE(whyInvalid(plan).find("writes a weight"), std::string::npos);
  plan = samplePlan();
  pointer(onlyLaunch(plan, 1), 3).mayReplace = {4};
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

TEST(PlanVerify, AlternativesAreForAllSizes) {
  EXPECT_TRUE(verify(rangedPlan()));
  EXPECT_EQ(rangedPlan().launchesOfRun(), 2);
  ProgramPlan plan = rangedPlan();
  firstOf(plan)[0].when[0].most = 3;
  EXPECT_EQ(whyInvalid(plan), "step 0 at layers.0.scale is for no sizes with batch*n = 4");
  plan = rangedPlan();
  firstOf(plan)[0].when[0].least = 0;
  EXPECT_NE(whyInvalid(plan).find("for 0 … 4 of batch*n"), std::string::npos);
  plan = rangedPlan();
  firstOf(plan)[1].when[0].size = Dim::symbol("n");
  EXPECT_NE(whyInvalid(plan).find("is for no sizes with batch*n = 5, n = 1"), std::string::npos);
  plan = rangedPlan();
  firstOf(plan)[1].when[0].most = 70;
  EXPECT_NE(whyInvalid(plan).find("is for no sizes with batch*n = 71"), std::string::npos);
  plan = rangedPlan();
  firstOf(plan).pop_back();
  EXPECT_NE(whyInvalid(plan).find("is for no sizes"), std::string::npos);
  plan = rangedPlan();
  firstOf(plan).clear();
  EXPECT_NE(whyInvalid(plan).find("has no alternatives"), std::string::npos);
  plan = rangedPlan();
  firstOf(plan)[1].launches.clear();
  EXPECT_NE(whyInvalid(plan).find("without launches"), std::string::npos);
  plan = rangedPlan();
  pointer(firstOf(plan)[1].launches[0], 2).buffer = 5;
  EXPECT_NE(whyInvalid(plan).find("write other buffers"), std::string::npos);
}

TEST(PlanVerify, TheFirstAlternativeThatFitsIsTaken) {
  ProgramPlan plan = rangedPlan();
  firstOf(plan)[1].when.clear(); // for all that the first is not for
  EXPECT_TRUE(verify(plan));
  std::swap(firstOf(plan)[0], firstOf(plan)[1]);
  EXPECT_NE(whyInvalid(plan).find("never takes alternative 1"), std::string::npos);
  // Several sizes: a corner of the plane, the rest of a stripe, all else.
  plan = rangedPlan();
  const Dim batch = Dim::symbol("batch"), n = Dim::symbol("n");
  firstOf(plan)[0].when = {{batch, 1, 8}, {n, 1, 64}};
  firstOf(plan)[1].when = {{batch, 1, 8}};
  firstOf(plan).push_back(firstOf(plan)[1]);
  firstOf(plan)[2].when = {{n, 1, 500}};
  EXPECT_NE(whyInvalid(plan).find("is for no sizes with batch = 9, n = 501"), std::string::npos)
      << whyInvalid(plan);
  firstOf(plan)[2].when = {{n, 1}};
  EXPECT_TRUE(verify(plan)) << verify(plan).error().message;
}

TEST(PlanVerify, KernelsOfSomeSizesAreThoseOfTheirCandidates) {
  ProgramPlan plan = rangedPlan();
  plan.kernels.insert(plan.kernels.end(), 2, plan.kernels.front());
  const auto other = static_cast<uint32_t>(plan.kernels.size()) - 2;
  firstOf(plan)[0].when = {{Dim::symbol("batch"), 1, 8}};
  firstOf(plan)[1].when.clear();
  firstOf(plan)[0].launches[0].kernel = other;
  firstOf(plan)[1].launches[0].kernel = other + 1;
  auto has = [&](int64_t batch, uint32_t kernel) {
    const std::vector<uint32_t> kernels = kernelsAt(plan, {{"batch", batch}, {"n", 3}});
    return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
  };
  EXPECT_TRUE(has(8, other) && !has(8, other + 1));
  EXPECT_TRUE(!has(9, other) && has(9, other + 1));
  firstOf(plan)[0].variant = kernelVariant; // measured: both may run
  firstOf(plan)[1].variant = libraryVariant;
  EXPECT_TRUE(has(8, other) && has(8, other + 1));
}

/// From 5 elements on the op is two kernels.
static ProgramPlan splitPlan() {
  ProgramPlan plan = rangedPlan();
  BufferPlan between = plan.buffers[4];
  plan.buffers.push_back(between);
  std::vector<KernelLaunch> &launches = firstOf(plan)[1].launches;
  launches.push_back(launches[0]);
  pointer(launches[0], 2).buffer = pointer(launches[1], 0).buffer = 6;
  return plan;
}

TEST(PlanVerify, AnAlternativeMayBeSeveralLaunches) {
  EXPECT_TRUE(verify(splitPlan()));
  EXPECT_EQ(splitPlan().launchesOfRun(), 2);
  auto back = programPlanFromJson(toJson(splitPlan()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(firstOf(*back)[1].launches.size(), 2u);
  ProgramPlan plan = splitPlan();
  pointer(firstOf(plan)[1].launches[1], 2).buffer = 6; // the result is missing
  EXPECT_NE(whyInvalid(plan).find("write other buffers"), std::string::npos);
}

TEST(PlanVerify, TensorMapsThatCannotBeEncodedAreErrors) {
  EXPECT_TRUE(verify(tiledPlan())) << verify(tiledPlan()).error().message;
  auto why = [](auto change) {
    ProgramPlan plan = tiledPlan();
    change(std::get<TensorMapArgument>(onlyLaunch(plan, 1).arguments[1]));
    return whyInvalid(plan);
  };
  using Map = TensorMapArgument;
  EXPECT_NE(why([](Map &map) { map.box = {8}; }).find("a box extent each"), std::string::npos);
  EXPECT_NE(why([](Map &map) { map.box = {257, 16}; }).find("a box of 257"), std::string::npos);
  EXPECT_NE(why([](Map &map) { map.box = {8, 6}; }).find("rows of 24 bytes"), std::string::npos);
  EXPECT_NE(why([](Map &map) { map.box = {8, 32}; }).find("a swizzle of 64"), std::string::npos);
  EXPECT_NE(why([](Map &map) { map.strides[1] = 2; }).find("side by side"), std::string::npos);
  EXPECT_NE(why([](Map &map) { map.strides[0] = 6; }).find("a stride of 24 bytes"), std::string::npos);
  EXPECT_NE(why([](Map &map) { map.elementStrides = {9, 1}; }).find("every 9-th"), std::string::npos);
  EXPECT_NE(why([](Map &map) { map.buffer = 9; }).find("buffer 9 of 6"), std::string::npos);
  ProgramPlan plan = tiledPlan();
  plan.kernels[1].parameters[1].kind = KernelPlan::Parameter::Kind::Pointer;
  EXPECT_NE(whyInvalid(plan).find("is a tensor map but the parameter is a pointer"), std::string::npos);
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
  for (BufferPlan::Window bad : {BufferPlan::Window{{4, 6}, {rank * 2, 4}},
                                 {{4, 6}, {rank * 2}},
                                 {{4, 6}, {Dim::symbol("batch"), 3}},
                                 {{1, 24}, {0, 0}},
                                 {{4, 6}, {-1, 0}}}) {
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

TEST(PlanVerify, PartsOfAWeightAreEqualAndHoldAllOfIt) {
  ProgramPlan plan = samplePlan();
  plan.buffers.push_back({BufferPlan::Kind::Weight, "f", DType::BF16, {2, 3}, FileSpan{"/a.bin", 0, 6}});
  plan.buffers.back().parts = {{"/a.bin", 0, 6}, {"/b.bin", 8, 6}};
  EXPECT_TRUE(verify(plan));
  auto back = programPlanFromJson(toJson(plan));
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->buffers.back().parts.size(), 2u);
  EXPECT_EQ(back->buffers.back().parts[1].path, "/b.bin");
  plan.buffers.back().parts[1].length = 4;
  EXPECT_NE(whyInvalid(plan).find("not equal spans"), std::string::npos);
  plan.buffers.back().parts.resize(1);
  EXPECT_NE(whyInvalid(plan).find("needs 12 bytes, its contents have 6"), std::string::npos);
  plan.buffers.pop_back();
  plan.buffers[0].parts = {{"/a.bin", 0, 12}};
  EXPECT_NE(whyInvalid(plan).find("only a weight"), std::string::npos);
}

TEST(PlanVerify, RepeatedStepsAreThereAndApartOrInside) {
  using Repetitions = std::vector<ProgramPlan::Repetition>;
  ProgramPlan nested = samplePlan();
  nested.repetitions = {{0, 2, 2}, {0, 1, 3}, {1, 2, 2}};
  EXPECT_TRUE(verify(nested));
  for (const Repetitions &wrong :
       {Repetitions{{0, 3, 2}}, {{1, 1, 2}}, {{1, 2, 2}, {0, 1, 2}}, {{0, 1, 2}, {0, 2, 2}}}) {
    ProgramPlan plan = samplePlan();
    plan.repetitions = wrong;
    auto status = verify(plan);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("cannot be repeated"), std::string::npos) << status.error().message;
  }
}
