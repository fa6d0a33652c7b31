// Ranks as threads of one process that meet over TCP.
#pragma once

#include "runtime/collective/Socket.h"
#include "runtime/collective/TcpRendezvous.h"

#include <gtest/gtest.h>

#include <functional>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

namespace fusion::test {

inline uint16_t freePort() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr *>(&address), size), 0);
  EXPECT_EQ(getsockname(socket.get(), reinterpret_cast<sockaddr *>(&address), &size), 0);
  return ntohs(address.sin_port);
}

inline LaunchedRank placeOf(int rank, int ranks, std::vector<uint16_t> ports,
                            const std::string &host = "127.0.0.1") {
  LaunchedRank place;
  place.rank = rank;
  place.ranks = ranks;
  place.address = host;
  place.ports = std::move(ports);
  place.group = "test";
  return place;
}

/// Calls `work` for each rank in a thread of its own; what it returns, by rank.
inline std::vector<Status> onThreads(int ranks, const std::vector<uint16_t> &ports,
                                     const std::function<Status(Rendezvous &)> &work,
                                     const TcpRendezvousOptions &options = {},
                                     const std::string &host = "127.0.0.1") {
  std::vector<Status> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto joined = joinTcpRendezvous(placeOf(rank, ranks, ports, host), options);
      outcomes[static_cast<size_t>(rank)] = joined ? work(**joined) : Status(joined.error());
    });
  for (std::thread &thread : threads)
    thread.join();
  return outcomes;
}

} // namespace fusion::test
