#include "ir/dialect/SymbolicShapes.h"

using namespace mlir;

namespace fusion::nn {

DimShape argumentDims(func::FuncOp function, unsigned index) {
  auto type = llvm::cast<RankedTensorType>(function.getArgument(index).getType());
  if (auto declared = function.getArgAttrOfType<ArrayAttr>(index, dimsAttr);
      declared && isDimsAttr(declared) && declared.size() == static_cast<size_t>(type.getRank()))
    return dimsFromAttr(declared);
  DimShape shape;
  for (auto [dim, size] : llvm::enumerate(type.getShape()))
    shape.push_back(ShapedType::isDynamic(size)
                        ? Dim::symbol(("arg" + Twine(index) + "_d" + Twine(dim)).str())
                        : Dim(size));
  return shape;
}

static std::string nameOr(StringAttr name, const Twine &usual) { return name ? name.str() : usual.str(); }

std::string argumentName(func::FuncOp function, unsigned index) {
  return nameOr(function.getArgAttrOfType<StringAttr>(index, nameAttr), "arg" + Twine(index));
}

std::string resultName(func::FuncOp function, unsigned index) {
  return nameOr(function.getResultAttrOfType<StringAttr>(index, nameAttr), "result" + Twine(index));
}

FailureOr<SymbolicShapes> SymbolicShapes::compute(func::FuncOp function) {
  SymbolicShapes analysis;
  for (BlockArgument argument : function.getArguments())
    if (llvm::isa<RankedTensorType>(argument.getType()))
      analysis.shapes[argument] = argumentDims(function, argument.getArgNumber());
  WalkResult walk = function.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
    return failed(analysis.add(op)) ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  return analysis;
}

const DimShape &SymbolicShapes::operator[](Value value) const {
  auto found = shapes.find(value);
  assert(found != shapes.end() && "value was not analysed");
  return found->second;
}

LogicalResult SymbolicShapes::add(Operation *op) {
  if (auto group = llvm::dyn_cast<GroupOp>(op)) {
    // Visited before its body: hand the operands' shapes to the body's arguments.
    for (auto [argument, input] : llvm::zip(group.getBody().getArguments(), group.getInputs()))
      shapes[argument] = DimShape(shapes[input]);
    return success();
  }
  if (auto yield = llvm::dyn_cast<YieldOp>(op)) {
    for (auto [value, result] : llvm::zip(yield.getValues(), yield->getParentOp()->getResults()))
      shapes[result] = DimShape(shapes[value]);
    return success();
  }
  auto inference = llvm::dyn_cast<ShapeInference>(op);
  if (!inference) {
    // An op of another dialect: what its types tell.
    for (Value result : op->getResults())
      if (llvm::isa<RankedTensorType>(result.getType()))
        shapes[result] = shapeFromType(result);
    return success();
  }
  SmallVector<DimShape> operands;
  for (Value operand : op->getOperands())
    operands.push_back((*this)[operand]);
  ShapeContext context(op, operands);
  if (failed(inference.inferShapes(context)))
    return op->emitOpError() << context.error();
  for (auto [result, shape] : llvm::zip(op->getResults(), context.resultShapes()))
    shapes[result] = shape;
  for (const ShapeContext::Equality &equality : context.equalities())
    recorded.push_back({equality.left, equality.right, op});
  return success();
}

} // namespace fusion::nn
