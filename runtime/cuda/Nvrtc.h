// The CUDA runtime compiler, opened while the program runs. Needs neither a GPU nor a driver.
#pragma once

#include "runtime/cuda/Library.h"

#include <mutex>
#include <string>
#include <vector>

namespace fusion {

struct Cubin {
  std::string bytes;
  std::string log;     ///< the compiler's messages, ptxas's included
  int registers = -1;  ///< a thread's; -1 if ptxas did not say
  int spillBytes = -1; ///< stores plus loads; 0 is what every kernel should have; -1 if ptxas did not say
};

class Nvrtc {
public:
  /// The process's one instance. Looks in FUSION_NVRTC (a file), FUSION_NVRTC_DIR, FUSION_CUDA_HOME,
  /// CUDA_HOME, CUDA_PATH, the folder that set-up recorded, the loader's path and /usr/local/cuda.
  static Result<Nvrtc *> instance();
  /// "13.0".
  std::string version() const;
  const std::string &path() const { return library.path(); }
  /// `arch` is "sm_90" etc.; sm_90 is compiled as sm_90a. An error carries the compiler's log, the line of
  /// the first message first. Thread-safe.
  Result<Cubin> compile(const std::string &source, const std::string &name, const std::string &arch) const;
  /// Everything besides the source that decides what compile() returns: a part of cache keys.
  std::string fingerprint(const std::string &arch) const;

private:
  using Program = struct ProgramHandle *;
  explicit Nvrtc(Library library) : library(std::move(library)) {}
  static Result<Nvrtc> open();
  Library library;
  int major = 0, minor = 0;
  int (*getVersion)(int *, int *) = nullptr;
  const char *(*getErrorString)(int) = nullptr;
  int (*createProgram)(Program *, const char *, const char *, int, const char *const *,
                       const char *const *) = nullptr;
  int (*destroyProgram)(Program *) = nullptr;
  int (*compileProgram)(Program, int, const char *const *) = nullptr;
  int (*getCubinSize)(Program, size_t *) = nullptr;
  int (*getCubin)(Program, char *) = nullptr;
  int (*getLogSize)(Program, size_t *) = nullptr;
  int (*getLog)(Program, char *) = nullptr;
};

/// sm_90 → sm_90a, others as they are: the name to compile for.
std::string compilationArch(const std::string &arch);
/// The number in "sm_90a": 90. 0 if the text is no such name.
int archNumber(const std::string &arch);
/// True if a cubin for `arch` runs on a device of compute capability major.minor.
bool cubinRunsOn(const std::string &arch, int major, int minor);

} // namespace fusion
