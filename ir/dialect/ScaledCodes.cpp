#include "ir/dialect/ScaledCodes.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion::nn {

namespace {

/// Codes as f32, and the ops that make them, in block order.
struct Widened {
  Value codes;
  bool packed = false;
  SmallVector<Operation *> ops;
};

/// Both halves of each byte of u8, side by side in the last dim.
std::optional<Widened> matchHalves(Value halves) {
  auto joined = halves.getDefiningOp<ReshapeOp>();
  auto concat = joined ? joined.getX().getDefiningOp<ConcatOp>() : ConcatOp();
  if (!concat || concat.getParts().size() != 2)
    return std::nullopt;
  const int64_t rank = tensorType(concat.getY()).getRank(), axis = static_cast<int64_t>(concat.getAxis());
  const ArrayRef<int64_t> pairs = tensorType(concat.getY()).getShape(), all = tensorType(halves).getShape();
  if ((axis != rank - 1 && axis != -1) || pairs.back() != 2 || rank != tensorType(halves).getRank() + 1 ||
      pairs.drop_back(2) != all.drop_back() || pairs[pairs.size() - 2] == ShapedType::kDynamic ||
      2 * pairs[pairs.size() - 2] != all.back())
    return std::nullopt;
  auto low = concat.getParts()[0].getDefiningOp<ReshapeOp>(),
       high = concat.getParts()[1].getDefiningOp<ReshapeOp>();
  auto both = low ? low.getX().getDefiningOp<AndOp>() : AndOp();
  auto div = high ? high.getX().getDefiningOp<DivOp>() : DivOp();
  if (!both || !div || both.getLhs() != div.getLhs() || constantScalar(both.getRhs()) != 15 ||
      constantScalar(div.getRhs()) != 16 || dtype(both.getLhs()) != DType::U8 ||
      tensorType(both.getLhs()) != tensorType(both.getResult()) ||
      tensorType(div.getLhs()) != tensorType(div.getResult()) ||
      tensorType(both.getLhs()).getShape() != pairs.drop_back())
    return std::nullopt;
  Widened found{both.getLhs(), true, {both, low, div, high, concat, joined}};
  Block *block = joined->getBlock();
  if (llvm::any_of(found.ops, [&](Operation *op) { return op->getBlock() != block; }))
    return std::nullopt;
  llvm::sort(found.ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return found;
}

std::optional<Widened> widened(Value value) {
  if (dtype(value) != DType::F32)
    return std::nullopt;
  if (auto cast = value.getDefiningOp<CastOp>()) {
    const DType codes = dtype(cast.getX());
    if (codes == DType::I8 || codes == DType::F8E4M3 || codes == DType::F8E5M2)
      return Widened{cast.getX(), false, {cast}};
  }
  auto sub = value.getDefiningOp<SubOp>();
  auto cast = sub && constantScalar(sub.getRhs()) == 8 ? sub.getLhs().getDefiningOp<CastOp>() : CastOp();
  std::optional<Widened> found = cast ? matchHalves(cast.getX()) : std::nullopt;
  if (found)
    found->ops.append({cast, sub});
  return found;
}

} // namespace

std::optional<ScaledCodes> matchScaledCodes(Value elements) {
  ScaledCodes found;
  Value product = elements;
  auto narrowing = elements.getDefiningOp<CastOp>();
  if (narrowing)
    product = narrowing.getX();
  auto mul = product.getDefiningOp<MulOp>();
  if (!mul || dtype(product) != DType::F32)
    return std::nullopt;
  std::optional<Widened> widen = widened(mul.getLhs());
  found.scale = widen ? mul.getRhs() : mul.getLhs();
  if (!widen)
    widen = widened(mul.getRhs());
  if (!widen || dtype(found.scale) != DType::F32 || tensorType(widen->codes).getRank() != 4)
    return std::nullopt;
  auto scale = tensorType(found.scale);
  auto sizeFromEnd = [&](int64_t fromEnd) {
    return fromEnd <= scale.getRank() ? scale.getDimSize(scale.getRank() - fromEnd) : 1;
  };
  if (scale.getRank() > 4 || sizeFromEnd(2) != 1 || sizeFromEnd(4) != 1)
    return std::nullopt;
  found.codes = widen->codes;
  found.packed = widen->packed;
  found.byColumn = sizeFromEnd(1) != 1;
  found.byHead = sizeFromEnd(3) != 1;
  found.ops = std::move(widen->ops);
  found.ops.push_back(mul);
  if (narrowing)
    found.ops.push_back(narrowing);
  return found;
}

} // namespace fusion::nn
