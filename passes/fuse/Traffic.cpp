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

int64_t Traffic::bytes(ArrayRef<Value> values) const {
  int64_t total = 0;
  for (Value value : values)
    total += bytes(value);
  return total;
}

int64_t Traffic::unfused(ArrayRef<Operation *> ops) const {
  int64_t total = 0;
  for (Operation *op : ops) {
    if (oracle.isView(op))
      continue;
    for (Value operand : op->getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (!producer || !isBodyConstant(producer))
        total += bytes(operand);
    }
    for (Value result : op->getResults())
      total += bytes(result);
  }
  return total;
}

int64_t Traffic::launch(Operation *op) const {
  if (auto group = llvm::dyn_cast<GroupOp>(op)) {
    SmallVector<Value> ports(group.getInputs());
    ports.append(group.getResults().begin(), group.getResults().end());
    return bytes(ports);
  }
  return unfused(op);
}

std::string layerOf(StringRef location) {
  SmallVector<StringRef> parts;
  location.split(parts, '.');
  // Up to and including the first number: model.layers.0
  std::string layer;
  for (StringRef part : parts) {
    layer += (layer.empty() ? "" : ".") + part.str();
    unsigned number;
    if (!part.getAsInteger(10, number))
      return layer;
  }
  return {};
}

} // namespace fusion
