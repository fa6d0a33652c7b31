#include "ir/dialect/ScaledCodes.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion::nn {

/// A cast of codes to f32.
static CastOp widening(Value value) {
  auto cast = value.getDefiningOp<CastOp>();
  if (!cast || dtype(value) != DType::F32)
    return {};
  const DType codes = dtype(cast.getX());
  return codes == DType::I8 || codes == DType::F8E4M3 || codes == DType::F8E5M2 ? cast : CastOp();
}

std::optional<ScaledCodes> matchScaledCodes(Value elements) {
  ScaledCodes found;
  Value product = elements;
  auto narrowing = elements.getDefiningOp<CastOp>();
  if (narrowing)
    product = narrowing.getX();
  auto mul = product.getDefiningOp<MulOp>();
  if (!mul || dtype(product) != DType::F32)
    return std::nullopt;
  CastOp widen = widening(mul.getLhs());
  found.scale = widen ? mul.getRhs() : mul.getLhs();
  if (!widen)
    widen = widening(mul.getRhs());
  if (!widen || dtype(found.scale) != DType::F32 || tensorType(widen.getX()).getRank() != 4)
    return std::nullopt;
  auto scale = tensorType(found.scale);
  auto sizeFromEnd = [&](int64_t fromEnd) {
    return fromEnd <= scale.getRank() ? scale.getDimSize(scale.getRank() - fromEnd) : 1;
  };
  if (scale.getRank() > 4 || sizeFromEnd(2) != 1 || sizeFromEnd(4) != 1)
    return std::nullopt;
  found.codes = widen.getX();
  found.byColumn = sizeFromEnd(1) != 1;
  found.byHead = sizeFromEnd(3) != 1;
  found.ops = {widen, mul};
  if (narrowing)
    found.ops.push_back(narrowing);
  return found;
}

} // namespace fusion::nn
