#include "passes/raise/HeadsAfterQueries.h"

using namespace mlir;

namespace fusion::raise {

/// Dim 1 or 2 of a mask, laid over scores of rank 4.
static Dim maskDim(const DimShape &shape, size_t dim) {
  const size_t missing = 4 - shape.size();
  return dim < missing ? Dim(1) : shape[dim - missing];
}

bool hasHeadsAfterQueries(Value query, Value key, ArrayRef<MaskTerm> terms, ShapeTable &shapes) {
  const DimShape shape = shapes.of(query);
  if (!(shapes.of(key)[1] == Dim(1)) || shape[1] == Dim(1) || shape[2] == Dim(1))
    return false;
  if (!shape[1].isStatic() && shape[2].isStatic())
    return true;
  auto dependsOn = [&](size_t dim) {
    return llvm::any_of(
        terms, [&](const MaskTerm &term) { return !(maskDim(shapes.of(term.mask), dim) == Dim(1)); });
  };
  return dependsOn(1) && !dependsOn(2);
}

Value withHeadsSwapped(Value x, Raiser &raiser) {
  DimShape shape = raiser.shapes.of(x);
  if (!(shape[1] == Dim(1)) && !(shape[2] == Dim(1)))
    return nn::buildTranspose(raiser.rewriter, x.getLoc(), x, {0, 2, 1, 3});
  std::swap(shape[1], shape[2]);
  return nn::buildReshape(raiser.rewriter, x.getLoc(), x, shape);
}

void swapHeadsOfMasks(MutableArrayRef<MaskTerm> terms, Raiser &raiser) {
  for (MaskTerm &term : terms) {
    DimShape shape = raiser.shapes.of(term.mask);
    if (shape.size() < 2)
      continue;
    shape.insert(shape.begin(), 4 - shape.size(), Dim(1));
    term.mask =
        withHeadsSwapped(nn::buildReshape(raiser.rewriter, term.mask.getLoc(), term.mask, shape), raiser);
  }
}

} // namespace fusion::raise
