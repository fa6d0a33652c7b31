#include "ir/dialect/AttentionSink.h"

#include "ir/dialect/Shapes.h"
#include "ir/dialect/Types.h"

#include <cmath>

using namespace mlir;

namespace fusion::nn {

namespace {

class Matcher {
public:
  std::optional<AttentionSink> match(AttentionOp attention) {
    // More queries than keys: causal rows that do not look at the sink either are 0, as if it had their
    // share.
    if (!attention.getMask() || attention.getWindow() != 0 ||
        (attention.getCausal() && !attention.getZeroMaskedRows()))
      return std::nullopt;
    found.keys = withoutFront(attention.getK(), 2, 0);
    found.values = found.keys ? withoutFront(attention.getV(), 2, 0) : Value();
    if (!found.values || !matchMask(attention.getMask()))
      return std::nullopt;
    Block *block = attention->getBlock();
    if (llvm::any_of(found.ops, [&](Operation *op) { return op->getBlock() != block; }))
      return std::nullopt;
    llvm::sort(found.ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    return std::move(found);
  }

private:
  /// x of an nn.pad that puts one entry of `number` in front of dim `axis`, and nothing elsewhere.
  Value withoutFront(Value value, int64_t axis, double number) {
    auto pad = value.getDefiningOp<PadOp>();
    if (!pad || !isNumber(pad.getValue(), number))
      return {};
    for (const Dim &high : dimsFromAttr(pad.getHigh()))
      if (!(high == Dim(0)))
        return {};
    for (auto [dim, low] : llvm::enumerate(dimsFromAttr(pad.getLow())))
      if (!(low == Dim(static_cast<int64_t>(dim) == axis ? 1 : 0)))
        return {};
    take(pad);
    return pad.getX();
  }

  static bool isNumber(Value value, double number) {
    auto constant = value.getDefiningOp<ConstantOp>();
    auto elements = constant ? llvm::dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
    if (!elements || !elements.isSplat())
      return false;
    if (auto floats = llvm::dyn_cast<FloatType>(elements.getElementType()))
      return elements.getSplatValue<APFloat>().convertToDouble() == number;
    return (elements.getSplatValue<APInt>() != 0) == (number != 0);
  }

  bool matchMask(Value mask) {
    const int64_t last = tensorType(mask).getRank() - 1;
    auto paddedLast = [&](Value value, double number) {
      return withoutFront(value, tensorType(value).getRank() - 1, number);
    };
    if (auto where = mask.getDefiningOp<WhereOp>(); where && last >= 0) {
      found.mask = paddedLast(where.getCondition(), 1);
      if (!found.mask || !isNumber(where.getY(), -INFINITY) || !matchScores(where.getX()))
        return false;
      take(where);
      return true;
    }
    if (auto sum = mask.getDefiningOp<AddOp>()) {
      const bool isFirst = matchScores(sum.getLhs());
      if (!isFirst && !matchScores(sum.getRhs()))
        return false;
      Value added = isFirst ? sum.getRhs() : sum.getLhs();
      auto cast = added.getDefiningOp<CastOp>();
      found.mask = paddedLast(cast ? Value(cast.getX()) : added, 0);
      if (!found.mask || !isFloat(dtype(found.mask)))
        return false;
      if (cast)
        take(cast);
      take(sum);
      return true;
    }
    return matchScores(mask);
  }

  /// concat(sink, 0, 0, …) along the keys.
  bool matchScores(Value scores) {
    auto concat = scores.getDefiningOp<ConcatOp>();
    if (!concat || concat.getParts().size() != 2 || dtype(scores) != DType::F32)
      return false;
    const int64_t rank = tensorType(scores).getRank(), axis = static_cast<int64_t>(concat.getAxis());
    Value sink = concat.getParts()[0], rest = concat.getParts()[1];
    auto expand = rest.getDefiningOp<ExpandOp>();
    auto own = tensorType(sink);
    if (rank != 4 || (axis != 3 && axis != -1) || own.getDimSize(3) != 1 || own.getDimSize(2) != 1 ||
        !isNumber(expand ? Value(expand.getX()) : rest, 0))
      return false;
    found.sink = sink;
    take(concat);
    if (expand)
      take(expand);
    return true;
  }

  void take(Operation *op) {
    if (!llvm::is_contained(found.ops, op))
      found.ops.push_back(op);
  }

  AttentionSink found;
};

} // namespace

std::optional<AttentionSink> matchAttentionSink(AttentionOp attention) {
  return Matcher().match(attention);
}

} // namespace fusion::nn
