// Kernels of tests that run when the test program ends: compilers take many at a time in little more than the
// time of one.
#pragma once

#include "codegen/target/TargetInfo.h"
#include "ir/base/Safetensors.h"
#include "runtime/Backend.h"

#include <array>
#include <string>
#include <vector>

namespace fusion::test {

/// A kernel, and what it must make.
struct DeferredCase {
  std::string test; ///< its name and module: what fails says it
  KernelPlan kernel;
  std::vector<Tensor> expected;
  double tolerance = 0; ///< ScheduleCase
};

/// A launch in emulation.
struct EmulatedRun : DeferredCase {
  std::vector<std::array<uint64_t, Backend::tensorMapWords>>
      values; ///< of the arguments: addresses, sizes, tensor maps
  uint32_t grid[3] = {};
  std::vector<Tensor> arguments, outputs; ///< memory that `values` points to
};

/// A launch on the GPU: a program of one kernel, with its outputs "out0", "out1", ….
struct DeviceRun : DeferredCase {
  ProgramPlan plan;
  NamedTensors inputs;
};

/// What the GPU that kernels run on is; null if there is none.
const TargetInfo *deviceTarget();

void runLater(EmulatedRun run);
void runLater(DeviceRun run);
/// Compiles, runs and compares all that is put off. The end of the test program does it too.
void runDeferred();

} // namespace fusion::test
