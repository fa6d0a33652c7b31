// Buffers, ports and equalities of a plan.
#include "codegen/ChooseSchedule.h"
#include "codegen/PlanBuilder.h"
#include "ir/base/BindSymbols.h"

#include "ir/dialect/InPlace.h"
#include "ir/dialect/Types.h"

#include <filesystem>

using namespace mlir;

namespace fusion {

/// How an argument or result is divided among ranks.
static std::optional<PortPlan::Shard> shardOf(Attribute attribute) {
  auto shard = llvm::dyn_cast_or_null<DenseI64ArrayAttr>(attribute);
  return shard ? std::optional<PortPlan::Shard>({shard[0], shard[1]}) : std::nullopt;
}

BufferId PlanBuilder::addBuffer(BufferPlan::Kind kind, Value value, std::string name) {
  BufferId id = static_cast<BufferId>(plan.buffers.size());
  plan.buffers.push_back({kind, std::move(name), dtype(value), shapes[value], {}});
  return id;
}

BufferId PlanBuilder::scratchBuffer(const Region &region, const Dim &elements) {
  auto [place, isNew] = scratch.try_emplace(region.anchor, static_cast<BufferId>(plan.buffers.size()));
  if (isNew)
    plan.buffers.push_back(
        {BufferPlan::Kind::Temporary, locationName(region.anchor->getLoc()), DType::I32, {elements}, {}});
  else if (Dim &most = plan.buffers[place->second].shape[0]; most != elements)
    most = Dim::max(most, elements);
  return place->second;
}

void PlanBuilder::planArguments() {
  for (BlockArgument argument : function.getArguments()) {
    std::string name = nn::argumentName(function, argument.getArgNumber());
    BufferId id = buffers[argument] = addBuffer(BufferPlan::Kind::Input, argument, name);
    plan.inputs.push_back({name, dtype(argument), shapes[argument], id, 0, {},
                           shardOf(function.getArgAttr(argument.getArgNumber(), nn::shardAttr))});
    if (auto storage = nn::storageOf(function, argument.getArgNumber())) {
      plan.buffers[id].shape = *storage;
      plan.inputs.back().strides = views[argument].strides;
    }
  }
  recordEqualities();
}

void PlanBuilder::recordEqualities() {
  for (const nn::SymbolicShapes::Equality &equality : shapes.equalities()) {
    auto same = [&](const ProgramPlan::Equality &known) {
      return known.left == equality.left && known.right == equality.right;
    };
    // What sharding made of a rank's number holds for every rank, and inputs do not tell the number.
    const bool isOfRank = equality.left.symbols().contains(std::string(rankSymbol)) ||
                          equality.right.symbols().contains(std::string(rankSymbol));
    if (equality.left == equality.right || isOfRank || llvm::any_of(plan.equalities, same))
      continue;
    plan.equalities.push_back({equality.left, equality.right, describeOp(equality.op)});
  }
}

Result<BufferId> PlanBuilder::weightBuffer(nn::WeightOp weight) {
  const auto parts = static_cast<int64_t>(weight.getPartOffsets() ? weight.getPartOffsets()->size() : 1);
  auto spanAt = [&](StringRef file, int64_t offset) {
    std::filesystem::path path(file.str());
    if (path.is_relative() && !options.baseFolder.empty())
      path = std::filesystem::path(options.baseFolder) / path;
    return FileSpan{path.string(), static_cast<uint64_t>(offset),
                    static_cast<uint64_t>(weight.getLength() / parts)};
  };
  BufferId id = buffers[weight] = addBuffer(BufferPlan::Kind::Weight, weight, weight.getName().str());
  plan.buffers[id].contents = spanAt(weight.getPath(), weight.getOffset());
  if (auto paths = weight.getRankPaths())
    for (auto [path, offset] : llvm::zip(paths->getAsValueRange<StringAttr>(), *weight.getRankOffsets()))
      plan.buffers[id].perRank.push_back(spanAt(path, offset));
  if (auto paths = weight.getPartPaths())
    for (auto [path, offset] : llvm::zip(paths->getAsValueRange<StringAttr>(), *weight.getPartOffsets()))
      plan.buffers[id].parts.push_back(spanAt(path, offset));
  if (auto starts = weight.getStarts())
    plan.buffers[id].window = {Shape(weight.shapeInFile()), nn::dimsFromAttr(*starts)};
  return id;
}

/// 4-bit elements two to a byte, low half first, as bytes; other tensors as they are.
static Tensor packed(const Tensor &tensor) {
  if (tensor.type() != DType::I4 && tensor.type() != DType::U4)
    return tensor;
  Tensor bytes = Tensor::zeros(DType::U8, {(tensor.size() + 1) / 2});
  const auto *values = tensor.as<uint8_t>();
  for (int64_t i = 0; i < tensor.size(); ++i)
    bytes.as<uint8_t>()[i / 2] |= static_cast<uint8_t>((values[i] & 15) << (i % 2 * 4));
  return bytes;
}

Result<BufferId> PlanBuilder::constantBuffer(nn::ConstantOp constant) {
  if (!llvm::isa<DenseElementsAttr>(constant.getValue()))
    return badInput(describeOp(constant) + ": a constant whose elements are not in the module");
  BufferId id = buffers[constant] = addBuffer(BufferPlan::Kind::Weight, constant, describeOp(constant));
  plan.buffers[id].contents = packed(toTensor(constant.getValue()));
  return id;
}

Result<BufferId> PlanBuilder::bufferOf(Value base) {
  if (auto found = buffers.find(base); found != buffers.end())
    return found->second;
  Operation *op = base.getDefiningOp();
  if (auto weight = llvm::dyn_cast_or_null<nn::WeightOp>(op))
    return weightBuffer(weight);
  if (auto constant = llvm::dyn_cast_or_null<nn::ConstantOp>(op))
    return constantBuffer(constant);
  if (!op || !llvm::isa<nn::DimConstantOp>(op))
    return badInput((op ? describeOp(op) : std::string("an argument")) + ": is used before it is computed");
  BufferId id = buffers[base] = addBuffer(BufferPlan::Kind::Temporary, base, locationName(op->getLoc()));
  if (Status status = planRegion(Region::of(op), id); !status)
    return status.error();
  return id;
}

Status PlanBuilder::planResults(Operation *returns) {
  for (unsigned index = 0; index < returns->getNumOperands(); ++index)
    if (Status status = planResult(returns, index); !status)
      return status;
  return {};
}

/// A result is the buffer that holds exactly its elements, a corner of an argument's that it extends, or a
/// copy.
Status PlanBuilder::planResult(Operation *returns, unsigned index) {
  Value value = returns->getOperand(index);
  const View &view = views[value];
  std::string name = nn::resultName(function, index);
  bool isKept = nn::isStored(view.base) || prepared.contains(view.base);
  bool isWhole =
      view.isContiguous() && view.offset == Dim(0) && product(view.shape) == product(shapes[view.base]);
  const auto shard = shardOf(function.getResultAttr(index, nn::shardAttr));
  BufferId id;
  const Value written = nn::behindReshapes(value);
  if (views.isInPlace(value) || (nn::replacesRows(written) && views.isInPlace(written))) {
    plan.outputs.push_back({name, dtype(value), shapes[value], buffers[view.base], 0, view.strides, shard});
    return {};
  }
  if (auto alias = function.getResultAttrOfType<IntegerAttr>(index, nn::aliasAttr))
    return badInput("result " + name + ": nn.alias says that it extends argument " +
                    std::to_string(alias.getInt()) + ", but no op that writes a cache does that");
  if (isWhole && !isKept) {
    auto buffer = bufferOf(view.base);
    if (!buffer)
      return buffer.error();
    id = *buffer;
    if (plan.buffers[id].kind == BufferPlan::Kind::Temporary)
      plan.buffers[id].kind = BufferPlan::Kind::Output;
  } else {
    id = addBuffer(BufferPlan::Kind::Output, value, name);
    Operation *anchor = value.getDefiningOp() ? value.getDefiningOp() : returns;
    if (Status status = planCopy(value, view, id, anchor); !status)
      return status;
  }
  plan.outputs.push_back({name, dtype(value), shapes[value], id, 0, {}, shard});
  return {};
}

} // namespace fusion
