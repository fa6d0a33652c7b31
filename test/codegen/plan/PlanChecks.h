// Builds the plan of a module, runs it emulated and compares every result with the reference.
#pragma once

#include "codegen/BuildPlan.h"
#include "ir/base/Safetensors.h"
#include "test/codegen/spills/Spills.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <gtest/gtest.h>

#include <string>

namespace fusion::test {

/// With the project's dialects loaded; one for the whole program.
mlir::MLIRContext &context();

/// Parses a module; fails the test and returns null when it does not verify.
mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text);
mlir::func::FuncOp mainOf(mlir::ModuleOp module);

/// Random values: floats about ±3, integers -9 … 9 (unsigned 0 … 18), any i1. The same for the same seed.
Tensor randomTensor(DType type, Shape shape, uint64_t seed);

struct CheckOptions {
  SymbolValues symbols;    ///< sizes of the inputs
  NamedTensors inputs;     ///< instead of random ones
  double tolerance = 1e-6; ///< relative L2, for floats; other types must be equal
  int64_t launches = -1;   ///< how many the plan must have; -1: any number
  std::optional<TargetInfo> device = {}; ///< that the plan is for
  Targets targets =
      Targets::All; ///< that its kernels compile for: One where many kernels differ in a constant or an op
};

/// Plan, emulation (or the GPU where there is one) and reference agree, which shows when the test program
/// ends; with NVRTC at hand every kernel compiles for the targets without spills.
void checkFunction(mlir::func::FuncOp function, const CheckOptions &options);
/// The same for the function @main of a module's text.
void check(const std::string &text, const CheckOptions &options);

/// The plan of the module's @main; fails the test and is empty if there is none.
ProgramPlan planOf(const std::string &text);
/// buildPlan's error for the module's @main; fails the test if there is none.
std::string planError(const std::string &text);

} // namespace fusion::test
