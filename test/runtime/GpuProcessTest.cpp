// Ranks on GPUs of processes, which are threads here that meet over TCP, over stand-ins for the driver and
// NCCL.
#include "FakeGpu.h"
#include "TcpRanks.h"

#include "codegen/device/exchange_abi.h"
#include "runtime/collective/ProcessCommunicator.h"
#include "runtime/cuda/Session.h"

#include <atomic>

namespace fusion::test {
namespace {

using fusion_exchange::Exchange;

char stream; ///< any address will do

class GpuProcesses : public FakeGpu {
protected:
  void SetUp() override {
    FakeGpu::SetUp();
    counters().gpus = 4;
    counters().peerAccesses = counters().freedTooEarly = 0;
    setenv("FUSION_NCCL", FUSION_FAKE_NCCL, 1);
  }

  using Work = std::function<Status(Communicator &)>;

  /// Calls `work` for each rank in a thread of its own, on the GPU of its number; what it returns, by rank.
  static std::vector<Status> onGpus(int ranks, const Work &work) {
    auto driver = cuda::Driver::instance();
    EXPECT_TRUE(driver) << driver.error().message;
    const std::vector<uint16_t> ports = {freePort()};
    std::vector<Status> outcomes(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        outcomes[static_cast<size_t>(rank)] = [&]() -> Status {
          auto session = std::make_shared<cuda::Session>(**driver, rank);
          if (Status status = session->open(); !status)
            return status;
          auto host = joinTcpRendezvous(placeOf(rank, ranks, ports), {});
          if (!host)
            return host.error();
          auto made = makeGpuProcessCommunicator(std::move(*host), std::move(session));
          return made ? work(**made) : Status(made.error());
        }();
      });
    for (std::thread &thread : threads)
      thread.join();
    return outcomes;
  }

  /// As onGpus(), where all must succeed and end in order; what was on stderr.
  static std::string saidOnGpus(int ranks, const Work &work) {
    testing::internal::CaptureStderr();
    for (const Status &outcome : onGpus(ranks, work))
      EXPECT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(counters().freedTooEarly, 0);
    return testing::internal::GetCapturedStderr();
  }

  /// That only sums of the library are left, and that they work.
  static Status sumsByLibrary(Communicator &group) {
    EXPECT_EQ(group.description(), "NCCL 2.28.9");
    auto exchange = group.exchange(1 << 20);
    if (!exchange)
      return exchange.error();
    EXPECT_EQ(*exchange, nullptr);
    const CollectiveCandidate candidates[] = {{CollectiveAlgorithm::OneShot, 64},
                                              {CollectiveAlgorithm::Library, 0}};
    EXPECT_EQ(group.choose(64, candidates), CollectiveAlgorithm::Library);
    float value = static_cast<float>(group.rank() + 1), sum = 0;
    if (Status status = group.allReduce(&value, &sum, 1, DType::F32, &stream); !status)
      return status;
    EXPECT_EQ(sum, static_cast<float>(group.ranks() * (group.ranks() + 1) / 2));
    return group.host().barrier();
  }
};

TEST_F(GpuProcesses, AllReachOneAnothersAreas) {
  for (int ranks : {1, 2, 4}) {
    std::vector<Exchange> seen(static_cast<size_t>(ranks)), later = seen;
    const std::string said = saidOnGpus(ranks, [&](Communicator &group) -> Status {
      EXPECT_EQ(group.description(), "peer memory");
      auto first = group.exchange(1000);
      if (!first)
        return first.error();
      const auto rank = static_cast<size_t>(group.rank());
      const Exchange &mine = seen[rank] =
          *static_cast<Exchange *>(*first); // the stand-in's memory is the host's
      EXPECT_EQ(mine.rank, rank);
      EXPECT_EQ(mine.ranks, static_cast<unsigned>(ranks));
      for (size_t i = 0; i < mine.roundBytes * fusion_exchange::rounds; ++i)
        if (mine.memory[rank][i] != 0xff)
          return badInput("areas are not empty");
      EXPECT_EQ(mine.failure->happened, 0u);
      EXPECT_EQ(counters().opened, ranks * (ranks - 1));
      auto second = group.exchange(5 << 20);
      if (!second)
        return second.error();
      EXPECT_EQ(*second, *first);
      later[rank] = *static_cast<Exchange *>(*second);
      const CollectiveCandidate candidates[] = {{CollectiveAlgorithm::OneShot, 64},
                                                {CollectiveAlgorithm::Library, 0}};
      EXPECT_EQ(group.choose(64, candidates), CollectiveAlgorithm::OneShot);
      EXPECT_EQ(group.choose(size_t(1) << 30, candidates), CollectiveAlgorithm::Library);
      float value = 1, sum = 0;
      if (Status status = group.allReduce(&value, &sum, 1, DType::F32, &stream); !status)
        return status;
      EXPECT_EQ(sum, static_cast<float>(ranks));
      return group.check();
    });
    EXPECT_EQ(said, "");
    for (size_t rank = 0; rank < seen.size(); ++rank)
      for (size_t other = 0; other < seen.size(); ++other) {
        EXPECT_EQ(seen[rank].memory[other], seen[other].memory[other]);
        EXPECT_EQ(later[rank].memory[other], later[other].memory[other]);
      }
    for (size_t rank = 1; rank < seen.size(); ++rank)
      EXPECT_NE(later[0].failure, later[rank].failure) << "of this process, not shared";
  }
  EXPECT_EQ(counters().peerAccesses, 0) << "opening brings it";
}

TEST_F(GpuProcesses, OneThatOpensNothingLeavesAllWithTheLibrary) {
  counters().refusing = 1;
  EXPECT_EQ(saidOnGpus(3, sumsByLibrary),
            "rank 1 cannot open the memory of rank 0's GPU: an error (CUDA_ERROR_FAKE): "
            "collectives go through NCCL\n");
}

TEST_F(GpuProcesses, WithoutPeerAccessTheLibraryIsLeft) {
  counters().reachable = 0;
  EXPECT_EQ(saidOnGpus(2, sumsByLibrary),
            "the GPU of rank 0 does not reach the memory of rank 1's: collectives go through NCCL\n");
}

TEST_F(GpuProcesses, OfHiddenGpusNothingIsAsked) {
  counters().reachable = 0;
  counters().shownGpus = 0;
  EXPECT_EQ(saidOnGpus(
                2, [](Communicator &group) { return group.exchange(64) ? group.check() : badInput("none"); }),
            "");
}

TEST_F(GpuProcesses, TwoOnOneGpuAreRefused) {
  counters().sameBus = 1;
  for (const Status &outcome : onGpus(2, [](Communicator &) -> Status { return badInput("was made"); })) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::Environment);
    EXPECT_NE(outcome.error().message.find("ranks 0 and 1 are on one GPU (0000:1b:00.0): a rank waits"),
              std::string::npos)
        << outcome.error().message;
  }
}

TEST_F(GpuProcesses, KernelsHearOfOneThatStops) {
  for (int reachable : {1, 0}) {
    counters().reachable = reachable;
    testing::internal::CaptureStderr();
    auto outcomes = onGpus(2, [&](Communicator &group) -> Status {
      auto exchange = group.exchange(64);
      if (!exchange)
        return exchange.error();
      if (Status status = group.host().barrier(); !status)
        return status;
      float value = 1, sum = 0;
      if (Status status = group.allReduce(&value, &sum, 1, DType::F32, &stream); !status)
        return status;
      if (group.rank() == 1)
        group.stop("rank 1: a fault");
      else if (reachable) {
        std::atomic_ref happened(static_cast<Exchange *>(*exchange)->failure->happened);
        while (happened.load() == 0)
          std::this_thread::yield();
      } else {
        Status status = group.allReduce(&value, &sum, 1, DType::F32, &stream); // ends without rank 1's part
        EXPECT_FALSE(status);
      }
      return group.check();
    });
    testing::internal::GetCapturedStderr();
    for (const Status &outcome : outcomes) {
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().message, "rank 1: a fault");
    }
  }
}

TEST_F(GpuProcesses, OneThatLeavesWithoutAWordIsNamed) {
  auto outcomes = onGpus(2, [&](Communicator &group) -> Status {
    if (group.rank() == 1)
      return {}; // before it has areas: its end waits for nobody
    Status status = group.exchange(64) ? Status() : group.check();
    EXPECT_FALSE(status);
    return status;
  });
  ASSERT_FALSE(outcomes[0]);
  EXPECT_NE(outcomes[0].error().message.find("rank 1"), std::string::npos) << outcomes[0].error().message;
}

TEST_F(GpuProcesses, OutOfMemoryAtOneStopsTheOthers) {
  auto outcomes = onGpus(2, [&](Communicator &group) -> Status {
    if (auto small = group.exchange(64); !small)
      return small.error();
    auto exchange = group.exchange(group.rank() == 1 ? size_t(1) << 40 : size_t(1) << 20);
    if (exchange)
      return {};
    group.stop(exchange.error().message);
    return exchange.error();
  });
  for (const Status &outcome : outcomes) {
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().message.find("memory to exchange data with other ranks"), std::string::npos)
        << outcome.error().message;
  }
}

} // namespace
} // namespace fusion::test
