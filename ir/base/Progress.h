// How far long work has come, for a person, on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace fusion {

/// After setQuiet(true) no Progress prints anything. Set it before the work starts.
void setQuiet(bool quiet);
bool isQuiet();
/// A line on stderr, unless nothing shall be printed.
void note(const std::string &line);

/// Gets the steps of every Progress instead of stderr, on any thread; those of one Progress in order. An
/// empty one: stderr again. setQuiet() holds for it too.
using ProgressSink =
    std::function<void(std::string_view title, std::string_view name, int64_t done, int64_t total)>;
void setProgressSink(ProgressSink sink);

/// On a terminal a bar that is redrawn in place; elsewhere a line a step, of many steps of some. Several
/// threads may step one object; two objects should not live at once on a terminal.
class Progress {
public:
  using Time = std::chrono::steady_clock::time_point;

  /// `total` steps; 0 if unknown. Steps before `printFrom` are not printed; a sink gets them all the same.
  Progress(std::string title, int64_t total, Time printFrom = Time::min());
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// One more step is done, or begins: `name` says which.
  void step(std::string_view name);

private:
  void draw(std::string_view name);

  std::string title;
  int64_t total;
  int64_t done = 0;
  bool terminal, printed = false;
  Time printFrom, started, lastDrawn;
  std::mutex mutex;
};

} // namespace fusion
