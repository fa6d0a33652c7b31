// TCP sockets that never block and are closed with the object.
#pragma once

#include "ir/base/Result.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fusion {

using Clock = std::chrono::steady_clock;

/// A file descriptor, closed at the end; -1 for none.
class Descriptor {
public:
  explicit Descriptor(int number = -1) : number(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor &&other) noexcept : number(std::exchange(other.number, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  int get() const { return number; }
  explicit operator bool() const { return number >= 0; }
  void reset();

private:
  int number;
};

/// An IPv4 or IPv6 address with a port.
struct Endpoint {
  int family = 0;
  std::vector<std::byte> address; ///< a sockaddr
};

/// Where `host`, a name or a number, can be reached; nothing if the name cannot be looked up for now.
/// BadInput if there is no such host.
Result<std::vector<Endpoint>> resolve(const std::string &host, uint16_t port);
/// Listens for connections to `host` of this machine, on the addresses of that name only. On all of the
/// machine's where the name means none that others could reach: a hosts file gives 127.0.1.1 for the own
/// name, or the address is a router's. None if somebody else has the port.
Result<std::vector<Descriptor>> listenAt(const std::string &host, uint16_t port);
/// Invalid if nobody listens there or does not answer in time.
Descriptor connectTo(const Endpoint &endpoint, Clock::time_point deadline);
/// The next that came; invalid if none did.
Descriptor acceptFrom(const Descriptor &listener);
/// Waits until the descriptor can be read (written) or the deadline.
bool waitFor(const Descriptor &descriptor, bool write, Clock::time_point deadline);
/// For poll(): not negative, and a little late rather than early.
int millisecondsUntil(Clock::time_point deadline);

} // namespace fusion
