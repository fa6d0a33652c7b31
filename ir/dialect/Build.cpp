#include "ir/dialect/Build.h"

#include "ir/dialect/PossibleShape.h"

using namespace mlir;

namespace fusion::nn {

Operation *createInferred(OpBuilder &builder, Location location, StringRef name, ValueRange operands,
                          ArrayRef<NamedAttribute> attributes, ArrayRef<Type> elementTypes,
                          std::string &error) {
  SmallVector<DimShape> shapes, results;
  for (Value operand : operands)
    shapes.push_back(shapeFromType(operand));
  SmallVector<ShapeContext::Equality> equalities;
  return createInferred(builder, location, name, operands, shapes, attributes, elementTypes, results,
                        equalities, error);
}

Operation *createInferred(OpBuilder &builder, Location location, StringRef name, ValueRange operands,
                          ArrayRef<DimShape> operandShapes, ArrayRef<NamedAttribute> attributes,
                          ArrayRef<Type> elementTypes, SmallVectorImpl<DimShape> &resultShapes,
                          SmallVectorImpl<ShapeContext::Equality> &equalities, std::string &error) {
  OperationState state(location, name);
  state.addOperands(operands);
  state.addAttributes(attributes);
  auto registered = RegisteredOperationName::lookup(name, builder.getContext());
  assert(registered && "unknown op name");
  const size_t results = registered->hasTrait<OpTrait::VariadicResults>() ? elementTypes.size()
                         : registered->hasTrait<OpTrait::OneResult>()     ? 1
                                                                         : 2;
  // Placeholder types; the shape function needs the op, and the op its types.
  for (size_t i = 0; i < results; ++i) {
    Type element;
    if (i < elementTypes.size() && elementTypes[i])
      element = elementTypes[i];
    else if (registered->hasTrait<BoolResult>())
      element = builder.getI1Type();
    else
      element = llvm::cast<RankedTensorType>(operands[name == WhereOp::getOperationName() ? 1 : 0].getType())
                    .getElementType();
    state.addTypes(RankedTensorType::get({}, element));
  }
  Operation *op = Operation::create(state);
  // Constants and weights say their shape in an attribute or in their type.
  if (auto constant = llvm::dyn_cast<ConstantOp>(op))
    op->getResult(0).setType(constant.getValue().getType());
  ShapeContext context(op, operandShapes);
  if (failed(llvm::cast<ShapeInference>(op).inferShapes(context))) {
    error = context.error();
    op->destroy();
    return nullptr;
  }
  for (const DimShape &shape : context.resultShapes()) {
    if (!isPossibleShape(shape)) {
      error = "the result would have the impossible shape " + shapeString(shape);
      op->destroy();
      return nullptr;
    }
  }
  for (auto [result, shape] : llvm::zip(op->getResults(), context.resultShapes()))
    result.setType(typeOf(shape, llvm::cast<RankedTensorType>(result.getType()).getElementType()));
  resultShapes.assign(context.resultShapes().begin(), context.resultShapes().end());
  equalities.append(context.equalities().begin(), context.equalities().end());
  return builder.insert(op);
}

Value buildConstant(OpBuilder &builder, Location location, ElementsAttr value) {
  return ConstantOp::create(builder, location, value.getType(), value);
}

Value buildScalar(OpBuilder &builder, Location location, Type elementType, double value) {
  auto type = RankedTensorType::get({}, elementType);
  Attribute element;
  if (auto floatType = llvm::dyn_cast<FloatType>(elementType))
    element = builder.getFloatAttr(floatType, value);
  else
    element = builder.getIntegerAttr(elementType, static_cast<int64_t>(value));
  return buildConstant(builder, location, DenseElementsAttr::get(type, element));
}

Value buildReshape(OpBuilder &builder, Location location, Value x, ArrayRef<Dim> shape) {
  auto type = llvm::cast<RankedTensorType>(x.getType());
  if (type.hasStaticShape() && typeOf(shape, type.getElementType()) == type)
    return x;
  return build<ReshapeOp>(builder, location, x,
                          builder.getNamedAttr("shape", dimsToAttr(builder.getContext(), shape)));
}

Value buildTranspose(OpBuilder &builder, Location location, Value x, ArrayRef<int64_t> perm) {
  return build<TransposeOp>(builder, location, x,
                            builder.getNamedAttr("perm", builder.getDenseI64ArrayAttr(perm)));
}

Value buildColumns(OpBuilder &builder, Location location, Value x, DimShape shape, const Dim &start,
                   const Dim &columns) {
  DimShape starts(shape.size(), Dim(0));
  starts.back() = start;
  shape.back() = columns;
  auto dims = [&](StringRef name, ArrayRef<Dim> of) {
    return builder.getNamedAttr(name, dimsToAttr(builder.getContext(), of));
  };
  const SmallVector<int64_t> steps(shape.size(), 1);
  return build<SliceOp>(builder, location, x,
                        {dims("starts", starts), dims("sizes", shape),
                         builder.getNamedAttr("steps", builder.getDenseI64ArrayAttr(steps))});
}

} // namespace fusion::nn
