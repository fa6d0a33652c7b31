// Symbolic shapes that stay current while a function is rewritten.
#pragma once

#include "ir/dialect/SymbolicShapes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace fusion {

/// Attach it as the listener of the rewriter in use: it learns of every new or changed op.
class ShapeTable : public mlir::RewriterBase::Listener {
public:
  /// Fails, with an error emitted, where a shape function fails.
  static llvm::FailureOr<ShapeTable> compute(mlir::func::FuncOp function);

  DimShape of(mlir::Value value);
  /// Provably the same shape.
  bool same(mlir::Value left, mlir::Value right) { return of(left) == of(right); }

  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override { record(op); }
  void notifyOperationModified(mlir::Operation *op) override { record(op); }
  /// Goes to the RewriteLog in scope.
  void notifyOperationReplaced(mlir::Operation *op, mlir::ValueRange by) override;

private:
  explicit ShapeTable(nn::SymbolicShapes shapes) : shapes(std::move(shapes)) {}
  void record(mlir::Operation *op);

  nn::SymbolicShapes shapes;
};

/// Calls `rewrite(function, shapes)`, which gives a LogicalResult, for every function of the module that has
/// a body.
template <class Fn>
llvm::LogicalResult forEachFunction(mlir::ModuleOp module, Fn rewrite) {
  for (auto function : module.getOps<mlir::func::FuncOp>()) {
    if (function.isExternal())
      continue;
    auto shapes = ShapeTable::compute(function);
    if (failed(shapes) || failed(rewrite(function, *shapes)))
      return llvm::failure();
  }
  return llvm::success();
}

/// numpy broadcasting in which dims fit only if one is 1 or both are provably equal.
std::optional<DimShape> provenBroadcast(llvm::ArrayRef<DimShape> shapes);

/// Replaces the one result of `op` by that of an op built for it, which takes over the declared type.
void replaceByNew(mlir::RewriterBase &rewriter, mlir::Operation *op, mlir::Value built);
/// Replaces `op`, of one result, by a copy that `change` has been applied to: a change in place that the
/// listener sees both sides of.
template <class OpTy, class Fn>
void replaceByChanged(mlir::RewriterBase &rewriter, OpTy op, Fn change) {
  mlir::Operation *copy = op->clone();
  if constexpr (std::is_pointer_v<OpTy>)
    change(copy);
  else
    change(llvm::cast<OpTy>(copy));
  rewriter.insert(copy);
  replaceByNew(rewriter, op, copy->getResult(0));
}
/// Whether the result of `op` can be replaced by a value that exists already: their types are equal, or every
/// user accepts any compatible type.
bool canReplaceBy(mlir::Operation *op, mlir::Value value);

/// How every pass here rewrites: top down to the fixed point, with folding, blocks left as they are; `shapes`
/// listens.
mlir::GreedyRewriteConfig greedyConfig(ShapeTable &shapes);

/// Erases pure ops without users.
void eraseDeadOps(mlir::func::FuncOp function);

} // namespace fusion
