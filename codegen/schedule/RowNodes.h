// Makes the nodes of a row::Graph.
#pragma once

#include "codegen/schedule/RowGraph.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/Twine.h"

namespace fusion::row {

/// Each function gives the node of a value: one that is there already if it has the value. Null for a null
/// operand.
class NodeMaker {
protected:
  /// Null. Keeps the first reason.
  Node *fail(const llvm::Twine &why);
  /// The number of these dims in Graph::outerDims.
  unsigned outer(llvm::ArrayRef<Dim> dims);

  /// A node made of the operands' values.
  using Formula = llvm::function_ref<scalar::Value(scalar::Graph &, llvm::ArrayRef<scalar::Value>)>;
  Node *apply(mlir::Operation *op, llvm::ArrayRef<Node *> operands, Formula formula);
  Node *reduction(mlir::Operation *op, Node::Reduction kind, Node *operand, bool perGroup = false);
  Node *sumOfSquares(mlir::Operation *op, Node *operand);
  Node *move(mlir::Operation *op, Node *operand, ColumnMap map);
  Node *divisor(mlir::Operation *op, Node *operand);
  /// Always a new one: a node whose value the kernel supplies.
  Node *supplied(Node node, DType element);
  /// Held as f32, or f64 if it is that.
  Node *asFloat(Node *node);
  Node *converted(Node *node, DType registerType);
  /// What a norm makes of a sum over the row.
  scalar::Value mean(scalar::Value sum);

  Graph graph;
  std::string reason; ///< why there is no graph; empty: there is one so far
};

} // namespace fusion::row
