// ScatterElements: by comparing indices where there are few of them, as routers have, else by nn.scatter_nd
// and nn.scatter_reduce.
#include "ir/import/OpsScatter.h"
#include "ir/dialect/Scatter.h"
#include "ir/import/Graph.h"
#include "ir/import/Known.h"
#include "ir/import/OpsShared.h"

#include <algorithm>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Comparisons for each other dim up to which indices are compared with all positions.
constexpr int64_t mostComparisons = 1 << 16;
/// Elements up to which an initializer is looked at.
constexpr int64_t mostLookedAt = 1 << 16;

/// A ScatterElements node: data, indices that are not negative, updates.
class Scatter {
public:
  Scatter(NodeImporter &n, int64_t axis)
      : n(n), axis(axis), shape(n.shape(0)), data(n.operand(0)), updates(n.operand(2)) {
    Type type = n.i64Type();
    Value given = n.cast(n.operand(1), type), zero = n.scalar(type, 0);
    if (n.failed())
      return;
    Value wrapped = n.add(given, n.dimConstant(shape[axis], {}, type));
    indices = n.build<nn::WhereOp>({n.build<nn::LessOp>({given, zero}), wrapped, given});
  }

  bool isSmall() const {
    const Dim count = product(DimShape{n.shapeOf(indices)[axis], shape[axis]});
    return count.isStatic() && count.value() <= mostComparisons;
  }

  Value byComparing(StringRef reduction);
  Value bySlices(StringRef reduction);

private:
  /// The number that all elements of an initializer are, as the zeros of a mask whose sizes are static; else
  /// `value`, of input `index`.
  Value oneNumber(unsigned index, Value value);
  /// What is not scattered to gets an index that is none.
  void padOtherDims();
  Value reduced(Value x, StringRef kind) { return n.reduce(x, kind, {axis}, /*keepdims=*/false); }
  Value widened(Value x) {
    Type type = NodeImporter::typeOf(x);
    return type && type.isFloat() && type.getIntOrFloatBitWidth() < 32 ? n.cast(x, n.f32Type()) : x;
  }

  NodeImporter &n;
  int64_t axis;
  DimShape shape;
  Value data, updates, indices;
};

Value Scatter::oneNumber(unsigned index, Value value) {
  const GraphValue *given = n.owner().scope().find(n.proto().input(static_cast<int>(index)));
  if (!given || !given->tensor || given->info.code != FloatCode::None || !isFloat(given->info.type) ||
      given->info.elements() == 0 || given->info.elements() > mostLookedAt)
    return value;
  auto contents = n.owner().tensors.load(*given->tensor, given->info);
  if (!contents) {
    n.fail(contents.error().message);
    return value;
  }
  const std::vector<float> elements = contents->toFloats();
  const auto *bits = reinterpret_cast<const uint32_t *>(elements.data());
  if (std::any_of(bits, bits + elements.size(), [&](uint32_t other) { return other != bits[0]; }))
    return value;
  return n.scalar(NodeImporter::typeOf(value), elements[0]);
}

void Scatter::padOtherDims() {
  DimShape own = n.shapeOf(indices), low(own.size(), Dim(0)), high = low;
  bool differs = false;
  for (size_t i = 0; i < own.size(); ++i)
    if (static_cast<int64_t>(i) != axis && !sameDim(n, own[i], shape[i])) {
      high[i] = shape[i] - own[i];
      differs = true;
    }
  if (!differs)
    return;
  auto pad = [&](Value x, Value value) {
    return n.build<nn::PadOp>({x, value}, {n.dims("low", low), n.dims("high", high)});
  };
  indices = pad(indices, n.scalar(n.i64Type(), -1));
  updates = pad(updates, n.scalar(NodeImporter::typeOf(updates), 0));
}

Value Scatter::byComparing(StringRef reduction) {
  padOtherDims();
  if (n.failed())
    return {};
  Type type = n.i64Type();
  DimShape column = n.shapeOf(indices), along(shape.size() + 1, Dim(1)), row = shape;
  column.insert(column.begin() + axis + 1, Dim(1));   // [.., index, 1, ..]
  along[static_cast<size_t>(axis) + 1] = shape[axis]; // [1.., 1, position, 1..]
  row.insert(row.begin() + axis, Dim(1));             // [.., 1, position, ..]
  if (reduction == "none" && n.shapeOf(indices)[axis] == Dim(1)) { // one update a column has none before it
    along.erase(along.begin());
    data = oneNumber(0, data);
    Value hit = n.build<nn::EqualOp>({indices, n.reshape(countFrom(n, 0, shape[axis]), along)});
    return n.build<nn::WhereOp>({hit, updates, data});
  }
  Value positions = n.reshape(countFrom(n, 0, shape[axis]), along);
  Value hit = n.build<nn::EqualOp>({n.reshape(indices, column), positions});
  if (reduction == "none") {
    Value found = n.cast(hit, n.f32Type()),
          any = n.build<nn::GreaterOp>({reduced(found, "max"), n.scalar(n.f32Type(), 0)});
    data = oneNumber(0, data);
    auto same = updates.getDefiningOp<nn::ExpandOp>();
    Value update = same ? Value(same.getX()) : oneNumber(2, updates);
    if (n.failed())
      return {};
    if (n.rankOf(update) == 0)
      return n.build<nn::WhereOp>({any, update, data});
    Value first = n.build<nn::ArgMaxOp>(found, {n.i64("axis", axis), n.flag("keepdims", false)}, type);
    return n.build<nn::WhereOp>(
        {any, n.build<nn::GatherElementsOp>({updates, first}, n.i64("axis", axis)), data});
  }
  Value values = n.reshape(widened(updates), column), x = widened(data);
  Type element = NodeImporter::typeOf(x);
  auto where = [&](Value otherwise) { return n.build<nn::WhereOp>({hit, values, otherwise}); };
  Value y;
  if (reduction == "add")
    y = n.add(x, reduced(where(n.scalar(element, 0)), "sum"));
  else if (reduction == "mul")
    y = n.mul(x, reduced(where(n.scalar(element, 1)), "prod"));
  else if (reduction == "max")
    y = n.build<nn::MaxOp>({x, reduced(where(n.reshape(x, row)), "max")});
  else
    y = n.build<nn::MinOp>({x, reduced(where(n.reshape(x, row)), "min")});
  return n.cast(y, n.inputType(0));
}

/// Single elements, addressed in all dims.
Value Scatter::bySlices(StringRef reduction) {
  DimShape all = n.shapeOf(indices), last = all;
  last.push_back(Dim(1));
  SmallVector<Value> addresses;
  for (size_t i = 0; i < all.size(); ++i) {
    DimShape along(all.size(), Dim(1));
    along[i] = all[i];
    Value own =
        static_cast<int64_t>(i) == axis ? indices : n.expand(n.reshape(countFrom(n, 0, all[i]), along), all);
    addresses.push_back(n.reshape(own, last));
  }
  Value places = n.concat(addresses, static_cast<int64_t>(all.size()));
  return reduction == "none" ? n.build<nn::ScatterNdOp>({data, places, updates})
                             : scatterReduced(n, {data, places, updates}, reduction);
}

void scatterElements(NodeImporter &n) {
  const int64_t axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  const std::string reduction = n.stringAttribute("reduction", "none");
  if (!llvm::is_contained({"none", "add", "mul", "max", "min"}, reduction))
    return n.fail("reduction '" + reduction + "' is not supported");
  if (!n.failed() && (n.rank(1) != n.rank(0) || n.rank(2) != n.rank(0)))
    n.fail("data, indices and updates have different ranks");
  if (n.failed())
    return;
  Scatter scatter(n, axis);
  if (n.failed())
    return;
  if (scatter.isSmall())
    return n.result(0, scatter.byComparing(reduction));
  n.result(0, scatter.bySlices(reduction));
}

/// Sizes that are put into a list of sizes.
bool evaluateScatter(NodeImporter &n) {
  auto x = knownInput(n, 0), indices = knownInput(n, 1), updates = knownInput(n, 2);
  auto at = staticShape(indices ? indices->values : DimShape{Dim::symbol("unknown")});
  if (!x || !at || !updates || x->shape.size() != 1 || indices->shape != updates->shape ||
      n.stringAttribute("reduction", "none") != "none")
    return false;
  (void)n.axis(n.intAttribute("axis", 0), 1);
  const auto size = static_cast<int64_t>(x->values.size());
  for (auto [index, update] : llvm::zip_equal(*at, updates->values)) {
    if (index < -size || index >= size)
      return false; // an error of the op's own
    x->values[static_cast<size_t>(index < 0 ? index + size : index)] = update;
  }
  if (!n.failed())
    n.resultKnown(0, x->values, x->shape, n.inputType(0));
  return true;
}

} // namespace

Value scatterReduced(NodeImporter &n, ArrayRef<Value> operands, StringRef reduction) {
  if (!n.failed() && !llvm::is_contained({"add", "mul", "min", "max"}, reduction))
    n.fail("reduction '" + reduction + "' is not supported");
  if (n.failed())
    return {};
  return n.build<nn::ScatterReduceOp>(operands,
                                      n.builder().getNamedAttr("kind", n.builder().getStringAttr(reduction)));
}

void registerScatter(HandlerTable &table) {
  table.add("", "ScatterElements", 3, 3, scatterElements);
  table.add("", "Scatter", 3, 3, scatterElements);
  table.addEvaluator("ScatterElements", evaluateScatter);
  table.addEvaluator("Scatter", evaluateScatter);
}

} // namespace fusion::onnx
