// The file of a cache entry, damaged: it counts as absent, or gives what was stored.
#include "Target.h"

#include "ir/base/TemporaryPath.h"
#include "runtime/KernelCache.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fusion;
namespace fs = std::filesystem;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const TemporaryPath folder(
      (fs::temp_directory_path() / ("fusion-fuzz-cache." + std::to_string(getpid()))).string());
  KernelCache cache(folder.path(), [](const std::string &line) {
    fuzz::check(line.find('\n') == std::string::npos, "not one line", line);
  });
  cache.put("kernel key", "contents");
  for (const auto &entry : fs::directory_iterator(folder.path()))
    if (entry.is_regular_file() && entry.path().filename() != "key")
      std::ofstream(entry.path(), std::ios::binary) << fuzz::textOf(data, size);
  if (const auto found = cache.get("kernel key"))
    fuzz::check(*found == "contents", "another entry", *found);
  return 0;
}
