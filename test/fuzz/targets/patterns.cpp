// A file of patterns as PDL text; .pdll files become such text in a program of LLVM's.
#include "Target.h"

#include "api/Lower.h"
#include "ir/base/TemporaryPath.h"
#include "patterns/PatternSet.h"

#include <filesystem>
#include <unistd.h>

using namespace fusion;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const TemporaryPath file((std::filesystem::temp_directory_path() /
                                   ("fusion-fuzz-patterns." + std::to_string(getpid()) + ".mlir"))
                                      .string());
  if (!writeFileAtomically(file.path(), fuzz::textOf(data, size)))
    return 0;
  const auto context = makeContext();
  PatternSet patterns;
  if (const Status status = patterns.addFile(file.path(), context.get()); !status)
    fuzz::checkError(status.error());
  return 0;
}
