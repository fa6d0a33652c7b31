// Ranks on two GPUs of one process, over the stand-in driver: memory that they share, and runs.
#include "FakeGpu.h"
#include "SamplePlan.h"

#include "codegen/device/exchange_abi.h"
#include "runtime/RankGroup.h"
#include "runtime/collective/ProcessCommunicator.h"
#include "runtime/cuda/Session.h"

#include <atomic>
#include <thread>

namespace fusion::test {
namespace {

using fusion_exchange::Exchange;

class Peers : public FakeGpu {
protected:
  void SetUp() override {
    FakeGpu::SetUp();
    counters().gpus = 2;
    counters().peerAccesses = 0;
    setenv("FUSION_NCCL", "/nowhere/libnccl.so.2", 1); // the stand-in's memory is none of a GPU
  }
  /// The same calls by both ranks, each in its thread.
  static void onBoth(const std::function<void(int, Communicator &)> &work) {
    auto members = makeThreadRendezvous(2);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        auto made = makePeerCommunicator(std::move(members[static_cast<size_t>(rank)]), rank);
        ASSERT_TRUE(made) << made.error().message;
        work(rank, **made);
      });
  }
};

TEST_F(Peers, AreasGrowAndTheExchangeStays) {
  Exchange seen[2] = {}, later[2] = {};
  onBoth([&](int rank, Communicator &communicator) {
    EXPECT_EQ(communicator.description(), "peer memory");
    auto first = communicator.exchange(1000);
    ASSERT_TRUE(first) << first.error().message;
    ASSERT_NE(*first, nullptr);
    seen[rank] = *static_cast<Exchange *>(*first); // device memory of the stand-in is the host's
    const Exchange &mine = seen[rank];
    EXPECT_EQ(mine.rank, static_cast<unsigned>(rank));
    EXPECT_EQ(mine.ranks, 2u);
    EXPECT_GE(mine.roundBytes, 1000u);
    EXPECT_EQ(mine.round, 0u);
    EXPECT_EQ(mine.spinTimeout, 20'000'000'000ull);
    for (size_t i = 0; i < mine.roundBytes * fusion_exchange::rounds; ++i)
      ASSERT_EQ(mine.memory[rank][i], 0xff);
    auto same = communicator.exchange(10), second = communicator.exchange(100'000);
    EXPECT_EQ(*same, *first);
    EXPECT_EQ(*second, *first);
    later[rank] = *static_cast<Exchange *>(*second);
    EXPECT_GE(later[rank].roundBytes, 100'000u);
    EXPECT_EQ(counters().hostMemory, 2);
    EXPECT_TRUE(communicator.host().barrier());
  });
  EXPECT_EQ(counters().peerAccesses, 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(seen[0].memory[rank], seen[1].memory[rank]);
    EXPECT_EQ(later[0].memory[rank], later[1].memory[rank]);
  }
  EXPECT_NE(later[0].memory[0], later[0].memory[1]);
}

TEST_F(Peers, AKernelThatGaveUpIsAnError) {
  onBoth([&](int rank, Communicator &communicator) {
    auto exchange = communicator.exchange(64);
    ASSERT_TRUE(exchange);
    EXPECT_TRUE(communicator.check());
    EXPECT_TRUE(communicator.host().barrier());
    if (rank == 1) {
      *static_cast<Exchange *>(*exchange)->failure = {1, 0, 2, 17};
      Status status = communicator.check();
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().kind, ErrorKind::Environment);
      EXPECT_NE(status.error().message.find(
                    "rank 1 waited 20 s for rank 0 in a collective: the gathered row for row 17"),
                std::string::npos)
          << status.error().message;
      communicator.stop("rank 1: has given up");
    }
    EXPECT_FALSE(communicator.host().barrier());
    EXPECT_FALSE(communicator.check());
    std::atomic_ref happened(static_cast<Exchange *>(*exchange)->failure->happened);
    while (happened.load() == 0) // the others' kernels are told just after the hosts
      std::this_thread::yield();
  });
}

TEST_F(Peers, WithoutPeerAccessNcclIsNeeded) {
  counters().reachable = 0;
  ProgramPlan plan = samplePlan();
  plan.ranks = 2;
  auto group = RankGroup::create(plan, options(plan));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().kind, ErrorKind::Environment);
  EXPECT_NE(group.error().message.find("NCCL"), std::string::npos) << group.error().message;
  EXPECT_EQ(counters().peerAccesses, 0);
}

TEST_F(Peers, ProcessesNeedNcclAsLittle) { // which are threads here
  auto onBothAsProcesses = [](const std::function<void(Communicator &)> &work) {
    auto driver = cuda::Driver::instance();
    ASSERT_TRUE(driver);
    auto members = makeThreadRendezvous(2);
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        auto session = std::make_shared<cuda::Session>(**driver, static_cast<int>(rank));
        ASSERT_TRUE(session->open());
        auto made = makeGpuProcessCommunicator(std::move(members[rank]), std::move(session));
        if (made)
          return work(**made);
        EXPECT_EQ(made.error().kind, ErrorKind::Environment);
        EXPECT_NE(made.error().message.find("rank 0: NCCL (libnccl.so.2) cannot be loaded"),
                  std::string::npos)
            << made.error().message;
      });
  };
  std::atomic<int> ran = 0;
  onBothAsProcesses([&](Communicator &group) {
    ++ran;
    auto exchange = group.exchange(64);
    ASSERT_TRUE(exchange) << exchange.error().message;
    EXPECT_NE(*exchange, nullptr);
    const CollectiveCandidate candidates[] = {{CollectiveAlgorithm::OneShot, 64},
                                              {CollectiveAlgorithm::Library, 0}};
    EXPECT_EQ(group.choose(size_t(1) << 30, candidates), CollectiveAlgorithm::OneShot);
    Status status = group.allReduce(nullptr, nullptr, 1, DType::F32, nullptr);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("NCCL"), std::string::npos) << status.error().message;
    EXPECT_TRUE(group.check());
  });
  EXPECT_EQ(ran, 2);
  counters().refusing = 0;
  onBothAsProcesses([&](Communicator &) { ++ran; });
  EXPECT_EQ(ran, 2) << "what is left needs it";
}

TEST_F(Peers, OutOfMemoryAtOneStopsBoth) {
  onBoth([&](int, Communicator &communicator) {
    auto exchange = communicator.exchange(size_t(1) << 40);
    ASSERT_FALSE(exchange);
    EXPECT_NE(exchange.error().message.find("memory to exchange data with other ranks"), std::string::npos)
        << exchange.error().message;
    EXPECT_TRUE(communicator.exchange(64)) << "smaller areas can still be had";
  });
}

TEST_F(Peers, EveryRankRunsThePlan) {
  ProgramPlan plan = samplePlan();
  plan.ranks = 2;
  auto group = RankGroup::create(plan, options(plan));
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ((*group)->device(), "2 × Fake GPU (sm_90a), peer memory");
  NamedTensors inputs = {{"x", floats({2, 8}, 1)}, {"y", floats({2, 8}, 2)}, {"offset", floats({9}, 3)}};
  std::vector<float> first;
  for (int run = 0; run < 4; ++run) { // launched, recorded, replayed
    auto outputs = (*group)->run(inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    std::vector<float> sum = outputs->at("sum").toFloats();
    if (run == 0)
      first = sum;
    EXPECT_EQ(sum, first);
  }
  EXPECT_EQ(counters().launches, 2 * 2 * 4);
  EXPECT_EQ(counters().replays, 2 * 3);
  auto times = (*group)->bench(inputs, 20);
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(times->size(), 20u);
}

TEST_F(Peers, FewerGpusThanRanks) {
  ProgramPlan plan = samplePlan();
  plan.ranks = 3;
  auto group = RankGroup::create(plan, options(plan));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().kind, ErrorKind::Environment);
  EXPECT_EQ(group.error().message, "3 ranks need 3 GPUs: this machine has 2");
}

} // namespace
} // namespace fusion::test
