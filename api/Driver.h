// The way of a graph to a plan of kernels: lowered, verified, planned, printed. For those who have the graph
// as a module; others call compile(), explain() or verifyFusions().
#pragma once

#include "api/Fusion.h"
#include "codegen/BuildPlan.h"
#include "passes/RewriteLog.h"
#include "passes/fuse/FusionReport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion {

class ProfitOracle;

/// Works on a module in place. Errors name the file.
class Driver {
public:
  /// `path` is the file that the module was read from. The module must outlive the driver.
  Driver(mlir::ModuleOp module, std::string path, CompileOptions options);

  /// Records every rewrite from here on, for verify().
  void recordRewrites() { recordsRewrites = true; }
  /// Where passes that a caller runs by itself record theirs.
  RewriteLog &rewrites() { return recorded; }

  /// Normalises, raises, divides among ranks and, if the options say so, fuses. `profit` decides between
  /// fusions.
  Status lower(ProfitMode profit);
  /// Checks the recorded rewrites and the kernel of every group and op. See verifyRewrites and verifyKernels.
  Status verify();
  /// The function that runs.
  Result<mlir::func::FuncOp> entry() const;
  /// Made at the first call, after lower().
  Result<const ProgramPlan *> plan() const;
  Result<std::string> print(Emit what) const;
  /// See fusion::writeKernels and fusion::tryKernels; `sizes`: values of the graph's symbols, or none.
  Status writeKernels(const std::string &folder) const;
  Result<std::vector<KernelTrial>> tryKernels(const SymbolValues &sizes) const;
  /// What lower() did and, after plan() or a print of it, with which kernels.
  Report report() const;
  /// After plan() or a print of it: why there is none, in the words of Report::noPlan().
  const std::string &noPlan() const { return fusions.noPlan; }

private:
  Error inFile(Error error) const;
  PlanOptions planOptions() const;

  mlir::ModuleOp module;
  std::string path, weights; ///< `weights`: the folder of relative weight paths
  CompileOptions options;
  bool recordsRewrites = false;
  RewriteLog recorded;
  /// Keeps the GPU's context, if it measured, for whoever runs the program.
  std::shared_ptr<ProfitOracle> oracle;
  mutable FusionReport fusions;
  mutable std::optional<ProgramPlan> planned;
};

} // namespace fusion
