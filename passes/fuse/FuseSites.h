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

/// What a fusion that is missed would be made of, and the bytes that it would save.
struct FoundOps {
  llvm::SmallVector<mlir::Operation *> ops;
  int64_t bytes = 0;
};

/// Roots of patterns, what fired there, and the nearest miss of each. Ops are keys only: they may be gone.
class FuseSites {
public:
  /// An op that a pattern could start from: in the end it has fired or there is a reason.
  void see(mlir::Operation *root, const std::string &pattern);
  /// Of several reasons the one stays that came with the most ops found, the first among equals.
  void miss(mlir::Operation *root, const std::string &pattern, unsigned opsFound, const std::string &reason,
            FoundOps found = {});
  /// Whether it is the first time.
  bool fire(mlir::Operation *root, const std::string &pattern) {
    return fired.insert({root, pattern}).second;
  }
  /// The group that was made there is gone again: what fired with it has missed, for this reason.
  void unfire(mlir::Operation *root, const std::string &pattern, const std::string &reason, int64_t bytes);
  /// A group was made of `ops`, or is gone again.
  void group(llvm::ArrayRef<mlir::Operation *> ops, int64_t bytesSaved);
  void ungroup(mlir::Operation *op) { groups.erase(op); }
  /// Brings the misses of the seen roots that have not fired into the report, as far as they are to be shown.
  /// `nodes`: of the roots, in the report.
  void recordMisses(FusionReport &report, const std::map<mlir::Operation *, size_t> &nodes,
                    llvm::function_ref<bool(mlir::Operation *root, const std::string &pattern)> isShown);

private:
  using RootKey = std::pair<mlir::Operation *, std::string>;
  struct NearMiss {
    unsigned opsFound = 0;
    std::string reason;
    FoundOps found = {};
  };
  int64_t lost(const FoundOps &found) const;

  llvm::MapVector<RootKey, std::pair<std::string, mlir::Location>, std::map<RootKey, unsigned>> roots;
  std::map<RootKey, NearMiss> misses;
  std::set<RootKey> fired;
  llvm::DenseMap<mlir::Operation *, size_t> groups; ///< index into `saved` of the group that an op went into
  std::vector<int64_t> saved;
};

} // namespace fusion
