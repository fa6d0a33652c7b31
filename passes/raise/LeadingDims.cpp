#include "passes/raise/LeadingDims.h"

using namespace mlir;

namespace fusion::raise {

static constexpr size_t kept = 3; ///< heads, queries, keys

Value withOneLeadingDim(Value x, Raiser &raiser) {
  const DimShape shape = raiser.shapes.of(x);
  DimShape merged{Dim(1)};
  for (size_t i = 0; i < shape.size(); ++i)
    if (i + kept < shape.size())
      merged[0] = merged[0] * shape[i];
    else
      merged.push_back(shape[i]);
  return nn::buildReshape(raiser.rewriter, x.getLoc(), x, merged);
}

Value maskWithOneLeadingDim(Value mask, ArrayRef<Dim> leading, Raiser &raiser) {
  auto &b = raiser.rewriter;
  DimShape shape = raiser.shapes.of(mask);
  if (shape.size() <= kept)
    return mask;
  while (shape.size() < leading.size() + kept)
    shape.insert(shape.begin(), Dim(1));
  mask = nn::buildReshape(b, mask.getLoc(), mask, shape);
  DimShape whole = shape;
  std::copy(leading.begin(), leading.end(), whole.begin());
  const bool isForAll =
      std::all_of(shape.begin(), shape.end() - kept, [](const Dim &dim) { return dim == Dim(1); });
  if (!isForAll && whole != shape)
    mask = nn::build<nn::ExpandOp>(b, mask.getLoc(), mask,
                                   b.getNamedAttr("shape", nn::dimsToAttr(b.getContext(), whole)));
  return withOneLeadingDim(mask, raiser);
}

} // namespace fusion::raise
