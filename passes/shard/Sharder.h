// Rewrites a function into what one rank of several runs.
#pragma once

#include "passes/shard/Division.h"

namespace fusion {

/// The rank is the symbol `tp_rank`. What an op needs of its operands it finds in them: its shard, or all.
class Sharder {
public:
  Sharder(mlir::func::FuncOp function, const nn::SymbolicShapes &shapes, const Division &division,
          int64_t ranks)
      : function(function), shapes(shapes), division(division), ranks(ranks), builder(function.getContext()) {
  }

  llvm::LogicalResult run();

private:
  using DividedAxis = std::optional<std::pair<unsigned, int64_t>>;

  void recordResults();
  void shardArgument(mlir::BlockArgument argument);
  llvm::LogicalResult shard(mlir::Operation *op);
  /// The rank's shard, or all, of a weight, a constant or a slice of one.
  mlir::Value take(mlir::Value whole, const DividedAxis &shard);
  /// A weight that loads nothing but `sizes` elements of `value` from `starts` on. Null where `value` is no
  /// weight, or a slice of one that something reads whole or that only a run knows, or where the part begins
  /// inside a byte.
  mlir::Value loadPart(mlir::Value value, DimShape starts, DimShape sizes);

  // ShardSums.cpp: what a rank computes of an op whose parts are added up
  mlir::Value lookUpRows(nn::GatherOp op);
  mlir::Value normaliseShard(nn::RmsNormOp op);
  mlir::Value largestOfRanks(nn::ArgMaxOp op);
  mlir::Value sumOverRanks(mlir::Operation *whole, mlir::Value part);

  static DimShape localShape(DimShape shape, const DividedAxis &shard);
  mlir::Attribute shardAttribute(const DividedAxis &shard);
  /// Null, with an error emitted, if the shapes do not fit.
  mlir::Operation *make(mlir::Location location, llvm::StringRef name, mlir::ValueRange operands,
                        llvm::ArrayRef<mlir::NamedAttribute> attributes,
                        llvm::ArrayRef<mlir::Type> elementTypes);
  /// The same of an op with one result; null too if an operand is.
  template <class Op>
  mlir::Value apply(mlir::Location location, mlir::ValueRange operands, mlir::Type elementType,
                    llvm::ArrayRef<mlir::NamedAttribute> attributes = {}) {
    if (!llvm::all_of(operands, [](mlir::Value operand) { return bool(operand); }))
      return {};
    mlir::Operation *made = make(location, Op::getOperationName(), operands, attributes, elementType);
    return made ? made->getResult(0) : mlir::Value();
  }
  mlir::Value scalar(mlir::Location location, mlir::Type elementType, double value);
  mlir::Value count(mlir::Location location, mlir::Type elementType, const Dim &dim);
  mlir::Value cast(mlir::Location location, mlir::Value value, mlir::Type elementType);
  mlir::Value slice(mlir::Location location, mlir::Value value, const DimShape &starts,
                    const DimShape &sizes);

  mlir::func::FuncOp function;
  const nn::SymbolicShapes &shapes; ///< of the whole graph
  const Division &division;
  const int64_t ranks;
  mlir::OpBuilder builder;
  llvm::DenseMap<mlir::Value, DimShape> local; ///< of one rank's values
  llvm::DenseMap<mlir::Value, DividedAxis> shards;
};

} // namespace fusion
