// One way to run a sample on either machine: emulated, or a real GPU where there is one.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Result.h"

#include <gtest/gtest.h>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace fusion::samples {

enum class Machine { Emulated, Cuda };
inline std::ostream &operator<<(std::ostream &out, Machine machine) {
  return out << (machine == Machine::Emulated ? "Emulated" : "Cuda");
}

/// A kernel argument: memory that is copied to the machine and back, or an integer.
struct Argument {
  template <class T>
  Argument(std::vector<T> &values) : memory(values.data()), bytes(values.size() * sizeof(T)) {}
  Argument(int64_t value) : value(value) {}
  void *memory = nullptr;
  size_t bytes = 0;
  int64_t value = 0;
};

struct Grid {
  uint32_t x = 1, y = 1, z = 1;
};

/// Why tests for this machine cannot run here; empty when they can.
std::string whyAbsent(Machine machine);

/// Compiled kernels, launched one after the other.
class Kernels {
public:
  virtual ~Kernels() = default;
  virtual Status launch(size_t kernel, Grid grid, std::initializer_list<Argument> arguments) = 0;
};
Result<std::unique_ptr<Kernels>> compileFor(Machine machine, std::span<const KernelPlan> plans);

/// Tests with this base run once on each machine.
class OnMachine : public testing::TestWithParam<Machine> {
protected:
  void SetUp() override {
    if (std::string reason = whyAbsent(GetParam()); !reason.empty())
      GTEST_SKIP() << reason;
  }
  /// Compiles and launches one kernel; a failure fails the test.
  void run(const KernelPlan &plan, Grid grid, std::initializer_list<Argument> arguments) {
    auto kernels = compileFor(GetParam(), std::span(&plan, 1));
    ASSERT_TRUE(kernels) << kernels.error().message;
    Status status = (*kernels)->launch(0, grid, arguments);
    ASSERT_TRUE(status) << status.error().message;
  }
};

} // namespace fusion::samples
