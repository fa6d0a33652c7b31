// Which axes of which values are divided together when a graph is spread over ranks. Knows ops, not layers or
// names.
#pragma once

#include "ir/dialect/SymbolicShapes.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"

namespace fusion {

using nn::isShardLeaf;
using nn::siteOf;

/// Computed by one walk over a function of one block, from what its ops say (nn::Shardable). Two axes are in
/// one class if shard r of one needs exactly shard r of the other: through elementwise ops, transposes, the
/// major dim of a reshape, both sides of a contraction.
class AxisClasses : private nn::ShardAxes {
public:
  using Id = unsigned;
  struct Axis {
    mlir::Value value;
    unsigned axis = 0;
  };
  struct Class {
    std::vector<Axis> members;
    /// Why it cannot be divided at all; empty: nothing in the ops is against it.
    std::string whole;
    /// The matmuls whose columns it is, by a parameter of the graph: what division saves.
    llvm::SmallVector<mlir::Operation *> columns;
    /// The matmuls that sum over it: each leaves a partial sum on every rank.
    llvm::SmallVector<mlir::Operation *> sums;
    /// The RMS norms over it: ranks add up their sums of squares. Only of heads, for which a norm would
    /// otherwise keep an attention whole.
    llvm::SmallVector<mlir::Operation *> norms;
    /// The gathers that look up its rows: each rank finds some, and zeros are added up with them.
    llvm::SmallVector<mlir::Operation *> lookups;
    /// The ops that find the largest along it: each rank finds one, and they compare theirs.
    llvm::SmallVector<mlir::Operation *> largests;
    /// A last axis of a result of the function, which whoever runs it can join.
    bool isResult = false;
    /// Heads of an attention.
    bool ofHeads = false;
    /// Key/value heads: a rank needs those that its query heads read, so that fewer heads than ranks are
    /// repeated.
    bool keyHeads = false;
    /// Largest size of which every member's is a multiple: how many equal shards there can be.
    int64_t units = 0;
    /// Divided only together with these: the query heads of key heads and the other way round.
    llvm::SmallVector<Id> companions;
  };

  /// `vocabulary`: tables may be divided by rows, and what the largest is looked for in.
  AxisClasses(mlir::func::FuncOp function, const nn::SymbolicShapes &shapes, bool vocabulary);

  llvm::ArrayRef<Class> classes() const { return all; }
  std::optional<Id> of(mlir::Value value, unsigned axis) const;
  /// Weights, constants, and what is made of them alone.
  bool isParameter(mlir::Value value) const override { return parameters.contains(value); }

private:
  const DimShape &shape(mlir::Value value) const override { return shapes[value]; }
  void link(mlir::Value left, unsigned leftAxis, mlir::Value right, unsigned rightAxis) override;
  void whole(mlir::Value value, unsigned axis, const std::string &reason) override;
  void contracted(mlir::Value value, unsigned axis, mlir::Operation *op) override;
  void columns(mlir::Value value, unsigned axis, mlir::Operation *op) override;
  void normalised(mlir::Value value, unsigned axis, mlir::Operation *op) override;
  void lookedUp(mlir::Value value, unsigned axis, mlir::Operation *op) override;
  void largest(mlir::Value value, unsigned axis, mlir::Operation *op) override;
  void heads(mlir::Value queries, mlir::Value keys, unsigned axis) override;

  unsigned node(mlir::Value value, unsigned axis);
  void finish();

  const nn::SymbolicShapes &shapes;
  const bool vocabulary;
  llvm::DenseSet<mlir::Value> parameters;
  llvm::DenseMap<std::pair<mlir::Value, unsigned>, unsigned> nodes;
  std::vector<Axis> axes;
  llvm::EquivalenceClasses<unsigned> joined;
  std::vector<std::pair<unsigned, std::string>> wholes;
  std::vector<std::pair<unsigned, mlir::Operation *>> columnsOfWeights, sums, norms, lookups,
      largests;
  std::vector<unsigned> headAxes, results;
  std::vector<std::pair<unsigned, unsigned>> followers; ///< key heads, query heads
  std::vector<Class> all;
  llvm::DenseMap<unsigned, Id> classOf;
};

} // namespace fusion
