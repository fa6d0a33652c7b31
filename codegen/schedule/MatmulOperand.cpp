#include "codegen/schedule/MatmulOperand.h"

#include "ir/dialect/RepeatedRows.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

bool ScaleOrZero::alongRows() const {
  return !literal && llvm::any_of(rowStrides, [](const Dim &stride) { return !(stride == Dim(0)); });
}

/// Elements that are decoded: a byte or less each.
static bool isQuantised(DType type) { return byteSize(type) == 1 && type != DType::Bool; }

static std::optional<nn::RepeatedRows> repeatedRows(const Region &region, Value value) {
  auto rows = nn::matchRepeatedRows(value);
  const bool isInside =
      rows && llvm::all_of(rows->ops, [&](Operation *op) { return llvm::is_contained(region.ops, op); });
  return isInside ? rows : std::nullopt;
}

/// The constant whose one value all elements have, also where it is expanded outside of the region; null if
/// they are not known to.
static nn::ConstantOp knownScalar(Value value) {
  for (;;) {
    if (auto argument = llvm::dyn_cast<BlockArgument>(value)) {
      auto group = llvm::dyn_cast<GroupOp>(argument.getOwner()->getParentOp());
      if (!group)
        return {};
      value = group.getInputs()[argument.getArgNumber()];
    } else if (llvm::isa<nn::ExpandOp, nn::ReshapeOp>(value.getDefiningOp())) {
      value = value.getDefiningOp()->getOperand(0);
    } else {
      return constantScalar(value) ? value.getDefiningOp<nn::ConstantOp>() : nn::ConstantOp();
    }
  }
}

/// The scales or zero points `value` of an operand of shape `shape`: one for all, one for each index of
/// `axis`, or, with `block`, one for every block along it.
static std::optional<Source::Scales> scalesOf(const Region &region, const KernelContext &context, Value value,
                                              const DimShape &shape, int64_t axis, int64_t block) {
  Source::Scales scales;
  scales.type = dtype(value);
  scales.blocks.assign(shape.size(), 1);
  scales.literal = knownScalar(value);
  if (scales.literal)
    return scales;
  // Each is that of several neighbours along these dims.
  SmallVector<nn::RepeatedRows> repeats;
  while (auto rows = repeatedRows(region, value)) {
    value = rows->from;
    repeats.push_back(std::move(*rows));
  }
  auto found = inputView(region, context, value);
  if (!found || (!repeats.empty() && (block == 0 || found->second.shape.size() != shape.size())))
    return std::nullopt;
  scales.input = found->first;
  const View &view = found->second;
  scales.view.base = view.base;
  scales.view.offset = view.offset;
  scales.view.shape.assign(shape.size(), Dim(1));
  scales.view.strides.assign(shape.size(), Dim(0));
  if (product(view.shape) == Dim(1))
    return scales;
  if (axis < 0)
    axis += static_cast<int64_t>(shape.size());
  const auto at = static_cast<size_t>(axis);
  if (block == 0) {
    scales.view.shape[at] = view.shape[0];
    scales.view.strides[at] = view.strides[0];
    return scales;
  }
  scales.blocks[at] = block;
  for (const nn::RepeatedRows &rows : repeats)
    scales.blocks[rows.dim] *= rows.times;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!(view.shape[i] == Dim(1))) {
      scales.view.shape[i] = view.shape[i];
      scales.view.strides[i] = view.strides[i];
    }
  return scales;
}

/// x of cast(x) to i32, if x has one byte an element.
static Value widened(Value value) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  if (!cast || dtype(cast.getY()) != DType::I32 || isFloat(dtype(cast.getX())) ||
      !isQuantised(dtype(cast.getX())))
    return {};
  return cast.getX();
}

/// The zero point that is subtracted from an operand of shape `shape`: numpy broadcasting, along one dim.
static std::optional<Source::Scales> shiftOf(const Region &region, const KernelContext &context, Value value,
                                             const DimShape &shape) {
  if (Value narrow = widened(value))
    value = narrow;
  if (auto found = inputView(region, context, value); found && !(product(found->second.shape) == Dim(1))) {
    const View &view = found->second;
    if (view.shape.size() > shape.size())
      return std::nullopt;
    Source::Scales shift{{}, found->first, dtype(value), {}, {}};
    shift.view.base = view.base;
    shift.view.offset = view.offset;
    shift.view.shape.assign(shape.size() - view.shape.size(), Dim(1));
    shift.view.strides.assign(shape.size() - view.shape.size(), Dim(0));
    for (size_t i = 0; i < view.shape.size(); ++i) {
      shift.view.shape.push_back(view.shape[i]);
      shift.view.strides.push_back(view.shape[i] == Dim(1) ? Dim(0) : view.strides[i]);
    }
    shift.blocks.assign(shape.size(), 1);
    return shift;
  }
  return scalesOf(region, context, value, shape, 0, 0);
}

std::variant<Source, std::string> sourceOf(const Region &region, const KernelContext &context, Value value) {
  Source source;
  auto takeView = [&](Value from) {
    auto found = inputView(region, context, from);
    if (!found)
      return false;
    source.input = found->first;
    source.view = found->second;
    source.type = dtype(from);
    return true;
  };
  if (takeView(value))
    return source;
  const std::string computed = "an operand of nn.matmul is computed in the region";
  if (auto op = value.getDefiningOp<nn::DequantizeOp>()) {
    if (!takeView(op.getX()))
      return computed;
    source.decoded = dtype(op.getY());
    source.unrounded = op.getUnrounded();
    if (!isQuantised(source.type) || *source.decoded == DType::F64)
      return "nn.dequantize of " + std::string(name(source.type)) + " to " +
             std::string(name(*source.decoded)) + " in an operand";
    source.scale =
        scalesOf(region, context, op.getScale(), source.view.shape, op.getAxis(), op.getBlockSize());
    if (!source.scale)
      return std::string("the scale of an operand is computed in the region");
    if (op.getZeroPoint()) {
      source.zero =
          scalesOf(region, context, op.getZeroPoint(), source.view.shape, op.getAxis(), op.getBlockSize());
      if (!source.zero)
        return std::string("the zero point of an operand is computed in the region");
    }
    return source;
  }
  auto shifted = value.getDefiningOp<nn::SubOp>();
  Value whole = widened(shifted ? shifted.getLhs() : value);
  if (!whole || !takeView(whole))
    return computed;
  source.decoded = DType::I32;
  if (shifted) {
    source.zero = shiftOf(region, context, shifted.getRhs(), source.view.shape);
    if (!source.zero)
      return std::string("the zero point of an operand is computed in the region");
  }
  return source;
}

llvm::SmallPtrSet<Operation *, 8> decodingOps(const Region &region) {
  llvm::SmallPtrSet<Operation *, 8> ops;
  SmallVector<Value> pending;
  auto isInside = [&](Operation *op) { return op && llvm::is_contained(region.ops, op); };
  for (Operation *op : region.ops)
    if (isa<nn::MatmulOp, nn::ExpertMatmulOp>(op))
      pending.append({op->getOperand(0), op->getOperand(1)});
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!isInside(op) || !isa<nn::DequantizeOp, nn::SubOp, nn::CastOp>(op) || !ops.insert(op).second)
      continue;
    if (isa<nn::DequantizeOp>(op))
      for (Value entry : op->getOperands().drop_front())
        for (auto rows = repeatedRows(region, entry); rows; rows = repeatedRows(region, rows->from))
          ops.insert(rows->ops.begin(), rows->ops.end());
    pending.append(op->operand_begin(), op->operand_end());
  }
  return ops;
}

static ScaleOrZero makeScale(const Source::Scales &scales, bool transpose, bool columnIfVector) {
  ScaleOrZero entry;
  entry.literal = scales.literal;
  entry.input = scales.input;
  entry.type = scales.type;
  if (entry.literal)
    return entry;
  entry.packed = isPacked(scales.view);
  entry.offset = scales.view.offset;
  SmallVector<Dim> strides(scales.view.strides.begin(), scales.view.strides.end());
  SmallVector<int64_t> blocks = scales.blocks;
  if (strides.size() == 1) {
    const ptrdiff_t place = columnIfVector ? 1 : 0;
    strides.insert(strides.begin() + place, Dim(0));
    blocks.insert(blocks.begin() + place, 1);
  } else if (transpose) {
    std::swap(strides.end()[-1], strides.end()[-2]);
    std::swap(blocks.end()[-1], blocks.end()[-2]);
  }
  entry.rowStrides = {strides.end()[-2]};
  entry.columnStride = strides.back();
  entry.rowBlock = blocks.end()[-2];
  entry.columnBlock = blocks.back();
  // The leading dims, which the problem folds into rows or refuses.
  entry.rowStrides.insert(entry.rowStrides.begin(), strides.begin(), strides.end() - 2);
  return entry;
}

Operand makeOperand(const Source &source, bool transpose, bool columnIfVector, const DimShape &batch,
                    Dim &rows, Dim &columns) {
  View view = source.view;
  if (view.shape.size() == 1) {
    const ptrdiff_t place = columnIfVector ? 1 : 0;
    view.shape.insert(view.shape.begin() + place, Dim(1));
    view.strides.insert(view.strides.begin() + place, Dim(0));
  } else if (transpose) {
    std::swap(view.shape.end()[-1], view.shape.end()[-2]);
    std::swap(view.strides.end()[-1], view.strides.end()[-2]);
  }
  Operand operand;
  operand.input = source.input;
  operand.type = source.type;
  operand.packed = isPacked(source.view);
  operand.offset = view.offset;
  rows = view.shape.end()[-2];
  columns = view.shape.end()[-1];
  operand.rowStride = view.strides.end()[-2];
  operand.columnStride = view.strides.end()[-1];
  operand.batchStrides.assign(batch.size(), Dim(0));
  const size_t leading = view.shape.size() - 2;
  for (size_t i = 0; i < leading; ++i)
    if (view.shape[i] != Dim(1))
      operand.batchStrides[batch.size() - leading + i] = view.strides[i];
  if (source.decoded) {
    operand.decode.emplace();
    operand.decode->type = *source.decoded;
    operand.decode->unrounded = source.unrounded;
    if (source.scale)
      operand.decode->scale = makeScale(*source.scale, transpose, columnIfVector);
    if (source.zero)
      operand.decode->zero = makeScale(*source.zero, transpose, columnIfVector);
  }
  return operand;
}

} // namespace fusion::matmul
