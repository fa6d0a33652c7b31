#include "ir/dialect/RepeatedRows.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion::nn {

static SmallVector<int64_t> sizes(Value value) { return llvm::to_vector(tensorType(value).getShape()); }

std::optional<RepeatedRows> matchRepeatedRows(Value value) {
  auto join = value.getDefiningOp<ReshapeOp>();
  auto expand = join ? join.getX().getDefiningOp<ExpandOp>() : ExpandOp();
  auto split = expand ? expand.getX().getDefiningOp<ReshapeOp>() : ReshapeOp();
  if (!split || !tensorType(value).hasStaticShape() || !tensorType(split.getX()).hasStaticShape())
    return std::nullopt;
  const SmallVector<int64_t> from = sizes(split.getX()), repeated = sizes(expand.getY());
  if (repeated.size() != from.size() + 1)
    return std::nullopt;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    const int64_t times = repeated[dim + 1];
    SmallVector<int64_t> apart = from, joined = from;
    apart.insert(apart.begin() + static_cast<ptrdiff_t>(dim) + 1, 1);
    joined[dim] *= times;
    const bool isSplit = sizes(split.getY()) == apart, isJoined = sizes(value) == joined;
    apart[dim + 1] = times;
    if (isSplit && isJoined && times > 1 && repeated == apart)
      return RepeatedRows{split.getX(), dim, times, {split, expand, join}};
  }
  return std::nullopt;
}

} // namespace fusion::nn
