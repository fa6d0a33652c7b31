// Fusion patterns: PDL modules, checked when they are loaded.
#pragma once

#include "ir/base/Result.h"

#include "mlir/Dialect/PDL/IR/PDLOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace fusion {

/// One `pdl.pattern` whose rewrite calls `group…` on the ops to fuse.
struct FusionPattern {
  std::string name;           ///< in reports: the family of a built-in pattern, its own name otherwise
  mlir::pdl::PatternOp pattern;
  mlir::pdl::OperationOp root;  ///< the op that the rewrite names …
  std::string rootName;         ///< … and its op name: nn.rms_norm
  /// The pattern's ops whose two operands may come in either order.
  std::vector<mlir::Operation *> commutative;
};

/// The names of the built-in families.
std::vector<llvm::StringRef> builtinFamilies();

class PatternSet {
public:
  /// The product's own patterns, one file a family.
  static Result<PatternSet> builtin(mlir::MLIRContext *context);
  /// Adds a `.pdll` (compiled by mlir-pdll) or PDL `.mlir` file. Every op, attribute, guard and rewrite name is
  /// checked; the error names file and line.
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
