// What one kernel computes: the ops of a fusion.group's body, or one op outside any group.
#pragma once

#include "ir/dialect/SymbolicShapes.h"

namespace fusion {

struct Region {
  llvm::SmallVector<mlir::Operation *> ops;  ///< in order; constants inside the body included
  llvm::SmallVector<mlir::Value>
      inputs; ///< block arguments of the body, or the op's operands without repeats
  llvm::SmallVector<mlir::Value> outputs;    ///< values that leave: yielded, or the op's results
  mlir::Operation *anchor = nullptr;         ///< the group, or the op: where errors and reports point
  std::string pattern;                       ///< fusion name; empty for a single op

  static Region of(GroupOp group);
  static Region of(mlir::Operation *op);
  /// Those of its ops that `results` need, from the values `made` on.
  llvm::SmallVector<mlir::Operation *> opsFor(llvm::ArrayRef<mlir::Value> results,
                                              llvm::ArrayRef<mlir::Value> made) const;
  /// How many ranks run the function that it is in.
  int64_t ranks() const;
  /// The mesh axis of the nn.all_reduce in it; empty if it sums over no ranks.
  std::string summedAxis() const;
};

} // namespace fusion
