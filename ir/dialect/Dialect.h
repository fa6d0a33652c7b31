// The `nn` and `fusion` dialects.
#pragma once

#include "ir/dialect/Shapes.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace fusion::nn {
/// Each result element depends on the operand elements at its own (broadcast) position only.
template <class ConcreteType>
class Pointwise : public mlir::OpTrait::TraitBase<ConcreteType, Pointwise> {};
/// The result's element type is i1.
template <class ConcreteType>
class BoolResult : public mlir::OpTrait::TraitBase<ConcreteType, BoolResult> {};
} // namespace fusion::nn

#include "ir/dialect/NNInterfaces.h.inc"
#include "ir/dialect/NNOpsDialect.h.inc"
#include "ir/dialect/FusionOpsDialect.h.inc"
#define GET_OP_CLASSES
#include "ir/dialect/NNOps.h.inc"
#define GET_OP_CLASSES
#include "ir/dialect/FusionOps.h.inc"

namespace fusion {
/// nn, fusion and func.
void registerDialects(mlir::DialectRegistry &registry);
} // namespace fusion
