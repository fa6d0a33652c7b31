#include "passes/shard/Sharder.h"

#include "ir/base/BindSymbols.h"
#include "ir/dialect/Build.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/Types.h"
#include "passes/MissLog.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fusion {

LogicalResult Sharder::run() {
  // What is divided is asked of the values of the graph as it was: before the first of them goes.
  for (Operation &op : function.getBody().front().without_terminator())
    for (Value result : op.getResults())
      shards[result] = division.of(result);
  recordResults();
  for (BlockArgument argument : function.getArguments())
    shardArgument(argument);
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front().without_terminator()))
    if (failed(shard(&op)))
      return failure();
  SmallVector<Type> results(function.getBody().front().getTerminator()->getOperandTypes());
  function.setFunctionType(
      FunctionType::get(function.getContext(), function.getBody().front().getArgumentTypes(), results));
  nn::setMesh(function, {nn::tensorAxis.str(), ranks});
  return success();
}

DimShape Sharder::localShape(DimShape shape, const DividedAxis &shard) {
  if (shard)
    shape[shard->first] = Dim(shape[shard->first].value() / shard->second);
  return shape;
}

Attribute Sharder::shardAttribute(const DividedAxis &shard) {
  return builder.getDenseI64ArrayAttr({static_cast<int64_t>(shard->first), shard->second});
}

void Sharder::recordResults() {
  Operation *terminator = function.getBody().front().getTerminator();
  for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
    if (DividedAxis shard = division.of(value)) {
      const unsigned number = static_cast<unsigned>(index);
      function.setResultAttr(number, nn::shardAttr, shardAttribute(shard));
      function.setResultAttr(number, nn::dimsAttr,
                             nn::dimsToAttr(function.getContext(), localShape(shapes[value], shard)));
    }
}

void Sharder::shardArgument(BlockArgument argument) {
  DividedAxis shard = division.of(argument);
  local[argument] = localShape(shapes[argument], shard);
  if (!shard)
    return;
  argument.setType(nn::typeOf(local[argument], elementType(argument)));
  function.setArgAttr(argument.getArgNumber(), nn::shardAttr, shardAttribute(shard));
  function.setArgAttr(argument.getArgNumber(), nn::dimsAttr,
                      nn::dimsToAttr(function.getContext(), local[argument]));
}

Value Sharder::take(Value whole, const DividedAxis &shard) {
  DimShape starts(shapes[whole].size(), Dim(0)), sizes = localShape(shapes[whole], shard);
  if (shard) {
    const auto [axis, parts] = *shard;
    Dim number = Dim::symbol(std::string(rankSymbol));
    starts[axis] = (parts == ranks ? number : (number * Dim(parts)).floorDiv(Dim(ranks))) * sizes[axis];
  }
  if (Value part = loadPart(whole, starts, sizes))
    return part;
  if (!shard)
    return whole;
  return slice(whole.getLoc(), whole, starts, sizes);
}

Value Sharder::slice(Location location, Value value, const DimShape &starts, const DimShape &sizes) {
  MLIRContext *context = function.getContext();
  const SmallVector<int64_t> steps(sizes.size(), 1);
  return apply<nn::SliceOp>(location, value, elementType(value),
                            {builder.getNamedAttr("starts", nn::dimsToAttr(context, starts)),
                             builder.getNamedAttr("sizes", nn::dimsToAttr(context, sizes)),
                             builder.getNamedAttr("steps", builder.getDenseI64ArrayAttr(steps))});
}

/// Whether every run of the part begins and ends at an even element.
static bool liesInWholeBytes(ArrayRef<int64_t> whole, ArrayRef<Dim> starts, ArrayRef<Dim> sizes) {
  int64_t stride = 1;
  for (size_t axis = whole.size(); axis-- > 0; stride *= whole[axis])
    if (!(sizes[axis] == Dim(whole[axis])) &&
        !((starts[axis] * Dim(stride)).knownMultipleOf(2) && (sizes[axis] * Dim(stride)).knownMultipleOf(2) &&
          stride * whole[axis] % 2 == 0))
      return false;
  return true;
}

Value Sharder::loadPart(Value value, DimShape starts, DimShape sizes) {
  auto slice = value.getDefiningOp<nn::SliceOp>();
  auto weight = (slice ? slice.getX() : value).getDefiningOp<nn::WeightOp>();
  if (!weight || weight.getStarts() || (!slice && sizes == shapes[value]))
    return {};
  if (slice) {
    DimShape offsets = nn::dimsFromAttr(slice.getStarts());
    auto isStatic = [](const Dim &dim) { return dim.isStatic(); };
    if (!llvm::all_of(weight->getUsers(), isShardLeaf) || !llvm::all_of(offsets, isStatic) ||
        !llvm::all_of(sizes, isStatic) ||
        !llvm::all_of(slice.getSteps(), [](int64_t step) { return step == 1; }))
      return {};
    for (auto [start, offset] : llvm::zip(starts, offsets))
      start = start + offset;
  }
  if (elementType(value).getIntOrFloatBitWidth() == 4 &&
      !liesInWholeBytes(weight.shapeInFile(), starts, sizes)) {
    noteMiss(weight, "shard",
             "every rank loads all of it: shards of 4-bit elements would begin inside a byte");
    return {};
  }
  auto part = nn::WeightOp::create(
      builder, weight.getLoc(), nn::typeOf(sizes, elementType(value)), weight.getName(), weight.getPath(),
      weight.getOffset(), weight.getLength(), builder.getDenseI64ArrayAttr(weight.shapeInFile()),
      nn::dimsToAttr(function.getContext(), starts), ArrayAttr(), DenseI64ArrayAttr(),
      weight.getPartPathsAttr(), weight.getPartOffsetsAttr());
  local[part] = sizes;
  return part;
}

Operation *Sharder::make(Location location, StringRef name, ValueRange operands,
                         ArrayRef<NamedAttribute> attributes, ArrayRef<Type> elementTypes) {
  SmallVector<DimShape> operandShapes, resultShapes;
  for (Value operand : operands)
    operandShapes.push_back(local.lookup(operand));
  SmallVector<nn::ShapeContext::Equality> equalities;
  std::string error;
  Operation *made = nn::createInferred(builder, location, name, operands, operandShapes, attributes,
                                       elementTypes, resultShapes, equalities, error);
  if (!made) {
    emitError(location) << name << " on one rank: " << error;
    return nullptr;
  }
  for (auto [result, shape] : llvm::zip(made->getResults(), resultShapes))
    local[result] = shape;
  return made;
}

static LogicalResult replace(Operation *op, ValueRange values) {
  if (!llvm::all_of(values, [](Value value) { return bool(value); }))
    return failure();
  op->replaceAllUsesWith(values);
  op->erase();
  return success();
}

LogicalResult Sharder::shard(Operation *op) {
  builder.setInsertionPointAfter(op);
  if (isShardLeaf(op)) {
    Value whole = op->getResult(0);
    local[whole] = shapes[whole];
    Value part = take(whole, shards[whole]);
    if (part == whole)
      return success();
    whole.replaceUsesWithIf(part, [&](OpOperand &use) {
      return use.getOwner() != part.getDefiningOp() &&
             !isShardLeaf(use.getOwner()); // slices take their own shards
    });
    return success();
  }
  if (auto lookup = llvm::dyn_cast<nn::GatherOp>(op); lookup && division.isPartial(op))
    return replace(op, lookUpRows(lookup));
  if (auto norm = llvm::dyn_cast<nn::RmsNormOp>(op); norm && division.isPartial(op))
    return replace(op, normaliseShard(norm));
  if (auto largest = llvm::dyn_cast<nn::ArgMaxOp>(op); largest && division.isPartial(op))
    return replace(op, largestOfRanks(largest));
  NamedAttrList attributes(op->getAttrs());
  for (StringRef name : {"shape", "sizes"}) // of reshape, expand and slice: the dims of the result
    if (auto dims = llvm::dyn_cast_or_null<ArrayAttr>(attributes.get(name)))
      if (DividedAxis shard = shards[op->getResult(0)])
        attributes.set(name,
                       nn::dimsToAttr(function.getContext(), localShape(nn::dimsFromAttr(dims), shard)));
  SmallVector<Type> elementTypes;
  for (Value result : op->getResults())
    elementTypes.push_back(elementType(result));
  Operation *made =
      make(op->getLoc(), op->getName().getStringRef(), op->getOperands(), attributes, elementTypes);
  if (!made)
    return failure();
  if (llvm::isa<nn::MatmulOp, nn::ExpertMatmulOp>(op) && division.isPartial(op))
    return replace(op, sumOverRanks(op, made->getResult(0)));
  return replace(op, made->getResults());
}

} // namespace fusion
