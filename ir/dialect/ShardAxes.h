// What ops say about dividing their axes among ranks (the Shardable interface); a pass listens.
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/Operation.h"

#include <string>

namespace fusion::nn {

/// Told about one op after the other, in the order of the graph. Axes count from 0.
class ShardAxes {
public:
  virtual ~ShardAxes() = default;

  virtual const DimShape &shape(mlir::Value value) const = 0;
  /// Weights, constants, and what is made of them alone.
  virtual bool isParameter(mlir::Value value) const = 0;
  unsigned rank(mlir::Value value) const { return static_cast<unsigned>(shape(value).size()); }

  /// Shard r of one axis needs exactly shard r of the other.
  virtual void link(mlir::Value left, unsigned leftAxis, mlir::Value right, unsigned rightAxis) = 0;
  /// Every rank needs all of it. `reason` is for the report.
  virtual void whole(mlir::Value value, unsigned axis, const std::string &reason) = 0;
  /// `op` sums over the axis: divided, it leaves a partial sum on every rank.
  virtual void contracted(mlir::Value value, unsigned axis, mlir::Operation *op) = 0;
  /// The axis is the columns of the weights of the matmul `op`: dividing it saves work.
  virtual void columns(mlir::Value value, unsigned axis, mlir::Operation *op) = 0;
  /// The RMS norm `op` is over the axis: divided, the ranks add up their sums of squares.
  virtual void normalised(mlir::Value value, unsigned axis, mlir::Operation *op) = 0;
  /// `op` looks up entries along the axis of a table: divided, each rank finds some.
  virtual void lookedUp(mlir::Value value, unsigned axis, mlir::Operation *op) = 0;
  /// `op` finds the largest along the axis: divided, each rank finds that of its own.
  virtual void largest(mlir::Value value, unsigned axis, mlir::Operation *op) = 0;
  /// The heads of one attention. Where there are fewer key heads, a rank needs those that its query heads
  /// read.
  virtual void heads(mlir::Value queries, mlir::Value keys, unsigned axis) = 0;

  /// Each axis of `operand` with the axis of `result` that it meets by broadcasting; where the operand has 1,
  /// every rank has all of it.
  void broadcast(mlir::Value operand, mlir::Value result);
  /// Operand 0 with result 0, axis by axis, but `axis` (negative: from the end), which the op needs whole.
  void allBut(mlir::Operation *op, int64_t axis);
  void allWhole(mlir::Operation *op);
};

/// Every operand broadcasts to result 0.
void shardElementwise(mlir::Operation *op, ShardAxes &axes);
/// A weight, a constant, or a slice of one: any part of it can be taken where it lies.
bool isShardLeaf(mlir::Operation *op);
/// For reasons: `nn.matmul at layers.0.mlp`.
std::string siteOf(mlir::Operation *op);

} // namespace fusion::nn
