#include "Trials.h"

#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"
#include "ir/base/TemporaryPath.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fusion::fuzz {

/// A process that checks a graph.
struct Trials::Trial {
  Trial(uint64_t seed, std::string path) : seed(seed), file(std::move(path)) {}
  ~Trial() {
    if (output >= 0)
      close(output);
    if (process > 0) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
  }
  Trial(const Trial &) = delete;
  Trial &operator=(const Trial &) = delete;

  uint64_t seed;
  TemporaryPath file;
  int output = -1;    ///< where it says its outcome
  pid_t process = -1; ///< negative: none that is to be waited for
  std::string said;   ///< so far
};

Trials::Trials(Check check, unsigned threads) : check(std::move(check)), threads(threads) {}
Trials::~Trials() = default;

/// The other process's part.
[[noreturn]] static void answer(const Check &check, const std::string &path, uint64_t seed, unsigned seconds,
                                unsigned threads, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  alarm(seconds);
  setQuiet(true);
  setenv("FUSION_THREADS", std::to_string(threads).c_str(), /*overwrite=*/0);
  std::string said;
  const Status status = check(path, seed, said);
  said += "\n" + (status ? std::string() : status.error().message);
  (void)!write(output, said.data(), said.size());
  _exit(status ? 0 : static_cast<int>(status.error().kind));
}

Status Trials::start(const std::string &text, uint64_t seed) {
  std::error_code failure;
  const auto temporary = std::filesystem::temp_directory_path(failure);
  if (failure)
    return environment("there is no folder for temporary files; set TMPDIR");
  static unsigned number = 0;
  auto trial = std::make_unique<Trial>(
      seed, (temporary / fmt::format("fusion-fuzz-{}-{}.mlir", getpid(), number++)).string());
  if (Status status = writeFileAtomically(trial->file.path(), text); !status)
    return environment(status.error().message + "; set TMPDIR");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) // compilers that the process starts would keep it open
    return environment(std::string("no pipe: ") + std::strerror(errno));
  trial->output = ends[0];
  trial->process = fork();
  if (trial->process == 0)
    answer(check, trial->file.path(), seed, mostSeconds, threads, ends[1]);
  close(ends[1]);
  if (trial->process < 0)
    return environment(std::string("no process: ") + std::strerror(errno));
  trials.push_back(std::move(trial));
  return {};
}

Result<std::pair<uint64_t, Outcome>> Trials::next() {
  for (;;) {
    std::vector<pollfd> outputs;
    for (const auto &trial : trials)
      outputs.push_back({trial->output, POLLIN, 0});
    if (poll(outputs.data(), outputs.size(), -1) < 0 && errno != EINTR)
      return environment(std::string("waiting for processes: ") + std::strerror(errno));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].revents == 0)
        continue;
      char bytes[4096];
      const ssize_t length = read(outputs[i].fd, bytes, sizeof bytes);
      if (length > 0)
        trials[i]->said.append(bytes, static_cast<size_t>(length));
      if (length > 0 || (length < 0 && errno == EINTR))
        continue;
      const std::unique_ptr<Trial> ended = std::move(trials[i]);
      trials.erase(trials.begin() + static_cast<ptrdiff_t>(i));
      Result<Outcome> outcome = outcomeOf(*ended);
      if (!outcome)
        return outcome.error();
      return std::pair(ended->seed, std::move(*outcome));
    }
  }
}

Result<Outcome> Trials::outcomeOf(Trial &trial) {
  int status = 0;
  waitpid(trial.process, &status, 0);
  trial.process = -1;
  const size_t line = trial.said.find('\n');
  Outcome outcome{trial.said.substr(0, line), line == std::string::npos ? "" : trial.said.substr(line + 1)};
  if (WIFSIGNALED(status))
    outcome.problem = WTERMSIG(status) == SIGALRM ? fmt::format("no answer after {} s", mostSeconds)
                                                  : fmt::format("ended by signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) == static_cast<int>(ErrorKind::Environment))
    return environment(outcome.problem);
  else if (WEXITSTATUS(status) != 0 && outcome.problem.empty())
    outcome.problem = "failed";
  return outcome;
}

} // namespace fusion::fuzz
