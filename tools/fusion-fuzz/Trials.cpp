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
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace fusion::fuzz {

/// A process that checks graphs.
struct Trials::Trial {
  Trial() = default;
  ~Trial() { stop(); }
  Trial(const Trial &) = delete;
  Trial &operator=(const Trial &) = delete;

  void stop() {
    if (output >= 0)
      close(output);
    if (process > 0) {
      kill(process, SIGTERM);
      waitpid(process, nullptr, 0);
    }
    output = process = -1;
    said.clear();
  }

  struct File {
    File(uint64_t seed, std::string name) : seed(seed), path(std::move(name)) {}
    uint64_t seed;
    TemporaryPath path;
  };
  std::deque<File> files; ///< the first is being checked
  int output = -1;        ///< where it says each one's outcome
  pid_t process = -1;     ///< negative: none that is to be waited for
  std::string said;       ///< of the first, so far
};

Trials::Trials(Check check, unsigned threads) : check(std::move(check)), threads(threads) {}
Trials::~Trials() = default;

/// An outcome as it is written: how long it is, the kind of the error, the fusions, the problem.
static std::string message(const Status &status, const std::string &fired) {
  const std::string text = fmt::format("{}\n{}\n{}", status ? 0 : static_cast<int>(status.error().kind),
                                       fired, status ? "" : status.error().message);
  return fmt::format("{}\n{}", text.size(), text);
}

/// Takes the first message out of `said`; nothing if it is not whole yet.
static std::optional<std::string> takeMessage(std::string &said) {
  const size_t line = said.find('\n');
  const size_t length = std::strtoull(said.c_str(), nullptr, 10);
  if (line == std::string::npos || said.size() - line - 1 < length)
    return std::nullopt;
  std::string text = said.substr(line + 1, length);
  said.erase(0, line + 1 + length);
  return text;
}

/// The other process's part.
[[noreturn]] static void answer(const Check &check,
                                const std::vector<std::pair<uint64_t, std::string>> &files, unsigned seconds,
                                unsigned threads, int output) {
  forgetTemporaryPaths();
  removeTemporaryPathsAtSignals({SIGALRM}); // which compilers write
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setQuiet(true);
  setenv("FUSION_THREADS", std::to_string(threads).c_str(), /*overwrite=*/0);
  for (const auto &[seed, path] : files) {
    alarm(seconds);
    std::string fired;
    const Status status = check(path, seed, fired);
    const std::string said = message(status, fired);
    (void)!write(output, said.data(), said.size());
    if (!status) // which may have left something behind
      break;
  }
  _exit(0);
}

Status Trials::start(const std::vector<GraphText> &graphs) {
  std::error_code failure;
  const auto temporary = std::filesystem::temp_directory_path(failure);
  if (failure)
    return environment("there is no folder for temporary files; set TMPDIR");
  static unsigned number = 0;
  auto trial = std::make_unique<Trial>();
  for (const auto &[seed, text] : graphs) {
    trial->files.emplace_back(
        seed, (temporary / fmt::format("fusion-fuzz-{}-{}.mlir", getpid(), number++)).string());
    const std::string_view parts[] = {text};
    if (Status status = writeFileAtomically(trial->files.back().path.path(), parts, {.syncs = false});
        !status)
      return environment(status.error().message + "; set TMPDIR");
  }
  if (Status status = launch(*trial); !status)
    return status;
  trials.push_back(std::move(trial));
  return {};
}

Status Trials::launch(Trial &trial) {
  trial.stop();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) // compilers that the process starts would keep it open
    return environment(std::string("no pipe: ") + std::strerror(errno));
  trial.output = ends[0];
  std::vector<std::pair<uint64_t, std::string>> files;
  for (const Trial::File &file : trial.files)
    files.emplace_back(file.seed, file.path.path());
  trial.process = fork();
  if (trial.process == 0)
    answer(check, files, mostSeconds, threads, ends[1]);
  close(ends[1]);
  if (trial.process < 0)
    return environment(std::string("no process: ") + std::strerror(errno));
  return {};
}

/// Of a message: the kind of the error, the fusions, the problem.
static std::pair<Outcome, ErrorKind> outcomeIn(const std::string &text) {
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  Outcome outcome{text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  const int kind = std::atoi(text.c_str());
  if (kind != 0 && outcome.problem.empty())
    outcome.problem = "failed";
  return {outcome, static_cast<ErrorKind>(kind)};
}

/// Of a process that said nothing more.
static Outcome ending(pid_t process, unsigned mostSeconds) {
  int status = 0;
  waitpid(process, &status, 0);
  if (!WIFSIGNALED(status))
    return {"", "ended without an answer"};
  return {"", WTERMSIG(status) == SIGALRM ? fmt::format("no answer after {} s", mostSeconds)
                                          : fmt::format("ended by signal {}", WTERMSIG(status))};
}

Result<std::pair<uint64_t, Outcome>> Trials::next() {
  for (;;) {
    std::vector<pollfd> outputs;
    for (const auto &trial : trials) {
      if (const std::optional<std::string> text = takeMessage(trial->said)) {
        const auto [outcome, kind] = outcomeIn(*text);
        if (kind == ErrorKind::Environment && !hasAnswered)
          return environment(outcome.problem);
        hasAnswered = true;
        return finish(outputs.size(), outcome);
      }
      outputs.push_back({trial->output, POLLIN, 0});
    }
    if (poll(outputs.data(), outputs.size(), -1) < 0 && errno != EINTR)
      return environment(std::string("waiting for processes: ") + std::strerror(errno));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].revents == 0)
        continue;
      char bytes[4096];
      const ssize_t length = read(outputs[i].fd, bytes, sizeof bytes);
      if (length > 0)
        trials[i]->said.append(bytes, static_cast<size_t>(length));
      else if (length == 0 || errno != EINTR) {
        hasAnswered = true;
        return finish(i, ending(std::exchange(trials[i]->process, -1), mostSeconds));
      }
    }
  }
}

Result<std::pair<uint64_t, Outcome>> Trials::finish(size_t which, const Outcome &outcome) {
  Trial &trial = *trials[which];
  const uint64_t seed = trial.files.front().seed;
  trial.files.pop_front();
  if (trial.files.empty())
    trials.erase(trials.begin() + static_cast<ptrdiff_t>(which));
  else if (!outcome.problem.empty()) // the process has ended
    if (Status status = launch(trial); !status)
      return status.error();
  return std::pair(seed, outcome);
}

} // namespace fusion::fuzz
