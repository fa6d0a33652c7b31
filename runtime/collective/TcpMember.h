// One rank of a TcpRendezvous: what its thread shares with the caller's. Internal.
#pragma once

#include "runtime/collective/Connection.h"
#include "runtime/collective/TcpRendezvous.h"

#include <condition_variable>
#include <mutex>
#include <poll.h>
#include <thread>

namespace fusion {

inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

/// "node7, process 4711": this process, for people.
std::string ownName();

/// How a rank introduces itself to rank 0.
struct Hello {
  std::string group, name;
  int rank = 0, ranks = 0;
  std::string challenge; ///< random, which rank 0 must answer
  std::string text() const;
  static std::optional<Hello> parse(const std::string &text);
};
constexpr size_t mostHelloBytes = 4096;
constexpr size_t challengeBytes = 32;

/// `text` with a code in front of it that needs the secret, the challenge that it answers and who answers.
enum class Side : char { Rank = 'r', Hub = 'h' };
std::string signedText(const std::string &secret, Side side, std::string_view challenge,
                       std::string_view text);
/// The text of what signedText() made with the same arguments; nothing if it was made in another way.
std::optional<std::string> verifiedText(const std::string &secret, Side side, std::string_view challenge,
                                        std::string_view bytes);

std::string packAll(const std::vector<std::string> &parts);
std::optional<std::vector<std::string>> unpackAll(std::string_view bytes, int ranks);

/// All connections belong to a thread, which the caller's tells what to do.
class TcpMember : public Rendezvous {
public:
  TcpMember(const LaunchedRank &place, const TcpRendezvousOptions &options);
  int rank() const override { return place.rank; }
  int ranks() const override { return place.ranks; }
  Result<std::vector<std::string>> gather(const std::string &bytes) override;
  void abandon(const std::string &reason) override;
  Status check() override;
  /// Starts the thread and waits until all ranks are there.
  Status start();

protected:
  /// Of what derives, before its connections go: says good-bye and ends the thread.
  void end();

  // In the thread:
  virtual void watch(std::vector<pollfd> &entries) = 0;
  /// Reads, answers and writes what can be, and looks at the time. After leave() too, until it returns false.
  virtual bool serve() = 0;
  virtual void bring(std::string part) = 0;
  virtual void giveUp(const std::string &reason) = 0;
  virtual void leave() = 0;
  virtual bool mustWrite() const = 0;

  /// Whether the caller is in gather() and has no answer yet.
  bool isGathering();
  void setStarted();
  void setAll(std::vector<std::string> all);
  void setFailure(const std::string &message);
  /// A frame for every `beatSeconds`, and false after `silenceSeconds` of nothing.
  bool keepAlive(Connection &connection) const;

  const LaunchedRank place;
  const TcpRendezvousOptions options;
  bool leaving = false; ///< the thread's

private:
  void loop();
  void wake();

  Descriptor wakeup;
  std::thread thread;
  std::mutex mutex; ///< for what follows
  std::condition_variable changed;
  bool started = false, gathering = false, ending = false, mustTell = false;
  std::optional<std::string> part;
  std::optional<std::vector<std::string>> all;
  std::optional<std::string> reason;
  std::optional<Error> failure;
};

/// Rank 0, to which all others are connected.
std::unique_ptr<TcpMember> makeTcpHub(const LaunchedRank &place, const TcpRendezvousOptions &options,
                                      std::vector<Descriptor> listeners);
/// One of the others, connected and welcome.
std::unique_ptr<TcpMember> makeTcpSpoke(const LaunchedRank &place, const TcpRendezvousOptions &options,
                                        Connection connection, std::string hubName);

} // namespace fusion
