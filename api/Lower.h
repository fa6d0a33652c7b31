// The phases between import and emission, shared by the API and the tools.
#pragma once

#include "codegen/BuildPlan.h"
#include "ir/import/Onnx.h"
#include "passes/RewriteLog.h"
#include "passes/fuse/Fuse.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"

namespace fusion {

/// Dialects, passes and pipelines: everything a tool registers. Call once.
void registerEverything(mlir::DialectRegistry &registry);

/// A context with the dialects loaded whose diagnostics go nowhere unless a handler is set.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// `.onnx` is imported, anything else parsed as MLIR text. Errors are one line. `deciding`: see importOnnx.
Result<mlir::OwningOpRef<mlir::ModuleOp>> loadModule(mlir::MLIRContext &context, const std::string &path,
                                                     const ImportOptions &options = {},
                                                     std::optional<DecidingInput> *deciding = nullptr);
/// The function that is run: the only one, or @main.
Result<mlir::func::FuncOp> entryFunction(mlir::ModuleOp module);
/// Where relative weight paths of the graph read from `path` are looked up: beside it or, if a weight is not
/// there, beside the model that the text was printed from.
std::string weightFolder(mlir::ModuleOp module, const std::string &path);

struct LowerOptions {
  bool fuse = true;
  FuseOptions fusions;
  std::vector<std::string> patternFiles;
  PlanOptions plan; ///< of what follows: target and schedules
  int64_t kvCapacity = 0; ///< positions of caches that are extended in place; 0: none are
  RewriteLog *rewrites =
      nullptr;              ///< takes down every rewrite of normalise and raise, for whoever checks them
  bool assumeFinite = true; ///< CompileOptions::assumeFinite
  int ranks = 1; ///< of tensor parallelism: more than 1 leaves one rank's graph
  bool vocabulary = false; ///< the ranks divide embedding and head too
};

/// What stands in the report, as a miss of "shard" without a location, where the graph holds collectives
/// already.
inline constexpr std::string_view oneRanksRemark =
    "the graph sums over ranks already: each rank runs it as it is, with the same weights and inputs. "
    "Whether it was cut for so "
    "many ranks is not checked; where each has a file of its own, name them with {rank}";

/// Normalise, raise, divide among ranks (unless the graph holds collectives: then it is one rank's) and (if
/// asked) fuse in place.
Status lower(mlir::ModuleOp module, const LowerOptions &options, FusionReport &report);

/// The code generator's answer to which schedule takes a group. With `batchInvariant` none does whose plan
/// does not keep KernelContext::batchInvariant.
std::unique_ptr<ScheduleOracle> makeScheduleOracle(const TargetInfo &target,
                                                   const ScheduleSet &schedules = builtinSchedules(),
                                                   bool batchInvariant = false);

/// The built-in patterns and those of `files`.
Result<PatternSet> loadPatterns(mlir::MLIRContext &context, const std::vector<std::string> &files);
/// The names of the fusions that need no file, in alphabetical order.
std::vector<std::string> builtinFusions();

} // namespace fusion
