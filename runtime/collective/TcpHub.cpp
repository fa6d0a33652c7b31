#include "runtime/collective/TcpMember.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <list>

namespace fusion {
namespace {

constexpr size_t mostStrangers = 64; ///< connections that have not said who they are
constexpr double introductionTimeout = 5;

class TcpHub : public TcpMember {
public:
  TcpHub(const LaunchedRank &place, const TcpRendezvousOptions &options, Descriptor listener)
      : TcpMember(place, options), listener(std::move(listener)), others(static_cast<size_t>(place.ranks)),
        parts(static_cast<size_t>(place.ranks)), joinDeadline(Clock::now() + seconds(options.joinSeconds)) {}
  ~TcpHub() override { end(); }

private:
  struct Other {
    std::optional<Connection> connection; ///< none: did not come yet
    std::string name;
    bool left = false;
    bool open() const { return connection && connection->open(); }
  };

  void watch(std::vector<pollfd> &entries) override;
  bool serve() override;
  void bring(std::string part) override;
  void giveUp(const std::string &reason) override { fail(reason); }
  void leave() override;
  bool mustWrite() const override;

  void acceptStrangers();
  void greet();
  /// What to answer; a rank that belongs here is moved to the others.
  void answer(Connection &stranger, const Frame &frame);
  void startWhenComplete();
  void serveOther(int rank);
  void handle(int rank, const Frame &frame);
  void finishRound();
  void fail(const std::string &message);
  void lose(int rank, const std::string &why);
  void tellAll(Frame::Kind kind, std::string_view bytes = {});
  std::string named(int rank) const {
    return fmt::format("rank {} ({})", rank, rank == 0 ? ownName() : others[static_cast<size_t>(rank)].name);
  }

  Descriptor listener;
  std::list<Connection> strangers;
  std::vector<Other> others; ///< by rank; the first is unused
  std::vector<std::optional<std::string>> parts;
  std::optional<Clock::time_point> roundDeadline;
  const Clock::time_point joinDeadline;
  bool complete = false, failed = false;
};

void TcpHub::watch(std::vector<pollfd> &entries) {
  auto add = [&](const Descriptor &descriptor, bool write) {
    entries.push_back({descriptor.get(), static_cast<short>(POLLIN | (write ? POLLOUT : 0)), 0});
  };
  if (listener)
    add(listener, false);
  for (const Connection &stranger : strangers)
    add(stranger.descriptor(), stranger.mustWrite());
  for (const Other &other : others)
    if (other.open())
      add(other.connection->descriptor(), other.connection->mustWrite());
}

bool TcpHub::serve() {
  if (listener)
    acceptStrangers();
  greet();
  for (int rank = 1; rank < ranks(); ++rank)
    serveOther(rank);
  startWhenComplete();
  if (roundDeadline && Clock::now() > *roundDeadline && !failed) {
    std::vector<std::string> late;
    for (int rank = 0; rank < ranks(); ++rank)
      if (!parts[static_cast<size_t>(rank)])
        late.push_back(named(rank));
    fail(fmt::format("{} did not come within {} s, others wait for it", fmt::join(late, ", "), options.gatherSeconds));
  }
  for (Other &other : others)
    if (other.open())
      (void)other.connection->flush(); // a failure is seen by the next receive()
  return std::any_of(others.begin(), others.end(), [](const Other &other) { return other.open(); });
}

void TcpHub::acceptStrangers() {
  while (strangers.size() < mostStrangers) {
    Descriptor socket = acceptFrom(listener);
    if (!socket)
      return;
    strangers.emplace_back(std::move(socket));
  }
}

void TcpHub::greet() {
  for (auto stranger = strangers.begin(); stranger != strangers.end();) {
    bool keep = stranger->receive();
    std::optional<Frame> frame = stranger->next(mostHelloBytes);
    if (frame && !leaving)
      answer(*stranger, *frame);
    if (frame)
      (void)stranger->flush(); // a short answer fits
    keep = keep && !frame && !stranger->broken() && !leaving &&
           Clock::now() - stranger->lastHeard() < seconds(introductionTimeout);
    stranger = keep ? std::next(stranger) : strangers.erase(stranger);
  }
}

void TcpHub::answer(Connection &stranger, const Frame &frame) {
  std::optional<Hello> hello = frame.kind == Frame::Kind::Hello ? Hello::parse(frame.bytes) : std::nullopt;
  if (!hello)
    return;
  if (hello->group != place.group) {
    stranger.queue(Frame::Kind::OtherGroup);
    return;
  }
  if (hello->ranks != ranks() || hello->rank < 1 || hello->rank >= ranks()) {
    stranger.queue(Frame::Kind::Refuse, fmt::format("this is rank {} of {}, but rank 0 ({}) waits for {} ranks", hello->rank,
                                                    hello->ranks, ownName(), ranks()));
    return;
  }
  Other &other = others[static_cast<size_t>(hello->rank)];
  if (other.connection) {
    stranger.queue(Frame::Kind::Refuse, fmt::format("rank {} is there already: {}", hello->rank, other.name));
    return;
  }
  stranger.queue(Frame::Kind::Welcome, ownName());
  other.name = hello->name;
  other.connection = std::move(stranger); // what is left behind is empty, and dropped
}

void TcpHub::startWhenComplete() {
  if (complete || failed || leaving)
    return;
  std::vector<int> missing;
  for (int rank = 1; rank < ranks(); ++rank)
    if (!others[static_cast<size_t>(rank)].connection)
      missing.push_back(rank);
  if (missing.empty()) {
    complete = true;
    listener.reset();
    strangers.clear();
    tellAll(Frame::Kind::Start);
    setStarted();
  } else if (Clock::now() > joinDeadline) {
    listener.reset();
    fail(fmt::format("rank {} did not come within {} s (FUSION_RENDEZVOUS_SECONDS)", fmt::join(missing, ", "),
                     options.joinSeconds));
  }
}

void TcpHub::serveOther(int rank) {
  Other &other = others[static_cast<size_t>(rank)];
  if (!other.open())
    return;
  const bool alive = other.connection->receive();
  while (other.open())
    if (std::optional<Frame> frame = other.connection->next(mostGatheredBytes))
      handle(rank, *frame);
    else
      break;
  if (!other.open())
    return;
  if (other.connection->broken())
    lose(rank, "it sent what is not ours");
  else if (!alive)
    lose(rank, "its connection closed, so the process ended or was killed");
  else if (!keepAlive(*other.connection))
    lose(rank, fmt::format("nothing was heard of it for {} s", options.silenceSeconds));
}

void TcpHub::handle(int rank, const Frame &frame) {
  Other &other = others[static_cast<size_t>(rank)];
  std::optional<std::string> &part = parts[static_cast<size_t>(rank)];
  switch (frame.kind) {
  case Frame::Kind::Beat:
    return;
  case Frame::Kind::Part:
    if (part || !complete)
      return lose(rank, "it sent more than was asked for");
    part = frame.bytes;
    return finishRound();
  case Frame::Kind::Abandon:
    return fail(frame.bytes);
  case Frame::Kind::Leave:
    other.left = true;
    other.connection->close();
    if (!complete)
      fail(named(rank) + " ended before all ranks were there");
    return finishRound();
  default:
    return lose(rank, "it sent what is not ours");
  }
}

void TcpHub::bring(std::string part) {
  parts[0] = std::move(part);
  finishRound();
}

void TcpHub::finishRound() {
  const bool begun = std::any_of(parts.begin(), parts.end(), [](const auto &part) { return part.has_value(); });
  if (!begun || failed)
    return;
  if (!roundDeadline)
    roundDeadline = Clock::now() + seconds(options.gatherSeconds);
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::optional<std::string> &part = parts[static_cast<size_t>(rank)];
    if (part)
      all.push_back(*part);
    else if (others[static_cast<size_t>(rank)].left)
      return fail(named(rank) + " has ended, others wait for it");
  }
  if (all.size() < parts.size())
    return;
  roundDeadline.reset();
  std::fill(parts.begin(), parts.end(), std::nullopt);
  tellAll(Frame::Kind::All, packAll(all));
  setAll(std::move(all));
}

void TcpHub::fail(const std::string &message) {
  if (std::exchange(failed, true))
    return;
  roundDeadline.reset();
  tellAll(Frame::Kind::Abandon, message);
  setFailure(message);
}

void TcpHub::lose(int rank, const std::string &why) {
  others[static_cast<size_t>(rank)].connection->close();
  if (!leaving)
    fail(fmt::format("{} is gone: {}", named(rank), why));
}

void TcpHub::tellAll(Frame::Kind kind, std::string_view bytes) {
  std::shared_ptr<const std::string> frame = encode(kind, bytes);
  for (Other &other : others)
    if (other.open())
      other.connection->queue(frame);
}

void TcpHub::leave() {
  listener.reset();
  tellAll(Frame::Kind::Leave);
}

bool TcpHub::mustWrite() const {
  return std::any_of(others.begin(), others.end(),
                     [](const Other &other) { return other.open() && other.connection->mustWrite(); });
}

} // namespace

std::unique_ptr<TcpMember> makeTcpHub(const LaunchedRank &place, const TcpRendezvousOptions &options,
                                      Descriptor listener) {
  return std::make_unique<TcpHub>(place, options, std::move(listener));
}

} // namespace fusion
