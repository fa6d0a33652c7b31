#include "passes/raise/RoutedRows.h"

#include "passes/Positions.h"
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::raise {

bool RoutedRows::isMerged(Value value) const {
  DimShape shape = raiser.shapes.of(value);
  return !shape.empty() && shape.front() == merged;
}

DimShape RoutedRows::splitShape(const DimShape &shape) const {
  DimShape target = apart;
  target.insert(target.end(), shape.begin() + 1, shape.end());
  return target;
}

Value RoutedRows::shaped(Value value, const DimShape &shape) {
  for (Value from = value;;) {
    if (raiser.shapes.of(from) == shape)
      return from;
    auto view = from.getDefiningOp<nn::ReshapeOp>();
    if (!view)
      return nn::buildReshape(raiser.rewriter, value.getLoc(), from, shape);
    from = view.getX();
  }
}

Value RoutedRows::split(Value value) {
  DimShape shape = raiser.shapes.of(value);
  if (Value made = splitAsMade(value, shape))
    return made;
  return shaped(value, splitShape(shape));
}

/// Null where the op that makes the value has to stay as it is.
Value RoutedRows::splitAsMade(Value value, const DimShape &shape) {
  Operation *op = value.getDefiningOp();
  auto &rewriter = raiser.rewriter;
  if (auto view = llvm::dyn_cast_or_null<nn::ReshapeOp>(op)) {
    DimShape from = raiser.shapes.of(view.getX());
    return !from.empty() && from.front() == merged ? shaped(split(view.getX()), splitShape(shape)) : Value();
  }
  if (auto slice = llvm::dyn_cast_or_null<nn::SliceOp>(op)) {
    DimShape starts = nn::dimsFromAttr(slice.getStarts()), sizes = nn::dimsFromAttr(slice.getSizes());
    if (!isMerged(slice.getX()) || slice.getSteps().front() != 1)
      return {};
    SmallVector<int64_t> steps(apart.size() - 1, 1);
    llvm::append_range(steps, slice.getSteps());
    starts.insert(starts.begin(), apart.size() - 1, Dim(0));
    Value source = split(slice.getX());
    MLIRContext *context = op->getContext();
    return nn::build<nn::SliceOp>(rewriter, op->getLoc(), source,
                                  {rewriter.getNamedAttr("starts", nn::dimsToAttr(context, starts)),
                                   rewriter.getNamedAttr("sizes", nn::dimsToAttr(context, splitShape(sizes))),
                                   rewriter.getNamedAttr("steps", rewriter.getDenseI64ArrayAttr(steps))});
  }
  if (auto gather = llvm::dyn_cast_or_null<nn::GatherOp>(op)) {
    if (gather.getAxis() != 0 || !isMerged(gather.getIndices()))
      return {};
    Value indices = split(gather.getIndices());
    return nn::build<nn::GatherOp>(rewriter, op->getLoc(), {gather.getX(), indices}, op->getAttrs());
  }
  return op && op->hasTrait<nn::Pointwise>() ? splitOperands(op, shape) : Value();
}

Value RoutedRows::splitOperands(Operation *op, const DimShape &shape) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    DimShape own = raiser.shapes.of(operand);
    if (own.size() < shape.size())
      operands.push_back(operand); // meets the dims behind the rows
    else if (own.front() == merged)
      operands.push_back(split(operand));
    else if (own.front() == Dim(1))
      operands.push_back(own.size() == 1 ? shaped(operand, {})
                                         : shaped(operand, DimShape(own.begin() + 1, own.end())));
    else
      return {};
  }
  return normalise::rebuild(raiser.rewriter, op, operands);
}

Value RoutedRows::ofOneSlot(Value value) {
  const size_t slots = apart.size() - 1;
  DimShape shape = raiser.shapes.of(value), one = shape;
  one[slots] = Dim(1);
  if (shape[slots] == Dim(1))
    return value;
  if (auto view =
          value.getDefiningOp<nn::ReshapeOp>()) { // that only adds or drops dims of 1 behind the slots
    DimShape from = raiser.shapes.of(view.getX());
    if (from.size() <= slots || !std::equal(apart.begin(), apart.end(), from.begin()))
      return {};
    Value source = ofOneSlot(view.getX());
    return source ? shaped(source, one) : Value();
  }
  if (auto expand = value.getDefiningOp<nn::ExpandOp>())
    return raiser.shapes.of(expand.getX()) == one ? Value(expand.getX()) : Value();
  auto gather = value.getDefiningOp<nn::GatherOp>();
  if (!gather || gather.getAxis() != 0 || raiser.shapes.of(gather.getIndices()) != apart)
    return {};
  Value indices = ofOneSlot(gather.getIndices());
  if (!indices)
    return {};
  // Pattern: gather(x, the row's own number) -> x
  DimShape rows(apart.begin(), apart.end() - 1);
  auto number = Positions(raiser.shapes).affine(indices);
  if (rows.size() == 1 && number && number->base == Dim(0) && number->steps.front() == 1 &&
      raiser.shapes.of(gather.getX()).front() == rows.front())
    return shaped(gather.getX(), one);
  return nn::build<nn::GatherOp>(raiser.rewriter, gather.getLoc(), {gather.getX(), indices},
                                 gather->getAttrs());
}

} // namespace fusion::raise
