#include "codegen/Pieces.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {
class Splitter {
public:
  Splitter(const Region &region, const KernelContext &context) : region(region), context(context) {}

  llvm::SmallVector<Piece> run() {
    for (auto [index, output] : llvm::enumerate(region.outputs)) {
      current = static_cast<unsigned>(index);
      split(output, context.output(current, output));
    }
    return std::move(pieces);
  }

private:
  void split(Value value, const View &target, Operation *within = nullptr) {
    if (auto input = llvm::find(region.inputs, value); input != region.inputs.end()) {
      if (!(context.inputs[static_cast<size_t>(input - region.inputs.begin())] == target))
        pieces.push_back({value, current, target, within});
      return;
    }
    Operation *op = value.getDefiningOp();
    if (auto concat = llvm::dyn_cast_or_null<nn::ConcatOp>(op))
      return splitConcat(concat, target);
    if (op && needsAnotherPlace(op))
      if (auto source = viewBefore(op, target, context.shapes))
        return split(op->getOperand(0), *source, within);
    pieces.push_back({value, current, target, within});
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
      split(operand, part, concat);
    }
  }

  /// Whether `op` only shows a computed value in another order, or a concat: then what is behind it is stored in its own.
  bool needsAnotherPlace(Operation *op) const {
    if (llvm::isa<nn::TransposeOp>(op))
      return !showsInput(op);
    Operation *behind = llvm::isa<nn::ReshapeOp>(op) ? producer(op->getOperand(0)) : nullptr;
    return behind && (llvm::isa<nn::ConcatOp>(behind) || needsAnotherPlace(behind));
  }

  bool showsInput(Operation *op) const {
    if (!llvm::isa<nn::TransposeOp, nn::ReshapeOp, nn::SliceOp, nn::ExpandOp>(op))
      return false;
    Operation *behind = producer(op->getOperand(0));
    return !behind || showsInput(behind);
  }

  /// The op of the region that makes a value; null for an input.
  Operation *producer(Value value) const {
    return llvm::is_contained(region.inputs, value) ? nullptr : value.getDefiningOp();
  }

  const Region &region;
  const KernelContext &context;
  unsigned current = 0;
  llvm::SmallVector<Piece> pieces;
};
} // namespace

llvm::SmallVector<Piece> piecesOf(const Region &region, const KernelContext &context) {
  return Splitter(region, context).run();
}

} // namespace fusion
