// The use of NCCL over a stand-in for it.
#include "TcpRanks.h"

#include "runtime/collective/Nccl.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;

namespace {

template <class Function>
Function *ofFake(const char *name) {
  return reinterpret_cast<Function *>(dlsym(dlopen(FUSION_FAKE_NCCL, RTLD_NOW), name));
}
int alive() { return ofFake<int()>("fakeNcclAlive")(); }

Status nothing() { return {}; }
char stream; ///< any address will do

TEST(Nccl, WithoutItTheErrorSaysWhatToDo) {
  // In a process that has not opened it yet.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("FUSION_NCCL", "/nowhere/libnccl.so.2", 1);
    auto nccl = Nccl::instance();
    std::string said = nccl ? "opened" : nccl.error().message;
    (void)!write(ends[1], said.data(), said.size());
    _exit(0);
  }
  char text[2000];
  ssize_t count = read(ends[0], text, sizeof text);
  waitpid(child, nullptr, 0);
  const std::string said(text, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (said != "opened") { // by a test before
    EXPECT_NE(said.find("NCCL (libnccl.so.2) cannot be loaded"), std::string::npos) << said;
    EXPECT_NE(said.find("pip install nvidia-nccl-cu13"), std::string::npos) << said;
  }
}

class NcclOverFake : public testing::Test {
protected:
  void SetUp() override { setenv("FUSION_NCCL", FUSION_FAKE_NCCL, 1); }
  void TearDown() override { EXPECT_EQ(alive(), 0); }
};

Status sumOnce(NcclRank &nccl, int rank, int ranks, size_t count) {
  std::vector<float> values(count), sums(count, -1);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 1000);
  if (Status status = nccl.allReduce(values.data(), sums.data(), count, DType::F32, &stream); !status)
    return status;
  for (size_t i = 0; i < count; ++i)
    if (sums[i] != static_cast<float>(ranks * (ranks + 1) / 2) * static_cast<float>(i % 1000))
      return badInput("a wrong sum");
  return nccl.check();
}

TEST_F(NcclOverFake, SumsOverRanks) {
  for (int ranks : {1, 2, 4}) {
    auto outcomes = onThreads(ranks, {freePort()}, [&](Rendezvous &host) -> Status {
      auto nccl = NcclRank::make(host, nothing);
      if (!nccl)
        return nccl.error();
      EXPECT_EQ((*nccl)->version(), "2.28.9");
      for (size_t count : {1, 7, 5000, 0, 3})
        if (Status status = sumOnce(**nccl, host.rank(), ranks, count); !status)
          return status;
      EXPECT_FALSE((*nccl)->allReduce(nullptr, nullptr, 0, DType::Bool, &stream));
      return host.barrier();
    });
    for (const Status &outcome : outcomes)
      EXPECT_TRUE(outcome) << outcome.error().message;
  }
  EXPECT_STREQ(getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST_F(NcclOverFake, ConnectingEndsWhenARankDoesNotCome) {
  auto outcomes = onThreads(2, {freePort()}, [&](Rendezvous &host) -> Status {
    auto nccl = NcclRank::make(host, nothing);
    if (!nccl)
      return nccl.error();
    if (host.rank() == 1) {
      host.abandon("rank 1: no room");
      return {};
    }
    return sumOnce(**nccl, 0, 2, 5);
  });
  ASSERT_FALSE(outcomes[0]);
  EXPECT_EQ(outcomes[0].error().message, "rank 1: no room");
}

TEST_F(NcclOverFake, ASumThatWaitsIsAborted) {
  auto outcomes = onThreads(2, {freePort()}, [&](Rendezvous &host) -> Status {
    auto nccl = NcclRank::make(host, nothing);
    if (!nccl)
      return nccl.error();
    GroupWatch watch(host, [&] { (*nccl)->abort(); });
    if (Status status = sumOnce(**nccl, host.rank(), 2, 5); !status)
      return status;
    if (host.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      host.abandon("rank 1: lost its way");
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return host.check();
    }
    Status status = sumOnce(**nccl, 0, 2, 5);
    EXPECT_FALSE(sumOnce(**nccl, 0, 2, 5)); // not even tried
    return status;
  });
  for (const Status &outcome : outcomes) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message, "rank 1: lost its way");
  }
}

TEST_F(NcclOverFake, ErrorsThatComeLateAreSeen) {
  auto outcomes = onThreads(1, {freePort()}, [&](Rendezvous &host) -> Status {
    auto nccl = NcclRank::make(host, nothing);
    if (!nccl)
      return nccl.error();
    if (Status status = sumOnce(**nccl, 0, 1, 5); !status)
      return status;
    ofFake<void(int)>("fakeNcclFail")(3);
    Status status = (*nccl)->check();
    ofFake<void(int)>("fakeNcclFail")(0);
    return status;
  });
  ASSERT_FALSE(outcomes[0]);
  EXPECT_EQ(outcomes[0].error().message, "rank 0: NCCL: internal error");
}

} // namespace
