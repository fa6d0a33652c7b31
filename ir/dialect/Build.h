// Building nn ops whose result shapes come from their shape functions.
#pragma once

#include "ir/dialect/Dialect.h"

namespace fusion::nn {

/// Creates the op `name` with inferred result shapes. Element types: `elementTypes` if given (one for
/// each result), else i1 for BoolResult ops, else that of operand 0 (of operand 1 for where). On a shape
/// error nothing is created and `error` tells why.
mlir::Operation *createInferred(mlir::OpBuilder &builder, mlir::Location location, llvm::StringRef name,
                                mlir::ValueRange operands, llvm::ArrayRef<mlir::NamedAttribute> attributes,
                                llvm::ArrayRef<mlir::Type> elementTypes, std::string &error);

/// The same for operands whose symbolic shapes say more than their types. `resultShapes` receives those of
/// the results, `equalities` the dims that the op takes as equal.
mlir::Operation *createInferred(mlir::OpBuilder &builder, mlir::Location location, llvm::StringRef name,
                                mlir::ValueRange operands, llvm::ArrayRef<DimShape> operandShapes,
                                llvm::ArrayRef<mlir::NamedAttribute> attributes,
                                llvm::ArrayRef<mlir::Type> elementTypes,
                                llvm::SmallVectorImpl<DimShape> &resultShapes,
                                llvm::SmallVectorImpl<ShapeContext::Equality> &equalities,
                                std::string &error);

/// The same for operands known to fit, as inside rewrites; asserts on a shape error.
template <class OpTy>
OpTy build(mlir::OpBuilder &builder, mlir::Location location, mlir::ValueRange operands,
           llvm::ArrayRef<mlir::NamedAttribute> attributes = {},
           llvm::ArrayRef<mlir::Type> elementTypes = {}) {
  std::string error;
  mlir::Operation *op = createInferred(builder, location, OpTy::getOperationName(), operands, attributes,
                                       elementTypes, error);
  if (!op)
    llvm::report_fatal_error(llvm::Twine("building ") + OpTy::getOperationName() + ": " + error);
  return llvm::cast<OpTy>(op);
}

/// A scalar or dense constant.
mlir::Value buildConstant(mlir::OpBuilder &builder, mlir::Location location, mlir::ElementsAttr value);
mlir::Value buildScalar(mlir::OpBuilder &builder, mlir::Location location, mlir::Type elementType,
                        double value);
/// nn.reshape to `shape` unless x already has it (then x).
mlir::Value buildReshape(mlir::OpBuilder &builder, mlir::Location location, mlir::Value x,
                         llvm::ArrayRef<Dim> shape);
mlir::Value buildTranspose(mlir::OpBuilder &builder, mlir::Location location, mlir::Value x,
                           llvm::ArrayRef<int64_t> perm);
/// Of x of this shape the columns from `start` on, so many: an nn.slice along the last dim.
mlir::Value buildColumns(mlir::OpBuilder &builder, mlir::Location location, mlir::Value x, DimShape shape,
                         const Dim &start, const Dim &columns);

} // namespace fusion::nn
