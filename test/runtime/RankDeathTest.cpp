// Ranks that meet over TCP, as processes of which one dies or falls silent.
#include "TcpRanks.h"

#include "runtime/collective/Connection.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;

namespace {

/// Processes of their own: what each reports (a line) and how it ended, by rank.
class Processes {
public:
  Processes(int ranks, const std::function<std::string(int)> &work) {
    for (int rank = 0; rank < ranks; ++rank) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      pid_t child = fork();
      if (child == 0) {
        const std::string line = work(rank);
        (void)!write(ends[1], line.data(), line.size());
        _exit(0);
      }
      close(ends[1]);
      pipes.emplace_back(ends[0]);
      children.push_back(child);
    }
  }
  ~Processes() {
    for (pid_t child : children)
      kill(child, SIGKILL), waitpid(child, nullptr, 0);
  }
  std::string line(size_t rank) {
    char text[1000];
    if (!waitFor(pipes[rank], false, Clock::now() + std::chrono::seconds(60)))
      return "no answer";
    ssize_t count = read(pipes[rank].get(), text, sizeof text);
    return std::string(text, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  std::vector<pid_t> children;

private:
  std::vector<Descriptor> pipes;
};

void expectTheOthersToName(int victim, int signal, const TcpRendezvousOptions &options,
                           const std::string &why) {
  const std::vector<uint16_t> ports = {freePort()};
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  Processes processes(3, [&](int rank) -> std::string {
    auto joined = joinTcpRendezvous(placeOf(rank, 3, ports), options);
    if (!joined)
      return joined.error().message;
    if (Status met = (*joined)->barrier(); !met)
      return met.error().message;
    (void)!write(ready[1], "x", 1);
    if (rank == victim)
      for (;;)
        pause();
    if (rank == (victim + 1) % 3) { // one waits for the others, one is busy and looks now and then
      auto all = (*joined)->gather("x");
      return all ? "nothing happened" : all.error().message;
    }
    for (int i = 0; i < 3000 && (*joined)->check(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    Status status = (*joined)->check();
    return status ? "nothing happened" : status.error().message;
  });
  char met[3];
  for (char &one : met)
    ASSERT_EQ(read(ready[0], &one, 1), 1);
  const pid_t pid = processes.children[static_cast<size_t>(victim)];
  kill(pid, signal);
  for (int rank = 0; rank < 3; ++rank)
    if (rank != victim) {
      const std::string line = processes.line(static_cast<size_t>(rank));
      EXPECT_TRUE(line.starts_with(fmt::format("rank {} (", victim))) << line;
      EXPECT_NE(line.find(fmt::format("process {}) is gone: {}", pid, why)), std::string::npos) << line;
    }
  close(ready[0]);
  close(ready[1]);
}

TEST(TcpRendezvous, AKilledRankIsNamedByTheOthers) {
  for (int victim = 0; victim < 3; ++victim)
    expectTheOthersToName(victim, SIGKILL, {}, "its connection closed");
}

TEST(TcpRendezvous, ARankThatIsSilentIsNamedByTheOthers) {
  TcpRendezvousOptions options;
  options.beatSeconds = 0.1;
  options.silenceSeconds = 1;
  for (int victim : {0, 1})
    expectTheOthersToName(victim, SIGSTOP, options, "nothing was heard of it for 1 s");
}

} // namespace
