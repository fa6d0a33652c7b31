// Estimates: memory traffic of ops and groups, kernels by layer.
#pragma once

#include "passes/fuse/Candidate.h"

namespace fusion {

/// Bytes moved at given sizes of the symbols: each operand read once, each result written once.
struct Traffic {
  const nn::SymbolicShapes &shapes;
  SymbolValues sizes;
  const ScheduleOracle &oracle;

  double elements(mlir::Value value) const;
  int64_t bytes(mlir::Value value) const;
  /// Of a kernel that reads `inputs` and writes `outputs`. What an output extends in place counts on neither
  /// side.
  int64_t bytes(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Value> outputs) const;
  /// Each op a kernel of its own, but for views.
  int64_t unfused(llvm::ArrayRef<mlir::Operation *> ops) const;
  /// Of the kernel that an op or group becomes.
  int64_t launch(mlir::Operation *op) const;
  /// What `ops` move each by itself, less what they would as one kernel that computes `clones` too.
  int64_t saving(llvm::ArrayRef<mlir::Operation *> ops, llvm::ArrayRef<mlir::Operation *> clones = {}) const;
};

} // namespace fusion
