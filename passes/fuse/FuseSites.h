// Where fusions could have been: each site has fired in the end, or has a reason. Internal to the fuse pass.
#pragma once

#include "passes/fuse/FusionReport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

#include <map>
#include <set>

namespace fusion {

/// The op's location, or its name where it has none.
std::string siteName(mlir::Operation *op);

/// Options of a remark of this phase. `pattern` must outlive it.
mlir::remark::RemarkOpts remarkOf(llvm::StringRef pattern);

/// Roots of patterns, what fired there, and the nearest miss of each. Ops are keys only: they may be gone.
class FuseSites {
public:
  /// An op that a pattern could start from: in the end it has fired or there is a reason.
  void see(mlir::Operation *root, const std::string &pattern);
  /// Of several reasons the one stays that came with the most ops found, the first among equals.
  void miss(mlir::Operation *root, const std::string &pattern, unsigned opsFound, const std::string &reason);
  /// Whether it is the first time.
  bool fire(mlir::Operation *root, const std::string &pattern) {
    return fired.insert({root, pattern}).second;
  }
  /// The group that was made there is gone again: what fired with it has missed, for this reason.
  void unfire(mlir::Operation *root, const std::string &pattern, const std::string &reason);
  bool hasFired(mlir::Operation *root, const std::string &pattern) const {
    return fired.contains({root, pattern});
  }
  /// Brings the misses of the seen roots that have not fired into the report, as far as they are to be shown.
  void recordMisses(FusionReport &report,
                    llvm::function_ref<bool(mlir::Operation *root, const std::string &pattern)> isShown);
  /// Those of recordMisses: the root, and `pattern: reason`.
  const std::vector<std::pair<mlir::Operation *, std::string>> &missLines() const { return lines; }

private:
  using RootKey = std::pair<mlir::Operation *, std::string>;
  struct NearMiss {
    unsigned opsFound = 0;
    std::string reason;
  };
  llvm::MapVector<RootKey, std::pair<std::string, mlir::Location>, std::map<RootKey, unsigned>> roots;
  std::map<RootKey, NearMiss> misses;
  std::set<RootKey> fired;
  std::vector<std::pair<mlir::Operation *, std::string>> lines;
};

/// The number of each op's node.
using DrawnNodes = std::map<mlir::Operation *, size_t>;

/// Fills the nodes of the function as it is.
DrawnNodes drawNodes(mlir::func::FuncOp function, std::vector<FusionReport::Node> &nodes);

} // namespace fusion
