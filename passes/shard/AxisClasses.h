// Which axes of which values are divided together when a graph is spread over ranks. Knows ops, not layers or
// names.
#pragma once

#include "ir/dialect/SymbolicShapes.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"

namespace fusion {

/// A weight, a constant, or a slice of one: any piece of it can be taken where it lies.
bool isShardLeaf(mlir::Operation *op);

/// `nn.matmul at layers.0.mlp`
std::string siteOf(mlir::Operation *op);

/// Computed by one walk over a function of one block. Two axes are in one class if piece r of one needs
/// exactly piece r of the other: through elementwise ops, transposes, the major dim of a reshape, both sides
/// of a contraction.
class AxisClasses {
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
    /// The RMS norms over it: ranks add up their sums of squares. Only of heads, for which a norm would otherwise keep an
    /// attention whole.
    llvm::SmallVector<mlir::Operation *> norms;
    /// The gathers that look up its rows: each rank finds some, and zeros are added up with them.
    llvm::SmallVector<mlir::Operation *> lookups;
    /// A last axis of a result of the function, which whoever runs it can join.
    bool isResult = false;
    /// Heads of an attention.
    bool ofHeads = false;
    /// Key/value heads: a rank needs those that its query heads read, so that fewer heads than ranks are
    /// repeated.
    bool keyHeads = false;
    /// Largest size of which every member's is a multiple: how many equal pieces there can be.
    int64_t units = 0;
    /// Divided only together with these: the query heads of key heads and the other way round.
    llvm::SmallVector<Id> companions;
  };

  /// `vocabulary`: tables may be divided by rows.
  AxisClasses(mlir::func::FuncOp function, const nn::SymbolicShapes &shapes, bool vocabulary);

  llvm::ArrayRef<Class> classes() const { return all; }
  std::optional<Id> of(mlir::Value value, unsigned axis) const;
  /// Weights, constants, and what is made of them alone.
  bool isParameter(mlir::Value value) const { return parameters.contains(value); }

private:
  friend class AxisRules;
  unsigned node(mlir::Value value, unsigned axis);
  void finish();

  const nn::SymbolicShapes &shapes;
  const bool vocabulary;
  llvm::DenseSet<mlir::Value> parameters;
  llvm::DenseMap<std::pair<mlir::Value, unsigned>, unsigned> nodes;
  std::vector<Axis> axes;
  llvm::EquivalenceClasses<unsigned> joined;
  std::vector<std::pair<unsigned, std::string>> wholes;
  std::vector<std::pair<unsigned, mlir::Operation *>> columns, sums, norms, lookups;
  std::vector<unsigned> heads, results;
  std::vector<std::pair<unsigned, unsigned>> followers; ///< key heads, query heads
  std::vector<Class> all;
  llvm::DenseMap<unsigned, Id> classOf;
};

/// Enters what the ops say about the axes of their operands and results. One method per kind of op.
class AxisRules {
public:
  explicit AxisRules(AxisClasses &classes) : classes(classes) {}
  void visit(mlir::Operation *op);

private:
  const DimShape &shape(mlir::Value value) const { return classes.shapes[value]; }
  unsigned rank(mlir::Value value) const { return static_cast<unsigned>(shape(value).size()); }
  void link(mlir::Value left, unsigned leftAxis, mlir::Value right, unsigned rightAxis);
  void whole(mlir::Value value, unsigned axis, const std::string &reason);
  void allWhole(mlir::Operation *op);
  /// Operand axes meet result axes from the right; where the operand has 1, every rank has all of it.
  void broadcast(mlir::Value operand, mlir::Value result);
  /// Every axis but `axis`, which the op needs whole.
  void along(mlir::Operation *op, int64_t axis);

  void matmul(nn::MatmulOp op);
  void attention(nn::AttentionOp op);
  void rope(nn::RopeOp op);
  void norm(mlir::Operation *op);
  void reshape(nn::ReshapeOp op);
  void slice(nn::SliceOp op);
  void gather(nn::GatherOp op);
  void scaled(mlir::Operation *op, int64_t axis, int64_t blockSize);

  AxisClasses &classes;
};

} // namespace fusion
