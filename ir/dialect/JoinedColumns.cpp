#include "ir/dialect/JoinedColumns.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion::nn {

std::optional<JoinedColumns> matchJoinedColumns(Value value) {
  auto concat = value ? value.getDefiningOp<ConcatOp>() : ConcatOp();
  if (!concat || concat.getParts().size() != 2)
    return std::nullopt;
  const int64_t rank = tensorType(value).getRank(), axis = static_cast<int64_t>(concat.getAxis());
  auto columns = [&](unsigned part) { return tensorType(concat.getParts()[part]).getShape().back(); };
  if ((axis != rank - 1 && axis != -1) || ShapedType::isDynamic(columns(0)) ||
      ShapedType::isDynamic(columns(1)))
    return std::nullopt;
  return JoinedColumns{concat.getParts()[0], concat.getParts()[1], columns(0), concat};
}

} // namespace fusion::nn
