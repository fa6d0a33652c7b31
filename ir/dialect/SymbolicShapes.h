// The symbolic shape of every value of a function.
#pragma once

#include "ir/dialect/Dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace fusion::nn {

/// Names on entry-function arguments and results.
inline constexpr llvm::StringLiteral nameAttr = "nn.name";
inline constexpr llvm::StringLiteral dimsAttr = "nn.dims";
/// On arguments and results of one rank's function: [axis, shards]. Rank r of n holds shard r * shards / n.
inline constexpr llvm::StringLiteral shardAttr = "nn.shard";

/// Computed by one forward walk. Arguments take their `nn.dims`; an argument without them gets the symbols
/// `arg<N>_d<dim>` for its `?`.
class SymbolicShapes {
public:
  /// Fails with an error at the op whose shape function fails.
  static mlir::FailureOr<SymbolicShapes> compute(mlir::func::FuncOp function);
  /// Values inside group bodies are covered too.
  const DimShape &operator[](mlir::Value value) const;
  bool contains(mlir::Value value) const { return shapes.contains(value); }
  /// For an op made after the analysis: infers and records its result shapes.
  llvm::LogicalResult add(mlir::Operation *op);

  /// Dims that the graph takes as equal.
  struct Equality {
    Dim left, right;
    mlir::Operation *op;
  };
  llvm::ArrayRef<Equality> equalities() const { return recorded; }

private:
  llvm::DenseMap<mlir::Value, DimShape> shapes;
  llvm::SmallVector<Equality> recorded;
};

/// The declared dims of an argument, as above.
DimShape argumentDims(mlir::func::FuncOp function, unsigned index);

/// The name by which a caller gives an argument or gets a result: its nn.name, else `arg0`, `result0`.
std::string argumentName(mlir::func::FuncOp function, unsigned index);
std::string resultName(mlir::func::FuncOp function, unsigned index);

} // namespace fusion::nn
