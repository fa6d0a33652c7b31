// Elements of ops that choose, mask or rescale by position.
#include "codegen/ScalarCode.h"
#include "codegen/schedule/Elements.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fusion {

static StringRef resultType(Operation *op) { return registerType(dtype(op->getResult(0))); }

static size_t normalised(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

std::string ElementCode::concat(Operation *op, const ElementIndex &index) {
  size_t axis = normalised(llvm::cast<nn::ConcatOp>(op).getAxis(), index.size());
  writer.comment(op);
  std::function<std::string(unsigned, const Dim &)> part = [&](unsigned number, const Dim &start) {
    Value operand = op->getOperand(number);
    auto take = [&] {
      ElementIndex from = index;
      if (!(start == Dim(0)))
        from[axis] = local("i64", "i", index[axis] + " - " + writer.size(start));
      return value(operand, from);
    };
    if (number + 1 == op->getNumOperands())
      return take();
    Dim end = start + context.shape(operand)[axis];
    return choose(resultType(op), "concat", index[axis] + " < " + writer.size(end), take,
                  [&] { return part(number + 1, end); });
  };
  return part(0, Dim(0));
}

std::string ElementCode::pad(Operation *op, const ElementIndex &index) {
  auto padOp = llvm::cast<nn::PadOp>(op);
  DimShape low = nn::dimsFromAttr(padOp.getLow()), high = nn::dimsFromAttr(padOp.getHigh());
  const DimShape &inner = context.shape(padOp.getX());
  ElementIndex from = index;
  llvm::SmallVector<std::string> inside;
  writer.comment(op);
  for (size_t i = 0; i < index.size(); ++i) {
    if (!(low[i] == Dim(0))) {
      from[i] = local("i64", "i", index[i] + " - " + writer.size(low[i]));
      inside.push_back(from[i] + " >= 0");
    }
    if (!(high[i] == Dim(0)))
      inside.push_back(from[i] + " < " + writer.size(inner[i]));
  }
  if (inside.empty())
    return value(padOp.getX(), from);
  return choose(
      resultType(op), "pad", llvm::join(inside, " && "), [&] { return value(padOp.getX(), from); },
      [&] { return value(padOp.getValue(), {}); });
}

std::string ElementCode::trilu(Operation *op, const ElementIndex &index) {
  auto triangle = llvm::cast<nn::TriluOp>(op);
  DType type = dtype(op->getResult(0));
  std::string x = value(triangle.getX(), index);
  writer.comment(op);
  return local(resultType(op), "trilu",
               index.back() + " - " + index[index.size() - 2] + (triangle.getUpper() ? " >= " : " <= ") +
                   std::to_string(static_cast<int64_t>(triangle.getK())) + " ? " + x + " : " +
                   literal(type, 0));
}

std::string ElementCode::place(Value indices, const ElementIndex &index, const Dim &count) {
  std::string chosen = value(indices, index);
  return local("i64", "at", "gather_index(" + chosen + ", " + writer.size(count) + ")");
}

std::string ElementCode::gather(Operation *op, const ElementIndex &index) {
  auto gatherOp = llvm::cast<nn::GatherOp>(op);
  const DimShape &shape = context.shape(gatherOp.getX());
  size_t axis = normalised(gatherOp.getAxis(), shape.size());
  size_t behind = axis + context.shape(gatherOp.getIndices()).size();
  writer.comment(op);
  ElementIndex from(index.begin(), index.begin() + axis);
  from.push_back(
      place(gatherOp.getIndices(), ElementIndex(index.begin() + axis, index.begin() + behind), shape[axis]));
  from.append(index.begin() + behind, index.end());
  return value(gatherOp.getX(), from);
}

std::string ElementCode::gatherElements(Operation *op, const ElementIndex &index) {
  auto gatherOp = llvm::cast<nn::GatherElementsOp>(op);
  size_t axis = normalised(gatherOp.getAxis(), index.size());
  writer.comment(op);
  ElementIndex from = index;
  from[axis] = place(gatherOp.getIndices(), index, context.shape(gatherOp.getX())[axis]);
  return value(gatherOp.getX(), from);
}

std::string ElementCode::gatherNd(Operation *op, const ElementIndex &index) {
  auto gatherOp = llvm::cast<nn::GatherNdOp>(op);
  const DimShape &shape = context.shape(gatherOp.getX()), &indices = context.shape(gatherOp.getIndices());
  size_t batch = static_cast<size_t>(gatherOp.getBatchDims()), leading = indices.size() - 1;
  int64_t depth = indices.back().value();
  writer.comment(op);
  ElementIndex from(index.begin(), index.begin() + batch);
  for (int64_t i = 0; i < depth; ++i) {
    ElementIndex entry(index.begin(), index.begin() + leading);
    entry.push_back(std::to_string(i));
    from.push_back(place(gatherOp.getIndices(), entry, shape[batch + i]));
  }
  from.append(index.begin() + leading, index.end());
  return value(gatherOp.getX(), from);
}

std::string ElementCode::rope(Operation *op, const ElementIndex &index) {
  auto ropeOp = llvm::cast<nn::RopeOp>(op);
  Value x = ropeOp.getX();
  DType compute = *dtypeOf(ropeOp.computeType()), result = dtype(op->getResult(0));
  int64_t rotary = ropeOp.getRotaryDim(), half = rotary / 2;
  const std::string lane = index.back(), halfText = std::to_string(half);
  auto rotated = [&] {
    writer.comment(op);
    std::string first, partner, pair;
    if (ropeOp.getInterleaved()) {
      first = local("bool", "first", lane + " % 2 == 0");
      partner = local("i64", "partner", lane + " + (" + first + " ? 1 : -1)");
      pair = lane + " / 2";
    } else {
      first = local("bool", "first", lane + " < " + halfText);
      partner = local("i64", "partner", lane + " + (" + first + " ? " + halfText + " : -" + halfText + ")");
      pair = first + " ? " + lane + " : " + partner;
    }
    auto angle = [&](Value table) {
      ElementIndex at = index;
      if (context.shape(table).back() == Dim(half))
        at.back() = half == 1 ? "0" : local("i64", "pair", pair);
      const DimShape &shape = context.shape(table);
      ElementIndex place(at.end() - static_cast<ptrdiff_t>(shape.size()), at.end());
      for (size_t i = 0; i < shape.size(); ++i)
        if (shape[i] == Dim(1))
          place[i] = "0";
      return value(table, place);
    };
    std::string cosine = angle(ropeOp.getCos()), sine = angle(ropeOp.getSin());
    ElementIndex other = index;
    other.back() = partner;
    std::string own = value(x, index), across = value(x, other);
    std::string straight = local("f32", "straight", rounded(compute, own + " * " + cosine));
    std::string crossed = local("f32", "crossed", rounded(compute, across + " * " + sine));
    std::string sum = first + " ? " + straight + " - " + crossed + " : " + straight + " + " + crossed;
    std::string turned = local("f32", "turned", rounded(compute, sum));
    return result == compute ? turned : local("f32", "rope", rounded(result, turned));
  };
  if (context.shape(x).back() == Dim(rotary))
    return rotated();
  return choose("f32", "rope", lane + " < " + std::to_string(rotary), rotated,
                [&] { return local("f32", "passed", rounded(result, value(x, index))); });
}

std::string ElementCode::scaleOperand(Operation *op, unsigned operand, const ElementIndex &index) {
  Value scale = op->getOperand(operand);
  const DimShape &shape = context.shape(scale);
  if (product(shape) == Dim(1))
    return value(scale, ElementIndex(shape.size(), "0"));
  auto number = [&](StringRef attribute) { return op->getAttrOfType<IntegerAttr>(attribute).getInt(); };
  size_t axis = normalised(op->hasAttr("axis") ? number("axis") : -1, index.size());
  int64_t block = op->hasAttr("block_size") ? number("block_size") : 0;
  if (block == 0)
    return value(scale, {index[axis]});
  ElementIndex at = index;
  at[axis] = local("i64", "block", index[axis] + " / " + std::to_string(block));
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == Dim(1))
      at[i] = "0";
  return value(scale, at);
}

std::string ElementCode::quantize(Operation *op, const ElementIndex &index) {
  DType type = dtype(op->getResult(0));
  std::string x = value(op->getOperand(0), index), scale = scaleOperand(op, 1, index);
  writer.comment(op);
  std::string quotient = local("f32", "quotient", x + " / " + scale);
  std::string zero = op->getNumOperands() == 3 ? scaleOperand(op, 2, index) : "";
  return local(registerType(type), "quantized", quantizedExpression(type, quotient, zero));
}

std::string ElementCode::dequantize(Operation *op, const ElementIndex &index) {
  std::string x = value(op->getOperand(0), index), scale = scaleOperand(op, 1, index);
  std::string zero = op->getNumOperands() == 3 ? scaleOperand(op, 2, index) : "";
  writer.comment(op);
  std::string shifted = local("f32", "shifted", "(f32)" + x + (zero.empty() ? "" : " - (f32)" + zero));
  return local("f32", "dequantized", rounded(dtype(op->getResult(0)), shifted + " * " + scale));
}

} // namespace fusion
