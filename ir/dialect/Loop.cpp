#include "ir/dialect/Loop.h"

#include "ir/dialect/Types.h"

#define GET_OP_CLASSES
#include "ir/dialect/NNLoop.cpp.inc"

using namespace mlir;

namespace fusion::nn {

func::FuncOp LoopOp::bodyFunction() {
  return SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(*this, getBodyAttr());
}

LogicalResult LoopOp::inferShapes(ShapeContext &context) {
  if (getState().size() > context.operandCount())
    return context.fail("has more results than operands");
  for (unsigned i = 0; i < getState().size(); ++i)
    context.set(i, context.shape(i));
  return success();
}

LogicalResult LoopOp::verifyForm() {
  if (getState().size() > getValues().size())
    return emitOpError("has more results than operands");
  if (getSteps() && getSteps()->size() != 1)
    return emitOpError("steps is not one dim");
  if (!getSteps() && !getConditional())
    return emitOpError("has neither steps nor a condition: it never ends");
  auto isFlag = [](Value value) {
    return tensorType(value).getRank() == 0 && elementType(value).isInteger(1);
  };
  if (getConditional() && (getState().empty() || !isFlag(getState()[0])))
    return emitOpError("is conditional, and its first result is not an i1 scalar");
  for (auto [value, state] : llvm::zip(getValues(), getState()))
    if (elementType(value) != elementType(state))
      return emitOpError("makes a state of other elements than it begins with");
  return success();
}

LogicalResult LoopOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto function = symbols.lookupNearestSymbolFrom<func::FuncOp>(*this, getBodyAttr());
  if (!function || !isLoopBody(function) || !function.getBody().hasOneBlock())
    return emitOpError("applies @") << getBody() << ", which is no private function of one block";
  auto fits = [](Type left, Type right) {
    auto a = llvm::dyn_cast<RankedTensorType>(left), b = llvm::dyn_cast<RankedTensorType>(right);
    return a && b && a.getElementType() == b.getElementType() && succeeded(verifyCompatibleShape(a, b));
  };
  auto allFit = [&](TypeRange left, TypeRange right) {
    return left.size() == right.size() && llvm::all_of(llvm::zip(left, right), [&](auto pair) {
             return fits(std::get<0>(pair), std::get<1>(pair));
           });
  };
  if (!allFit(getOperandTypes(), function.getArgumentTypes()) ||
      !allFit(getResultTypes(), function.getResultTypes()))
    return emitOpError("has operands and results of other types than @") << getBody();
  return success();
}

} // namespace fusion::nn
