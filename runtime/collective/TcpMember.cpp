#include "runtime/collective/TcpMember.h"

#include "ir/base/Authentication.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

namespace fusion {

static constexpr double farewellSeconds = 2; ///< what a last message may take

std::string ownName() {
  char host[256] = "unknown host";
  gethostname(host, sizeof host - 1);
  return fmt::format("{}, process {}", host, getpid());
}

std::string Hello::text() const {
  return nlohmann::json({{"group", group},
                         {"name", name},
                         {"rank", rank},
                         {"ranks", ranks},
                         {"challenge", toHex(challenge)}})
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::optional<Hello> Hello::parse(const std::string &text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  auto has = [&](const char *key, bool isText) {
    return json.contains(key) && (isText ? json[key].is_string() : json[key].is_number_integer());
  };
  if (!json.is_object() || !has("group", true) || !has("name", true) || !has("rank", false) ||
      !has("ranks", false) || !has("challenge", true))
    return std::nullopt;
  return Hello{json["group"], json["name"], json["rank"], json["ranks"], json["challenge"]};
}

static std::string codeOf(const std::string &secret, Side side, std::string_view challenge,
                          std::string_view text) {
  std::string message = "fusion rendezvous ";
  message.push_back(static_cast<char>(side));
  return messageCode(secret, message.append(sha256(challenge)).append(text));
}

std::string signedText(const std::string &secret, Side side, std::string_view challenge,
                       std::string_view text) {
  return codeOf(secret, side, challenge, text).append(text);
}

std::optional<std::string> verifiedText(const std::string &secret, Side side, std::string_view challenge,
                                        std::string_view bytes) {
  constexpr size_t codeBytes = 32;
  if (bytes.size() < codeBytes)
    return std::nullopt;
  const std::string_view text = bytes.substr(codeBytes);
  if (!sameCode(bytes.substr(0, codeBytes), codeOf(secret, side, challenge, text)))
    return std::nullopt;
  return std::string(text);
}

std::string packAll(const std::vector<std::string> &parts) {
  std::string bytes;
  for (const std::string &part : parts) {
    uint64_t length = part.size();
    bytes.append(reinterpret_cast<const char *>(&length), sizeof length).append(part);
  }
  return bytes;
}

std::optional<std::vector<std::string>> unpackAll(std::string_view bytes, int ranks) {
  std::vector<std::string> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    uint64_t length = 0;
    if (bytes.size() < sizeof length)
      return std::nullopt;
    bytes.copy(reinterpret_cast<char *>(&length), sizeof length);
    bytes.remove_prefix(sizeof length);
    if (bytes.size() < length)
      return std::nullopt;
    parts.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return parts;
}

TcpMember::TcpMember(const LaunchedRank &place, const TcpRendezvousOptions &options)
    : place(place), options(options), wakeup(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Status TcpMember::start() {
  if (!wakeup)
    return environment("no file descriptors are left");
  thread = std::thread([this] { loop(); });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return started || failure; });
  return failure ? Status(*failure) : Status();
}

Result<std::vector<std::string>> TcpMember::gather(const std::string &bytes) {
  if (bytes.size() > mostGatheredBytes) {
    std::string text = fmt::format("rank {} brings {} MiB, the limit is {}", place.rank, bytes.size() >> 20,
                                   mostGatheredBytes >> 20);
    abandon(text);
    return badInput(text);
  }
  std::unique_lock lock(mutex);
  if (failure)
    return *failure;
  part = bytes;
  gathering = true;
  wake();
  changed.wait(lock, [&] { return all || failure; });
  gathering = false;
  if (!all)
    return *failure;
  std::vector<std::string> result = std::move(*all);
  all.reset();
  return result;
}

void TcpMember::abandon(const std::string &text) {
  std::unique_lock lock(mutex);
  if (failure) // the others know
    return;
  failure = environment(text);
  reason = text;
  mustTell = true;
  changed.notify_all();
  wake();
  changed.wait_for(lock, seconds(farewellSeconds), [&] { return !mustTell; });
}

Status TcpMember::check() {
  std::lock_guard lock(mutex);
  return failure ? Status(*failure) : Status();
}

void TcpMember::end() {
  if (!thread.joinable())
    return;
  {
    std::lock_guard lock(mutex);
    ending = true;
    wake();
  }
  thread.join();
}

void TcpMember::wake() {
  uint64_t one = 1;
  (void)!write(wakeup.get(), &one, sizeof one);
}

bool TcpMember::isGathering() {
  std::lock_guard lock(mutex);
  return gathering && !all;
}

void TcpMember::setStarted() {
  std::lock_guard lock(mutex);
  started = true;
  changed.notify_all();
}

void TcpMember::setAll(std::vector<std::string> parts) {
  std::lock_guard lock(mutex);
  all = std::move(parts);
  changed.notify_all();
}

void TcpMember::setFailure(const std::string &message) {
  std::lock_guard lock(mutex);
  if (!failure)
    failure = environment(message);
  changed.notify_all();
}

bool TcpMember::keepAlive(Connection &connection) const {
  const auto now = Clock::now();
  if (now - connection.lastSent() >= seconds(options.beatSeconds) && !connection.mustWrite())
    connection.queue(Frame::Kind::Beat);
  return now - connection.lastHeard() < seconds(options.silenceSeconds);
}

void TcpMember::loop() {
  std::optional<Clock::time_point> lastMoment; ///< for farewells
  for (;;) {
    {
      std::unique_lock lock(mutex);
      std::optional<std::string> newPart = std::exchange(part, std::nullopt),
                                 newReason = std::exchange(reason, std::nullopt);
      const bool end = ending;
      lock.unlock();
      if (newPart)
        bring(std::move(*newPart));
      if (newReason)
        giveUp(*newReason);
      if (end && !leaving) {
        leaving = true;
        lastMoment = Clock::now() + seconds(farewellSeconds);
        leave();
      }
      const bool more = serve();
      lock.lock();
      if (mustTell && !reason && !mustWrite()) {
        mustTell = false;
        changed.notify_all();
      }
      if (leaving && (!more || Clock::now() >= *lastMoment))
        return;
      if (part || reason || (ending && !leaving))
        continue;
    }
    std::vector<pollfd> entries = {{wakeup.get(), POLLIN, 0}};
    watch(entries);
    // Half of a beat: deadlines are met well enough.
    poll(entries.data(), entries.size(), static_cast<int>(options.beatSeconds * 500) + 1);
    uint64_t count = 0;
    (void)!read(wakeup.get(), &count, sizeof count);
  }
}

} // namespace fusion
