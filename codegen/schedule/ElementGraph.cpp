#include "codegen/schedule/ElementGraph.h"

#include "codegen/body/Printer.h"
#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fusion {

using scalar::Kind;

/// Bytes of constants that a kernel carries in its text.
static constexpr int64_t mostTableBytes = 4096;

std::vector<scalar::Value> constantValues(scalar::Graph &graph, nn::ConstantOp op) {
  ElementsAttr value = op.getValue();
  const DType type = dtype(op.getResult());
  if (value.isSplat() && value.getNumElements() > 0)
    value = DenseElementsAttr::get(RankedTensorType::get({}, value.getElementType()),
                                   value.getSplatValue<Attribute>());
  Tensor tensor = toTensor(value);
  std::vector<scalar::Value> values;
  if (type == DType::F64)
    for (int64_t i = 0; i < tensor.size(); ++i)
      values.push_back(graph.number(type, tensor.as<double>()[i]));
  else if (isFloat(type))
    for (float number : tensor.toFloats())
      values.push_back(graph.number(DType::F32, number));
  else
    for (int64_t number : tensor.toInts())
      values.push_back(graph.integer(type, number));
  return values;
}

scalar::Value constantValue(scalar::Graph &graph, body::Scope &source, Operation *op) {
  if (auto constant = dyn_cast<nn::ConstantOp>(op))
    return constantValues(graph, constant)[0];
  auto dims = cast<nn::DimConstantOp>(op);
  return graph.convertRegister(dtype(op->getResult(0)),
                               source.size(graph, nn::dimsFromAttr(dims.getValues())[0]));
}

std::optional<std::string> ElementGraph::refuses(Operation *op, const KernelContext &context) {
  if (auto constant = dyn_cast<nn::ConstantOp>(op)) {
    ElementsAttr value = constant.getValue();
    if (!isa<DenseElementsAttr>(value))
      return "a constant whose elements are not in the module";
    const int64_t bytes = value.getNumElements() *
                          static_cast<int64_t>(byteSize(scalar::registerType(dtype(constant.getResult()))));
    if (!value.isSplat() && bytes > mostTableBytes)
      return ("a constant of " + Twine(bytes) + " bytes inside the region").str();
    return std::nullopt;
  }
  if (isa<nn::ScalarFormula>(op) ||
      isa<nn::DimConstantOp, nn::IotaOp, nn::ReshapeOp, nn::TransposeOp, nn::ExpandOp, nn::SliceOp,
          nn::ConcatOp, nn::CacheWriteOp, nn::PadOp, nn::TriluOp, nn::GatherOp, nn::GatherElementsOp,
          nn::GatherNdOp, nn::RopeOp>(op))
    return std::nullopt;
  return (op->getName().getStringRef() + " is not computed element by element").str();
}

scalar::Value ElementGraph::value(Value value, const ElementIndex &index, scalar::Value guard) {
  std::vector<scalar::Value> at(index.begin(), index.end());
  at.push_back(guard);
  Key key{value.getAsOpaquePointer(), std::move(at)};
  if (auto found = known.find(key); found != known.end())
    return found->second;
  auto input = llvm::find(region.inputs, value);
  scalar::Value result;
  if (input != region.inputs.end()) {
    const auto number = static_cast<unsigned>(input - region.inputs.begin());
    result = graph.load(source.pointer(number), source.address(graph, context.inputs[number], index), guard);
  } else {
    result = compute(value.getDefiningOp(), index, guard);
  }
  return known[key] = result;
}

scalar::Value ElementGraph::broadcast(Value operand, const ElementIndex &index, scalar::Value guard) {
  const DimShape &shape = context.shape(operand);
  ElementIndex place(index.end() - static_cast<ptrdiff_t>(shape.size()), index.end());
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i].knownAtMostOne())
      place[i] = graph.index(0);
  return value(operand, place, guard);
}

scalar::Value ElementGraph::constant(Operation *op, const ElementIndex &index) {
  const DType type = dtype(op->getResult(0));
  const DimShape &shape = context.shape(op->getResult(0));
  if (auto dims = dyn_cast<nn::DimConstantOp>(op)) {
    const DimShape values = nn::dimsFromAttr(dims.getValues());
    const scalar::Value linear = source.address(graph, shape, index);
    scalar::Value chain = graph.convertRegister(type, size(values.back()));
    for (size_t i = values.size() - 1; i-- > 0;)
      chain = graph.select(graph.compare(Kind::Equal, linear, graph.index(static_cast<int64_t>(i))),
                           graph.convertRegister(type, size(values[i])), chain);
    return chain;
  }
  const std::vector<scalar::Value> values = constantValues(graph, cast<nn::ConstantOp>(op));
  if (values.size() == 1)
    return values[0];
  std::string &table = tables[op];
  const DType held = scalar::registerType(type);
  if (table.empty()) {
    std::vector<std::string> texts;
    for (scalar::Value value : values)
      texts.push_back(isFloat(held) ? body::literal(held, graph[value].number)
                                    : body::integerLiteral(held, graph[value].integer));
    table = source.table(held, texts);
  }
  return graph.load({table, type, scalar::Access::Table}, source.address(graph, shape, index));
}

scalar::Value ElementGraph::iota(Operation *op, const ElementIndex &index, scalar::Value guard) {
  const DType type = dtype(op->getResult(0));
  const scalar::Value start = value(op->getOperand(0), {}, guard), step = value(op->getOperand(1), {}, guard);
  const DType wide = isFloat(type) ? scalar::registerType(type) : DType::U64; // integers wrap
  auto widened = [&](scalar::Value x) { return graph.convertRegister(wide, x); };
  return graph.convert(type, graph.add(widened(start), graph.mul(widened(step), widened(index[0]))));
}

/// Dims are paired into runs of equal product, so that most indices pass as they are.
ElementIndex ElementGraph::throughReshape(Operation *op, const ElementIndex &index) {
  const DimShape &from = context.shape(op->getResult(0)), &to = context.shape(op->getOperand(0));
  ElementIndex result(to.size(), graph.index(0));
  size_t i = from.size(), j = to.size(); // everything after them is paired
  while (j > 0) {
    const size_t fromEnd = i, toEnd = j;
    Dim left = i > 0 ? from[--i] : Dim(1), right = to[--j];
    while (!(left == right) && (i > 0 || j > 0)) {
      if (i > 0 && right.dividedBy(left)) {
        left = left * from[--i];
      } else if (j > 0 && left.dividedBy(right)) {
        right = right * to[--j];
      } else { // not in step: one run to the front
        while (i > 0)
          left = left * from[--i];
        while (j > 0)
          right = right * to[--j];
      }
    }
    if (fromEnd - i == 1 && toEnd - j == 1) {
      result[j] = to[j] == Dim(1) ? graph.index(0) : index[i];
      continue;
    }
    const DimShape run(from.begin() + i, from.begin() + fromEnd), target(to.begin() + j, to.begin() + toEnd);
    const scalar::Value linear =
        source.address(graph, run, ElementIndex(index.begin() + i, index.begin() + fromEnd));
    auto parts = source.delinearize(graph, linear, target);
    std::copy(parts.begin(), parts.end(), result.begin() + j);
  }
  return result;
}

ElementIndex ElementGraph::throughSlice(Operation *op, const ElementIndex &index) {
  auto slice = cast<nn::SliceOp>(op);
  const DimShape starts = nn::dimsFromAttr(slice.getStarts());
  ElementIndex result;
  for (size_t i = 0; i < index.size(); ++i)
    result.push_back(graph.add(size(starts[i]), graph.mul(index[i], graph.index(slice.getSteps()[i]))));
  return result;
}

scalar::Value ElementGraph::scale(Operation *op, unsigned operand, const ElementIndex &index,
                                  scalar::Value guard) {
  Value scale = op->getOperand(operand);
  const DimShape &shape = context.shape(scale);
  if (product(shape) == Dim(1))
    return value(scale, ElementIndex(shape.size(), graph.index(0)), guard);
  auto number = [&](StringRef attribute) { return op->getAttrOfType<IntegerAttr>(attribute).getInt(); };
  const int64_t given = op->hasAttr("axis") ? number("axis") : -1;
  const size_t axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(index.size()) : given);
  const int64_t block = op->hasAttr("block_size") ? number("block_size") : 0;
  if (block == 0)
    return value(scale, {index[axis]}, guard);
  ElementIndex at = index;
  at[axis] = graph.div(index[axis], graph.index(block));
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == Dim(1))
      at[i] = graph.index(0);
  return value(scale, at, guard);
}

scalar::Value ElementGraph::compute(Operation *op, const ElementIndex &index, scalar::Value guard) {
  if (auto formula = dyn_cast<nn::ScalarFormula>(op)) {
    const bool rescales = nn::isRescale(op);
    llvm::SmallVector<scalar::Value> operands;
    for (auto [number, operand] : llvm::enumerate(op->getOperands()))
      operands.push_back(rescales && number > 0 ? scale(op, static_cast<unsigned>(number), index, guard)
                                                 : broadcast(operand, index, guard));
    return formula.formula(graph, operands);
  }
  return llvm::TypeSwitch<Operation *, scalar::Value>(op)
      .Case<nn::ConstantOp, nn::DimConstantOp>([&](auto) { return constant(op, index); })
      .Case([&](nn::IotaOp) { return iota(op, index, guard); })
      .Case([&](nn::ReshapeOp) { return value(op->getOperand(0), throughReshape(op, index), guard); })
      .Case([&](nn::SliceOp) { return value(op->getOperand(0), throughSlice(op, index), guard); })
      .Case([&](nn::ExpandOp) { return broadcast(op->getOperand(0), index, guard); })
      .Case([&](nn::TransposeOp transpose) {
        ElementIndex from(index.size());
        for (auto [to, dim] : llvm::enumerate(transpose.getPerm()))
          from[dim] = index[to];
        return value(op->getOperand(0), from, guard);
      })
      .Case([&](nn::ConcatOp concatOp) { return concat(concatOp, index, guard); })
      .Case([&](nn::CacheWriteOp write) { return cacheWrite(write, index, guard); })
      .Case([&](nn::PadOp padOp) { return pad(padOp, index, guard); })
      .Case([&](nn::TriluOp triluOp) { return trilu(triluOp, index, guard); })
      .Case([&](nn::GatherOp gatherOp) { return gather(gatherOp, index, guard); })
      .Case([&](nn::GatherElementsOp gatherOp) { return gatherElements(gatherOp, index, guard); })
      .Case([&](nn::GatherNdOp gatherOp) { return gatherNd(gatherOp, index, guard); })
      .Case([&](nn::RopeOp ropeOp) { return rope(ropeOp, index, guard); });
}

} // namespace fusion
