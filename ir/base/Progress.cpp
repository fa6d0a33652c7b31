#include "ir/base/Progress.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace fusion {

namespace {
std::atomic<bool> quietFlag = false;
std::mutex sinkMutex;
std::shared_ptr<const ProgressSink> sinkOfSteps;

std::shared_ptr<const ProgressSink> currentSink() {
  std::lock_guard lock(sinkMutex);
  return sinkOfSteps;
}
constexpr int64_t fewLines = 10;

size_t terminalWidth() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void writeLine(const std::string &line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}
} // namespace

void setQuiet(bool quiet) { quietFlag = quiet; }
bool isQuiet() { return quietFlag; }

void setProgressSink(ProgressSink sink) {
  auto kept = sink ? std::make_shared<const ProgressSink>(std::move(sink)) : nullptr;
  std::lock_guard lock(sinkMutex);
  sinkOfSteps.swap(kept);
}

void note(const std::string &line) {
  if (!isQuiet())
    writeLine(line + "\n");
}

Progress::Progress(std::string title, int64_t total, Time printFrom)
    : title(std::move(title)), total(total), terminal(isatty(STDERR_FILENO) == 1), printFrom(printFrom),
      started(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (isQuiet() || !terminal || !printed || currentSink())
    return;
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  writeLine(fmt::format("\r\033[K{}: {} in {:.1f} s\n", title, done, seconds.count()));
}

void Progress::step(std::string_view name) {
  std::lock_guard lock(mutex);
  ++done;
  if (isQuiet())
    return;
  if (auto sink = currentSink())
    return (*sink)(title, name, done, total);
  if (std::chrono::steady_clock::now() < printFrom)
    return;
  const bool first = !std::exchange(printed, true);
  if (!terminal) {
    // A few lines of a long list: its first, its last, and some between.
    if (total > fewLines && !first && done < total && done * 8 / total == (done - 1) * 8 / total)
      return;
    writeLine(total > 0 ? fmt::format("{} [{}/{}] {}\n", title, done, total, name)
                        : fmt::format("{} [{}] {}\n", title, done, name));
    return;
  }
  draw(name);
}

void Progress::draw(std::string_view name) {
  auto now = std::chrono::steady_clock::now();
  // Drawing thousands of quick steps would cost more than the steps.
  if (done != total && now - lastDrawn < std::chrono::milliseconds(50))
    return;
  lastDrawn = now;
  constexpr int64_t barWidth = 24;
  std::string line;
  if (total > 0) {
    int64_t filled = std::clamp<int64_t>(done * barWidth / total, 0, barWidth);
    line = fmt::format("{} [{:#<{}}{: <{}}] {}/{} {}", title, "", filled, "", barWidth - filled, done, total,
                       name);
  } else {
    line = fmt::format("{} [{}] {}", title, done, name);
  }
  line.resize(std::min(line.size(), terminalWidth() - 1));
  writeLine(fmt::format("\r\033[K{}", line));
}

} // namespace fusion
