#include "ir/dialect/InPlace.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion::nn {

std::optional<DimShape> storageOf(func::FuncOp function, unsigned argument) {
  auto declared = function.getArgAttrOfType<ArrayAttr>(argument, storageAttr);
  auto type = llvm::dyn_cast<RankedTensorType>(function.getArgument(argument).getType());
  if (!declared || !type || !isDimsAttr(declared) || declared.size() != static_cast<size_t>(type.getRank()))
    return std::nullopt;
  return dimsFromAttr(declared);
}

Operation *cacheWriteOf(Value value) {
  Operation *op = value.getDefiningOp();
  return op && llvm::isa<ConcatOp, CacheWriteOp>(op) ? op : nullptr;
}

Value behindReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<ReshapeOp>())
    value = reshape.getX();
  return value;
}

bool replacesRows(Value value) {
  if (auto group = value.getDefiningOp<GroupOp>())
    value =
        group.getBody().front().getTerminator()->getOperand(llvm::cast<OpResult>(value).getResultNumber());
  auto write = value.getDefiningOp<CacheWriteOp>();
  return write ? !write.getGrows() : value.getDefiningOp<ScatterNdOp>() != nullptr;
}

/// What the op extends or replaces.
static Value pastOf(Value value) {
  if (Operation *write = cacheWriteOf(value))
    return replacesRows(value) ? behindReshapes(write->getOperand(0)) : write->getOperand(0);
  if (auto scatter = value.getDefiningOp<ScatterNdOp>())
    return behindReshapes(scatter.getX());
  auto attention = value.getDefiningOp<LinearAttentionOp>();
  return attention && value == attention.getNewState() ? attention.getState() : Value();
}

/// The same, as the function sees it.
static Value extended(Value value) {
  auto group = value.getDefiningOp<GroupOp>();
  if (!group)
    return pastOf(value);
  Block &body = group.getBody().front();
  auto input = llvm::dyn_cast_or_null<BlockArgument>(
      pastOf(body.getTerminator()->getOperand(llvm::cast<OpResult>(value).getResultNumber())));
  if (!input || input.getOwner() != &body)
    return {};
  Value past = group.getInputs()[input.getArgNumber()];
  return replacesRows(value) ? behindReshapes(past) : past;
}

/// Whether the argument is all of its buffer.
static bool fills(BlockArgument argument, const DimShape &storage) {
  auto type = tensorType(argument);
  for (auto [size, dim] : llvm::zip(type.getShape(), storage))
    if (ShapedType::isDynamic(size) ? dim.isStatic() : !(dim == Dim(size)))
      return false;
  return true;
}

llvm::DenseMap<Value, BlockArgument> valuesInPlace(func::FuncOp function) {
  llvm::DenseMap<Value, BlockArgument> values;
  Operation *returns = function.getBody().front().getTerminator();
  for (unsigned result = 0; result < returns->getNumOperands(); ++result) {
    auto alias = function.getResultAttrOfType<IntegerAttr>(result, aliasAttr);
    if (!alias || alias.getInt() < 0 || alias.getInt() >= function.getNumArguments())
      continue;
    BlockArgument argument = function.getArgument(static_cast<unsigned>(alias.getInt()));
    Value value = returns->getOperand(result);
    if (Value written = behindReshapes(value); replacesRows(written))
      value = written;
    const auto storage = storageOf(function, argument.getArgNumber());
    const bool isReshaped = replacesRows(value) && value.getType() != argument.getType();
    if (storage && extended(value) == argument && (!isReshaped || fills(argument, *storage)))
      values[value] = argument;
  }
  return values;
}

} // namespace fusion::nn
