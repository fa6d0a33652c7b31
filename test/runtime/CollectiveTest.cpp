// Ranks of one process: how they wait for each other, how they add up, and what happens to the others when
// one fails.
#include "SamplePlan.h"

#include "runtime/RankGroup.h"
#include "runtime/ShapePlan.h"
#include "runtime/collective/CollectiveChoice.h"

#include <gtest/gtest.h>

#include <thread>

namespace fusion::test {
namespace {

TEST(ThreadRendezvous, EveryRankHearsAll) {
  auto members = makeThreadRendezvous(3);
  std::vector<std::jthread> threads;
  for (auto &member : members)
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        auto told = member->gather(std::to_string(member->rank() + 10 * round));
        ASSERT_TRUE(told);
        for (int rank = 0; rank < 3; ++rank)
          EXPECT_EQ((*told)[rank], std::to_string(rank + 10 * round));
      }
    });
}

TEST(ThreadRendezvous, AbandonedByOne) {
  ThreadRendezvous rendezvous(2);
  auto first = rendezvous.member(0), second = rendezvous.member(1);
  std::jthread waits([&] {
    Status met = first->barrier();
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().message, "rank 1: no more");
    EXPECT_EQ(met.error().kind, ErrorKind::Environment);
  });
  second->abandon("rank 1: no more");
  waits.join();
  EXPECT_FALSE(second->check());
  rendezvous.restart();
  EXPECT_TRUE(second->check());
  std::jthread again([&] { EXPECT_TRUE(first->barrier()); });
  EXPECT_TRUE(second->barrier());
}

TEST(Algorithms, ByLimitsUnlessAskedFor) {
  using enum CollectiveAlgorithm;
  const CollectiveCandidate all[] = {{OneShot, 1 << 20}, {TwoShot, 1 << 20}, {Library, 0}};
  const AlgorithmLimits limits{100, 1000};
  EXPECT_EQ(chooseAlgorithm(limits, {}, 100, all), OneShot);
  EXPECT_EQ(chooseAlgorithm(limits, {}, 101, all), TwoShot);
  EXPECT_EQ(chooseAlgorithm(limits, {}, 1001, all), Library);
  EXPECT_EQ(chooseAlgorithm(limits, TwoShot, 1, all), TwoShot);
  EXPECT_EQ(chooseAlgorithm(limits, TwoShot, 1, std::span(all).last(1)), Library);
  EXPECT_EQ(chooseAlgorithm(limits, {}, 1, std::span(all).last(2)), TwoShot);
  const CollectiveCandidate huge[] = {{OneShot, size_t(1) << 40}, {Library, 0}};
  EXPECT_EQ(chooseAlgorithm(limits, OneShot, 1, huge), Library);
  const CollectiveCandidate gathering[] = {{OneShot, 64}, {TwoShot, 64, /*gathersRows=*/true}, {Library, 0}};
  const AlgorithmLimits sooner{100, 1000, 50};
  EXPECT_EQ(chooseAlgorithm(sooner, {}, 50, gathering), OneShot);
  EXPECT_EQ(chooseAlgorithm(sooner, {}, 51, gathering), TwoShot);
  EXPECT_EQ(chooseAlgorithm(sooner, {}, 51, all), OneShot);
}

/// out = the sum over ranks of (rank + 1) * x, along with x itself, of which each rank holds a shard.
ProgramPlan rankedPlan(int64_t ranks) {
  const Dim n = Dim::symbol("n");
  ProgramPlan plan;
  plan.model = "ranked";
  plan.target = "sm_90a";
  plan.ranks = ranks;
  plan.buffers = {{BufferPlan::Kind::Input, "x", DType::F16, {n}, {}},
                  {BufferPlan::Kind::Input, "divided", DType::F16, {n, 2}, {}},
                  {BufferPlan::Kind::Temporary, "part", DType::F16, {n}, {}},
                  {BufferPlan::Kind::Output, "out", DType::F16, {n}, {}}};
  plan.inputs = {{"x", DType::F16, {n}, 0, 0},
                 {"divided", DType::F16, {n, 2}, 1, 0, {}, PortPlan::Shard{1, ranks}}};
  plan.outputs = {{"out", DType::F16, {n}, 3, 0},
                  {"same", DType::F16, {n, 2}, 1, 0, {}, PortPlan::Shard{1, ranks}}};
  using Kind = KernelPlan::Parameter::Kind;
  KernelPlan scale, sum;
  scale.name = "scale";
  scale.schedule = "pointwise";
  scale.source = R"(KERNEL(128) scale(const f16 *x, f16 *part, i64 count, i64 rank) {
  i64 i = (i64)block_x() * 128 + thread_x();
  if (i < count)
    part[i] = from_f32<f16>(to_f32(x[i]) * (f32)(rank + 1));
}
)";
  scale.parameters = {{Kind::Pointer, "const f16 *", "x"},
                      {Kind::Pointer, "f16 *", "part"},
                      {Kind::Scalar, "i64", "count"},
                      {Kind::Scalar, "i64", "rank"}};
  scale.blockX = 128;
  sum.name = "all_reduce";
  sum.schedule = "collective";
  sum.isLibraryCall = true;
  sum.parameters = {{Kind::Pointer, "const f16 *", "from"},
                    {Kind::Pointer, "f16 *", "to"},
                    {Kind::Scalar, "i64", "elements"}};
  plan.kernels = {scale, sum};
  KernelLaunch first, second;
  first.kernel = 0;
  first.arguments = {PointerArgument{0}, PointerArgument{2, 0, /*written=*/true}, ScalarArgument{n},
                     ScalarArgument{Dim::symbol("tp_rank")}};
  first.gridX = n.ceilDiv(128);
  second.kernel = 1;
  second.arguments = {PointerArgument{2}, PointerArgument{3, 0, /*written=*/true}, ScalarArgument{n}};
  plan.add(first);
  const Collective collective{CollectiveAlgorithm::Library, n * Dim(2), 0};
  plan.steps.push_back({Step::Choice::Ranks, {{{}, {second}, {}, collective}}});
  return plan;
}

NamedTensors inputsOf(int64_t n, int64_t ranks) {
  return {{"x", floats({n}, -3, 0.25f).convertedTo(DType::F16)},
          {"divided", floats({n, 2 * ranks}, 1, 1).convertedTo(DType::F16)}};
}

ExecutorOptions emulated(const TemporaryFolder &folder) {
  ExecutorOptions options;
  options.target = ExecutorOptions::Target::Emulate;
  options.cacheFolder = folder.path;
  return options;
}

TEST(Ranks, SumsOverRanksOfThisProcess) {
  TemporaryFolder folder;
  for (int64_t ranks : {2, 3, 4}) {
    auto group = RankGroup::create(rankedPlan(ranks), emulated(folder));
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ((*group)->device(), std::to_string(ranks) + " × emulation on the host, shared memory");
    for (int64_t n : {5, 1, 700, 0, 5}) { // up and down again
      NamedTensors inputs = inputsOf(n, ranks);
      auto outputs = (*group)->run(inputs);
      ASSERT_TRUE(outputs) << outputs.error().message;
      std::vector<float> x = inputs.at("x").toFloats(), out = outputs->at("out").toFloats();
      ASSERT_EQ(out.size(), x.size());
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_EQ(out[i], x[i] * static_cast<float>(ranks * (ranks + 1) / 2)); // exact in f16
      EXPECT_EQ(outputs->at("same").toFloats(), inputs.at("divided").toFloats());
    }
    auto times = (*group)->bench(inputsOf(40, ranks), 20);
    ASSERT_TRUE(times) << times.error().message;
    EXPECT_EQ(times->size(), 20u);
    auto profile = (*group)->profile(inputsOf(40, ranks));
    ASSERT_TRUE(profile) << profile.error().message;
    EXPECT_EQ(profile->size(), 2u);
  }
}

TEST(Ranks, AWrongInputLeavesTheGroupAlive) {
  TemporaryFolder folder;
  auto group = RankGroup::create(rankedPlan(2), emulated(folder));
  ASSERT_TRUE(group) << group.error().message;
  NamedTensors odd = inputsOf(4, 2);
  odd["divided"] = floats({4, 3}, 0).convertedTo(DType::F16);
  auto refused = (*group)->run(odd);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::BadInput);
  EXPECT_NE(refused.error().message.find("input divided has no dim 1 that 2 ranks can divide"),
            std::string::npos)
      << refused.error().message;
  EXPECT_FALSE((*group)->run({}));
  EXPECT_TRUE((*group)->run(inputsOf(4, 2)));
}

/// A kernel of rank 1 fails while rank 0 waits in the sum.
TEST(Ranks, OneThatFailsStopsAll) {
  TemporaryFolder folder;
  ProgramPlan plan = rankedPlan(2);
  plan.kernels[0].source = R"(KERNEL(128) scale(const f16 *x, f16 *part, i64 count, i64 rank) {
  SHARED(f32, cells, 128);
  if (rank == 1 && thread_x() < 5)
    return;
  barrier();
  cells[thread_x()] = 1;
  if (rank == 1 && thread_x() == 7)
    barrier();
}
)";
  auto group = RankGroup::create(plan, emulated(folder));
  ASSERT_TRUE(group) << group.error().message;
  for (int run = 0; run < 2; ++run) {
    auto outputs = (*group)->run(inputsOf(4, 2));
    ASSERT_FALSE(outputs);
    EXPECT_NE(outputs.error().message.find("rank 1: kernel scale"), std::string::npos)
        << outputs.error().message;
  }
}

TEST(Ranks, RefusedWithoutOthers) {
  TemporaryFolder folder;
  auto alone = Executor::create(rankedPlan(2), emulated(folder));
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("the program is for 2 ranks, and has no communicator"),
            std::string::npos);
  auto shapes = planShapes(rankedPlan(2), {{"n", 4}, {"tp_rank", 0}});
  ASSERT_FALSE(shapes);
  EXPECT_NE(shapes.error().message.find("waits for other ranks"), std::string::npos)
      << shapes.error().message;
}

/// What the runtime takes of a plan with several algorithms.
class Choosing : public Communicator {
public:
  explicit Choosing(CollectiveAlgorithm algorithm) : algorithm(algorithm) {}
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  std::string description() const override { return ""; }
  Result<void *> exchange(size_t) override { return nullptr; }
  CollectiveAlgorithm choose(size_t messageBytes,
                             std::span<const CollectiveCandidate> candidates) const override {
    EXPECT_EQ(messageBytes, 64u);
    EXPECT_EQ(candidates.size(), 3u);
    EXPECT_EQ(candidates[1].roundBytes, 128u);
    return algorithm;
  }
  Status allReduce(const void *, void *, size_t, DType, void *) override { return {}; }
  Status check() override { return {}; }
  Rendezvous &host() override { return *members[0]; }

private:
  CollectiveAlgorithm algorithm;
  std::vector<std::unique_ptr<Rendezvous>> members = makeThreadRendezvous(2);
};

TEST(Alternatives, OneFormIsLaunched) {
  ProgramPlan plan = rankedPlan(2);
  const Dim n = Dim::symbol("n");
  KernelPlan exchanging = plan.kernels[0];
  exchanging.name = "exchanging";
  exchanging.usesPdl = plan.kernels[0].usesPdl = true;
  plan.kernels.push_back(exchanging);
  plan.kernels.back().parameters[0].kind = KernelPlan::Parameter::Kind::Exchange;
  plan.buffers.push_back(plan.buffers[2]);
  const KernelLaunch before = onlyLaunch(plan, 0), sum = onlyLaunch(plan, 1);
  KernelLaunch exchange = before, after = before;
  exchange.kernel = 2;
  exchange.arguments[0] = ExchangeArgument();
  pointer(exchange, 1).buffer = 3;
  pointer(after, 1).buffer = 4;
  const Collective oneShot{CollectiveAlgorithm::OneShot, n * Dim(2), n * Dim(8)},
      twoShot{CollectiveAlgorithm::TwoShot, n * Dim(2), n * Dim(4)},
      byLibrary{CollectiveAlgorithm::Library, n * Dim(2), 0};
  Step all{Step::Choice::Ranks,
           {{{}, {exchange}, {}, oneShot}, {{}, {exchange}, {}, twoShot}, {{}, {sum, after}, {}, byLibrary}}};
  plan.steps[1] = all;
  all.alternatives[2].launches.pop_back();
  plan.steps.push_back(all);
  plan.add(before);
  ASSERT_TRUE(verify(plan)) << verify(plan).error().message;
  EXPECT_EQ(plan.launchesOfRun(), 4);
  auto launchedAs = [&](CollectiveAlgorithm algorithm) {
    Choosing communicator(algorithm);
    auto shapes = planShapes(plan, {{"n", 32}, {"tp_rank", 0}}, &communicator);
    EXPECT_TRUE(shapes) << shapes.error().message;
    return *shapes;
  };
  auto sources = [](const ShapePlan &shapes) {
    std::vector<uint32_t> list;
    for (const ShapePlan::Launch &launch : shapes.launches)
      list.push_back(launch.source);
    return list;
  };
  ShapePlan one = launchedAs(CollectiveAlgorithm::OneShot), two = launchedAs(CollectiveAlgorithm::TwoShot),
            library = launchedAs(CollectiveAlgorithm::Library);
  EXPECT_EQ(sources(one), (std::vector<uint32_t>{0, 1, 5, 8}));
  EXPECT_EQ(sources(two), (std::vector<uint32_t>{0, 2, 6, 8}));
  EXPECT_EQ(sources(library), (std::vector<uint32_t>{0, 3, 4, 7, 8}));
  EXPECT_EQ(one.roundBytes, 256u);
  EXPECT_EQ(two.roundBytes, 128u);
  EXPECT_EQ(library.roundBytes, 0u);
  EXPECT_TRUE(one.launches[1].overlapsPrevious);
  EXPECT_FALSE(library.launches[1].overlapsPrevious); // the library knows nothing of it
  EXPECT_FALSE(library.launches[2].overlapsPrevious);
  EXPECT_EQ(one.launches[1].arguments[0].kind, ShapePlan::Argument::Kind::Exchange);
}

/// `part`, a kernel that may send it, a sum of it by one of three algorithms, and `more` rounds of the first.
ProgramPlan linkedPlan() {
  ProgramPlan plan = rankedPlan(2);
  const Dim n = Dim::symbol("n");
  for (const char *name : {"sending", "waiting"}) {
    plan.kernels.push_back(plan.kernels[0]);
    plan.kernels.back().name = name;
    plan.kernels.back().parameters[0].kind = KernelPlan::Parameter::Kind::Exchange;
  }
  KernelLaunch sending = onlyLaunch(plan, 0), waiting = sending;
  const KernelLaunch sum = onlyLaunch(plan, 1);
  sending.kernel = 2;
  sending.arguments[0] = waiting.arguments[0] = ExchangeArgument();
  waiting.kernel = 3;
  pointer(waiting, 1).buffer = 3;
  plan.steps[0].alternatives[0].linked = sending;
  plan.steps[0].alternatives[0].link = Alternative::Link::First;
  const Collective oneShot{CollectiveAlgorithm::OneShot, n * Dim(2), n * Dim(8)},
      twoShot{CollectiveAlgorithm::TwoShot, n * Dim(2), n * Dim(4)},
      byLibrary{CollectiveAlgorithm::Library, n * Dim(2), 0};
  plan.steps[1] = {Step::Choice::Ranks,
                   {{{}, {sum}, {}, oneShot, Alternative::Link::Last, waiting},
                    {{}, {sum}, {}, twoShot},
                    {{}, {sum}, {}, byLibrary}}};
  return plan;
}

TEST(Alternatives, LinkedLaunchesAreTakenTogether) {
  auto kernelsOf = [](const ProgramPlan &plan, CollectiveAlgorithm algorithm) {
    EXPECT_TRUE(verify(plan)) << verify(plan).error().message;
    Choosing communicator(algorithm);
    auto shapes = planShapes(plan, {{"n", 32}, {"tp_rank", 0}}, &communicator);
    EXPECT_TRUE(shapes) << shapes.error().message;
    std::vector<uint32_t> kernels;
    for (const ShapePlan::Launch &launch : shapes->launches)
      kernels.push_back(launch.kernel);
    if (kernels == std::vector<uint32_t>{2, 3}) {
      EXPECT_FALSE(shapes->launches[0].runsBesidePrevious);
      EXPECT_TRUE(shapes->launches[1].runsBesidePrevious);
    }
    return kernels;
  };
  using Kernels = std::vector<uint32_t>;
  ProgramPlan plan = linkedPlan();
  EXPECT_EQ(kernelsOf(plan, CollectiveAlgorithm::OneShot), (Kernels{2, 3}));
  EXPECT_EQ(kernelsOf(plan, CollectiveAlgorithm::TwoShot), (Kernels{0, 1})) << "it has no linked launch";
  EXPECT_EQ(kernelsOf(plan, CollectiveAlgorithm::Library), (Kernels{0, 1}));
  ProgramPlan apart = plan; // another step comes between
  apart.steps.insert(apart.steps.begin() + 1, apart.steps[0]);
  apart.steps[1].alternatives[0].linked.reset();
  apart.steps[1].alternatives[0].link = Alternative::Link::None;
  EXPECT_EQ(kernelsOf(apart, CollectiveAlgorithm::OneShot), (Kernels{0, 0, 1}));
  ProgramPlan alone = plan;
  alone.steps[0].alternatives[0].linked.reset();
  alone.steps[0].alternatives[0].link = Alternative::Link::None;
  EXPECT_EQ(kernelsOf(alone, CollectiveAlgorithm::OneShot), (Kernels{0, 1})) << "nobody has sent";
  ProgramPlan repeated = plan; // the sum is of what the last round has made
  repeated.repetitions.push_back({0, 1, 2});
  EXPECT_EQ(kernelsOf(repeated, CollectiveAlgorithm::OneShot), (Kernels{0, 1}));
}

/// Nothing is launched of what is between the first and the last, unless one of these is not taken.
TEST(Alternatives, ALinkLeavesOutWhatIsBetween) {
  using Link = Alternative::Link;
  auto kernelsOf = [](const ProgramPlan &plan) {
    EXPECT_TRUE(verify(plan)) << verify(plan).error().message;
    auto shapes = planShapes(plan, {{"n", 32}, {"tp_rank", 0}});
    EXPECT_TRUE(shapes) << shapes.error().message;
    std::vector<uint32_t> kernels;
    for (const ShapePlan::Launch &launch : shapes->launches)
      kernels.push_back(launch.kernel);
    return kernels;
  };
  using Kernels = std::vector<uint32_t>;
  ProgramPlan plan = rankedPlan(1);
  const KernelLaunch first = onlyLaunch(plan, 0), last = onlyLaunch(plan, 1);
  plan.kernels.push_back(plan.kernels[0]);
  plan.kernels.push_back(plan.kernels[1]);
  plan.kernels[2].name = "linked_first";
  plan.kernels[3].name = "linked_last";
  KernelLaunch linkedFirst = first, linkedLast = last;
  linkedFirst.kernel = 2;
  linkedLast.kernel = 3;
  auto step = [](const KernelLaunch &launch, Link link, std::optional<KernelLaunch> linked = {}) {
    return Step{Step::Choice::Predicate, {{{}, {launch}, {}, {}, link, std::move(linked)}}};
  };
  plan.steps = {step(first, Link::First, linkedFirst), step(first, Link::Between),
                step(last, Link::Last, linkedLast)};
  EXPECT_EQ(kernelsOf(plan), (Kernels{2, 3}));
  ProgramPlan open = plan; // nothing follows that is the last
  open.steps[2] = step(last, Link::None);
  EXPECT_EQ(kernelsOf(open), (Kernels{0, 0, 1}));
  ProgramPlan late = plan; // nothing has begun it
  late.steps[0] = step(first, Link::None);
  EXPECT_EQ(kernelsOf(late), (Kernels{0, 0, 1}));
  ProgramPlan twice = plan; // the second one has a last that is not the first one's
  twice.steps.insert(twice.steps.begin(), step(first, Link::First, linkedFirst));
  EXPECT_EQ(kernelsOf(twice), (Kernels{0, 2, 3}));
}

/// The kernel that waits for what was sent writes while the one that sends it still reads and writes.
TEST(Alternatives, LinkedLaunchesShareNoMemory) {
  ProgramPlan plan = linkedPlan();
  plan.buffers[0].kind = BufferPlan::Kind::Temporary; // read by the matmul alone
  plan.buffers[3].kind = BufferPlan::Kind::Temporary; // written by the sum
  plan.inputs.erase(plan.inputs.begin());
  plan.outputs.erase(plan.outputs.begin());
  auto offsets = [&](CollectiveAlgorithm algorithm) {
    Choosing communicator(algorithm);
    auto shapes = planShapes(plan, {{"n", 32}, {"tp_rank", 0}}, &communicator);
    EXPECT_TRUE(shapes) << shapes.error().message;
    return shapes->arenaOffsets;
  };
  // Without the link x and out are not alive at the same time.
  const auto apart = offsets(CollectiveAlgorithm::TwoShot), linked = offsets(CollectiveAlgorithm::OneShot);
  EXPECT_EQ(apart[0], apart[3]);
  EXPECT_NE(linked[2], linked[3]);
  EXPECT_NE(linked[0], linked[3]);
}

/// Nor does it write over an input of its own that the one that sends reads too.
TEST(Alternatives, ALinkedResultDoesNotReplaceWhatTheMatmulReads) {
  for (bool isReadByBoth : {true, false}) {
    ProgramPlan plan = linkedPlan();
    plan.outputs.erase(plan.outputs.begin());
    plan.buffers[3].kind = BufferPlan::Kind::Temporary;
    plan.buffers.push_back({BufferPlan::Kind::Temporary, "residual", DType::F16, {Dim::symbol("n")}, {}});
    KernelLaunch first = onlyLaunch(plan, 0);
    pointer(first, 1).buffer = 4;
    auto parameter = plan.kernels[0].parameters[0];
    for (uint32_t kernel : {2u, 3u}) {
      plan.kernels[kernel].parameters.push_back(parameter);
      KernelLaunch &launch =
          *(kernel == 2 ? plan.steps[0].alternatives[0] : plan.steps[1].alternatives[0]).linked;
      launch.arguments.push_back(PointerArgument{kernel == 3 || isReadByBoth ? 4u : 0u});
      if (kernel == 3)
        pointer(launch, 1).mayReplace = {4};
    }
    Step before;
    before.alternatives.emplace_back().launches.push_back(first);
    plan.steps.insert(plan.steps.begin(), before);
    Choosing communicator(CollectiveAlgorithm::OneShot);
    auto shapes = planShapes(plan, {{"n", 32}, {"tp_rank", 0}}, &communicator);
    ASSERT_TRUE(shapes) << shapes.error().message;
    EXPECT_EQ(shapes->arenaOffsets[4] == shapes->arenaOffsets[3], !isReadByBoth);
  }
}

} // namespace
} // namespace fusion::test
