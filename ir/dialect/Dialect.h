// The `nn` and `fusion` dialects.
#pragma once

#include "ir/dialect/ShardAxes.h"
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
#define FUSION_TRAIT(NAME)                                                                                   \
  template <class ConcreteType>                                                                              \
  class NAME : public mlir::OpTrait::TraitBase<ConcreteType, NAME> {};
/// Each result element depends on the operand elements at its own (broadcast) position only.
FUSION_TRAIT(Pointwise)
/// The result's element type is i1.
FUSION_TRAIT(BoolResult)
/// A pointwise op of one operand that stands after matmuls and gates: silu, gelu, relu, …
FUSION_TRAIT(Activation)
/// Each result element is an element of operand 0 at another index.
FUSION_TRAIT(View)
/// Each result element is an element of an operand, or a number that follows from its index: concat, gather,
/// iota, …
FUSION_TRAIT(Indexed)
/// The result is stored with the graph: a constant or a weight.
FUSION_TRAIT(Stored)
/// A function or a division for each element: not worth computing twice.
FUSION_TRAIT(Costly)
#undef FUSION_TRAIT

/// Whether `op` is there and its result is stored with the graph.
inline bool isStored(mlir::Operation *op) { return op && op->hasTrait<Stored>(); }
/// Whether the value is produced by such an op.
inline bool isStored(mlir::Value value) { return isStored(value.getDefiningOp()); }
} // namespace fusion::nn

#include "ir/dialect/NNInterfaces.h.inc"

namespace fusion::nn {
/// Whether a graph may hold the op: of whatever dialect, one that has a shape function.
inline bool isGraphOp(mlir::Operation *op) { return llvm::isa<ShapeInference>(op); }
} // namespace fusion::nn

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
