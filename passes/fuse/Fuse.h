// The fuse phase: candidates over the whole function, the best set of them, committed as groups.
#pragma once

#include "passes/fuse/Candidate.h"
#include "passes/fuse/FusionReport.h"
#include "passes/fuse/Profit.h"
#include "patterns/PatternSet.h"

#include "mlir/Pass/Pass.h"

namespace fusion {

struct FuseOptions {
  std::vector<std::string> only;     ///< pattern names; empty: all
  std::vector<std::string> disabled; ///< pattern names left out
  ProfitOracle *profit = nullptr;    ///< times candidates; null: bytes and launches saved count
  bool tries(llvm::StringRef name) const {
    return !llvm::is_contained(disabled, name) && (only.empty() || llvm::is_contained(only, name));
  }
};

/// All names that options may give: the patterns' and those of the families grown in C++.
std::vector<std::string> fusionNames(const PatternSet &patterns);

/// Sizes that stand for symbolic dims when traffic is estimated: batch-like symbols 1, others 128.
SymbolValues nominalSizes(mlir::func::FuncOp function);

/// Groups what the patterns match and fills the report (fired, missed, kernels, bytes, layers).
Status fuse(mlir::func::FuncOp function, const PatternSet &patterns, const FuseOptions &options,
            ScheduleOracle &oracle, FusionReport &report);

/// Kernel and byte counts, and layers, of the function as it is, into what the report says `before` fusion or
/// after it.
Status countLaunches(mlir::func::FuncOp function, ScheduleOracle &oracle, FusionReport &report, bool before);

/// Kernel and byte counts and layers of a function that is not to be fused.
Status describeUnfused(mlir::func::FuncOp function, ScheduleOracle &oracle, FusionReport &report);

} // namespace fusion
