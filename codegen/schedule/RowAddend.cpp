// The sum over ranks that the rows of a collective kernel start from.
#include "codegen/schedule/RowBuilder.h"

using namespace mlir;

namespace fusion::row {

std::optional<std::pair<unsigned, View>> Builder::addendOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !context.algorithm || llvm::is_contained(region.inputs, value))
    return std::nullopt;
  if (isa<nn::AllReduceOp>(op))
    return viewOf(op->getOperand(0));
  auto source = isa<nn::ReshapeOp>(op) ? addendOf(op->getOperand(0)) : std::nullopt;
  if (!source)
    return std::nullopt;
  std::optional<View> view = viewThrough(op, source->second, context.shapes);
  if (!view)
    return std::nullopt;
  return std::pair(source->first, std::move(*view));
}

// The sum lies in registers, row by row; the addend wherever it is.
Node *Builder::sumOverRanks(Value v, unsigned input, const View &view, const Space &space) {
  const DimShape &shape = context.shape(v);
  if (space.form != 0 || space.dropped || shape.empty() || shape.back() != graph.width ||
      space.width != graph.width ||
      ArrayRef<Dim>(shape).drop_back() != ArrayRef<Dim>(graph.outerDims[space.outer]) ||
      product(graph.outerDims[space.outer]) != graph.rows)
    return fail("nn.all_reduce of other rows than the region's");
  for (Node &node : graph.nodes)
    if (node.summed)
      return &node;
  Node *addend = load(input, view, space);
  if (!addend || region.ranks() == 1)
    return addend;
  addend->level = Level::Element;
  Node node = *addend;
  node.summed = true;
  node.operands = {addend};
  node.access.view = View::contiguous({}, shape);
  node.access.columnDims = 1;
  node.access.divisors.assign(shape.size(), 1);
  return supplied(std::move(node), addend->access.type);
}

} // namespace fusion::row
