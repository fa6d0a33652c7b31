#include "api/IndexLimits.h"

#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/MapVector.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {

/// The argument that holds the same integers, or null.
BlockArgument integersOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    const bool keeps = op->hasTrait<nn::View>() ||
                       (llvm::isa<nn::CastOp>(op) && llvm::isa<IntegerType>(elementType(op->getOperand(0))) &&
                        !elementType(op->getOperand(0)).isInteger(1) && elementType(value).getIntOrFloatBitWidth() >= 32);
    if (!keeps)
      return {};
    value = op->getOperand(0);
  }
  auto argument = llvm::dyn_cast<BlockArgument>(value);
  return argument && llvm::isa<IntegerType>(elementType(argument)) ? argument : BlockArgument();
}

} // namespace

std::vector<IndexLimit> indexLimits(func::FuncOp function) {
  llvm::MapVector<unsigned, int64_t> sizes;
  function.walk([&](nn::GatherOp gather) {
    auto table = tensorType(gather.getX());
    const auto axis = static_cast<int64_t>(gather.getAxis());
    const int64_t size = table.getDimSize(static_cast<unsigned>(axis < 0 ? axis + table.getRank() : axis));
    BlockArgument argument = integersOf(gather.getIndices());
    if (!argument || argument.getOwner() != &function.getBody().front() || ShapedType::isDynamic(size))
      return;
    auto [entry, isNew] = sizes.insert({argument.getArgNumber(), size});
    if (!isNew)
      entry->second = std::min(entry->second, size);
  });
  std::vector<IndexLimit> limits;
  for (auto [number, size] : sizes)
    if (auto name = function.getArgAttrOfType<StringAttr>(number, nn::nameAttr))
      limits.push_back({name.getValue().str(), size});
  return limits;
}

Status checkIndices(const std::vector<IndexLimit> &limits, const NamedTensors &inputs) {
  for (const IndexLimit &limit : limits) {
    auto input = inputs.find(limit.input);
    if (input == inputs.end() || input->second.device().kind != Device::Kind::Host)
      continue;
    for (int64_t index : input->second.toInts())
      if (index < -limit.size || index >= limit.size)
        return badInput(fmt::format("input {}: index {} is out of range for a table of {} rows ({} to {})", limit.input,
                                    index, limit.size, -limit.size, limit.size - 1));
  }
  return {};
}

} // namespace fusion
