// The CUDA runtime compiler, opened while the program runs. Needs neither a GPU nor a driver.
#pragma once

#include "runtime/cuda/NvrtcProcess.h"

#include <map>
#include <string>

namespace fusion {

/// The oldest NVRTC that is supported: the first with every architecture family that kernels are written for.
/// Tests run with the newest; `scripts/test.sh --nvrtc=12.8` runs them with this one. Kernels spill no
/// register with either.
inline constexpr int oldestNvrtc[] = {12, 8};

/// What ptxas says of a kernel.
struct KernelResources {
  std::string log;     ///< the compiler's messages, ptxas's included
  int registers = -1;  ///< a thread's; -1 if ptxas did not say
  int spillBytes = -1; ///< stores plus loads; 0 is what every kernel should have; -1 if ptxas did not say
};

/// A kernel, and the module that it is in, perhaps beside others.
struct Cubin : KernelResources {
  std::string bytes;
};

/// Several kernels that were compiled as one program.
struct CubinModule {
  std::string bytes;
  std::map<std::string, KernelResources> kernels; ///< by the names of their entry points
};

class Nvrtc {
public:
  /// The process's one instance. Looks in FUSION_NVRTC (a file), FUSION_NVRTC_DIR, FUSION_CUDA_HOME,
  /// CUDA_HOME, CUDA_PATH, the folder that set-up recorded, the loader's path and /usr/local/cuda.
  static Result<Nvrtc *> instance();
  /// A new one, found in the same way. Errors (Environment): there is none, or it is older than oldestNvrtc.
  static Result<Nvrtc> open();
  /// "13.0".
  std::string version() const;
  const std::string &path() const { return library.path(); }
  /// `arch` is "sm_90" etc.; sm_90 is compiled as sm_90a. sm_103 needs NVRTC 12.9 (Environment). An error
  /// carries the compiler's log, the line of the first message first. Thread-safe. What spills is compiled
  /// again with FUSION_ALL_REGISTERS, and the better is kept: from 13.1 on the assembler takes 32 or 48
  /// registers for some kernels of 256 threads, spills 8 to 100 bytes, and needs 44 to 91 to spill none, that
  /// is fewer blocks on a multiprocessor for these few kernels.
  /// `process`: where it is compiled; null: in this process.
  Result<Cubin> compile(const std::string &source, const std::string &name, const std::string &arch,
                        NvrtcProcess *process = nullptr) const;
  /// A program of several kernels. Nothing is compiled again: what spills wants compile() by itself.
  Result<CubinModule> compileModule(const std::string &source, const std::string &name,
                                    const std::string &arch, NvrtcProcess *process = nullptr) const;
  /// Everything besides the source that decides what compile() returns: a part of cache keys.
  std::string fingerprint(const std::string &arch) const;

private:
  explicit Nvrtc(NvrtcLibrary library) : library(std::move(library)) {}
  /// The cubin, and the log of the whole program.
  struct Output {
    std::string bytes, log;
  };
  Result<Output> compileProgram(const std::string &source, const std::string &name, const std::string &arch,
                                const char *definition, NvrtcProcess *process) const;
  Result<Cubin> compileOnce(const std::string &source, const std::string &name, const std::string &arch,
                            const char *definition, NvrtcProcess *process) const;
  NvrtcLibrary library;
};

} // namespace fusion
