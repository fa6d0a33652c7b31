// What is divided among the ranks.
#pragma once

#include "passes/shard/AxisClasses.h"

namespace fusion {

/// Which classes are divided, and into how many shards.
class Division {
public:
  /// `vocabulary`: a product's columns that are a result's may be divided, and so may tables of as many rows.
  Division(const AxisClasses &classes, const nn::SymbolicShapes &shapes, int64_t ranks, bool vocabulary)
      : classes(classes), shapes(shapes), ranks(ranks), vocabulary(vocabulary),
        parts(classes.classes().size(), 1) {}

  /// Takes what can be divided, the largest weights first; notes the sums that it makes and, for every
  /// product by a weight and every table that stays whole, why.
  void choose();
  /// The one axis of the value that is divided, and the number of shards.
  std::optional<std::pair<unsigned, int64_t>> of(mlir::Value value) const;
  /// Whether every rank has a part of what the op computes, so that the parts are to be added up: a product,
  /// a norm's sum of squares, rows looked up in a table, the largest of a row.
  bool isPartial(mlir::Operation *op) const { return partial.contains(op); }
  bool empty() const { return partial.empty(); }

private:
  using Id = AxisClasses::Id;
  llvm::SmallVector<Id> component(Id first) const;
  std::string whyWhole(llvm::ArrayRef<Id> ids) const;
  std::string conflict(Id id) const;
  bool isVocabulary(const AxisClasses::Class &table) const;
  int64_t shardsOf(const AxisClasses::Class &group) const;
  int64_t weightElements(llvm::ArrayRef<Id> ids) const;

  const AxisClasses &classes;
  const nn::SymbolicShapes &shapes;
  const int64_t ranks;
  const bool vocabulary;
  std::vector<int64_t> parts;
  llvm::DenseMap<mlir::Value, unsigned> divided; ///< value -> axis
  llvm::DenseSet<mlir::Operation *> partial;
};

} // namespace fusion
