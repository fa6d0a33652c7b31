#include "passes/raise/WindowMask.h"

using namespace mlir;

namespace fusion::raise {

std::optional<WindowMask> matchWindowMask(Value value, ShapeTable &shapes) {
  auto merge = value.getDefiningOp<nn::ReshapeOp>();
  auto sum = merge ? merge.getX().getDefiningOp<nn::AddOp>() : nn::AddOp();
  if (!sum)
    return std::nullopt;
  const DimShape merged = shapes.of(merge), split = shapes.of(sum);
  if (merged.size() != 4 || split.size() != 5 || !split[1].isStatic() ||
      !(split[0] * split[1] == merged[0]) || !std::equal(split.begin() + 2, split.end(), merged.begin() + 1))
    return std::nullopt;
  for (unsigned i : {0u, 1u}) {
    auto reshape = sum->getOperand(i).getDefiningOp<nn::ReshapeOp>();
    const Value mask = sum->getOperand(1 - i);
    const DimShape shape = shapes.of(mask);
    if (reshape && shapes.of(reshape) == split && shapes.of(reshape.getX()) == merged && shape.size() <= 5 &&
        (shape.size() < 5 || shape[0] == Dim(1)))
      return WindowMask{reshape.getX(), mask, split[1]};
  }
  return std::nullopt;
}

Value withWindowHeads(Value x, const Dim &windows, Raiser &raiser) {
  DimShape shape = raiser.shapes.of(x);
  auto batch = shape[0].dividedBy(windows);
  if (!batch)
    return {};
  return nn::buildReshape(raiser.rewriter, x.getLoc(), x, {*batch, windows * shape[1], shape[2], shape[3]});
}

Value maskOfWindowHeads(Value mask, bool ofWindows, const Dim &windows, const Dim &heads, Raiser &raiser) {
  auto &b = raiser.rewriter;
  DimShape shape = raiser.shapes.of(mask);
  const size_t rank = ofWindows ? 5 : 4;
  while (shape.size() < rank)
    shape.insert(shape.begin(), Dim(1));
  if (!ofWindows) { // [batch * windows or 1, heads or 1, queries, keys]
    if (shape[0] == Dim(1) && shape[1] == Dim(1))
      return mask;
    auto batch = shape[0] == Dim(1) ? Dim(1) : shape[0].dividedBy(windows);
    if (!batch)
      return {};
    shape.insert(shape.begin() + 1, shape[0] == Dim(1) ? Dim(1) : windows);
    shape[0] = *batch;
  }
  mask = nn::buildReshape(b, mask.getLoc(), mask, shape);
  if (!(shape[1] == windows) || !(shape[2] == heads)) {
    shape[1] = windows;
    shape[2] = heads;
    mask = nn::build<nn::ExpandOp>(b, mask.getLoc(), mask,
                                   b.getNamedAttr("shape", nn::dimsToAttr(b.getContext(), shape)));
  }
  return nn::buildReshape(b, mask.getLoc(), mask, {shape[0], windows * heads, shape[3], shape[4]});
}

} // namespace fusion::raise
