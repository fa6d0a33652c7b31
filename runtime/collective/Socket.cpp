#include "runtime/collective/Socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fusion {

void Descriptor::reset() {
  if (number >= 0)
    close(number);
  number = -1;
}

int millisecondsUntil(Clock::time_point deadline) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

bool waitFor(const Descriptor &descriptor, bool write, Clock::time_point deadline) {
  pollfd entry = {descriptor.get(), static_cast<short>(write ? POLLOUT : POLLIN), 0};
  int count = 0;
  do
    count = poll(&entry, 1, millisecondsUntil(deadline));
  while (count < 0 && errno == EINTR);
  return count > 0;
}

static void prepare(const Descriptor &socket) {
  int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

Result<std::vector<Endpoint>> resolve(const std::string &host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo *found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::vector<Endpoint> endpoints;
  if (code == EAI_AGAIN)
    return endpoints;
  if (code != 0)
    return badInput(fmt::format("host '{}': {}", host, gai_strerror(code)));
  for (addrinfo *one = found; one; one = one->ai_next) {
    auto *bytes = reinterpret_cast<const std::byte *>(one->ai_addr);
    endpoints.push_back({one->ai_family, {bytes, bytes + one->ai_addrlen}});
  }
  freeaddrinfo(found);
  return endpoints;
}

static bool isLoopback(const Endpoint &endpoint) {
  if (endpoint.family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, endpoint.address.data(), sizeof address);
    return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
  }
  sockaddr_in address;
  std::memcpy(&address, endpoint.address.data(), sizeof address);
  return (ntohl(address.sin_addr.s_addr) >> 24) == 127;
}

/// 0, or errno.
static int listenOn(const Endpoint &endpoint, bool bothFamilies, Descriptor &listener) {
  Descriptor socket(::socket(endpoint.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket)
    return errno;
  int on = 1, only6 = bothFamilies ? 0 : 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (endpoint.family == AF_INET6)
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof only6);
  auto *address = reinterpret_cast<const sockaddr *>(endpoint.address.data());
  if (bind(socket.get(), address, static_cast<socklen_t>(endpoint.address.size())) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0)
    return errno;
  listener = std::move(socket);
  return 0;
}

Result<std::vector<Descriptor>> listenAt(const std::string &host, uint16_t port) {
  auto named = resolve(host, port);
  if (!named)
    return named.error();
  const bool staysInside = host == "localhost" || host.starts_with("127.0.0.") || host == "::1";
  int code = EADDRNOTAVAIL;
  std::vector<Descriptor> listeners;
  auto isTaken = [&](const Endpoint &place, bool bothFamilies) {
    Descriptor listener;
    code = listenOn(place, bothFamilies, listener);
    if (code == 0)
      listeners.push_back(std::move(listener));
    return code == EADDRINUSE;
  };
  for (const Endpoint &place : *named)
    if (isLoopback(place) == staysInside && isTaken(place, false))
      return std::vector<Descriptor>();
  for (const char *all : {"::", "0.0.0.0"})
    if (listeners.empty() && !staysInside)
      if (auto any = resolve(all, port); any && !any->empty() && isTaken(any->front(), true))
        return std::vector<Descriptor>();
  if (!listeners.empty())
    return listeners;
  return environment(fmt::format("cannot listen at {} port {}: {}", host, port, std::strerror(code)));
}

Descriptor connectTo(const Endpoint &endpoint, Clock::time_point deadline) {
  Descriptor socket(::socket(endpoint.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket)
    return Descriptor();
  auto *address = reinterpret_cast<const sockaddr *>(endpoint.address.data());
  if (connect(socket.get(), address, static_cast<socklen_t>(endpoint.address.size())) != 0) {
    int code = 0;
    socklen_t size = sizeof code;
    if (errno != EINPROGRESS || !waitFor(socket, true, deadline) ||
        getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &size) != 0 || code != 0)
      return Descriptor();
  }
  prepare(socket);
  return socket;
}

Descriptor acceptFrom(const Descriptor &listener) {
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket)
    prepare(socket);
  return socket;
}

} // namespace fusion
