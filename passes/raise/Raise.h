// What the raise passes share.
#pragma once

#include "ir/dialect/Build.h"
#include "passes/Match.h"
#include "passes/MissLog.h"
#include "passes/ShapeTable.h"

namespace fusion::raise {

/// One function while it is raised. The rewriter keeps the shapes current.
struct Raiser {
  ShapeTable &shapes;
  mlir::IRRewriter &rewriter;

  /// Puts `built` in the place of `root`, whose producers may be dead then. `assumes`: as in noteRaised().
  void replace(mlir::Operation *root, mlir::Value built, std::string assumes = {});
};

/// Calls `raiseAt` for the ops of kind OpTy of every function, in program order, each once, and erases what
/// died. An op that was replaced before its turn comes is skipped.
template <class OpTy, class Fn>
llvm::LogicalResult forEachRoot(mlir::ModuleOp module, Fn raiseAt) {
  return forEachFunction(module, [&](mlir::func::FuncOp function, ShapeTable &shapes) {
    mlir::IRRewriter rewriter(function.getContext(), &shapes);
    Raiser raiser{shapes, rewriter};
    for (auto root : llvm::to_vector(function.getBody().front().getOps<OpTy>()))
      raiseAt(root, raiser);
    eraseDeadOps(function);
    return llvm::success();
  });
}

/// Matches add(x, c), in either order, with a constant c; the constant and x.
struct Offset {
  mlir::Value value;
  double constant;
};
std::optional<Offset> matchAddConstant(mlir::Value value);

/// `value` has shape [n] or [1.., n], where n is the last dim of `like`, and `result` the shape of `like`: a
/// weight or bias over the last dim.
bool isRowOf(mlir::Value value, mlir::Value like, ShapeTable &shapes);
/// The same values with rank 1.
mlir::Value asRow(mlir::Value value, Raiser &raiser);

/// A mean over the last dim, which keeps it as size 1.
bool isLastDimMean(nn::ReduceOp reduce);
/// x of sub(x, mean(x)) over the last dim; null if `value` is something else.
mlir::Value matchCentred(mlir::Value value);

/// The slice of the last dim that `value` is, if it takes all of every other dim.
struct LastDimSlice {
  mlir::Value source;
  int64_t start, size, step;
};
std::optional<LastDimSlice> matchLastDimSlice(mlir::Value value, ShapeTable &shapes);

/// The parts of a concatenation of two along the last dim.
std::optional<std::pair<mlir::Value, mlir::Value>> matchLastDimPair(mlir::Value value);

/// "nn.mul" of the op that makes the value, or "an argument".
std::string producerName(mlir::Value value);
/// The element type, printed.
std::string typeName(mlir::Value value);

} // namespace fusion::raise
