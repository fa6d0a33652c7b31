#include "api/IndexLimits.h"

#include "ir/dialect/Scatter.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/TypeSwitch.h"

#include <fmt/format.h>

#include <optional>

using namespace mlir;

namespace fusion {

namespace {

/// The argument that holds the same integers, or null.
BlockArgument integersOf(Value value, bool throughViews) {
  while (Operation *op = value.getDefiningOp()) {
    const bool isView = op->hasTrait<nn::View>() && !llvm::isa<nn::SliceOp>(op);
    const bool widens = llvm::isa<nn::CastOp>(op) && llvm::isa<IntegerType>(elementType(op->getOperand(0))) &&
                        !elementType(op->getOperand(0)).isInteger(1) &&
                        elementType(value).getIntOrFloatBitWidth() >= 32;
    const bool isTable = llvm::isa<nn::GatherOp>(op) && throughViews; // any of its entries may be taken
    if (!widens && !(isView && throughViews) && !isTable)
      return {};
    value = op->getOperand(0);
  }
  auto argument = llvm::dyn_cast<BlockArgument>(value);
  return argument && llvm::isa<IntegerType>(elementType(argument)) ? argument : BlockArgument();
}

/// What an op looks up: dims of `table` from `first` on.
struct Lookup {
  Value table, indices;
  int64_t first;
  int64_t dims = 1;
};

std::optional<Lookup> lookupOf(Operation *op) {
  auto along = [](auto gather) {
    const auto axis = static_cast<int64_t>(gather.getAxis());
    return Lookup{gather.getX(), gather.getIndices(),
                  axis < 0 ? axis + tensorType(gather.getX()).getRank() : axis};
  };
  auto tuple = [](auto lookup, int64_t first) -> std::optional<Lookup> {
    const int64_t dims = tensorType(lookup.getIndices()).getShape().back();
    return ShapedType::isDynamic(dims)
               ? std::nullopt
               : std::optional(Lookup{lookup.getX(), lookup.getIndices(), first, dims});
  };
  using Found = std::optional<Lookup>;
  return llvm::TypeSwitch<Operation *, Found>(op)
      .Case<nn::GatherOp, nn::GatherElementsOp>([&](auto gather) -> Found { return along(gather); })
      .Case([&](nn::GatherNdOp gather) { return tuple(gather, static_cast<int64_t>(gather.getBatchDims())); })
      .Case<nn::ScatterNdOp, nn::ScatterReduceOp>([&](auto scatter) { return tuple(scatter, 0); })
      .Default([](Operation *) { return Found(); });
}

} // namespace

std::vector<IndexLimit> indexLimits(func::FuncOp function) {
  std::vector<IndexLimit> limits;
  std::optional<nn::SymbolicShapes> shapes; // only if needed: it takes a look at every op
  function.walk([&](Operation *op) {
    const std::optional<Lookup> lookup = lookupOf(op);
    const BlockArgument argument = lookup ? integersOf(lookup->indices, lookup->dims == 1) : BlockArgument();
    if (!argument || argument.getOwner() != &function.getBody().front())
      return;
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::nameAttr);
    if (!name)
      return;
    IndexLimit limit{name.getValue().str(), {}};
    for (int64_t dim = lookup->first; dim < lookup->first + lookup->dims; ++dim) {
      const int64_t size = tensorType(lookup->table).getDimSize(static_cast<unsigned>(dim));
      if (ShapedType::isDynamic(size) && !shapes) {
        FailureOr<nn::SymbolicShapes> computed = nn::SymbolicShapes::compute(function);
        if (failed(computed))
          return;
        shapes = std::move(*computed);
      }
      limit.sizes.push_back(ShapedType::isDynamic(size) ? (*shapes)[lookup->table][static_cast<size_t>(dim)]
                                                        : Dim(size));
    }
    if (!llvm::is_contained(limits, limit))
      limits.push_back(std::move(limit));
  });
  return limits;
}

static Status checkInput(const IndexLimit &limit, const std::vector<int64_t> &sizes, const Tensor &input) {
  size_t entry = 0;
  for (int64_t index : input.toInts()) {
    const int64_t size = sizes[entry];
    entry = (entry + 1) % sizes.size();
    if (index < -size || index >= size)
      return badInput(
          size == 0 ? fmt::format("input {}: index {} into a table of no rows", limit.input, index)
                    : fmt::format("input {}: index {} is out of range for a table of {} rows ({} to {})",
                                  limit.input, index, size, -size, size - 1));
  }
  return {};
}

Status checkIndices(const std::vector<IndexLimit> &limits, std::span<const PortShape> ports,
                    const NamedTensors &inputs) {
  std::optional<Result<SymbolValues>> symbols; // of this run
  for (const IndexLimit &limit : limits) {
    auto input = inputs.find(limit.input);
    if (input == inputs.end() || input->second.device().kind != Device::Kind::Host ||
        isFloat(input->second.type()))
      continue;
    std::vector<int64_t> sizes;
    for (const Dim &size : limit.sizes) {
      if (!size.constant() && !symbols)
        symbols = bindSymbols(ports, inputs);
      auto value = size.constant() ? Result<int64_t>(*size.constant())
                   : *symbols      ? size.evaluate(**symbols)
                                   : Result<int64_t>(symbols->error());
      if (value)
        sizes.push_back(*value);
    }
    if (sizes.size() == limit.sizes.size())
      if (Status status = checkInput(limit, sizes, input->second); !status)
        return status;
  }
  return {};
}

} // namespace fusion
