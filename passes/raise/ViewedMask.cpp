#include "passes/raise/ViewedMask.h"

using namespace mlir;

namespace fusion::raise {

std::optional<ViewedMask> matchViewedMask(Value value, ShapeTable &shapes) {
  constexpr int mostMasks = 4;
  auto merge = value.getDefiningOp<nn::ReshapeOp>();
  if (!merge)
    return std::nullopt;
  ViewedMask found;
  found.view = shapes.of(merge.getX());
  const DimShape shape = shapes.of(value);
  Value at = merge.getX();
  for (int i = 0; i < mostMasks; ++i) {
    auto sum = at.getDefiningOp<nn::AddOp>();
    if (!sum)
      return std::nullopt;
    for (unsigned side : {0u, 1u}) {
      auto split = sum->getOperand(side).getDefiningOp<nn::ReshapeOp>();
      if (!split || shapes.of(split) != found.view || shapes.of(split.getX()) != shape ||
          !split.getX().getDefiningOp())
        continue;
      found.scores = split.getX();
      found.masks.push_back(sum->getOperand(1 - side));
      return found;
    }
    // Of two sums the one that has the view's shape by itself is that of the scores.
    const bool left = sum.getLhs().getDefiningOp<nn::AddOp>() && shapes.of(sum.getLhs()) == found.view;
    found.masks.push_back(left ? sum.getRhs() : sum.getLhs());
    at = left ? sum.getLhs() : sum.getRhs();
    if (shapes.of(at) != found.view)
      return std::nullopt;
  }
  return std::nullopt;
}

Value buildViewedMask(const ViewedMask &viewed, Raiser &raiser) {
  auto &b = raiser.rewriter;
  const Location location = viewed.scores.getLoc();
  Value mask = viewed.masks.back();
  for (Value other : llvm::reverse(ArrayRef(viewed.masks).drop_back()))
    mask = nn::build<nn::AddOp>(b, location, ValueRange{mask, other});
  if (raiser.shapes.of(mask) != viewed.view)
    mask = nn::build<nn::ExpandOp>(b, location, mask,
                                   b.getNamedAttr("shape", nn::dimsToAttr(b.getContext(), viewed.view)));
  return nn::buildReshape(b, location, mask, raiser.shapes.of(viewed.scores));
}

} // namespace fusion::raise
