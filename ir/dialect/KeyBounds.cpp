#include "ir/dialect/KeyBounds.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fusion::nn {

namespace {

/// The op that counts 0, 1, …: an nn.iota, or the constant that it was folded to.
Operation *countOf(Value value) {
  if (auto iota = value.getDefiningOp<IotaOp>())
    return constantInteger(iota.getStart()) == 0 && constantInteger(iota.getStep()) == 1 ? iota : nullptr;
  auto constant = value.getDefiningOp<ConstantOp>();
  auto numbers =
      constant ? llvm::dyn_cast<DenseIntElementsAttr>(constant.getValue()) : DenseIntElementsAttr();
  if (!numbers || numbers.getType().getRank() != 1)
    return nullptr;
  int64_t expected = 0;
  for (const llvm::APInt &number : numbers.getValues<llvm::APInt>())
    if (number.getSExtValue() != expected++)
      return nullptr;
  return constant;
}

/// Whether it has one element for all keys and heads.
bool isLimit(Value value) {
  auto type = tensorType(value);
  const int64_t rank = type.getRank();
  return isInteger(dtype(value)) && dtype(value) != DType::Bool && rank <= 4 &&
         (rank < 1 || type.getDimSize(rank - 1) == 1) && (rank < 3 || type.getDimSize(rank - 3) == 1);
}

class Matcher {
public:
  bool match(Value mask) {
    Operation *op = mask.getDefiningOp();
    if (!op)
      return false;
    const bool matched = llvm::TypeSwitch<Operation *, bool>(op)
                             .Case([&](AndOp both) { return match(both.getLhs()) && match(both.getRhs()); })
                             .Case([&](LessEqualOp c) { return compare(c, false, false); })
                             .Case([&](LessOp c) { return compare(c, false, true); })
                             .Case([&](GreaterEqualOp c) { return compare(c, true, false); })
                             .Case([&](GreaterOp c) { return compare(c, true, true); })
                             .Default([](Operation *) { return false; });
    if (matched)
      take(op);
    return matched;
  }
  KeyBounds found;

private:
  /// `isBelow`: the comparison, with the keys on its left, says that they are above the limit.
  bool compare(Operation *op, bool isBelow, bool isExclusive) {
    Value keys = op->getOperand(0), limit = op->getOperand(1);
    if (!countOf(keys)) {
      std::swap(keys, limit);
      isBelow = !isBelow;
    }
    Operation *count = countOf(keys);
    KeyBound &bound = isBelow ? found.below : found.above;
    if (!count || !isLimit(limit) || bound.limit)
      return false;
    bound = {limit, isExclusive};
    take(count);
    found.numbers.push_back(keys);
    return true;
  }
  void take(Operation *op) {
    if (!llvm::is_contained(found.ops, op))
      found.ops.push_back(op);
  }
};

} // namespace

std::optional<KeyBounds> matchKeyBounds(Value mask) {
  Matcher matcher;
  if (!mask || !matcher.match(mask))
    return std::nullopt;
  Block *block = mask.getDefiningOp()->getBlock();
  if (llvm::any_of(matcher.found.ops, [&](Operation *op) { return op->getBlock() != block; }))
    return std::nullopt;
  llvm::sort(matcher.found.ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return std::move(matcher.found);
}

} // namespace fusion::nn
