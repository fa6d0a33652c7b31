// Runs emitted kernels on the host: the same CUDA source, compiled with the host's C++ compiler.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fusion {

namespace emulate {
class KernelLibrary;
}

/// A compiled kernel. May be launched from several threads at once.
class EmulatedKernel {
public:
  ~EmulatedKernel();

  /// Whether the plan is one that can be emulated; compile() checks it too.
  static Status check(const KernelPlan &plan);

  /// Compiles one kernel, or finds it in `cacheFolder` (made if absent; when it cannot be written, a private
  /// temporary folder serves). Processes may share the folder. ErrorKind::Environment when the kernel
  /// cannot be emulated, no compiler is there, or the source does not compile.
  static Result<std::shared_ptr<EmulatedKernel>> compile(const KernelPlan &plan,
                                                         const std::string &cacheFolder);

  /// The same for many, in the order of `plans`, several to a compiler run and runs in parallel. `onCompiled`
  /// gets the name of each kernel that was not in the cache as it becomes ready, and how many there are of
  /// these; from several threads, never at the same time.
  static Result<std::vector<std::shared_ptr<EmulatedKernel>>>
  compileAll(std::span<const KernelPlan> plans, const std::string &cacheFolder,
             const std::function<void(std::string_view, int64_t)> &onCompiled = {});

  /// Runs the whole grid and returns when it is done; a grid with a zero does nothing. `arguments` points at
  /// each argument in the order of the plan's parameters, as for cuLaunchKernel. ErrorKind::AnswerIsNo when
  /// the kernel does what a device would fault or hang on: the message names kernel, block and thread.
  /// Memory that a failed launch wrote stays written.
  Status launch(uint32_t gridX, uint32_t gridY, uint32_t gridZ, void *const *arguments) const;

private:
  struct Code;
  explicit EmulatedKernel(std::unique_ptr<Code> code);
  static std::shared_ptr<EmulatedKernel>
  make(const KernelPlan &plan, std::shared_ptr<emulate::KernelLibrary> library, const std::string &key);

  std::unique_ptr<Code> code;
};

} // namespace fusion
