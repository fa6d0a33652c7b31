// A bundle's folder: the manifest, a zero byte, the plan, whose digest the manifest gets, so that more than
// the digest is read.
#include "Target.h"

#include "ir/base/Hash.h"
#include "ir/base/TemporaryPath.h"
#include "runtime/Bundle.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fusion;
namespace fs = std::filesystem;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const TemporaryPath folder(
      (fs::temp_directory_path() / ("fusion-fuzz-bundle." + std::to_string(getpid()))).string());
  fs::create_directories(folder.path() + "/kernels");
  const std::string text(fuzz::textOf(data, size));
  const size_t end = std::min(text.find('\0'), text.size());
  std::string manifest = text.substr(0, end), plan = text.substr(std::min(end + 1, text.size()));
  if (const size_t place = manifest.find("@plan@"); place != std::string::npos)
    manifest.replace(place, 6, contentHash(plan));
  auto write = [&](const std::string &name, const std::string &contents) {
    std::ofstream(folder.path() + "/" + name, std::ios::binary) << contents;
  };
  write("bundle.json", manifest);
  write("plan.json", plan);
  write("weights.bin", std::string(16, 'w'));
  write("kernels/0.cubin", "\x7f"
                           "ELF");
  if (const auto bundle = readBundle(folder.path()); !bundle)
    fuzz::checkError(bundle.error());
  return 0;
}
