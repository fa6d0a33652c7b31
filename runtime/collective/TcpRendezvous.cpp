#include "runtime/collective/TcpRendezvous.h"

#include "runtime/collective/TcpMember.h"
#include "runtime/cuda/Library.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

namespace fusion {
namespace {

constexpr double answerSeconds = 10, retrySeconds = 0.1;

/// Looks for rank 0 at every address and port where it may be.
class Search {
public:
  Search(const LaunchedRank &place, const TcpRendezvousOptions &options)
      : place(place), options(options), deadline(Clock::now() + seconds(options.joinSeconds)) {}

  Result<std::unique_ptr<TcpMember>> run() {
    do {
      for (uint16_t port : place.ports) {
        auto endpoints = resolve(place.address, port);
        if (!endpoints)
          return endpoints.error();
        for (const Endpoint &endpoint : *endpoints) {
          auto member = introduce(endpoint);
          if (!member || *member)
            return member;
        }
      }
      std::this_thread::sleep_for(seconds(retrySeconds));
    } while (Clock::now() < deadline);
    return environment(fmt::format("rank {} of {} did not find rank 0 at {} port {} within {} s{} "
                                   "(MASTER_ADDR, MASTER_PORT, FUSION_RENDEZVOUS_SECONDS)",
                                   place.rank, place.ranks, place.address, fmt::join(place.ports, ", "),
                                   options.joinSeconds, otherGroup ? ", only ranks of another launch" : ""));
  }

private:
  static std::unique_ptr<TcpMember> notHere() { return nullptr; }
  /// Null if this is not the right place, or not yet.
  Result<std::unique_ptr<TcpMember>> introduce(const Endpoint &endpoint) {
    const auto answerDeadline = std::min(deadline, Clock::now() + seconds(answerSeconds));
    Connection connection(connectTo(endpoint, answerDeadline));
    if (!connection.open())
      return notHere();
    connection.queue(Frame::Kind::Hello, Hello{place.group, ownName(), place.rank, place.ranks}.text());
    std::optional<Frame> answer;
    for (bool alive = true; alive && !answer && Clock::now() < answerDeadline;) {
      if (!connection.flush() || !waitFor(connection.descriptor(), connection.mustWrite(), answerDeadline))
        return notHere();
      alive = connection.receive();
      answer = connection.next(mostHelloBytes);
      if (connection.broken())
        return notHere();
    }
    if (answer && answer->kind == Frame::Kind::Refuse)
      return badInput(answer->bytes);
    otherGroup = otherGroup || (answer && answer->kind == Frame::Kind::OtherGroup);
    if (!answer || answer->kind != Frame::Kind::Welcome)
      return notHere();
    return makeTcpSpoke(place, options, std::move(connection), answer->bytes);
  }

  const LaunchedRank &place;
  const TcpRendezvousOptions &options;
  const Clock::time_point deadline;
  bool otherGroup = false;
};

Result<std::unique_ptr<TcpMember>> makeMember(const LaunchedRank &place, const TcpRendezvousOptions &options) {
  if (place.rank != 0)
    return Search(place, options).run();
  if (place.ranks == 1)
    return makeTcpHub(place, options, Descriptor());
  for (uint16_t port : place.ports) {
    Result<Descriptor> listener = listenAt(place.address, port);
    if (!listener)
      return listener.error();
    if (*listener)
      return makeTcpHub(place, options, std::move(*listener));
  }
  return environment(fmt::format("rank 0 cannot listen at {} port {}, another process does: set FUSION_MASTER_PORT "
                                 "to a free one for all ranks",
                                 place.address, fmt::join(place.ports, ", ")));
}

} // namespace

Result<TcpRendezvousOptions> TcpRendezvousOptions::fromEnvironment() {
  TcpRendezvousOptions options;
  const std::string text = environmentVariable("FUSION_RENDEZVOUS_SECONDS");
  if (text.empty())
    return options;
  char *end = nullptr;
  options.joinSeconds = std::strtod(text.c_str(), &end);
  if (*end != 0 || !(options.joinSeconds > 0) || options.joinSeconds > 1e6)
    return badInput(fmt::format("FUSION_RENDEZVOUS_SECONDS={}: not a number of seconds", text));
  options.gatherSeconds = std::max(options.gatherSeconds, options.joinSeconds);
  return options;
}

Result<std::unique_ptr<Rendezvous>> joinTcpRendezvous(const LaunchedRank &place, const TcpRendezvousOptions &options) {
  Result<std::unique_ptr<TcpMember>> member = makeMember(place, options);
  if (!member)
    return member.error();
  if (Status status = (*member)->start(); !status)
    return status.error();
  return std::unique_ptr<Rendezvous>(std::move(*member));
}

} // namespace fusion
