#include "ir/base/TemporaryPath.h"

#include <filesystem>
#include <mutex>
#include <set>

namespace fusion {

namespace {
struct Paths {
  std::mutex mutex;
  std::multiset<std::string> names;
  static Paths &instance() {
    static Paths *paths = new Paths; // lives as long as any thread that may ask
    return *paths;
  }
};
} // namespace

TemporaryPath::TemporaryPath(std::string path) : name(std::move(path)) {
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  paths.names.insert(name);
}

TemporaryPath::~TemporaryPath() {
  std::error_code ignored;
  std::filesystem::remove_all(name, ignored);
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  paths.names.erase(paths.names.find(name));
}

void removeTemporaryPaths() {
  Paths &paths = Paths::instance();
  std::lock_guard lock(paths.mutex);
  std::error_code ignored;
  for (const std::string &name : paths.names)
    std::filesystem::remove_all(name, ignored);
}

} // namespace fusion
