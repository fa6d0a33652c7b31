// Each op that a row kernel knows, as scalar arithmetic with its roundings.
#include "codegen/schedule/RowBuilder.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::row {

static DType resultType(Operation *op, unsigned result = 0) { return dtype(op->getResult(result)); }

std::string Builder::widthText(bool floating) {
  if (std::optional<int64_t> width = graph.width.constant())
    return floating ? literal(DType::F32, static_cast<double>(*width)) : fmt::format("{}ll", *width);
  return floating ? "(f32)$n" : "$n";
}

// What a norm makes of a sum: times the inverse of the width, which differs by a rounding from a division.
std::string Builder::meanText(const std::string &type) {
  std::optional<int64_t> width = graph.width.constant();
  if (!width || *width == 0 || type != "f32")
    return "$0 / " + widthText(true);
  return "$0 * " + literal(DType::F32, 1.0 / static_cast<double>(*width));
}

Node *Builder::lowerReduce(nn::ReduceOp op, Node *x) {
  if (!x)
    return nullptr;
  const llvm::StringRef kind = op.getKind();
  const DType from = dtype(op.getX()), to = resultType(op);
  const bool floating = isFloat(from), wide = from == DType::F64;
  if (from == DType::Bool && kind != "max" && kind != "min")
    return fail("nn.reduce " + Twine(kind) + " of i1");
  // Integers are summed modulo 2^64, which is exact modulo their own width.
  const std::string type = wide                                           ? "f64"
                           : floating                                     ? "f32"
                           : from == DType::Bool || isSignedInteger(from) ? "i64"
                                                                          : "u64";
  if (x->type != type)
    x = apply(op, fmt::format("({})$0", type), {x}, type);
  if (kind == "sum_square" || kind == "l2")
    x = apply(op, "$0 * $0", {x}, type);
  else if (kind == "l1")
    x = apply(op, floating ? "fabs_($0)" : type == "u64" ? "$0" : "($0 < 0 ? -$0 : $0)", {x}, type);
  Node::Reduction reduce = kind == "max"    ? Node::Reduction::Max
                           : kind == "min"  ? Node::Reduction::Min
                           : kind == "prod" ? Node::Reduction::Product
                                            : Node::Reduction::Sum;
  Node *result = reduction(op, reduce, x);
  std::string text = "$0";
  if (kind == "mean")
    text = wide                     ? fmt::format("$0 / (f64){}", widthText(false))
           : floating               ? "$0 / " + widthText(true)
           : graph.width.isStatic() ? fmt::format("$0 / ({}){}", type, widthText(false))
                                    : "$n == 0 ? 0 : $0 / $n";
  else if (kind == "l2")
    text = floating ? "sqrt_($0)" : fmt::format("({})sqrt_((f64)$0)", type);
  if (to == DType::Bool)
    text = fmt::format("({}) != 0", text);
  else if (!floating)
    text = fmt::format("({})({})", registerType(to).str(), text);
  else if (!wide)
    text = rounded(to, text);
  return apply(op, text, {result}, registerType(to));
}

Node *Builder::lowerSoftmax(nn::SoftmaxOp op, Node *x) {
  const DType to = resultType(op);
  x = asFloat(x);
  if (!x)
    return nullptr;
  const std::string type = x->type;
  Node *largest = reduction(op, Node::Reduction::Max, x);
  if (op.getLog()) {
    Node *shifted = apply(op, "$0 - $1", {x, largest}, type);
    Node *sum = reduction(op, Node::Reduction::Sum, apply(op, "exp_($0)", {shifted}, type));
    return apply(op, rounded(to, "$0 - $1"), {shifted, apply(op, "log_($0)", {sum}, type)}, registerType(to));
  }
  Node *power = apply(op, "exp_($0 - $1)", {x, largest}, type);
  Node *sum = reduction(op, Node::Reduction::Sum, power);
  return apply(op, rounded(to, "$0 / $1"), {power, sum}, registerType(to));
}

Node *Builder::lowerRmsNorm(nn::RmsNormOp op, const Space &space) {
  const DType scale = *dtypeOf(op.scaleType()), to = resultType(op);
  Node *x = asFloat(value(op.getX(), space));
  if (!x)
    return nullptr;
  const std::string type = x->type;
  Node *weight = converted(value(op.getWeight(), space), type);
  Node *squares = reduction(op, Node::Reduction::Sum, apply(op, "$0 * $0", {x}, type));
  const std::string eps = literal(DType::F32, op.getEps().convertToDouble());
  Node *inverse = apply(op, fmt::format("inverse_sqrt_({} + {})", meanText(type), eps), {squares}, type);
  const double bias = op.getWeightBias().convertToDouble();
  Node *factor = weight;
  if (bias != 0)
    factor = apply(op, rounded(scale, "$0 + " + literal(DType::F32, bias)), {weight}, type);
  else if (dtype(op.getWeight()) != scale)
    factor = apply(op, rounded(scale, "$0"), {weight}, type);
  Node *normal = apply(op, rounded(scale, "$0 * $1"), {x, inverse}, type);
  return apply(op, to == scale ? roundedPair(to, "mul", "$0", "$1") : rounded(to, "$0 * $1"), {normal, factor},
               registerType(to));
}

Node *Builder::lowerLayerNorm(nn::LayerNormOp op, const Space &space) {
  const DType scale = *dtypeOf(op.scaleType()), to = resultType(op);
  Node *x = asFloat(value(op.getX(), space));
  if (!x)
    return nullptr;
  const std::string type = x->type;
  Node *mean = apply(op, meanText(type), {reduction(op, Node::Reduction::Sum, x)}, type);
  Node *centred = apply(op, "$0 - $1", {x, mean}, type);
  Node *squares = reduction(op, Node::Reduction::Sum, apply(op, "$0 * $0", {centred}, type));
  const std::string eps = literal(DType::F32, op.getEps().convertToDouble());
  Node *inverse = apply(op, fmt::format("inverse_sqrt_({} + {})", meanText(type), eps), {squares}, type);
  Node *normal = apply(op, rounded(scale, "$0 * $1"), {centred, inverse}, type);
  auto rounding = [&](Value operand) {
    Node *node = converted(value(operand, space), type);
    return dtype(operand) == scale ? node : apply(op, rounded(scale, "$0"), {node}, type);
  };
  Node *result = apply(op, roundedPair(scale, "mul", "$0", "$1"), {normal, rounding(op.getWeight())}, type);
  if (op.getBias())
    return apply(op, to == scale ? roundedPair(to, "add", "$0", "$1") : rounded(to, "$0 + $1"), {result, rounding(op.getBias())}, registerType(to));
  return apply(op, rounded(to, "$0"), {result}, registerType(to));
}

Node *Builder::lowerRope(nn::RopeOp op, const Space &space) {
  const DType compute = *dtypeOf(op.computeType()), to = resultType(op);
  const int64_t rotary = op.getRotaryDim(), half = rotary / 2;
  const bool interleaved = op.getInterleaved(), whole = space.width == Dim(rotary);
  const int64_t headSize = forms[space.form].heads ? graph.headSize : 0;
  const std::string place = headSize ? fmt::format("(u32)$c % {}u", headSize) : "$c";
  Node *x = asFloat(value(op.getX(), space));
  if (!x)
    return nullptr;
  const std::string type = x->type;
  Node *partner =
      move(op, x, {interleaved ? ColumnMap::Kind::NextPartner : ColumnMap::Kind::HalfPartner, half, headSize});
  auto table = [&](Value operand) -> Node * {
    const DimShape &shape = context.shape(operand);
    if (shape.empty() || (shape.back() != Dim(half) && shape.back() != Dim(rotary)))
      return fail("cos and sin of nn.rope with a last dim that is neither the rotary dim nor half of it");
    Space narrow = space;
    narrow.width = shape.back();
    Node *node = converted(value(operand, narrow), type);
    if (shape.back() == Dim(rotary))
      return whole ? node : move(op, node, {ColumnMap::Kind::Clamp, half, headSize});
    return move(op, node, {interleaved ? ColumnMap::Kind::PairFold : ColumnMap::Kind::HalfFold, half, headSize});
  };
  const bool same = dtype(op.getX()) == compute && dtype(op.getCos()) == compute && dtype(op.getSin()) == compute;
  const std::string product = same ? roundedPair(compute, "mul", "$0", "$1") : rounded(compute, "$0 * $1");
  Node *straight = apply(op, product, {x, table(op.getCos())}, type);
  Node *crossed = apply(op, product, {partner, table(op.getSin())}, type);
  const std::string first = interleaved ? place + " % 2 == 0" : fmt::format("{} < {}", place, half);
  Node *turned = apply(op,
                       fmt::format("{} ? {} : {}", first, roundedPair(compute, "sub", "$0", "$1"),
                                   roundedPair(compute, "add", "$0", "$1")),
                       {straight, crossed}, type);
  if (whole)
    return to == compute ? turned : apply(op, rounded(to, "$0"), {turned}, registerType(to));
  return apply(op, rounded(to, fmt::format("{} < {} ? $0 : $1", place, rotary)), {turned, x}, registerType(to));
}

// One entry for all, for every index of `axis`, or for every block along it.
Node *Builder::quantisationOperand(Value operand, Value like, int64_t axis, int64_t blockSize,
                                   const Space &space) {
  auto source = viewOf(operand);
  const DimShape &own = context.shape(operand), &shape = context.shape(like);
  if (product(own) == Dim(1) || blockSize == 0) {
    if (product(own) == Dim(1) && own.size() <= shape.size())
      return value(operand, space);
  }
  if (!source)
    return fail("a scale per axis that is computed in the same kernel");
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis);
  View view = source->second;
  view.shape = shape;
  SmallVector<int64_t> divisors(shape.size(), 1);
  if (blockSize > 0 && product(own) != Dim(1)) {
    divisors[at] = blockSize;
  } else {
    const Dim stride = product(own) == Dim(1) ? Dim(0) : source->second.strides[0];
    view.strides.assign(shape.size(), Dim(0));
    view.strides[at] = stride;
  }
  return load(source->first, view, space, divisors);
}

Node *Builder::lowerQuantize(Operation *op, const Space &space) {
  auto quantize = dyn_cast<nn::QuantizeOp>(op);
  auto dequantize = dyn_cast<nn::DequantizeOp>(op);
  const int64_t axis = quantize ? quantize.getAxis() : dequantize.getAxis();
  const int64_t block = quantize ? quantize.getBlockSize() : dequantize.getBlockSize();
  Value zero = quantize ? quantize.getZeroPoint() : dequantize.getZeroPoint();
  const DType to = resultType(op);
  Node *x = asFloat(value(op->getOperand(0), space));
  Node *scale = asFloat(quantisationOperand(op->getOperand(1), op->getOperand(0), axis, block, space));
  // One scale for many elements is taken apart once.
  const bool shared = !dequantize && x && scale && x->type == "f32" && scale->type == "f32" &&
                      scale->level != Level::Element;
  const std::string quotient = shared ? "divide($0, $1)" : "$0 / $1";
  if (shared)
    scale = apply(op, "divisor($0)", {scale}, "Divisor");
  SmallVector<Node *> operands{x, scale};
  if (zero)
    operands.push_back(asFloat(quantisationOperand(zero, op->getOperand(0), axis, block, space)));
  if (dequantize)
    return apply(op, rounded(to, zero ? "($0 - $2) * $1" : "$0 * $1"), operands, registerType(to));
  return apply(op, quantizedExpression(to, quotient, zero ? "$2" : ""), operands, registerType(to));
}

Node *Builder::lowerDynamicQuantize(nn::DynamicQuantizeOp op, unsigned result, const Space &space) {
  const DType to = resultType(op), scaleType = resultType(op, 1);
  const int64_t group = static_cast<int64_t>(op.getGroupSize());
  const std::optional<int64_t> width = graph.width.constant();
  bool perGroup = group > 0 && !(width && group >= *width);
  if (perGroup) {
    if (!width)
      return fail("groups of a last dim that is not static");
    if (graph.groupSize != 0 && graph.groupSize != group)
      return fail("groups of two sizes");
    if ((group & (group - 1)) != 0 || group > 1024)
      return fail("a group of " + Twine(group) + " elements: only powers of two up to 1024");
    graph.groupSize = group;
  }
  Node *x = asFloat(value(op.getX(), space));
  Node *largest = reduction(op, Node::Reduction::Max, apply(op, "fabs_($0)", {x}), perGroup);
  const char *limit = to == DType::F8E4M3 ? "448.f" : to == DType::F8E5M2 ? "57344.f" : "127.f";
  const Key key{op.getScale().getAsOpaquePointer(), ~0u, false, space.lead, 0};
  Node *&scale = known[key];
  if (!scale)
    scale = apply(op, rounded(scaleType, fmt::format("$0 == 0.f ? 1.f : $0 / {}", limit)), {largest},
                  registerType(scaleType));
  if (result == 1)
    return scale;
  const bool single = x && x->type == "f32" && scale && scale->type == "f32";
  const std::string quotient = single ? "divide($0, $1)" : "$0 / $1";
  Node *by = single ? apply(op, "divisor($0)", {scale}, "Divisor") : scale;
  if (isFloat(to))
    return apply(op, rounded(to, quotient), {x, by}, registerType(to));
  return apply(op, fmt::format("saturate_to_int<{}>(rint_({}))", registerType(to).str(), quotient), {x, by},
               registerType(to));
}

Node *Builder::lower(Operation *op, unsigned result, const Space &space) {
  if (auto constant = dyn_cast<nn::ConstantOp>(op)) {
    const DType type = resultType(op);
    if (std::optional<double> number = constantScalar(constant.getResult()))
      return apply(nullptr, literal(type, *number), {}, registerType(type));
    return fail("a constant of several values inside the region");
  }
  if (isScalarOp(op)) {
    SmallVector<Node *> operands;
    for (Value operand : op->getOperands()) {
      Space own = space;
      if (space.dropped && !isDropped(operand) && !viewOf(operand) && !context.shape(operand).empty() &&
          !operand.getDefiningOp<nn::ConstantOp>())
        return fail("a value per row meets a value of another shape");
      if (!space.dropped && isDropped(operand))
        return fail("a value per row is used along another dim");
      if (space.form != 0 && !viewOf(operand) && !operand.getDefiningOp<nn::ConstantOp>() &&
          context.shape(operand) != context.shape(op->getResult(result)))
        return fail("a computed value is broadcast over heads");
      operands.push_back(value(operand, own));
    }
    return apply(op, "", operands, registerType(resultType(op, result)));
  }
  auto alongRow = [&](int64_t axis) {
    const int64_t rank = static_cast<int64_t>(context.shape(op->getOperand(0)).size());
    return rank > 0 && (axis < 0 ? axis + rank : axis) == rank - 1;
  };
  if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
    if (reduce.getAxes().size() != 1 || !alongRow(reduce.getAxes()[0]))
      return fail("nn.reduce over other dims than the last");
    if (space.form != 0)
      return fail("nn.reduce of a value that is split into heads");
    if (context.shape(reduce.getX()).back() != graph.width)
      return fail("nn.reduce over a last dim of another size");
    if (space.dropped == reduce.getKeepdims())
      return fail("a value per row is used along another dim");
    return lowerReduce(reduce, value(reduce.getX(), {space.lead, graph.width, false}));
  }
  if (isa<nn::AllReduceOp>(op))
    return fail(context.form ? "nn.all_reduce of what the same kernel computes" : "nn.all_reduce waits for the other ranks");
  if (isa<nn::ReshapeOp>(op))
    return reshaped(op, space);
  if (auto transpose = dyn_cast<nn::TransposeOp>(op))
    return transposed(transpose, space);
  if (isa<nn::ExpandOp>(op))
    return value(op->getOperand(0), space);
  if (isa<nn::QuantizeOp, nn::DequantizeOp>(op))
    return lowerQuantize(op, space);
  if (isa<nn::SoftmaxOp, nn::RmsNormOp, nn::LayerNormOp, nn::RopeOp, nn::DynamicQuantizeOp>(op)) {
    const DimShape &shape = context.shape(op->getOperand(0));
    const bool heads = forms[space.form].heads && isa<nn::RopeOp>(op);
    const Dim width = heads ? Dim(graph.headSize) : graph.width;
    if (shape.empty() || shape.back() != width || space.width != width)
      return fail(Twine(op->getName().getStringRef()) + " along a dim that is not the row");
    // What is reduced must not be broadcast into more rows than it has.
    if (space.dropped || ArrayRef<Dim>(rowDims(shape, space.form)).drop_back(columnDims(space.form)) !=
                             ArrayRef<Dim>(graph.leads[space.lead]))
      return fail(Twine(op->getName().getStringRef()) + " of other rows than the region's");
  }
  if (auto softmax = dyn_cast<nn::SoftmaxOp>(op)) {
    if (!alongRow(static_cast<int64_t>(softmax.getAxis())))
      return fail("nn.softmax along another dim than the last");
    return lowerSoftmax(softmax, value(softmax.getX(), space));
  }
  if (auto norm = dyn_cast<nn::RmsNormOp>(op))
    return lowerRmsNorm(norm, space);
  if (auto norm = dyn_cast<nn::LayerNormOp>(op))
    return lowerLayerNorm(norm, space);
  if (auto rope = dyn_cast<nn::RopeOp>(op))
    return lowerRope(rope, space);
  if (auto quantize = dyn_cast<nn::DynamicQuantizeOp>(op))
    return lowerDynamicQuantize(quantize, result, space);
  return fail(Twine(op->getName().getStringRef()) + " is not arithmetic along rows");
}

} // namespace fusion::row
