#include "ir/base/Authentication.h"
#include "runtime/collective/TcpMember.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <list>

namespace fusion {
namespace {

/// Connections that have not said who they are. A rank says so at once: where there are more, the oldest go
/// first.
constexpr size_t mostStrangers = 256, mostAcceptedAtOnce = 64;
constexpr double introductionTimeout = 5; ///< from the first byte to the last

class TcpHub : public TcpMember {
public:
  TcpHub(const LaunchedRank &place, const TcpRendezvousOptions &options, std::vector<Descriptor> listeners)
      : TcpMember(place, options), listeners(std::move(listeners)), others(static_cast<size_t>(place.ranks)),
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
  struct Stranger {
    Connection connection;
    std::string challenge;
  };
  void answer(Stranger &stranger, const Frame &frame);
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

  std::vector<Descriptor> listeners;
  std::list<Stranger> strangers;
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
  for (const Descriptor &listener : listeners)
    add(listener, false);
  for (const Stranger &stranger : strangers)
    add(stranger.connection.descriptor(), stranger.connection.mustWrite());
  for (const Other &other : others)
    if (other.open())
      add(other.connection->descriptor(), other.connection->mustWrite());
}

bool TcpHub::serve() {
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
    fail(fmt::format("{} did not come within {} s, others wait for it", fmt::join(late, ", "),
                     options.gatherSeconds));
  }
  for (Other &other : others)
    if (other.open())
      (void)other.connection->flush(); // a failure is seen by the next receive()
  return std::any_of(others.begin(), others.end(), [](const Other &other) { return other.open(); });
}

void TcpHub::acceptStrangers() {
  for (const Descriptor &listener : listeners)
    for (size_t i = 0; i < mostAcceptedAtOnce; ++i) { // the rest when those have been heard
      Descriptor socket = acceptFrom(listener);
      std::string challenge = socket ? randomBytes(challengeBytes) : std::string();
      if (challenge.empty())
        break;
      Stranger &stranger = strangers.emplace_back(Connection(std::move(socket)), std::move(challenge));
      stranger.connection.queue(Frame::Kind::Challenge, stranger.challenge);
    }
}

void TcpHub::greet() {
  for (auto stranger = strangers.begin(); stranger != strangers.end();) {
    Connection &connection = stranger->connection;
    bool keep = connection.flush() && connection.receive(mostHelloBytes);
    std::optional<Frame> frame = connection.next(mostHelloBytes);
    if (frame && !leaving)
      answer(*stranger, *frame);
    if (frame)
      (void)connection.flush(); // a short answer fits
    keep = keep && !frame && !connection.broken() && !leaving &&
           Clock::now() - connection.opened() < seconds(introductionTimeout);
    stranger = keep ? std::next(stranger) : strangers.erase(stranger);
  }
  while (strangers.size() > mostStrangers)
    strangers.pop_front();
}

void TcpHub::answer(Stranger &stranger, const Frame &frame) {
  if (frame.kind != Frame::Kind::Hello)
    return;
  std::optional<std::string> text = verifiedText(place.secret, Side::Rank, stranger.challenge, frame.bytes);
  std::optional<Hello> hello = text ? Hello::parse(*text) : std::nullopt;
  if (!hello || hello->group != place.group) {
    stranger.connection.queue(Frame::Kind::OtherGroup);
    return;
  }
  auto reply = [&](Frame::Kind kind, const std::string &words) {
    stranger.connection.queue(kind, signedText(place.secret, Side::Hub, hello->challenge, words));
  };
  if (hello->ranks != ranks() || hello->rank < 1 || hello->rank >= ranks()) {
    reply(Frame::Kind::Refuse, fmt::format("this is rank {} of {}, but rank 0 ({}) waits for {} ranks",
                                           hello->rank, hello->ranks, ownName(), ranks()));
    return;
  }
  Other &other = others[static_cast<size_t>(hello->rank)];
  if (other.connection) {
    reply(Frame::Kind::Refuse, fmt::format("rank {} is there already: {}", hello->rank, other.name));
    return;
  }
  reply(Frame::Kind::Welcome, ownName());
  other.name = hello->name;
  other.connection = std::move(stranger.connection); // what is left behind is empty, and dropped
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
    listeners.clear();
    strangers.clear();
    tellAll(Frame::Kind::Start);
    setStarted();
  } else if (Clock::now() > joinDeadline) {
    listeners.clear();
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
  const bool begun =
      std::any_of(parts.begin(), parts.end(), [](const auto &part) { return part.has_value(); });
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
  listeners.clear();
  tellAll(Frame::Kind::Leave);
}

bool TcpHub::mustWrite() const {
  return std::any_of(others.begin(), others.end(),
                     [](const Other &other) { return other.open() && other.connection->mustWrite(); });
}

} // namespace

std::unique_ptr<TcpMember> makeTcpHub(const LaunchedRank &place, const TcpRendezvousOptions &options,
                                      std::vector<Descriptor> listeners) {
  return std::make_unique<TcpHub>(place, options, std::move(listeners));
}

} // namespace fusion
