#include "runtime/collective/Bootstrap.h"

#include "ir/base/Authentication.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fusion {

/// Rank 0 gives several, since nobody keeps them between here and the meeting.
static constexpr int portsToGive = 8;

/// Ports that are free now.
static Result<std::vector<uint16_t>> freePorts() {
  std::vector<uint16_t> ports;
  std::vector<int> sockets;
  for (int i = 0; i < portsToGive; ++i) { // all open at once, so that they differ
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0)
      break;
    sockets.push_back(socket);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof(address);
    if (::bind(socket, reinterpret_cast<sockaddr *>(&address), size) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr *>(&address), &size) == 0)
      ports.push_back(ntohs(address.sin_port));
  }
  const int problem = errno;
  for (int socket : sockets)
    ::close(socket);
  if (ports.empty())
    return environment(fmt::format("rank 0 finds no free port: {}", std::strerror(problem)));
  return ports;
}

static std::string hostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "127.0.0.1";
}

namespace {
/// What rank `rank` gave.
struct Answer {
  std::string host, group, secret;
  bool namesHost = false;
  std::vector<uint16_t> ports;
};

std::optional<Answer> answerOf(const std::string &text, int rank, int ranks) {
  try {
    const auto said = nlohmann::json::parse(text);
    if (said.at("rank") != rank || said.at("ranks") != ranks)
      return std::nullopt;
    Answer answer{said.at("host"), "", "", said.at("given"), {}};
    if (rank == 0) {
      answer.group = said.at("group");
      answer.secret = said.at("secret");
      answer.ports = said.at("ports").get<std::vector<uint16_t>>();
    }
    return answer;
  } catch (const nlohmann::json::exception &) {
    return std::nullopt;
  }
}
} // namespace

Result<LaunchedRank> bootstrapRank(int rank, int ranks, const std::string &host, const AllGather &allGather) {
  nlohmann::json mine = {
      {"rank", rank}, {"ranks", ranks}, {"host", host.empty() ? hostName() : host}, {"given", !host.empty()}};
  if (rank == 0) {
    auto ports = freePorts();
    if (!ports)
      return ports.error();
    mine["ports"] = *ports;
    mine["group"] = toHex(randomBytes(8));
    mine["secret"] = toHex(randomBytes(32));
  }
  auto all = allGather(mine.dump());
  if (!all)
    return all.error();
  if (all->size() != static_cast<size_t>(ranks))
    return badInput(fmt::format("allGather brought {} answers of {} ranks", all->size(), ranks));
  LaunchedRank place;
  place.rank = rank;
  place.ranks = ranks;
  place.launcher = "the caller";
  bool isOneHost = true;
  for (int other = 0; other < ranks; ++other) {
    auto said = answerOf((*all)[static_cast<size_t>(other)], other, ranks);
    if (!said)
      return badInput(fmt::format("what allGather brought from rank {} is not what rank {} of {} gave", other,
                                  other, ranks));
    isOneHost = isOneHost && !said->namesHost && (other == 0 || said->host == place.address);
    if (other != 0)
      continue;
    place.address = said->host;
    place.ports = std::move(said->ports);
    place.group = said->group;
    place.secret = said->secret;
  }
  place.onOneHost = isOneHost;
  if (isOneHost)
    place.address = "127.0.0.1";
  return place;
}

} // namespace fusion
