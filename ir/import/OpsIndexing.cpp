// Gathers, scatters and what else works with indices.
#include "ir/import/Graph.h"
#include "ir/import/Known.h"
#include "ir/import/OpsScatter.h"
#include "ir/import/OpsShared.h"
#include "ir/import/onnx.pb.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Indices that are known must be in range where the size is.
void checkKnownIndices(NodeImporter &n, int64_t axis) {
  auto indices = n.known(1);
  if (n.failed() || !indices)
    return;
  const Dim size = n.shape(0)[static_cast<size_t>(axis)];
  for (const Dim &index : *indices)
    if (size.isStatic() && index.isStatic() &&
        (index.value() < -size.value() || index.value() >= size.value()))
      return n.fail("index " + index.str() + " (input 1, '" + n.proto().input(1) +
                    "') is out of range for dim " + Twine(axis) + " of size " + size.str());
}

void gather(NodeImporter &n) {
  int64_t axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  checkKnownIndices(n, axis);
  n.result(0, n.build<nn::GatherOp>({n.operand(0), n.operand(1)}, n.i64("axis", axis)));
}

void gatherElements(NodeImporter &n) {
  int64_t axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  n.result(0, n.build<nn::GatherElementsOp>({n.operand(0), n.operand(1)}, n.i64("axis", axis)));
}

void gatherNd(NodeImporter &n) {
  n.result(0, n.build<nn::GatherNdOp>({n.operand(0), n.operand(1)},
                                      n.i64("batch_dims", n.intAttribute("batch_dims", 0))));
}

/// The first of the rows that are written, if indices name the rows of dim 0 one behind the other.
std::optional<Dim> consecutiveRows(NodeImporter &n, unsigned index) {
  const DimShape shape = n.shape(index);
  if (shape.size() != 2 || !(shape[1] == Dim(1)))
    return std::nullopt;
  const auto rows = n.known(index);
  if (!rows || rows->empty() || !rows->front().knownNonNegative())
    return std::nullopt;
  for (size_t i = 1; i < rows->size(); ++i)
    if (!((*rows)[i] - (*rows)[i - 1] == Dim(1)))
      return std::nullopt;
  return rows->front();
}

// Pattern: ScatterND(x, [[a], [a + 1], …], y) -> concat(x[:a], y, x[a + n:]), as writes into a slice are
// exported
Value withRows(NodeImporter &n, const Dim &first) {
  const Value x = n.operand(0), y = n.operand(2);
  const Dim end = first + n.shape(1)[0], rest = n.shape(0)[0] - end;
  SmallVector<Value> parts;
  if (!(first == Dim(0)))
    parts.push_back(n.slice(x, 0, 0, first));
  parts.push_back(y);
  if (!(rest == Dim(0)))
    parts.push_back(n.slice(x, 0, end, rest));
  return parts.size() == 1 ? y : n.concat(parts, 0);
}

void scatterNd(NodeImporter &n) {
  std::string reduction = n.stringAttribute("reduction", "none");
  const Value indices = n.owner().dataRows.written(n);
  if (n.failed())
    return;
  if (reduction != "none")
    return n.result(0, scatterReduced(n, {n.operand(0), indices, n.operand(2)}, reduction));
  if (const auto first = consecutiveRows(n, 1);
      first && (n.shape(0)[0] - *first - n.shape(1)[0]).knownNonNegative())
    return n.result(0, withRows(n, *first));
  n.result(0, n.build<nn::ScatterNdOp>({n.operand(0), indices, n.operand(2)}));
}

/// where(iota == indices, on, off), with a new dim at `axis`.
void oneHot(NodeImporter &n) {
  DimShape shape = n.shape(0), depth;
  if (auto number = n.constantScalar(1)) // may be a float
    depth = {static_cast<int64_t>(*number)};
  else
    depth = n.requireKnown(1, "depth");
  if (n.failed())
    return;
  if (depth.size() != 1)
    return n.fail("depth is not one number");
  auto rank = static_cast<int64_t>(shape.size()) + 1;
  int64_t axis = n.axis(n.intAttribute("axis", -1), rank);
  if (n.failed())
    return;
  Type type = n.i64Type();
  Value zero = n.scalar(type, 0);
  Value indices = n.cast(n.operand(0), type);
  Value wrapped = n.add(indices, n.dimConstant(depth, {}, type));
  indices = n.build<nn::WhereOp>({n.build<nn::LessOp>({indices, zero}), wrapped, indices});
  shape.insert(shape.begin() + axis, Dim(1));
  DimShape along(rank, Dim(1));
  along[axis] = depth[0];
  Value positions = n.reshape(n.build<nn::IotaOp>({zero, n.scalar(type, 1)}, n.dims("size", depth)), along);
  Value hit = n.build<nn::EqualOp>({n.reshape(indices, shape), positions});
  Value values = n.operand(2);
  Value off = n.reshape(n.slice(values, 0, 0, 1), {}), on = n.reshape(n.slice(values, 0, 1, 1), {});
  n.result(0, n.build<nn::WhereOp>({hit, on, off}));
}

/// Of a list of indices, such as how often each dim is repeated where one is.
bool evaluateOneHot(NodeImporter &n) {
  auto indices = knownInput(n, 0), depth = knownInput(n, 1), values = knownInput(n, 2);
  auto at = staticShape(indices ? indices->values : DimShape{Dim::symbol("unknown")});
  constexpr int64_t deepest = 64;
  if (!at || !depth || !values || indices->shape.size() > 1 || depth->values.size() != 1 ||
      values->values.size() != 2 || !depth->values[0].isStatic() || depth->values[0].value() < 0 ||
      depth->values[0].value() > deepest)
    return false;
  const int64_t rank = static_cast<int64_t>(indices->shape.size()) + 1, size = depth->values[0].value();
  if (n.axis(n.intAttribute("axis", -1), rank) != rank - 1 || n.failed())
    return false;
  DimShape result;
  for (int64_t index : *at)
    for (int64_t place = 0; place < size; ++place)
      result.push_back(values->values[place == (index < 0 ? index + size : index) ? 1 : 0]);
  std::vector<int64_t> shape = indices->shape;
  shape.push_back(size);
  n.resultKnown(0, result, shape, n.inputType(2));
  return true;
}

void argExtremum(NodeImporter &n) {
  int64_t axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  bool keepdims = n.intAttribute("keepdims", 1) != 0, takeLast = n.intAttribute("select_last_index", 0) != 0;
  Value x = n.operand(0);
  if (n.opType() == "ArgMin") {
    if (n.inputType(0) && n.inputType(0).isUnsignedInteger())
      return n.fail("unsigned integers are not supported");
    x = n.build<nn::NegOp>(x);
  }
  if (n.failed())
    return;
  const Dim length = n.shape(0)[axis];
  if (takeLast) // the first from the other end
    x = n.slice(x, axis, length - 1, length, -1);
  Value index = n.build<nn::ArgMaxOp>(x, {n.i64("axis", axis), n.flag("keepdims", keepdims)}, n.i64Type());
  n.result(0, takeLast ? n.sub(n.dimConstant(length - 1, {}, n.i64Type()), index) : index);
}

void topK(NodeImporter &n) {
  const int64_t axis = n.axis(n.intAttribute("axis", -1), n.rank(0));
  const DimShape k = n.has(1) ? n.requireKnown(1, "k") : DimShape{n.intAttribute("k", 0)};
  if (n.failed())
    return;
  if (k.size() != 1)
    return n.fail("k is not one number");
  Value x = n.operand(0), keys = x;
  if (n.intAttribute("largest", 1) == 0) // the smallest: what turns the order around
    keys = llvm::isa<FloatType>(n.inputType(0)) ? n.build<nn::NegOp>(x) : n.build<nn::NotOp>(x);
  Value indices = n.build<nn::TopKOp>(keys, {n.i64("axis", axis), n.dims("k", k)}, n.i64Type());
  if (n.wants(0))
    n.result(0, n.build<nn::GatherElementsOp>({x, indices}, n.i64("axis", axis)));
  n.result(1, indices);
}

void cumSum(NodeImporter &n) {
  std::vector<int64_t> axis = n.requireConstants(1, "axis");
  if (n.failed())
    return;
  if (axis.size() != 1)
    return n.fail("axis is not one number");
  n.result(0, n.build<nn::CumSumOp>(n.operand(0), {n.i64("axis", n.axis(axis[0], n.rank(0))),
                                                   n.flag("exclusive", n.intAttribute("exclusive", 0) != 0),
                                                   n.flag("reverse", n.intAttribute("reverse", 0) != 0)}));
}

/// New rows of a cache from write_indices on; in circular mode those behind the end go to the front.
void tensorScatter(NodeImporter &n) {
  const int64_t axis = n.axis(n.intAttribute("axis", -2), n.rank(0));
  const std::string mode = n.stringAttribute("mode", "linear");
  if (!n.failed() && mode != "linear" && mode != "circular")
    return n.fail("mode '" + mode + "' is not supported");
  if (!n.failed() && (axis == 0 || n.rank(1) != n.rank(0)))
    return n.fail("needs an axis behind the batch and an update of the cache's rank");
  Value cache = n.operand(0), update = n.operand(1);
  if (n.failed())
    return;
  const Dim length = n.shape(0)[axis], fresh = n.shape(1)[axis];
  DimShape place(n.shape(0).size(), Dim(1));
  place[axis] = fresh;
  Value rows = n.reshape(countFrom(n, 0, fresh), place);
  if (n.has(2)) {
    Value start = n.cast(n.operand(2), n.i64Type());
    if (mode == "circular")
      start = n.build<nn::ModOp>({start, n.dimConstant(length, {}, n.i64Type())});
    place[axis] = Dim(1);
    place[0] = n.shape(0)[0];
    rows = n.add(n.reshape(start, place), rows);
  }
  auto write = [&](Value into, Value at) {
    return n.build<nn::CacheWriteOp>({into, update, at}, n.i64("axis", axis));
  };
  Value written = write(cache, rows);
  if (mode == "circular" && n.has(2))
    written = write(written, n.sub(rows, n.dimConstant(length, {}, n.i64Type())));
  n.result(0, written);
}

} // namespace

void registerIndexing(HandlerTable &table) {
  table.add("", "Gather", 2, 2, gather);
  table.add("", "GatherElements", 2, 2, gatherElements);
  table.add("", "GatherND", 2, 2, gatherNd);
  table.add("", "ScatterND", 3, 3, scatterNd);
  table.add("", "TensorScatter", 2, 3, tensorScatter);
  table.add("", "OneHot", 3, 3, oneHot);
  table.addEvaluator("OneHot", evaluateOneHot);
  table.add("", "TopK", 1, 2, topK);
  table.add("", "ArgMax", 1, 1, argExtremum);
  table.add("", "ArgMin", 1, 1, argExtremum);
  table.add("", "CumSum", 2, 2, cumSum);
}

} // namespace fusion::onnx
