// Shape functions over symbolic dims. Each op has one (the ShapeInference interface); verifier, builders,
// importer and memory plan all call it.
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

#include <functional>
#include <string>

namespace fusion::nn {

/// Integers and strings of an attribute as dims, and back (integers where static).
bool isDimsAttr(mlir::Attribute attribute);
DimShape dimsFromAttr(mlir::ArrayAttr attribute);
mlir::ArrayAttr dimsToAttr(mlir::MLIRContext *context, llvm::ArrayRef<Dim> dims);
/// `?` where not static.
mlir::RankedTensorType typeOf(llvm::ArrayRef<Dim> shape, mlir::Type elementType);

/// Whether only a run decides if there is one element or none: a dim such as min(1, seq).
bool isOneOrNone(const Dim &dim);

/// What a shape function sees and what it answers.
class ShapeContext {
public:
  /// `operandShapes` in operand order.
  ShapeContext(mlir::Operation *op, llvm::ArrayRef<DimShape> operandShapes)
      : op(op), operands(operandShapes), results(op->getNumResults()) {}

  const DimShape &shape(unsigned operand) const { return operands[operand]; }
  int64_t rank(unsigned operand) const { return static_cast<int64_t>(operands[operand].size()); }
  unsigned operandCount() const { return static_cast<unsigned>(operands.size()); }
  void set(unsigned result, DimShape shape) { results[result] = std::move(shape); }
  /// The op needs both equal. Different constants fail; anything not provable is recorded.
  llvm::LogicalResult requireEqual(const Dim &left, const Dim &right);
  /// A dim that is `wide`, or 1 and repeated. min(1, …) has the one element wherever `wide` has any.
  llvm::LogicalResult requireBroadcast(const Dim &dim, const Dim &wide);
  /// numpy broadcasting; a dynamic dim against another takes them as equal and records it, unless it is at
  /// most 1.
  llvm::FailureOr<DimShape> broadcast(llvm::ArrayRef<DimShape> shapes);
  /// Normalises a negative axis; fails if out of range for `rank`.
  llvm::FailureOr<int64_t> axis(int64_t value, int64_t rank);
  llvm::LogicalResult fail(const llvm::Twine &reason);

  llvm::ArrayRef<DimShape> resultShapes() const { return results; }
  struct Equality {
    Dim left, right;
  };
  llvm::ArrayRef<Equality> equalities() const { return recorded; }
  const std::string &error() const { return reason; }

private:
  mlir::Operation *op;
  llvm::ArrayRef<DimShape> operands;
  llvm::SmallVector<DimShape> results;
  llvm::SmallVector<Equality> recorded;
  std::string reason;
};

/// The shape function of elementwise ops: the operands broadcast, and all but i1 conditions have one element
/// type.
llvm::LogicalResult inferElementwise(mlir::Operation *op, ShapeContext &context);

/// Checks the declared result types against the shape function; used by every op's verifier.
llvm::LogicalResult verifyShapes(mlir::Operation *op);

/// The shape of a value as far as its type tells; a dynamic dim is a symbol unique to (value, dim).
DimShape shapeFromType(mlir::Value value);

} // namespace fusion::nn
