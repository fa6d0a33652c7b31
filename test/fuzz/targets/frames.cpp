// What comes from another rank over a socket, in pieces as the first byte says.
#include "Target.h"

#include "runtime/collective/Connection.h"

#include <sys/socket.h>
#include <unistd.h>

using namespace fusion;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int ends[2];
  if (size < 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
    return 0;
  const Descriptor other(ends[1]);
  Connection connection{Descriptor(ends[0])};
  const size_t piece = 1 + data[0];
  for (size_t begin = 1; begin < size; begin += piece) {
    if (::write(ends[1], data + begin, std::min(piece, size - begin)) < 0)
      break;
    connection.receive();
    while (const auto frame = connection.next(4096))
      fuzz::check(frame->bytes.size() <= 4096, "longer than the limit", std::to_string(frame->bytes.size()));
    if (connection.broken())
      break;
  }
  return 0;
}
