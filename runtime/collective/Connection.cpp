#include "runtime/collective/Connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace fusion {
namespace {

constexpr size_t headerBytes = 16; // mark, kind and length
constexpr std::string_view mark = "fusion\x02"; // the last byte is the version of the protocol

} // namespace

std::shared_ptr<const std::string> encode(Frame::Kind kind, std::string_view bytes) {
  auto text = std::make_shared<std::string>(mark);
  text->push_back(static_cast<char>(kind));
  for (int shift = 0; shift < 64; shift += 8)
    text->push_back(static_cast<char>(static_cast<uint64_t>(bytes.size()) >> shift));
  text->append(bytes);
  return text;
}

bool Connection::receive(size_t most) {
  std::array<char, 1 << 16> chunk;
  for (size_t total = 0; total < most;) {
    ssize_t count = recv(socket.get(), chunk.data(), chunk.size(), 0);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK;
    if (count == 0)
      return false;
    heard = Clock::now();
    input.append(chunk.data(), static_cast<size_t>(count));
    total += static_cast<size_t>(count);
  }
  return true;
}

std::optional<Frame> Connection::next(size_t limit) {
  std::string_view rest = std::string_view(input).substr(consumed);
  if (isBroken || rest.substr(0, mark.size()) != mark.substr(0, std::min(rest.size(), mark.size()))) {
    isBroken = true;
    return std::nullopt;
  }
  if (rest.size() < headerBytes)
    return std::nullopt;
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(rest[mark.size() + 1 + i])) << (8 * i);
  if (length > limit) {
    isBroken = true;
    return std::nullopt;
  }
  if (rest.size() < headerBytes + length)
    return std::nullopt;
  Frame frame{static_cast<Frame::Kind>(rest[mark.size()]), std::string(rest.substr(headerBytes, length))};
  consumed += headerBytes + length;
  if (consumed == input.size() || consumed > (1 << 20)) {
    input = input.substr(consumed); // memory too
    consumed = 0;
  }
  return frame;
}

bool Connection::flush() {
  while (mustWrite()) {
    const std::string &frame = *waiting.front();
    ssize_t count = send(socket.get(), frame.data() + written, frame.size() - written, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK;
    sent = Clock::now();
    written += static_cast<size_t>(count);
    if (written < frame.size())
      continue;
    waiting.pop_front();
    written = 0;
  }
  return true;
}

} // namespace fusion
