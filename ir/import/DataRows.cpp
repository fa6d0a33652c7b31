#include "ir/import/DataRows.h"

#include "ir/dialect/Scatter.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/import/Graph.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

static std::string rowsName(size_t number) { return "rows found by NonZero " + std::to_string(number); }

Value DataRows::places(NodeImporter &n, Value x) {
  const size_t number = found++;
  const DimShape shape = n.shapeOf(x);
  const auto rank = static_cast<int64_t>(shape.size());
  if (use == Use::Refused || rank == 0)
    return {};
  if (use == Use::Named) {
    counts.emplace(rowsName(number), product(shape));
    return n.expand(n.scalar(n.i64Type(), 0), {Dim(rank), Dim::symbol(rowsName(number))});
  }
  const Dim count = product(shape);
  Value mask = n.reshape(x, {count});
  if (!elementType(mask).isInteger(1))
    mask = n.build<nn::NotOp>(n.build<nn::EqualOp>({mask, n.scalar(elementType(mask), 0)}));
  masks.push_back(mask);
  Value place = countFrom(n, 0, count);
  if (rank == 1)
    return n.reshape(place, {Dim(1), count});
  SmallVector<Value> coordinates;
  Dim after = count;
  for (const Dim &dim : shape) {
    after = after.dividedBy(dim).value_or(Dim(1)); // 0 of none
    Value coordinate = n.build<nn::DivOp>({place, n.dimConstant(after, {}, n.i64Type())});
    coordinate = n.build<nn::ModOp>({coordinate, n.dimConstant(dim, {}, n.i64Type())});
    coordinates.push_back(n.reshape(coordinate, {Dim(1), count}));
  }
  return n.build<nn::ConcatOp>(coordinates, n.i64("axis", 0));
}

Value DataRows::written(NodeImporter &n) {
  const size_t number = scatters++;
  Value indices = n.operand(1);
  if (n.failed())
    return {};
  const DimShape shape = n.shapeOf(indices), written = n.shape(0);
  if (use == Use::Named && !shape.empty()) {
    for (const std::string &symbol : shape[0].symbols())
      for (size_t i = 0; i < found; ++i)
        if (symbol == rowsName(i) && !writers.emplace(number, i).second)
          isEquated = true;
    return indices;
  }
  auto writer = writers.find(number);
  if (use != Use::All || writer == writers.end() || writer->second >= masks.size())
    return indices;
  Value mask = masks[writer->second];
  const Dim rows = n.shapeOf(mask)[0];
  const auto each = shape[0].dividedBy(rows);
  if (!each || !shape.back().isStatic() || shape.back().value() > static_cast<int64_t>(written.size())) {
    n.fail("the rows that are found have no place of their own among those that are written");
    return {};
  }
  DimShape unit(shape.size(), Dim(1));
  unit[0] = shape[0];
  mask = n.reshape(n.expand(n.reshape(mask, {rows, Dim(1)}), {rows, *each}), unit);
  const int64_t depth = shape.back().value();
  Value outside = n.dimConstant(DimShape(written.begin(), written.begin() + depth), {depth},
                                NodeImporter::typeOf(indices));
  return n.build<nn::WhereOp>({mask, indices, outside});
}

bool DataRows::hasRows(const DimShape &shape) const {
  return llvm::any_of(shape, [&](const Dim &dim) {
    const std::set<std::string> names = dim.symbols();
    return llvm::any_of(names, [&](const std::string &name) { return counts.contains(name); });
  });
}

bool DataRows::mayEqual(const Dim &left, const Dim &right) {
  if (left == right || (!hasRows({left}) && !hasRows({right})))
    return true;
  // Whether there is any element is asked again of all rows, and as many as all are all.
  const bool saysEmpty = left.knownAtMostOne() && right.knownAtMostOne();
  isEquated |= !saysEmpty && !(left.substitute(counts) == right.substitute(counts));
  return false;
}

/// Whether rows stay rows, in their order: the dims before them hold as many elements in both shapes.
static bool keepsRows(const DimShape &from, const DimShape &to,
                      llvm::function_ref<bool(const Dim &)> isRows) {
  const auto before = [&](const DimShape &shape) {
    Dim count(1);
    for (const Dim &dim : shape) {
      if (isRows(dim))
        break;
      count = count * dim;
    }
    return count;
  };
  return llvm::count_if(from, isRows) == 1 && llvm::count_if(to, isRows) == 1 && before(from) == before(to);
}

/// Whether `op` makes rows of rows, each of its own alone, and nothing else of them.
bool DataRows::staysInRows(Operation &op, llvm::function_ref<const DimShape &(Value)> shapeOf) const {
  const auto isRows = [&](const Dim &dim) { return hasRows({dim}); };
  const auto axisOf = [&](int64_t axis, Value of) {
    const auto rank = static_cast<int64_t>(shapeOf(of).size());
    return shapeOf(of)[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
  };
  if (auto constant = llvm::dyn_cast<nn::DimConstantOp>(op))
    return !hasRows(nn::dimsFromAttr(constant.getValues()));
  const auto touches = [&](Value value) { return hasRows(shapeOf(value)); };
  if (llvm::none_of(op.getOperands(), touches) && llvm::none_of(op.getResults(), touches))
    return true;
  if (op.hasTrait<nn::Pointwise>() || llvm::isa<nn::TransposeOp, nn::ExpandOp>(op))
    return true;
  if (auto reshape = llvm::dyn_cast<nn::ReshapeOp>(op))
    return keepsRows(shapeOf(reshape.getX()), shapeOf(reshape), isRows);
  if (auto slice = llvm::dyn_cast<nn::SliceOp>(op)) {
    const DimShape starts = nn::dimsFromAttr(slice.getStarts());
    for (auto [dim, taken, start, step] :
         llvm::zip(shapeOf(slice.getX()), shapeOf(slice), starts, slice.getSteps()))
      if (isRows(dim) && !(dim == taken && start == Dim(0) && step == 1))
        return false;
    return true;
  }
  if (auto gather = llvm::dyn_cast<nn::GatherOp>(op))
    return !isRows(axisOf(static_cast<int64_t>(gather.getAxis()), gather.getX()));
  if (auto gather = llvm::dyn_cast<nn::GatherNdOp>(op))
    return !touches(gather.getX());
  if (auto concat = llvm::dyn_cast<nn::ConcatOp>(op))
    return !isRows(axisOf(static_cast<int64_t>(concat.getAxis()), concat));
  if (auto softmax = llvm::dyn_cast<nn::SoftmaxOp>(op))
    return !isRows(axisOf(static_cast<int64_t>(softmax.getAxis()), softmax));
  if (auto matmul = llvm::dyn_cast<nn::MatmulOp>(op))
    return !isRows(axisOf(matmul.getTransposeA() ? -2 : -1, matmul.getA())) &&
           !isRows(axisOf(matmul.getTransposeB() ? -1 : -2, matmul.getB()));
  if (llvm::isa<nn::ScatterNdOp, nn::ScatterReduceOp>(op)) {
    const DimShape &indices = shapeOf(op.getOperand(1)), &updates = shapeOf(op.getOperand(2));
    return !touches(op.getOperand(0)) && isRows(indices.front()) && !updates.empty() &&
           indices.front().substitute(counts) == updates.front().substitute(counts);
  }
  return false;
}

DataRows DataRows::next(ModuleOp module) const {
  bool areRows = !isEquated;
  for (auto function : module.getOps<func::FuncOp>()) {
    auto shapes = nn::SymbolicShapes::compute(function);
    areRows &= succeeded(shapes);
    if (!areRows)
      break;
    for (Operation &op : function.getBody().front())
      areRows &= staysInRows(op, [&](Value value) -> const DimShape & { return (*shapes)[value]; });
  }
  DataRows result;
  result.use = areRows ? Use::All : Use::Refused;
  result.writers = writers;
  return result;
}

} // namespace fusion::onnx
