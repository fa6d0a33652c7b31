// What a graph is compiled to, made on demand: the fused graph, or a plan of kernels.
#pragma once

#include "api/Driver.h"
#include "runtime/KernelCache.h"

#include "mlir/IR/OwningOpRef.h"

#include <optional>

namespace fusion {

/// The graph after normalise, raise and fuse; the context lives as long as the graph that it came from.
struct LoweredGraph {
  std::shared_ptr<mlir::MLIRContext> context;
  std::shared_ptr<mlir::OwningOpRef<mlir::ModuleOp>> module;
  mlir::func::FuncOp entry;
  std::string weightFolder;
};

class Compilation {
public:
  /// `mayMeasure`: where the options want it, times on this machine's GPU decide between fusions.
  Compilation(const Graph &graph, CompileOptions options, bool mayMeasure);
  ~Compilation();

  Result<LoweredGraph> lowered();
  /// The same, for printing and verifying; lives as long as this. `recordRewrites`: see Driver.
  Result<Driver *> lower(bool recordRewrites = false);
  /// From the cache if it is there. With the edited kernels of the options.
  Result<ProgramPlan> plan();
  /// Stores the plan, whose kernels have been compiled by now, for the next time.
  void keepPlan();
  /// Once lowered() or plan() has succeeded.
  const Report &report() const { return fusions; }

private:
  Result<ProgramPlan> emittedPlan();

  const Graph graph;
  const CompileOptions options;
  const bool mayMeasure;
  KernelCache cache;
  LoweredGraph result;
  std::unique_ptr<Driver> driver; ///< of `result`
  std::optional<ProgramPlan> planned;
  std::optional<ProgramPlan> fresh; ///< that is not in the cache yet …
  std::string key;                  ///< … where it goes under this name
  Report fusions;
};

} // namespace fusion
