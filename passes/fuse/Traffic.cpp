// Estimates: memory traffic of ops and groups, kernels by layer.
#include "passes/fuse/Traffic.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

double Traffic::elements(Value value) const {
  auto count = product(shapes[value]).evaluate(sizes);
  return count ? static_cast<double>(*count) : 0;
}

int64_t Traffic::bytes(Value value) const {
  auto count = product(shapes[value]).evaluate(sizes);
  if (!count)
    return 0;
  const DType type = dtype(value);
  if (type == DType::I4 || type == DType::U4) // as weights are
    return (*count + 1) / 2;
  return *count * static_cast<int64_t>(byteSize(type));
}

int64_t Traffic::bytes(ArrayRef<Value> inputs, ArrayRef<Value> outputs) const {
  int64_t total = 0;
  for (Value input : inputs)
    total += bytes(input);
  for (Value output : outputs) {
    total += bytes(output);
    if (Value past = oracle.extendedInPlace(output))
      total -= bytes(past) * (llvm::is_contained(inputs, past) ? 2 : 1);
  }
  return total;
}

int64_t Traffic::unfused(ArrayRef<Operation *> ops) const {
  int64_t total = 0;
  for (Operation *op : ops) {
    if (oracle.isView(op))
      continue;
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp(); !producer || !isBodyConstant(producer))
        operands.push_back(operand);
    total += bytes(operands, SmallVector<Value>(op->getResults()));
  }
  return total;
}

int64_t Traffic::launch(Operation *op) const {
  if (auto group = llvm::dyn_cast<GroupOp>(op))
    return bytes(SmallVector<Value>(group.getInputs()), SmallVector<Value>(group.getResults()));
  return unfused(op);
}

int64_t Traffic::saving(ArrayRef<Operation *> ops, ArrayRef<Operation *> clones) const {
  GroupPorts ports = portsOf(ops, clones);
  int64_t saved = -bytes(ports.inputs, ports.outputs);
  for (Operation *op : ops)
    saved += launch(op);
  return saved;
}

} // namespace fusion
