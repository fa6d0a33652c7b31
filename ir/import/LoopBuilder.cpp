#include "ir/import/LoopBuilder.h"

#include "ir/dialect/InPlace.h"
#include "ir/dialect/Loop.h"
#include "ir/import/Graph.h"

using namespace mlir;

namespace fusion::onnx {

LoopBuilder::LoopBuilder(NodeImporter &node)
    : n(node), outside(node.builder().saveInsertionPoint()), isOutermost(!node.owner().outermost) {
  auto module = outside.getBlock()->getParentOp()->getParentOfType<ModuleOp>();
  OpBuilder &builder = n.builder();
  builder.setInsertionPointToEnd(module.getBody());
  function = func::FuncOp::create(builder, n.location(), "loop_" + std::to_string(n.owner().loops++),
                                  builder.getFunctionType({}, {}));
  function.setPrivate();
  block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  if (isOutermost)
    n.owner().outermost = outside;
}

LoopBuilder::~LoopBuilder() {
  if (!function)
    return;
  n.builder().restoreInsertionPoint(outside);
  if (isOutermost)
    n.owner().outermost.reset();
  function.erase();
}

Value LoopBuilder::state(Value initial) {
  if (n.failed() || !initial)
    return {};
  Value argument = block->addArgument(initial.getType(), n.location());
  n.owner().setShape(argument, n.shapeOf(initial));
  states.push_back({initial});
  return argument;
}

void LoopBuilder::next(unsigned state, Value value) {
  if (n.failed() || !value)
    return;
  const DimShape &before = n.shapeOf(states[state].initial), &after = n.shapeOf(value);
  auto differs = [&](const Dim &left, const Dim &right) {
    const Dim difference = n.owner().resolve(left - right);
    const std::set<std::string> symbols = difference.symbols();
    // n and 2 * n are equal where there is nothing, which is not what the graph means
    const bool holdsForNone =
        symbols.size() == 1 && difference.substitute({{*symbols.begin(), Dim(0)}}) == Dim(0);
    return holdsForNone || (difference.isStatic() && !(difference == Dim(0)));
  };
  bool same = NodeImporter::typeOf(value) == NodeImporter::typeOf(states[state].initial) &&
              before.size() == after.size();
  for (size_t i = 0; same && i < before.size(); ++i)
    same = !differs(before[i], after[i]);
  if (!same)
    return n.fail("a value that the steps hand on changes from " + shapeString(before) + " to " +
                  shapeString(after) + ": its shape or type must stay the same");
  for (auto [left, right] : llvm::zip(before, after))
    n.takeAsEqual(left, right);
  states[state].next = n.reshape(value, DimShape(before));
}

Value LoopBuilder::index() {
  if (!indexState) {
    indexState = static_cast<unsigned>(states.size());
    OpBuilder::InsertionGuard guard(n.builder());
    n.builder().restoreInsertionPoint(outside);
    Value zero = n.scalar(n.i64Type(), 0);
    n.builder().setInsertionPointToStart(block);
    Value argument = state(zero);
    next(*indexState, n.add(argument, n.scalar(n.i64Type(), 1)));
  }
  return n.failed() ? Value() : block->getArgument(*indexState);
}

unsigned LoopBuilder::stack(Value x, const Dim &steps) {
  const Value step = index();
  const auto result = static_cast<unsigned>(states.size());
  if (n.failed() || !x)
    return result;
  DimShape entry = n.shapeOf(x);
  entry.insert(entry.begin(), Dim(1));
  DimShape whole = entry;
  whole.front() = steps;
  OpBuilder::InsertPoint inside = n.builder().saveInsertionPoint();
  n.builder().restoreInsertionPoint(outside);
  Value empty = n.expand(n.scalar(NodeImporter::typeOf(x), 0), whole);
  n.builder().restoreInsertionPoint(inside);
  Value argument = state(empty);
  Value row = n.reshape(step, DimShape(entry.size(), Dim(1)));
  next(result, n.build<nn::CacheWriteOp>({argument, n.reshape(x, entry), row}, n.i64("axis", 0)));
  if (!n.failed())
    states[result].isStack = true;
  return result;
}

void LoopBuilder::capture() {
  OpBuilder builder = OpBuilder::atBlockBegin(block);
  llvm::DenseMap<Value, Value> handed;
  for (Operation &op : *block)
    for (OpOperand &operand : op.getOpOperands()) {
      Value value = operand.get();
      if (value.getParentBlock() == block)
        continue;
      Value &own = handed[value];
      if (!own) {
        Operation *source = value.getDefiningOp();
        if (llvm::isa_and_nonnull<nn::ConstantOp, nn::DimConstantOp>(source)) {
          own = builder.clone(*source)->getResult(0);
        } else {
          own = block->addArgument(value.getType(), n.location());
          captured.push_back(value);
        }
        n.owner().setShape(own, DimShape(n.shapeOf(value)));
      }
      operand.set(own);
    }
}

SmallVector<Value> LoopBuilder::finish(std::optional<Dim> steps, bool conditional) {
  if (n.failed())
    return {};
  OpBuilder &builder = n.builder();
  SmallVector<Value> results, operands;
  SmallVector<Type> elements;
  for (const State &state : states) {
    results.push_back(state.next);
    operands.push_back(state.initial);
    elements.push_back(NodeImporter::typeOf(state.initial));
  }
  func::ReturnOp::create(builder, n.location(), results);
  capture();
  operands.append(captured);
  // The return op's operands may have been captured: its types stay the same.
  function.setType(builder.getFunctionType(block->getArgumentTypes(),
                                           TypeRange(ValueRange(operands).take_front(states.size()))));
  for (auto [index, argument] : llvm::enumerate(block->getArguments()))
    function.setArgAttr(static_cast<unsigned>(index), nn::dimsAttr,
                        nn::dimsToAttr(n.context(), n.shapeOf(argument)));
  for (auto [index, state] : llvm::enumerate(states))
    if (state.isStack) {
      const auto at = static_cast<unsigned>(index);
      function.setArgAttr(at, nn::storageAttr, nn::dimsToAttr(n.context(), n.shapeOf(state.initial)));
      function.setResultAttr(at, nn::aliasAttr, builder.getI64IntegerAttr(at));
    }
  builder.restoreInsertionPoint(outside);
  if (isOutermost)
    n.owner().outermost.reset();
  SmallVector<NamedAttribute> attributes = {
      builder.getNamedAttr("body", FlatSymbolRefAttr::get(n.context(), function.getSymName()))};
  if (steps)
    attributes.push_back(n.dims("steps", {*steps}));
  if (conditional)
    attributes.push_back(n.flag("conditional", true));
  function = {};
  return n.create(nn::LoopOp::getOperationName(), operands, attributes, elements);
}

} // namespace fusion::onnx
