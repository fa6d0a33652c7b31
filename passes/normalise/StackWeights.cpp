#include "passes/Passes.h"

#include "ir/dialect/Dialect.h"
#include "passes/ShapeTable.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_STACKWEIGHTS
#include "passes/Passes.h.inc"

namespace {

/// The weight that `value` is, up to reshapes; null where it is a part of one or lies in several files
/// already.
nn::WeightOp wholeWeight(Value value) {
  while (auto view = value.getDefiningOp<nn::ReshapeOp>())
    value = view.getX();
  auto weight = value.getDefiningOp<nn::WeightOp>();
  return weight && !weight.getStarts() && !weight.getRankPaths() && !weight.getPartPaths() ? weight
                                                                                           : nn::WeightOp();
}

// Pattern: concat(w, v, ..) of equal weights along dim 0 -> one weight in parts
void stack(nn::ConcatOp concat, RewriterBase &rewriter) {
  auto type = llvm::cast<RankedTensorType>(concat.getType());
  if ((concat.getAxis() != 0 && static_cast<int64_t>(concat.getAxis()) != -type.getRank()) ||
      concat.getParts().size() < 2 || !type.hasStaticShape())
    return;
  SmallVector<StringRef> paths;
  SmallVector<int64_t> offsets;
  nn::WeightOp first;
  for (Value part : concat.getParts()) {
    nn::WeightOp weight = wholeWeight(part);
    if (!weight || part.getType() != concat.getParts().front().getType())
      return;
    first = first ? first : weight;
    paths.push_back(weight.getPath());
    offsets.push_back(static_cast<int64_t>(weight.getOffset()));
  }
  const auto parts = static_cast<int64_t>(offsets.size());
  if (type.getElementTypeBitWidth() < 8 &&
      type.getNumElements() / parts * type.getElementTypeBitWidth() % 8 != 0)
    return; // a part would begin inside a byte
  rewriter.setInsertionPoint(concat);
  auto whole = nn::WeightOp::create(rewriter, concat.getLoc(), type,
                                    (first.getName() + " and " + Twine(parts - 1) + " more").str(),
                                    first.getPath(), static_cast<int64_t>(first.getOffset()),
                                    static_cast<int64_t>(first.getLength()) * parts);
  whole.setPartPathsAttr(rewriter.getStrArrayAttr(paths));
  whole.setPartOffsetsAttr(rewriter.getDenseI64ArrayAttr(offsets));
  rewriter.replaceOp(concat, whole);
}

struct StackWeights : impl::StackWeightsBase<StackWeights> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      IRRewriter rewriter(function.getContext());
      for (auto concat : llvm::to_vector(function.getBody().front().getOps<nn::ConcatOp>()))
        stack(concat, rewriter);
      eraseDeadOps(function);
    }
  }
};

} // namespace

} // namespace fusion
