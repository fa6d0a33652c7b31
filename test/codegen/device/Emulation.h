// Shared by the tests that run samples on the host.
#pragma once

#include "runtime/emulate/EmulatedKernel.h"
#include "test/codegen/device/Samples.h"
#include "test/codegen/spills/Spills.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>
#include <vector>

namespace fusion::samples {

/// A folder that goes away.
struct TemporaryFolder {
  std::string path = [] {
    std::string name = (std::filesystem::temp_directory_path() / "fusion-device-XXXXXX").string();
    return mkdtemp(name.data()) ? name : std::string();
  }();
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

inline std::shared_ptr<EmulatedKernel> compiled(const KernelPlan &plan) {
  auto kernel = EmulatedKernel::compile(plan, test::emulationCacheFolder());
  EXPECT_TRUE(kernel) << (kernel ? "" : kernel.error().message);
  return kernel ? *kernel : nullptr;
}

/// Compiles and launches over `grid` blocks in x with pointers and 64-bit integers as arguments.
template <class... Arguments>
Status run(const KernelPlan &plan, uint32_t grid, Arguments... arguments) {
  auto kernel = compiled(plan);
  if (!kernel)
    return badInput("not compiled");
  void *pointers[] = {&arguments...};
  return kernel->launch(grid, 1, 1, pointers);
}

inline std::string messageOf(const Status &status) { return status ? "" : status.error().message; }

} // namespace fusion::samples
