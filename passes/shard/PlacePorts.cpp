// A graph that was cut before it came here says what it sums, not how its caches lie over the ranks: found
// from what differs between ranks.
#include "passes/shard/PlacePorts.h"

#include "ir/base/BindSymbols.h"
#include "ir/dialect/Types.h"

#include <set>

using namespace mlir;

namespace fusion {

namespace {

/// How many different values the ranks have: 1 is the same on all.
class Variants {
public:
  Variants(func::FuncOp function, int64_t ranks) : ranks(ranks) {
    for (Operation &op : function.getBody().front().without_terminator()) {
      int64_t most = ownVariants(&op);
      for (Value operand : op.getOperands())
        most = std::max(most, of(operand));
      if (llvm::isa<nn::AllReduceOp>(op))
        most = 1;
      for (Value result : op.getResults())
        variants[result] = most;
    }
  }
  int64_t of(Value value) const {
    auto found = variants.find(value);
    return found == variants.end() ? 1 : found->second;
  }

private:
  int64_t ownVariants(Operation *op) const {
    if (auto weight = llvm::dyn_cast<nn::WeightOp>(op); weight && weight.getRankPaths()) {
      std::set<std::pair<StringRef, int64_t>> places;
      for (auto [path, offset] :
           llvm::zip(weight.getRankPaths()->getAsValueRange<StringAttr>(), *weight.getRankOffsets()))
        places.insert({path, offset});
      return static_cast<int64_t>(places.size());
    }
    bool named = false;
    for (NamedAttribute attribute : op->getAttrs())
      if (nn::isDimsAttr(attribute.getValue()))
        for (const Dim &dim : nn::dimsFromAttr(llvm::cast<ArrayAttr>(attribute.getValue())))
          named |= dim.symbols().contains(std::string(rankSymbol));
    return named ? ranks : 1;
  }

  const int64_t ranks;
  DenseMap<Value, int64_t> variants;
};

/// The axis of `value` along which heads of an attention lie.
std::optional<unsigned> headAxis(Value value, const AxisClasses &classes) {
  for (unsigned axis = 0; axis < tensorType(value).getRank(); ++axis)
    if (auto id = classes.of(value, axis); id && classes.classes()[*id].ofHeads)
      return axis;
  return std::nullopt;
}
} // namespace

LogicalResult placePorts(func::FuncOp function, const nn::SymbolicShapes &shapes, int64_t ranks) {
  AxisClasses classes(function, shapes, /*vocabulary=*/false);
  Variants variants(function, ranks);
  Builder builder(function.getContext());
  auto place = [&](unsigned axis, int64_t shards) {
    return builder.getDenseI64ArrayAttr({static_cast<int64_t>(axis), shards});
  };
  for (BlockArgument argument : function.getArguments())
    if (auto axis = headAxis(argument, classes)) {
      int64_t shards = 1;
      for (const AxisClasses::Axis &member : classes.classes()[*classes.of(argument, *axis)].members)
        shards = std::max(shards, variants.of(member.value));
      if (shards > 1)
        function.setArgAttr(argument.getArgNumber(), nn::shardAttr, place(*axis, shards));
    }
  for (auto [index, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands())) {
    const int64_t shards = variants.of(value);
    if (shards == 1)
      continue;
    auto axis = headAxis(value, classes);
    if (!axis || ranks % shards != 0)
      return function.emitError()
             << "result " << index
             << " is not the same on all ranks, and its dims do not say how it is divided";
    function.setResultAttr(static_cast<unsigned>(index), nn::shardAttr, place(*axis, shards));
  }
  return success();
}

} // namespace fusion
