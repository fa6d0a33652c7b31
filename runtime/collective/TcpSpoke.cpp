#include "runtime/collective/TcpMember.h"

#include <fmt/format.h>

namespace fusion {
namespace {

class TcpSpoke : public TcpMember {
public:
  TcpSpoke(const LaunchedRank &place, const TcpRendezvousOptions &options, Connection connection,
           std::string hubName)
      : TcpMember(place, options), hub(std::move(connection)), hubName(std::move(hubName)) {}
  ~TcpSpoke() override { end(); }

private:
  void watch(std::vector<pollfd> &entries) override {
    if (hub.open())
      entries.push_back(
          {hub.descriptor().get(), static_cast<short>(POLLIN | (hub.mustWrite() ? POLLOUT : 0)), 0});
  }
  bool serve() override;
  void bring(std::string part) override;
  void giveUp(const std::string &reason) override { hub.queue(Frame::Kind::Abandon, reason); }
  void leave() override { hub.queue(Frame::Kind::Leave); }
  bool mustWrite() const override { return hub.mustWrite(); }
  void handle(const Frame &frame);
  void lose(const std::string &why) {
    hub.close();
    if (!leaving)
      setFailure(fmt::format("rank 0 ({}) is gone: {}", hubName, why));
  }

  Connection hub;
  const std::string hubName;
  bool hubLeft = false;
};

bool TcpSpoke::serve() {
  if (!hub.open())
    return false;
  const bool alive = hub.receive();
  while (hub.open())
    if (std::optional<Frame> frame = hub.next((mostGatheredBytes + 8) * static_cast<size_t>(ranks())))
      handle(*frame);
    else
      break;
  if (!hub.open())
    return false;
  if (hub.broken())
    lose("it sent what is not ours");
  else if (!alive)
    lose("its connection closed, so the process ended or was killed");
  else if (!keepAlive(hub))
    lose(fmt::format("nothing was heard of it for {} s", options.silenceSeconds));
  else
    (void)hub.flush(); // a failure is seen by the next receive()
  return hub.open();
}

void TcpSpoke::bring(std::string part) {
  if (hubLeft)
    setFailure(fmt::format("rank 0 ({}) has ended, others wait for it", hubName));
  hub.queue(Frame::Kind::Part, part);
}

void TcpSpoke::handle(const Frame &frame) {
  switch (frame.kind) {
  case Frame::Kind::Beat:
    return;
  case Frame::Kind::Start:
    return setStarted();
  case Frame::Kind::All:
    if (auto parts = unpackAll(frame.bytes, ranks()))
      return setAll(std::move(*parts));
    return lose("it sent what is not ours");
  case Frame::Kind::Abandon:
    return setFailure(frame.bytes);
  case Frame::Kind::Leave:
    hubLeft = true;
    hub.close();
    if (isGathering())
      setFailure(fmt::format("rank 0 ({}) has ended, others wait for it", hubName));
    return;
  default:
    return lose("it sent what is not ours");
  }
}

} // namespace

std::unique_ptr<TcpMember> makeTcpSpoke(const LaunchedRank &place, const TcpRendezvousOptions &options,
                                        Connection connection, std::string hubName) {
  return std::make_unique<TcpSpoke>(place, options, std::move(connection), std::move(hubName));
}

} // namespace fusion
