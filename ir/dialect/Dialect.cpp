#include "ir/dialect/Dialect.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Loop.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/Sample.h"
#include "ir/dialect/Scatter.h"
#include "ir/dialect/Types.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

#include "ir/dialect/FusionOpsDialect.cpp.inc"
#include "ir/dialect/NNInterfaces.cpp.inc"
#include "ir/dialect/NNOpsDialect.cpp.inc"
#define GET_OP_CLASSES
#include "ir/dialect/NNOps.cpp.inc"
#define GET_OP_CLASSES
#include "ir/dialect/FusionOps.cpp.inc"

void fusion::nn::NNDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "ir/dialect/NNOps.cpp.inc"
      >();
  addOperations<SampleOp, LoopOp, ScatterReduceOp>();
  attachFormulas(*getContext());
}

Operation *fusion::nn::NNDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type,
                                                      Location location) {
  auto elements = llvm::dyn_cast<ElementsAttr>(value);
  if (!elements)
    return nullptr;
  return ConstantOp::create(builder, location, type, elements);
}

LogicalResult fusion::nn::NNDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return attribute.getName() == meshAttr ? verifyMesh(op, attribute.getValue()) : success();
}

void fusion::FusionDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "ir/dialect/FusionOps.cpp.inc"
      >();
}

void fusion::registerDialects(DialectRegistry &registry) {
  registry.insert<nn::NNDialect, FusionDialect, func::FuncDialect>();
}
