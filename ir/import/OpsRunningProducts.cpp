// CumProd: each step multiplies with what lies 1, 2, 4, … elements before.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// What lies `by` elements before along `axis`, and ones where there is nothing.
Value moved(NodeImporter &n, Value x, int64_t axis, int64_t by) {
  if (n.failed())
    return {};
  const Dim size = n.shapeOf(x)[axis], front = Dim::min(Dim(by), size);
  DimShape low(n.rankOf(x), Dim(0)), high = low;
  low[axis] = front;
  return n.build<nn::PadOp>({n.slice(x, axis, 0, size - front), n.scalar(NodeImporter::typeOf(x), 1)},
                            {n.dims("low", low), n.dims("high", high)});
}

void cumProd(NodeImporter &n) {
  const std::vector<int64_t> given = n.requireConstants(1, "axis");
  const bool excludes = n.intAttribute("exclusive", 0) != 0, isReversed = n.intAttribute("reverse", 0) != 0;
  if (!n.failed() && given.size() != 1)
    return n.fail("axis is not one number");
  const int64_t axis = n.failed() ? 0 : n.axis(given[0], n.rank(0));
  const Type type = n.inputType(0);
  if (n.failed())
    return;
  const bool isNarrow = llvm::isa<FloatType>(type) && !type.isF64();
  const Dim size = n.shape(0)[axis];
  auto turned = [&](Value x) {
    return isReversed ? n.slice(x, axis, Dim::max(size - 1, Dim(0)), size, -1) : x;
  };
  Value x = turned(isNarrow ? n.cast(n.operand(0), n.f32Type()) : n.operand(0));
  if (excludes)
    x = moved(n, x, axis, 1);
  constexpr int64_t farthest = int64_t(1) << 30; // where the size is a symbol
  const int64_t reach = size.isStatic() ? size.value() : 2 * farthest;
  for (int64_t by = 1; by < reach && !n.failed(); by *= 2)
    x = n.mul(x, moved(n, x, axis, by));
  n.result(0, n.cast(turned(x), type));
}

} // namespace

void registerRunningProducts(HandlerTable &table) { table.add("", "CumProd", 2, 2, cumProd); }

} // namespace fusion::onnx
