// Ranks that meet over TCP, as threads: RankDeathTest.cpp has processes, of which some die.
#include "TcpRanks.h"

#include "runtime/collective/Connection.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;

namespace {

void expectAllGood(const std::vector<Status> &outcomes) {
  for (const Status &outcome : outcomes)
    EXPECT_TRUE(outcome) << outcome.error().message;
}

Status gatherAndCompare(Rendezvous &group, int round) {
  auto of = [&](int rank) {
    return std::string(static_cast<size_t>((rank * 7919 + round * 131) % 5000), char('a' + rank));
  };
  auto all = group.gather(of(group.rank()));
  if (!all)
    return all.error();
  if (all->size() != static_cast<size_t>(group.ranks()))
    return badInput("a wrong number of parts");
  for (int rank = 0; rank < group.ranks(); ++rank)
    if ((*all)[static_cast<size_t>(rank)] != of(rank))
      return badInput(fmt::format("round {}: rank {} brought something else", round, rank));
  return group.check();
}

TEST(TcpRendezvous, EveryRankGetsWhatAllBring) {
  for (int ranks : {1, 2, 4, 7})
    expectAllGood(onThreads(ranks, {freePort()}, [](Rendezvous &group) -> Status {
      for (int round = 0; round < 200; ++round)
        if (Status status = gatherAndCompare(group, round); !status)
          return status;
      return group.barrier();
    }));
}

TEST(TcpRendezvous, LargeParts) {
  expectAllGood(onThreads(3, {freePort()}, [](Rendezvous &group) -> Status {
    const size_t bytes = (20 << 20) + static_cast<size_t>(group.rank());
    auto all = group.gather(std::string(bytes, char('a' + group.rank())));
    if (!all)
      return all.error();
    for (size_t rank = 0; rank < 3; ++rank)
      if ((*all)[rank] != std::string((20 << 20) + rank, char('a' + rank)))
        return badInput("a part has changed");
    return {};
  }));
}

TEST(TcpRendezvous, HostNames) {
  for (const char *host : {"localhost", "::1", "0.0.0.0"}) {
    if (auto there = resolve(host, 1); !there || there->empty())
      continue;
    if (auto listener = listenAt(host, freePort()); !listener) // no IPv6 here
      continue;
    expectAllGood(onThreads(2, {freePort()}, [](Rendezvous &group) { return group.barrier(); }, {}, host));
  }
  auto outcomes = onThreads(
      2, {freePort()}, [](Rendezvous &group) { return group.barrier(); }, {}, "no-such-host.invalid");
  for (const Status &outcome : outcomes)
    EXPECT_FALSE(outcome);
}

TEST(TcpRendezvous, LateRanksAreWaitedFor) {
  expectAllGood(onThreads(3, {freePort()}, [](Rendezvous &group) -> Status {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * group.rank()));
    return group.barrier();
  }));
}

TEST(TcpRendezvous, ARankThatDoesNotComeIsNamed) {
  TcpRendezvousOptions options;
  options.joinSeconds = 0.5;
  const std::vector<uint16_t> ports = {freePort()};
  std::thread other([&] {
    auto joined = joinTcpRendezvous(placeOf(1, 3, ports), options);
    ASSERT_FALSE(joined);
    EXPECT_NE(joined.error().message.find("rank 2 did not come within 0.5 s"), std::string::npos)
        << joined.error().message;
  });
  auto joined = joinTcpRendezvous(placeOf(0, 3, ports), options);
  other.join();
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().kind, ErrorKind::Environment);
  EXPECT_NE(joined.error().message.find("rank 2 did not come within 0.5 s"), std::string::npos);
  auto alone = joinTcpRendezvous(placeOf(1, 2, {freePort()}), options);
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("rank 1 of 2 did not find rank 0"), std::string::npos)
      << alone.error().message;
}

TEST(TcpRendezvous, ARankThatIsLateForAGatherIsNamed) {
  TcpRendezvousOptions options;
  options.gatherSeconds = 0.3;
  options.beatSeconds = 0.1;
  auto outcomes = onThreads(
      3, {freePort()},
      [](Rendezvous &group) -> Status {
        if (group.rank() == 2)
          std::this_thread::sleep_for(std::chrono::seconds(2));
        return group.barrier();
      },
      options);
  for (const Status &outcome : outcomes) {
    ASSERT_FALSE(outcome);
    EXPECT_TRUE(outcome.error().message.starts_with("rank 2 (")) << outcome.error().message;
  }
}

TEST(TcpRendezvous, AbandonReachesAllInGatherAndCheck) {
  for (int who : {0, 2}) {
    auto outcomes = onThreads(4, {freePort()}, [&](Rendezvous &group) -> Status {
      if (Status status = group.barrier(); !status)
        return status;
      if (group.rank() == who)
        group.abandon("no room for the weights");
      else if (group.rank() == 3)
        for (int i = 0; i < 1000 && group.check(); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
      else if (group.gather("x"))
        return {};
      return group.check();
    });
    for (const Status &outcome : outcomes) {
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, ErrorKind::Environment);
      EXPECT_EQ(outcome.error().message, "no room for the weights");
    }
  }
}

TEST(TcpRendezvous, ARegularEndIsNoFailure) {
  for (int first : {0, 1}) {
    std::atomic<bool> ended = false;
    const std::vector<uint16_t> ports = {freePort()};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        auto joined = joinTcpRendezvous(placeOf(rank, 2, ports), {});
        ASSERT_TRUE(joined) << joined.error().message;
        EXPECT_TRUE((*joined)->barrier());
        if (rank == first) {
          joined->reset();
          ended = true;
          return;
        }
        while (!ended)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_TRUE((*joined)->check());
        auto all = (*joined)->gather("x"); // but this cannot be done without it
        ASSERT_FALSE(all);
        EXPECT_NE(all.error().message.find(fmt::format("rank {} (", first)), std::string::npos)
            << all.error().message;
        EXPECT_NE(all.error().message.find("has ended"), std::string::npos) << all.error().message;
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}

TEST(TcpRendezvous, StrangersOnThePortDoNoHarm) {
  const std::vector<uint16_t> ports = {freePort()};
  std::thread strangers([&] {
    auto endpoint = resolve("127.0.0.1", ports[0])->front();
    const std::string huge = std::string("fusion\x01\x01") + std::string(8, '\x7f');
    for (const std::string &text :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\0'), std::string("fus"), huge,
          *encode(Frame::Kind::Hello, "{}"), *encode(Frame::Kind::Hello, "not json"),
          *encode(Frame::Kind::Part, "x"), std::string()}) {
      Descriptor socket;
      while (!socket)
        socket = connectTo(endpoint, Clock::now() + std::chrono::seconds(1));
      (void)!send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  });
  auto one = [&](int rank) {
    auto joined = joinTcpRendezvous(placeOf(rank, 2, ports), {});
    ASSERT_TRUE(joined) << joined.error().message;
    Status met = (*joined)->barrier();
    EXPECT_TRUE(met) << met.error().message;
  };
  std::thread zero([&] { one(0); });
  strangers.join();
  one(1);
  zero.join();
}

TEST(TcpRendezvous, RanksThatDoNotBelongHereAreRefused) {
  const std::vector<uint16_t> ports = {freePort()};
  TcpRendezvousOptions shortly;
  shortly.joinSeconds = 0.5;
  std::thread zero([&] {
    auto joined = joinTcpRendezvous(placeOf(0, 3, ports), {});
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_TRUE((*joined)->barrier());
  });
  std::thread one([&] {
    auto joined = joinTcpRendezvous(placeOf(1, 3, ports), {});
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_TRUE((*joined)->barrier());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  auto refuse = [&](LaunchedRank place, const std::string &part, ErrorKind kind) {
    auto joined = joinTcpRendezvous(place, shortly);
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().kind, kind);
    EXPECT_NE(joined.error().message.find(part), std::string::npos) << joined.error().message;
  };
  refuse(placeOf(1, 3, ports), "rank 1 is there already", ErrorKind::BadInput);
  refuse(placeOf(1, 4, ports), "waits for 3 ranks", ErrorKind::BadInput);
  refuse(placeOf(3, 4, ports), "waits for 3 ranks", ErrorKind::BadInput);
  LaunchedRank other = placeOf(2, 3, ports);
  other.group = "another launch";
  refuse(other, "only ranks of another launch", ErrorKind::Environment);
  auto joined = joinTcpRendezvous(placeOf(2, 3, ports), {});
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_TRUE((*joined)->barrier());
  zero.join();
  one.join();
}

TEST(TcpRendezvous, OnlyWhoKnowsTheSecretJoins) {
  const std::vector<uint16_t> ports = {freePort()};
  auto knowing = [&](int rank, const std::string &secret) {
    LaunchedRank place = placeOf(rank, 2, ports);
    place.secret = secret;
    return place;
  };
  std::thread zero([&] {
    auto joined = joinTcpRendezvous(knowing(0, "ours"), {});
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_TRUE((*joined)->barrier());
  });
  TcpRendezvousOptions shortly;
  shortly.joinSeconds = 0.5;
  for (const char *secret : {"", "another", "ours "}) {
    auto joined = joinTcpRendezvous(knowing(1, secret), shortly);
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().kind, ErrorKind::Environment);
    EXPECT_NE(joined.error().message.find("with another secret"), std::string::npos)
        << joined.error().message;
  }
  auto joined = joinTcpRendezvous(knowing(1, "ours"), {});
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_TRUE((*joined)->barrier());
  zero.join();
}

TEST(TcpRendezvous, WhoListensWithoutTheSecretIsNotRankZero) {
  const std::vector<uint16_t> ports = {freePort()};
  auto listeners = listenAt("127.0.0.1", ports[0]);
  ASSERT_TRUE(listeners);
  ASSERT_EQ(listeners->size(), 1u);
  std::atomic<bool> ending = false;
  std::thread impostor([&] { // welcomes everybody, and would tell them anything
    std::vector<Connection> guests;
    while (!ending) {
      waitFor(listeners->front(), false, Clock::now() + std::chrono::milliseconds(50));
      if (Descriptor guest = acceptFrom(listeners->front())) {
        guests.emplace_back(std::move(guest));
        guests.back().queue(Frame::Kind::Challenge, std::string(32, 'x'));
        guests.back().queue(guests.size() % 2 ? Frame::Kind::Welcome : Frame::Kind::Refuse,
                            std::string(32, 'x') + "me");
        (void)guests.back().flush();
      }
    }
  });
  TcpRendezvousOptions shortly;
  shortly.joinSeconds = 0.5;
  auto joined = joinTcpRendezvous(placeOf(1, 2, ports), shortly);
  ASSERT_FALSE(joined);
  EXPECT_NE(joined.error().message.find("did not find rank 0"), std::string::npos) << joined.error().message;
  ending = true;
  impostor.join();
}

TEST(TcpRendezvous, SilentConnectionsLockNoRankOut) {
  const std::vector<uint16_t> ports = {freePort()};
  std::thread zero([&] {
    auto joined = joinTcpRendezvous(placeOf(0, 2, ports), {});
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_TRUE((*joined)->barrier());
  });
  const Endpoint endpoint = resolve("127.0.0.1", ports[0])->front();
  std::vector<Descriptor> silent;
  while (silent.size() < 300)
    if (Descriptor socket = connectTo(endpoint, Clock::now() + std::chrono::seconds(1)))
      silent.push_back(std::move(socket));
  const auto start = Clock::now();
  auto joined = joinTcpRendezvous(placeOf(1, 2, ports), {});
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_TRUE((*joined)->barrier());
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4)); // less than silence is waited for
  zero.join();
}

TEST(TcpRendezvous, ListensWhereTheNameSaysAndNoWider) {
  const uint16_t port = freePort();
  auto addressOf = [](const Descriptor &socket) {
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    EXPECT_EQ(getsockname(socket.get(), reinterpret_cast<sockaddr *>(&address), &size), 0);
    return ntohl(address.sin_addr.s_addr);
  };
  auto inside = listenAt("127.0.0.1", port);
  ASSERT_TRUE(inside);
  ASSERT_EQ(inside->size(), 1u);
  EXPECT_EQ(addressOf(inside->front()), INADDR_LOOPBACK);
  EXPECT_TRUE(listenAt("127.0.0.1", port)->empty()); // taken
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  auto named = resolve(host, freePort());
  if (!named || named->empty() || named->front().family != AF_INET)
    GTEST_SKIP() << "this machine's name leads nowhere";
  sockaddr_in own;
  std::memcpy(&own, named->front().address.data(), sizeof own);
  if ((ntohl(own.sin_addr.s_addr) >> 24) == 127)
    GTEST_SKIP() << "this machine's name leads to itself only";
  auto outside = listenAt(host, ntohs(own.sin_port));
  ASSERT_TRUE(outside);
  ASSERT_FALSE(outside->empty());
  EXPECT_EQ(addressOf(outside->front()), ntohl(own.sin_addr.s_addr));
}

TEST(TcpRendezvous, TwoLaunchesThatTryTheSamePortsFindEachTheirOwn) {
  const uint16_t first = freePort();
  const std::vector<uint16_t> ports = {first, freePort(), freePort()};
  std::vector<std::thread> threads;
  for (const char *group : {"a", "b"})
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, group, rank] {
        LaunchedRank place = placeOf(rank, 2, ports);
        place.group = group;
        auto joined = joinTcpRendezvous(place, {});
        ASSERT_TRUE(joined) << joined.error().message;
        auto all = (*joined)->gather(group);
        ASSERT_TRUE(all) << all.error().message;
        EXPECT_EQ(*all, (std::vector<std::string>{group, group}));
      });
  for (std::thread &thread : threads)
    thread.join();
  const std::vector<Descriptor> taken = std::move(*listenAt("127.0.0.1", first));
  auto joined = joinTcpRendezvous(placeOf(0, 2, {first}), {});
  ASSERT_FALSE(joined);
  EXPECT_NE(joined.error().message.find("set FUSION_MASTER_PORT"), std::string::npos)
      << joined.error().message;
}

TEST(TcpRendezvous, APartBeyondTheLimitIsRefusedByAll) {
  auto outcomes = onThreads(2, {freePort()}, [](Rendezvous &group) -> Status {
    auto all = group.gather(std::string(group.rank() == 1 ? mostGatheredBytes + 1 : 1, 'x'));
    return all ? Status() : Status(all.error());
  });
  for (const Status &outcome : outcomes) {
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().message.find("rank 1 brings 256 MiB"), std::string::npos)
        << outcome.error().message;
  }
}

} // namespace
