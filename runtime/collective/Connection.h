// Frames over a socket between two ranks.
#pragma once

#include "runtime/collective/Socket.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace fusion {

struct Frame {
  enum class Kind : uint8_t {
    Challenge = 1, ///< first, from rank 0 to whoever connects: random bytes
    Hello,         ///< the answer of a rank: who it is, and that it knows the secret
    Welcome,       ///< the answer: who rank 0 is, and that it knows the secret
    OtherGroup,    ///< the answer to a rank of another launch, or with another secret
    Refuse,        ///< the answer to one that cannot belong here: why
    Start,         ///< all are there
    Beat,          ///< still alive
    Part,          ///< what a rank brings to gather()
    All,           ///< what all brought
    Abandon,       ///< the group has failed: why
    Leave,         ///< a regular end
  };
  Kind kind = Kind::Beat;
  std::string bytes;
};
/// As it goes over the wire: a mark, the kind, the length, the bytes.
std::shared_ptr<const std::string> encode(Frame::Kind kind, std::string_view bytes);

/// Used by one thread.
class Connection {
public:
  explicit Connection(Descriptor socket)
      : socket(std::move(socket)), begun(Clock::now()), heard(begun), sent(begun) {}
  bool open() const { return bool(socket); }
  const Descriptor &descriptor() const { return socket; }
  void close() { socket.reset(); }

  static constexpr size_t mostAtOnce = 4
                                       << 20; ///< so that one talkative rank does not keep the others waiting
  /// Takes what has come, not many more bytes than `most`; false once the other side has closed or failed.
  bool receive(size_t most = mostAtOnce);
  /// The next whole frame. What is no frame, or longer than `limit` bytes, breaks the connection.
  std::optional<Frame> next(size_t limit);
  bool broken() const { return isBroken; }

  void queue(std::shared_ptr<const std::string> frame) { waiting.push_back(std::move(frame)); }
  void queue(Frame::Kind kind, std::string_view bytes = {}) { queue(encode(kind, bytes)); }
  bool mustWrite() const { return open() && !waiting.empty(); }
  /// Sends what can be sent without waiting; false if the connection fails.
  bool flush();

  Clock::time_point opened() const { return begun; }
  Clock::time_point lastHeard() const { return heard; }
  Clock::time_point lastSent() const { return sent; }

private:
  Descriptor socket;
  std::string input;
  size_t consumed = 0; ///< of `input`
  std::deque<std::shared_ptr<const std::string>> waiting;
  size_t written = 0; ///< of waiting.front()
  bool isBroken = false;
  Clock::time_point begun, heard, sent;
};

} // namespace fusion
