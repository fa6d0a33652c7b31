#include "runtime/collective/TcpRendezvous.h"

#include "ir/base/Authentication.h"
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
    return environment(
        fmt::format("rank {} of {} did not find rank 0 at {} port {} within {} s{} "
                    "(MASTER_ADDR, MASTER_PORT, FUSION_RENDEZVOUS_SECONDS)",
                    place.rank, place.ranks, place.address, fmt::join(place.ports, ", "), options.joinSeconds,
                    otherGroup ? ", only ranks of another launch or with another secret" : ""));
  }

private:
  static std::unique_ptr<TcpMember> notHere() { return nullptr; }
  /// Null if this is not the right place, or not yet.
  Result<std::unique_ptr<TcpMember>> introduce(const Endpoint &endpoint) {
    const auto answerDeadline = std::min(deadline, Clock::now() + seconds(answerSeconds));
    Connection connection(connectTo(endpoint, answerDeadline));
    if (!connection.open())
      return notHere();
    std::optional<Frame> challenge = nextFrame(connection, answerDeadline);
    if (!challenge || challenge->kind != Frame::Kind::Challenge)
      return notHere();
    const Hello hello{place.group, ownName(), place.rank, place.ranks, randomBytes(challengeBytes)};
    if (hello.challenge.empty())
      return environment("the system gives no random numbers");
    connection.queue(Frame::Kind::Hello,
                     signedText(place.secret, Side::Rank, challenge->bytes, hello.text()));
    std::optional<Frame> answer = nextFrame(connection, answerDeadline);
    otherGroup = otherGroup || (answer && answer->kind == Frame::Kind::OtherGroup);
    if (!answer || (answer->kind != Frame::Kind::Welcome && answer->kind != Frame::Kind::Refuse))
      return notHere();
    // What listens there is rank 0 only if it knows the secret too.
    std::optional<std::string> text =
        verifiedText(place.secret, Side::Hub, toHex(hello.challenge), answer->bytes);
    if (!text)
      return notHere();
    if (answer->kind == Frame::Kind::Refuse)
      return badInput(*text);
    return makeTcpSpoke(place, options, std::move(connection), *text);
  }

  /// Sends what is queued and waits for a frame; nothing if the connection ends or the time is over.
  static std::optional<Frame> nextFrame(Connection &connection, Clock::time_point answerDeadline) {
    std::optional<Frame> frame = connection.next(mostHelloBytes);
    for (bool alive = true; alive && !frame && !connection.broken() && Clock::now() < answerDeadline;) {
      if (!connection.flush() || !waitFor(connection.descriptor(), connection.mustWrite(), answerDeadline))
        return std::nullopt;
      alive = connection.receive(mostHelloBytes);
      frame = connection.next(mostHelloBytes);
    }
    return frame;
  }

  const LaunchedRank &place;
  const TcpRendezvousOptions &options;
  const Clock::time_point deadline;
  bool otherGroup = false;
};

Result<std::unique_ptr<TcpMember>> makeMember(const LaunchedRank &place,
                                              const TcpRendezvousOptions &options) {
  if (place.rank != 0)
    return Search(place, options).run();
  if (place.ranks == 1)
    return makeTcpHub(place, options, {});
  for (uint16_t port : place.ports) {
    Result<std::vector<Descriptor>> listeners = listenAt(place.address, port);
    if (!listeners)
      return listeners.error();
    if (!listeners->empty())
      return makeTcpHub(place, options, std::move(*listeners));
  }
  return environment(
      fmt::format("rank 0 cannot listen at {} port {}, another process does: set FUSION_MASTER_PORT "
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

Result<std::unique_ptr<Rendezvous>> joinTcpRendezvous(const LaunchedRank &place,
                                                      const TcpRendezvousOptions &options) {
  Result<std::unique_ptr<TcpMember>> member = makeMember(place, options);
  if (!member)
    return member.error();
  if (Status status = (*member)->start(); !status)
    return status.error();
  return std::unique_ptr<Rendezvous>(std::move(*member));
}

} // namespace fusion
