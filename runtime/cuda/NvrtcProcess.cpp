#include "runtime/cuda/NvrtcProcess.h"

#include "runtime/cuda/Hints.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ; // NOLINT(readability-redundant-declaration)

namespace fusion {

/// Calls `move(done, left)`, a `send` or `recv`, until all bytes are moved. False if the other side is gone.
template <class Move> static bool moveAll(size_t count, Move move) {
  for (size_t done = 0; done < count;) {
    const ssize_t moved = move(done, count - done);
    if (moved < 0 && errno == EINTR)
      continue;
    if (moved <= 0)
      return false;
    done += static_cast<size_t>(moved);
  }
  return true;
}

static bool sendBytes(int socket, const void *from, size_t count) {
  return moveAll(count, [&](size_t done, size_t left) {
    return send(socket, static_cast<const char *>(from) + done, left, MSG_NOSIGNAL);
  });
}

static bool receiveBytes(int socket, void *to, size_t count) {
  return moveAll(count, [&](size_t done, size_t left) {
    return recv(socket, static_cast<char *>(to) + done, left, 0);
  });
}

bool sendTexts(int socket, std::span<const std::string> texts) {
  std::vector<uint64_t> sizes = {texts.size()};
  for (const std::string &text : texts)
    sizes.push_back(text.size());
  if (!sendBytes(socket, sizes.data(), sizes.size() * sizeof(uint64_t)))
    return false;
  for (const std::string &text : texts)
    if (!sendBytes(socket, text.data(), text.size()))
      return false;
  return true;
}

std::optional<std::vector<std::string>> receiveTexts(int socket) {
  constexpr uint64_t mostTexts = 64, mostBytes = uint64_t(1) << 32; // what nobody sends
  uint64_t count = 0;
  if (!receiveBytes(socket, &count, sizeof count) || count > mostTexts)
    return std::nullopt;
  std::vector<uint64_t> sizes(count);
  if (!receiveBytes(socket, sizes.data(), count * sizeof(uint64_t)))
    return std::nullopt;
  std::vector<std::string> texts;
  for (const uint64_t size : sizes) {
    if (size > mostBytes)
      return std::nullopt;
    if (!receiveBytes(socket, texts.emplace_back(size, '\0').data(), size))
      return std::nullopt;
  }
  return texts;
}

void answerNvrtcRequests(const NvrtcLibrary &nvrtc, int socket, int idleMilliseconds) {
  pollfd next = {socket, POLLIN, 0};
  while (poll(&next, 1, idleMilliseconds) > 0) {
    auto texts = receiveTexts(socket);
    if (!texts || texts->size() < 2)
      return;
    NvrtcRequest request{(*texts)[0], (*texts)[1], {texts->begin() + 2, texts->end()}};
    NvrtcAnswer answer = nvrtc.compile(request);
    const std::string parts[] = {std::move(answer.error), std::move(answer.log), std::move(answer.cubin)};
    if (!sendTexts(socket, parts))
      return;
  }
}

std::string NvrtcProcess::program() {
  auto isProgram = [](const std::string &file) { return access(file.c_str(), X_OK) == 0; };
  if (std::string named = environmentVariable("FUSION_NVRTC_PROCESS"); !named.empty())
    return named != "0" && isProgram(named) ? named : "";
  std::vector<std::string> folders;
  const std::filesystem::path own = std::filesystem::path(ownFile()).parent_path();
  for (const char *place : {"", "bin", "../bin", "../libexec/fusion", "../../libexec/fusion"})
    folders.push_back((own / place).string());
  if (const char *hint = programsHint())
    folders.emplace_back(hint);
  for (const std::string &folder : folders)
    if (std::string file = folder + "/" + nvrtcProgramName; isProgram(file))
      return file;
  return "";
}

bool NvrtcProcess::start() {
  std::string file = program();
  int ends[2];
  if (file.empty() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return false;
  std::string version = nvrtcMessageVersion;
  char *const arguments[] = {file.data(), version.data(), library.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  // Whoever waits for signals in a thread blocks them: the process is to end by them. Those that a terminal
  // sends are this process's business, which may go on.
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  process = std::make_unique<TemporaryProcess>([&](pid_t &child) {
    return posix_spawn(&child, file.c_str(), &actions, &attributes, arguments, environ);
  });
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (process->error() == 0) {
    socket = ends[0];
    return true;
  }
  close(ends[0]);
  process.reset();
  return false;
}

std::optional<NvrtcAnswer> NvrtcProcess::compile(const NvrtcRequest &request) {
  std::vector<std::string> texts = {request.source, request.file};
  texts.insert(texts.end(), request.options.begin(), request.options.end());
  // One that has waited may have ended meanwhile: then another one is asked.
  for (bool waited = socket >= 0;; waited = false) {
    if (cannotStart || (socket < 0 && !start())) {
      cannotStart = true;
      return std::nullopt;
    }
    auto answer = sendTexts(socket, texts) ? receiveTexts(socket) : std::nullopt;
    if (answer && answer->size() == 3)
      return NvrtcAnswer{(*answer)[0], (*answer)[1], (*answer)[2]};
    hangUp();
    const int status = process->wait();
    process.reset();
    if (waited)
      continue;
    if (WIFSIGNALED(status))
      return NvrtcAnswer{fmt::format("its process was ended by signal {}", WTERMSIG(status)), {}, {}};
    cannotStart = true; // it could not open the library, or speaks another version
  }
}

void NvrtcProcess::hangUp() {
  close(socket); // at which it ends
  socket = -1;
}

NvrtcProcess::~NvrtcProcess() {
  if (socket >= 0)
    hangUp();
  if (process)
    process->wait();
}

namespace {
/// Those that wait. Never destroyed: at the end of this process they see that it is gone.
struct Waiting {
  std::mutex mutex;
  std::vector<std::unique_ptr<NvrtcProcess>> processes;
  std::atomic<bool> any = false;
  const pid_t owner = getpid(); ///< a process that was forked has none of them
  static Waiting &here() {
    static auto *waiting = new Waiting;
    return *waiting;
  }
};
} // namespace

std::unique_ptr<NvrtcProcess> NvrtcProcesses::take(const std::string &library) {
  Waiting &waiting = Waiting::here();
  if (waiting.owner == getpid()) {
    std::lock_guard lock(waiting.mutex);
    for (auto place = waiting.processes.begin(); place != waiting.processes.end(); ++place)
      if ((*place)->library == library) {
        std::unique_ptr<NvrtcProcess> found = std::move(*place);
        waiting.processes.erase(place);
        return found;
      }
  }
  return std::make_unique<NvrtcProcess>(library);
}

void NvrtcProcesses::giveBack(std::unique_ptr<NvrtcProcess> process) {
  Waiting &waiting = Waiting::here();
  if (process->socket < 0 || waiting.owner != getpid())
    return;
  std::lock_guard lock(waiting.mutex);
  waiting.processes.push_back(std::move(process));
  waiting.any = true;
}

void NvrtcProcesses::dismiss() {
  Waiting &waiting = Waiting::here();
  if (!waiting.any.load(std::memory_order_relaxed) || waiting.owner != getpid())
    return;
  std::vector<std::unique_ptr<NvrtcProcess>> last;
  {
    std::lock_guard lock(waiting.mutex);
    last.swap(waiting.processes);
    waiting.any = false;
  }
  if (last.empty())
    return;
  for (const auto &process : last)
    process->hangUp();
  std::thread([last = std::move(last)] {}).detach(); // which waits for their end
}

} // namespace fusion
