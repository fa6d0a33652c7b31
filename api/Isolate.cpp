#include "api/Isolate.h"

#include "ir/dialect/InPlace.h"
#include "passes/fuse/Candidate.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace fusion {

OwningOpRef<ModuleOp> isolate(ArrayRef<Operation *> ops, ArrayRef<Value> inputs, ArrayRef<Value> outputs,
                              const nn::SymbolicShapes &shapes, const std::set<std::string> &symbols,
                              SmallVectorImpl<Operation *> *copies) {
  MLIRContext *context = ops.front()->getContext();
  Location where = ops.back()->getLoc();
  OpBuilder builder(context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(where);
  builder.setInsertionPointToEnd(module->getBody());
  SmallVector<Type> arguments, results;
  for (Value input : inputs)
    arguments.push_back(input.getType());
  for (Value output : outputs)
    results.push_back(output.getType());
  DimShape binding;
  for (const std::string &symbol : symbols)
    binding.push_back(Dim::symbol(symbol));
  if (!binding.empty())
    arguments.push_back(RankedTensorType::get(SmallVector<int64_t>(binding.size(), ShapedType::kDynamic),
                                              builder.getI1Type()));
  auto function =
      func::FuncOp::create(builder, where, "main", builder.getFunctionType(arguments, results));
  Block *block = function.addEntryBlock();
  IRMapping mapping;
  for (auto [index, input] : llvm::enumerate(inputs)) {
    function.setArgAttr(index, nn::dimsAttr, nn::dimsToAttr(context, shapes[input]));
    mapping.map(input, block->getArgument(index));
  }
  if (!binding.empty())
    function.setArgAttr(static_cast<unsigned>(inputs.size()), nn::dimsAttr, nn::dimsToAttr(context, binding));
  // Caches are extended in place here too.
  auto around = ops.front()->getParentOfType<func::FuncOp>();
  const auto inPlace = around ? nn::valuesInPlace(around) : llvm::DenseMap<Value, BlockArgument>();
  for (auto [index, output] : llvm::enumerate(outputs))
    if (auto cache = inPlace.find(output); cache != inPlace.end()) {
      auto past = llvm::find_if(inputs, [&](Value input) {
        return input == cache->second ||
               (nn::replacesRows(output) && nn::behindReshapes(input) == cache->second);
      });
      if (past == inputs.end())
        continue;
      const auto input = static_cast<unsigned>(past - inputs.begin());
      const DimShape storage = *past == cache->second ? *nn::storageOf(around, cache->second.getArgNumber())
                                                      : shapes[*past]; // which fills the buffer
      function.setArgAttr(input, nn::storageAttr, nn::dimsToAttr(context, storage));
      function.setResultAttr(static_cast<unsigned>(index), nn::aliasAttr, builder.getI64IntegerAttr(input));
    }
  builder.setInsertionPointToEnd(block);
  for (Operation *op : ops) {
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp();
          producer && !mapping.contains(operand) && isBodyConstant(producer))
        builder.clone(*producer, mapping);
    Operation *copy = builder.clone(*op, mapping);
    if (copies)
      copies->push_back(copy);
  }
  SmallVector<Value> returned;
  for (Value output : outputs)
    returned.push_back(mapping.lookup(output));
  func::ReturnOp::create(builder, where, returned);
  return module;
}

} // namespace fusion
