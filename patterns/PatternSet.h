// Fusion patterns: PDL modules, checked when they are loaded.
#pragma once

#include "ir/base/Result.h"
#include "patterns/Guards.h"

#include "mlir/Dialect/PDL/IR/PDLOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/DenseMap.h"

#include <string>
#include <vector>

namespace fusion {

/// Which ops an op of a pattern stands for: those of its name, or those of a kind.
struct WantedOp {
  std::string name;             ///< nn.rms_norm; empty: those of the kind
  const OpKind *kind = nullptr; ///< of an op without a name
  bool accepts(mlir::Operation *op) const;
  /// For messages: `nn.add`, `a norm (nn.layer_norm, nn.rms_norm)`.
  std::string shown(mlir::MLIRContext *context) const;
};

/// One `pdl.pattern` whose rewrite calls `group…` on the ops to fuse.
struct FusionPattern {
  std::string name;            ///< in reports: the family of a built-in pattern, its own name otherwise
  bool isBuiltin = false;
  mlir::pdl::PatternOp pattern;
  mlir::pdl::OperationOp root; ///< the op that the rewrite names
  llvm::DenseMap<mlir::Operation *, WantedOp> wanted; ///< by pdl.operation
  /// The pattern's ops whose two operands may come in either order.
  std::vector<mlir::Operation *> commutative;

  /// Whether a match may start at `op`.
  bool startsAt(mlir::Operation *op) const { return wanted.at(root).accepts(op); }
};

/// The names of the built-in families.
std::vector<llvm::StringRef> builtinFamilies();

class PatternSet {
public:
  /// The product's own patterns, one file a family.
  static Result<PatternSet> builtin(mlir::MLIRContext *context);
  /// Adds a `.pdll` (compiled by mlir-pdll) or PDL `.mlir` file. Every op, attribute, guard and rewrite name
  /// is checked; the error names file and line.
  Status addFile(const std::string &path, mlir::MLIRContext *context);

  const std::vector<FusionPattern> &patterns() const { return list; }
  /// Names in the order in which they were added, without repeats.
  std::vector<std::string> names() const;

private:
  Status addModule(mlir::OwningOpRef<mlir::ModuleOp> module, const std::string &family);
  std::vector<FusionPattern> list;
  std::vector<std::shared_ptr<mlir::OwningOpRef<mlir::ModuleOp>>> owned;
};

} // namespace fusion
