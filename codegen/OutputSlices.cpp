#include "codegen/OutputSlices.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {
class Splitter {
public:
  Splitter(const Region &region, const KernelContext &context) : region(region), context(context) {}

  llvm::SmallVector<OutputSlice> run() {
    for (auto [index, output] : llvm::enumerate(region.outputs)) {
      current = static_cast<unsigned>(index);
      split(output, context.output(current, output));
    }
    return std::move(slices);
  }

private:
  void split(Value value, const View &target) {
    if (auto input = llvm::find(region.inputs, value); input != region.inputs.end()) {
      if (!(context.inputs[static_cast<size_t>(input - region.inputs.begin())] == target))
        slices.push_back({value, current, target});
      return;
    }
    Operation *op = value.getDefiningOp();
    if (auto concat = llvm::dyn_cast_or_null<nn::ConcatOp>(op))
      return splitConcat(concat, target);
    if (auto write = llvm::dyn_cast_or_null<nn::CacheWriteOp>(op); write && isInPlace(write, target))
      return splitCacheWrite(write, target);
    if (auto scatter = llvm::dyn_cast_or_null<nn::ScatterNdOp>(op); scatter && isInPlace(scatter, target))
      return splitScatter(scatter, target);
    if (op && needsAnotherPlace(op))
      if (auto source = viewBefore(op, target, context.shapes))
        return split(op->getOperand(0), *source);
    slices.push_back({value, current, target});
  }

  void splitConcat(nn::ConcatOp concat, const View &target) {
    const int64_t rank = static_cast<int64_t>(target.shape.size()), axis = concat.getAxis();
    const auto along = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    Dim start = 0;
    for (Value operand : concat->getOperands()) {
      View part = target;
      part.offset = target.offset + start * target.strides[along];
      part.shape[along] = context.shape(operand)[along];
      start = start + part.shape[along];
      split(operand, part);
    }
  }

  static size_t axisOf(nn::CacheWriteOp write, const View &target) {
    const auto axis = static_cast<int64_t>(write.getAxis());
    return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(target.shape.size()) : axis);
  }

  /// Whether the past lies where the result is to be, and the places of the new rows are known before the
  /// kernel.
  bool isInPlace(nn::CacheWriteOp write, const View &target) const {
    auto past = llvm::find(region.inputs, write.getPast());
    if (past == region.inputs.end() || !llvm::is_contained(region.inputs, write.getRows()))
      return false;
    View front = target;
    const size_t along = axisOf(write, target);
    front.shape[along] = context.shape(write.getPast())[along];
    return context.inputs[static_cast<size_t>(past - region.inputs.begin())] == front;
  }

  /// The same, for rows along dim 0.
  bool isInPlace(nn::ScatterNdOp scatter, const View &target) const {
    auto past = llvm::find(region.inputs, scatter.getX());
    return past != region.inputs.end() && llvm::is_contained(region.inputs, scatter.getIndices()) &&
           tensorType(scatter.getIndices()).getShape().back() == 1 &&
           tensorType(scatter.getIndices()).getRank() == 2 &&
           context.inputs[static_cast<size_t>(past - region.inputs.begin())] == target;
  }

  void splitScatter(nn::ScatterNdOp scatter, const View &target) {
    View rows = target;
    rows.shape = context.shape(scatter.getUpdates());
    const RowPlacement placement{.rows = scatter.getIndices(),
                                 .size = target.shape[0],
                                 .past = target.shape[0],
                                 .fresh = rows.shape[0],
                                 .scatters = true};
    slices.push_back({scatter.getUpdates(), current, rows, placement});
  }

  void splitCacheWrite(nn::CacheWriteOp write, const View &target) {
    const size_t along = axisOf(write, target);
    View rows = target;
    rows.shape = context.shape(write.getFresh());
    RowPlacement placement{write.getRows(), static_cast<unsigned>(along), target.shape[along],
                           context.shape(write.getPast())[along], rows.shape[along], false};
    slices.push_back({write.getFresh(), current, rows, placement});
    placement.clears = true;
    if (write.getGrows())
      slices.push_back({write.getFresh(), current, rows, placement});
  }

  /// Whether `op` only shows a computed value or a concat in another order: then its operand is stored, by
  /// other strides.
  bool needsAnotherPlace(Operation *op) const {
    if (llvm::isa<nn::TransposeOp>(op))
      return !showsInput(op);
    Operation *source = llvm::isa<nn::ReshapeOp>(op) ? producer(op->getOperand(0)) : nullptr;
    return source && (llvm::isa<nn::ConcatOp>(source) || needsAnotherPlace(source));
  }

  bool showsInput(Operation *op) const {
    if (!llvm::isa<nn::TransposeOp, nn::ReshapeOp, nn::SliceOp, nn::ExpandOp>(op))
      return false;
    Operation *source = producer(op->getOperand(0));
    return !source || showsInput(source);
  }

  /// The op of the region that makes a value; null for an input.
  Operation *producer(Value value) const {
    return llvm::is_contained(region.inputs, value) ? nullptr : value.getDefiningOp();
  }

  const Region &region;
  const KernelContext &context;
  unsigned current = 0;
  llvm::SmallVector<OutputSlice> slices;
};
} // namespace

llvm::SmallVector<OutputSlice> outputSlicesOf(const Region &region, const KernelContext &context) {
  return Splitter(region, context).run();
}

} // namespace fusion
