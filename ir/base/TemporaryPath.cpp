#include "ir/base/TemporaryPath.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fusion {

namespace {
struct Paths {
  std::timed_mutex mutex;
  std::multiset<std::pair<std::string, TemporaryPath::Names>> names;
  std::set<pid_t> processes;
  static Paths &instance() {
    static Paths *paths = new Paths; // lives as long as any thread that may ask
    return *paths;
  }
};
} // namespace

static void removeAt(const std::string &path, TemporaryPath::Names names) {
  std::error_code ignored;
  if (names == TemporaryPath::Exactly) {
    std::filesystem::remove_all(path, ignored);
    return;
  }
  const std::filesystem::path whole = path;
  for (std::filesystem::directory_iterator place(whole.parent_path(), ignored), end; place != end;
       place.increment(ignored))
    if (place->path().filename().string().starts_with(whole.filename().string()))
      std::filesystem::remove_all(place->path(), ignored);
}

TemporaryPath::TemporaryPath(std::string path, Names names) : name(std::move(path)), names(names) {
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  paths.names.insert({name, names});
}

TemporaryPath::~TemporaryPath() {
  removeAt(name, names);
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  paths.names.erase(paths.names.find({name, names}));
}

TemporaryProcess::TemporaryProcess(const std::function<int(pid_t &)> &start) {
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  code = start(process);
  if (code == 0)
    paths.processes.insert(process);
}

/// Until the process has ended; its number stays taken.
static void waitForEnd(pid_t process) {
  siginfo_t end;
  while (waitid(P_PID, static_cast<id_t>(process), &end, WEXITED | WNOWAIT) != 0 && errno == EINTR)
    ;
}

int TemporaryProcess::wait() {
  waitForEnd(process);
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  paths.processes.erase(process);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR)
    ;
  process = 0;
  return status;
}

TemporaryProcess::~TemporaryProcess() {
  if (code == 0 && process != 0)
    (void)wait();
}

void removeTemporaryPaths() {
  Paths &paths = Paths::instance();
  // For good: the program ends. The thread that ends it may hold it, where memory ran out in `start`.
  (void)paths.mutex.try_lock_for(std::chrono::seconds(1));
  for (pid_t process : paths.processes)
    kill(process, SIGTERM); // compilers remove what they have begun
  for (pid_t process : paths.processes)
    waitForEnd(process);
  for (const auto &[name, names] : paths.names)
    removeAt(name, names);
}

/// What the program ends with; negative: the signal that it got.
static std::atomic<int> exitCode = -1;

void removeTemporaryPathsAtSignals(std::initializer_list<int> others) {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&signals, number);
  for (int number : others)
    sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] { // an ordinary one: a handler could not remove files
    int number = 0;
    sigwait(&signals, &number);
    removeTemporaryPaths();
    if (const int code = exitCode; code >= 0)
      _exit(code);
    std::signal(number, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    raise(number);
  })
      .detach();
}

void endAfterRemoval(int code) {
  exitCode = code;
  kill(getpid(), SIGTERM);
  while (true)
    pause();
}

void forgetTemporaryPaths() {
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  paths.names.clear();
  paths.processes.clear();
}

} // namespace fusion
