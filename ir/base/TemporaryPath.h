// Files and folders that are gone when the program ends, also when it is told to end.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <sys/types.h>

namespace fusion {

/// What is at `path` is removed with this object, or by removeTemporaryPaths(); nothing need be there.
/// `AndLonger`: so is everything beside it whose name begins like that, as compilers name what they write
/// first.
class TemporaryPath {
public:
  enum Names { Exactly, AndLonger };
  explicit TemporaryPath(std::string path, Names names = Exactly);
  ~TemporaryPath();
  TemporaryPath(const TemporaryPath &) = delete;
  TemporaryPath &operator=(const TemporaryPath &) = delete;
  const std::string &path() const { return name; }

private:
  std::string name;
  Names names;
};

/// A process that writes such files, and ends before them when the program is told to end.
class TemporaryProcess {
public:
  /// `start` makes the process and gives 0, or an errno.
  explicit TemporaryProcess(const std::function<int(pid_t &)> &start);
  ~TemporaryProcess();
  TemporaryProcess(const TemporaryProcess &) = delete;
  TemporaryProcess &operator=(const TemporaryProcess &) = delete;
  int error() const { return code; }
  /// What waitpid() says of its end; call it once, if there is no error().
  int wait();

private:
  pid_t process = 0;
  int code = 0;
};

/// Of a program that is about to end: whoever makes or removes such a path or process afterwards waits for
/// the end. Not in a signal handler.
void removeTemporaryPaths();

/// From now on SIGINT, SIGTERM, SIGHUP and `others` end the program after removeTemporaryPaths(). Call it
/// where there is one thread; those that it starts later are not interrupted either.
void removeTemporaryPathsAtSignals(std::initializer_list<int> others = {});

/// Ends the program with `code` in the same way, once removeTemporaryPathsAtSignals() was called. Also in a
/// signal handler.
[[noreturn]] void endAfterRemoval(int code);

/// In a process that was forked: what the other one makes is not this one's to remove.
void forgetTemporaryPaths();

} // namespace fusion
