// Takes a graph all the way: lowered, planned, run emulated, compared with the reference, and compiled for
// GPUs.
#pragma once

#include "api/Driver.h"
#include "runtime/KernelCache.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <gtest/gtest.h>

namespace fusion::test {

/// The project's dialects and the toy's.
mlir::MLIRContext &context();
/// `text` with every TYPE replaced. Null, and a failure, if it does not verify.
mlir::OwningOpRef<mlir::ModuleOp> parse(std::string text, const std::string &type = "f32");

/// A graph of one function @main, lowered as `options` say.
class Lowered {
public:
  Lowered(const std::string &text, const std::string &type, CompileOptions options = {});
  explicit operator bool() const { return lowered; }

  /// The kernels agree with the reference for these values of the symbols, and its report says which fused.
  void runsLikeTheReference(const SymbolValues &symbols);
  /// Everything that the verification of fusions checks.
  void isVerified();
  /// NVRTC, if it is there, compiles each kernel for sm_80 and sm_90a.
  void compiles();
  /// The schedules of the plan's kernels, in order, each once.
  std::vector<std::string> schedules();
  /// How often the op stands in a group of that schedule.
  size_t countIn(llvm::StringRef schedule, llvm::StringRef op);
  Report report() const { return driver->report(); }
  const ProgramPlan &plan();

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<Driver> driver;
  std::optional<ProgramPlan> planned;
  bool lowered = false;
};

/// NVRTC, if it is there, compiles the plan's kernels for the target.
void compilesFor(const ProgramPlan &plan, const TargetInfo &target);

/// The plan, run emulated, against the function on the reference.
void runsLike(mlir::func::FuncOp function, const ProgramPlan &plan, const SymbolValues &symbols);

} // namespace fusion::test
