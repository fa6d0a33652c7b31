// One kernel of a plan, run by itself: against the body of what it computes, and beside an edited one.
#pragma once

#include "api/Fusion.h"
#include "codegen/BuildPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace fusion {

struct TrialGraph {
  mlir::func::FuncOp function; ///< lowered
  const ProgramPlan &plan;     ///< of the function
  PlanOptions options;         ///< with which it was made
  std::string cacheFolder;
};

/// Runs the emitted kernel and the file's in the kernel's place, each in a program that does nothing else,
/// with random inputs. `sizes` are the symbols' values; where there are none, small ones at which the kernel
/// runs are taken. Errors: those of replaceKernels; a kernel that does not compile (BadInput); one that
/// differs from its body (AnswerIsNo), with the size of the error and its place; one that cannot run alone,
/// as it reads or writes memory that it has within the graph only (BadInput).
Result<KernelTrial> tryKernel(const TrialGraph &graph, const KernelFile &file, const SymbolValues &sizes);

} // namespace fusion
