// Elements of ops that choose, mask or turn by position.
#include "codegen/schedule/ElementGraph.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

using scalar::Kind;

static size_t normalised(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

/// Every part is read only where it is the one.
scalar::Value ElementGraph::concat(nn::ConcatOp op, const ElementIndex &index, scalar::Value guard) {
  const size_t axis = normalised(op.getAxis(), index.size());
  std::vector<std::pair<scalar::Value, scalar::Value>> parts; // where it ends, the element
  Dim start = 0;
  for (Value operand : op->getOperands()) {
    const Dim end = start + context.shape(operand)[axis];
    const bool isFirst = parts.empty(), isLast = parts.size() + 1 == op->getNumOperands();
    const scalar::Value inside = graph.compare(Kind::Less, index[axis], size(end));
    scalar::Value mine = guard;
    if (!isFirst)
      mine = graph.both(mine, graph.logicalNot(parts.back().first));
    if (!isLast)
      mine = graph.both(mine, inside);
    ElementIndex from = index;
    from[axis] = graph.sub(index[axis], size(start));
    parts.push_back({inside, value(operand, from, mine)});
    start = end;
  }
  scalar::Value result = parts.back().second;
  for (size_t i = parts.size() - 1; i-- > 0;)
    result = graph.select(parts[i].first, parts[i].second, result);
  return result;
}

/// What is new is read where it is new, the past elsewhere.
scalar::Value ElementGraph::cacheWrite(nn::CacheWriteOp op, const ElementIndex &index, scalar::Value guard) {
  const size_t axis = normalised(op.getAxis(), index.size());
  const Dim past = context.shape(op.getPast())[axis], fresh = context.shape(op.getFresh())[axis];
  ElementIndex first = index;
  first[axis] = graph.index(0);
  const scalar::Value start = graph.convertRegister(DType::I64, broadcast(op.getRows(), first, guard));
  ElementIndex from = index;
  from[axis] = graph.sub(index[axis], start);
  const scalar::Value isNew = graph.both(graph.compare(Kind::GreaterEqual, from[axis], graph.index(0)),
                                         graph.compare(Kind::Less, from[axis], size(fresh)));
  scalar::Value isPast = graph.logicalNot(isNew);
  if (op.getGrows())
    isPast = graph.both(isPast, graph.compare(Kind::Less, index[axis], size(past)));
  scalar::Value old = value(op.getPast(), index, graph.both(guard, isPast));
  if (op.getGrows()) {
    const DType type = graph.type(old);
    old = graph.select(isPast, old, isFloat(type) ? graph.number(type, 0) : graph.integer(type, 0));
  }
  return graph.select(isNew, value(op.getFresh(), from, graph.both(guard, isNew)), old);
}

scalar::Value ElementGraph::pad(nn::PadOp op, const ElementIndex &index, scalar::Value guard) {
  const DimShape low = nn::dimsFromAttr(op.getLow()), high = nn::dimsFromAttr(op.getHigh());
  const DimShape &inner = context.shape(op.getX());
  ElementIndex from = index;
  scalar::Value inside;
  for (size_t i = 0; i < index.size(); ++i) {
    if (!(low[i] == Dim(0))) {
      from[i] = graph.sub(index[i], size(low[i]));
      inside = graph.both(inside, graph.compare(Kind::GreaterEqual, from[i], graph.index(0)));
    }
    if (!(high[i] == Dim(0)))
      inside = graph.both(inside, graph.compare(Kind::Less, from[i], size(inner[i])));
  }
  if (!inside)
    return value(op.getX(), from, guard);
  return graph.select(inside, value(op.getX(), from, graph.both(guard, inside)),
                      value(op.getValue(), {}, guard));
}

scalar::Value ElementGraph::trilu(nn::TriluOp op, const ElementIndex &index, scalar::Value guard) {
  const scalar::Value x = value(op.getX(), index, guard);
  const scalar::Value diagonal = graph.sub(index.back(), index[index.size() - 2]);
  const scalar::Value kept = graph.compare(op.getUpper() ? Kind::GreaterEqual : Kind::LessEqual, diagonal,
                                           graph.index(static_cast<int64_t>(op.getK())));
  return graph.select(kept, x, graph.like(x, 0));
}

scalar::Value ElementGraph::place(Value indices, const ElementIndex &index, const Dim &count,
                                  scalar::Value guard) {
  const scalar::Value chosen = value(indices, index, guard);
  return graph.call("gather_index", {graph.convertRegister(DType::I64, chosen), size(count)}, DType::I64);
}

scalar::Value ElementGraph::gather(nn::GatherOp op, const ElementIndex &index, scalar::Value guard) {
  const DimShape &shape = context.shape(op.getX());
  const size_t axis = normalised(op.getAxis(), shape.size());
  const size_t after = axis + context.shape(op.getIndices()).size();
  ElementIndex from(index.begin(), index.begin() + axis);
  from.push_back(
      place(op.getIndices(), ElementIndex(index.begin() + axis, index.begin() + after), shape[axis], guard));
  from.append(index.begin() + after, index.end());
  return value(op.getX(), from, guard);
}

scalar::Value ElementGraph::gatherElements(nn::GatherElementsOp op, const ElementIndex &index,
                                           scalar::Value guard) {
  const size_t axis = normalised(op.getAxis(), index.size());
  ElementIndex from = index;
  from[axis] = place(op.getIndices(), index, context.shape(op.getX())[axis], guard);
  return value(op.getX(), from, guard);
}

scalar::Value ElementGraph::gatherNd(nn::GatherNdOp op, const ElementIndex &index, scalar::Value guard) {
  const DimShape &shape = context.shape(op.getX()), &indices = context.shape(op.getIndices());
  const size_t batch = static_cast<size_t>(op.getBatchDims()), leading = indices.size() - 1;
  ElementIndex from(index.begin(), index.begin() + batch);
  for (int64_t i = 0; i < indices.back().value(); ++i) {
    ElementIndex entry(index.begin(), index.begin() + leading);
    entry.push_back(graph.index(i));
    from.push_back(place(op.getIndices(), entry, shape[batch + static_cast<size_t>(i)], guard));
  }
  from.append(index.begin() + leading, index.end());
  return value(op.getX(), from, guard);
}

/// x * cos with the partner's x * sin taken off or added.
scalar::Value ElementGraph::rotated(nn::RopeOp op, const ElementIndex &index, scalar::Value guard) {
  const DType compute = *dtypeOf(op.computeType());
  const int64_t half = static_cast<int64_t>(op.getRotaryDim()) / 2;
  const scalar::Value lane = index.back();
  auto number = [&](int64_t value) { return graph.index(value); };
  scalar::Value first, partner, pair;
  if (op.getInterleaved()) {
    first = graph.compare(Kind::Equal, graph.mod(lane, number(2)), number(0));
    partner = graph.add(lane, graph.select(first, number(1), number(-1)));
    pair = graph.div(lane, number(2));
  } else {
    first = graph.compare(Kind::Less, lane, number(half));
    partner = graph.add(lane, graph.select(first, number(half), number(-half)));
    pair = graph.select(first, lane, partner);
  }
  auto angle = [&](Value table) {
    const DimShape &shape = context.shape(table);
    ElementIndex at(index.end() - static_cast<ptrdiff_t>(shape.size()), index.end());
    if (shape.back() == Dim(half))
      at.back() = pair;
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] == Dim(1))
        at[i] = number(0);
    return value(table, at, guard);
  };
  ElementIndex other = index;
  other.back() = partner;
  const scalar::Value straight =
      graph.round(compute, graph.mul(value(op.getX(), index, guard), angle(op.getCos())));
  const scalar::Value crossed =
      graph.round(compute, graph.mul(value(op.getX(), other, guard), angle(op.getSin())));
  const scalar::Value sum = graph.select(first, graph.sub(straight, crossed), graph.add(straight, crossed));
  return graph.round(dtype(op->getResult(0)), graph.round(compute, sum));
}

scalar::Value ElementGraph::rope(nn::RopeOp op, const ElementIndex &index, scalar::Value guard) {
  const auto rotary = static_cast<int64_t>(op.getRotaryDim());
  if (context.shape(op.getX()).back() == Dim(rotary))
    return rotated(op, index, guard);
  const scalar::Value turns = graph.compare(Kind::Less, index.back(), graph.index(rotary));
  const scalar::Value passed = graph.round(dtype(op->getResult(0)), value(op.getX(), index, guard));
  return graph.select(turns, rotated(op, index, graph.both(guard, turns)), passed);
}

} // namespace fusion
