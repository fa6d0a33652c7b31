// Files and folders that are gone when the program ends, also when it is told to end.
#pragma once

#include <string>

namespace fusion {

/// What is at `path` is removed with this object, or by removeTemporaryPaths(); nothing need be there.
class TemporaryPath {
public:
  explicit TemporaryPath(std::string path);
  ~TemporaryPath();
  TemporaryPath(const TemporaryPath &) = delete;
  TemporaryPath &operator=(const TemporaryPath &) = delete;
  const std::string &path() const { return name; }

private:
  std::string name;
};

/// Of a program that is about to end by a signal. Not in a signal handler.
void removeTemporaryPaths();

} // namespace fusion
