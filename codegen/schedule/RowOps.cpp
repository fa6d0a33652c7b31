// Each op that a row kernel knows, as scalar arithmetic with its roundings.
#include "codegen/schedule/ElementGraph.h"
#include "codegen/schedule/RowBuilder.h"
#include "ir/dialect/Formulas.h"
#include "ir/scalar/Quantize.h"

using namespace mlir;

namespace fusion::row {

using scalar::Kind;
using Scalars = scalar::Graph;
using Values = ArrayRef<scalar::Value>;

static DType resultType(Operation *op, unsigned result = 0) { return dtype(op->getResult(result)); }

/// Rounded to `to`, held as before.
static scalar::Value rounded(Scalars &g, DType to, scalar::Value value) {
  return g.convertRegister(g.type(value), g.convert(to, value));
}

/// The type in which nn.reduce works: integers are summed modulo 2^64, which is exact modulo their own width.
static DType typeOfReduction(DType from) {
  if (isFloat(from))
    return scalar::registerType(from);
  return from == DType::Bool || isSignedInteger(from) ? DType::I64 : DType::U64;
}

static scalar::Value magnitude(Scalars &g, scalar::Value x) {
  if (isFloat(g.type(x)))
    return g.call("fabs_", {x});
  if (g.type(x) == DType::U64)
    return x;
  return g.select(g.compare(Kind::Less, x, g.like(x, 0)), g.neg(x), x);
}

/// The largest or smallest of nothing is the end of the type itself, not of the register.
static scalar::Value withinType(Scalars &g, DType type, scalar::Value value, bool isMax) {
  const auto bits = static_cast<unsigned>(8 * byteSize(type));
  const bool isSigned = isSignedInteger(type);
  const int64_t most = (int64_t(1) << (isSigned ? bits - 1 : bits)) - 1, least = isSigned ? -most - 1 : 0;
  const scalar::Value end = g.like(value, static_cast<double>(isMax ? least : most));
  return g.select(g.compare(isMax ? Kind::Less : Kind::Greater, value, end), end, value);
}

Node *Builder::lowerReduce(nn::ReduceOp op, Node *x) {
  const llvm::StringRef kind = op.getKind();
  const DType from = dtype(op.getX()), to = resultType(op), type = typeOfReduction(from);
  if (from == DType::Bool && kind != "max" && kind != "min")
    return fail("nn.reduce " + Twine(kind) + " of i1");
  x = converted(x, type);
  if (kind == "l1")
    x = apply(op, {x}, [](Scalars &g, Values v) { return magnitude(g, v[0]); });
  Node::Reduction reduce = kind == "max"    ? Node::Reduction::Max
                           : kind == "min"  ? Node::Reduction::Min
                           : kind == "prod" ? Node::Reduction::Product
                                            : Node::Reduction::Sum;
  Node *result = kind == "sum_square" || kind == "l2" ? sumOfSquares(op, x) : reduction(op, reduce, x);
  return apply(op, {result}, [&](Scalars &g, Values v) {
    scalar::Value value = v[0];
    if (kind == "l2")
      value = isFloat(type)
                  ? g.call("sqrt_", {value})
                  : g.convertRegister(type, g.call("sqrt_", {g.convertRegister(DType::F64, value)}));
    if (kind == "mean") {
      const std::optional<int64_t> width = graph.width.constant();
      const scalar::Value columns =
          width ? g.like(value, static_cast<double>(*width)) : g.convertRegister(type, graph.columns);
      value = g.div(value, columns);
      if (!isFloat(type) && !width)
        value = g.select(g.compare(Kind::Equal, columns, g.like(columns, 0)), g.like(value, 0), value);
    }
    if ((kind == "max" || kind == "min") && !isFloat(to) && to != DType::Bool && byteSize(to) < 8 &&
        graph.width.constant().value_or(0) == 0)
      value = withinType(g, to, value, kind == "max");
    return to == DType::Bool ? g.compare(Kind::NotEqual, value, g.like(value, 0)) : g.convert(to, value);
  });
}

Node *Builder::lowerSoftmax(nn::SoftmaxOp op, Node *x) {
  const DType to = resultType(op);
  x = asFloat(x);
  Node *largest = reduction(op, Node::Reduction::Max, x);
  Node *shifted = apply(op, {x, largest}, [](Scalars &g, Values v) { return g.sub(v[0], v[1]); });
  Node *power = apply(op, {shifted}, [](Scalars &g, Values v) { return g.call("exp_", {v[0]}); });
  Node *sum = reduction(op, Node::Reduction::Sum, power);
  if (!op.getLog())
    return apply(op, {power, sum}, [&](Scalars &g, Values v) { return g.convert(to, g.div(v[0], v[1])); });
  Node *logarithm = apply(op, {sum}, [](Scalars &g, Values v) { return g.call("log_", {v[0]}); });
  return apply(op, {shifted, logarithm},
               [&](Scalars &g, Values v) { return g.convert(to, g.sub(v[0], v[1])); });
}

/// 1 / sqrt(mean of the squares + eps)
Node *Builder::inverseRoot(Operation *op, Node *squares, const llvm::APFloat &eps) {
  return apply(op, {squares}, [&](Scalars &g, Values v) {
    const scalar::Value average = mean(v[0]);
    return g.call("inverse_sqrt_", {g.add(average, g.like(average, eps.convertToFloat()))});
  });
}

Node *Builder::lowerRmsNorm(nn::RmsNormOp op, const Space &space) {
  const DType scale = *dtypeOf(op.scaleType()), to = resultType(op);
  Node *x = asFloat(value(op.getX(), space));
  if (!x)
    return nullptr;
  Node *weight = converted(value(op.getWeight(), space), x->type);
  Node *inverse = inverseRoot(op, sumOfSquares(op, x), op.getEps());
  const float bias = op.getWeightBias().convertToFloat();
  Node *factor = apply(op, {weight}, [&](Scalars &g, Values v) {
    return rounded(g, scale, bias == 0 ? v[0] : g.add(v[0], g.like(v[0], bias)));
  });
  Node *normal =
      apply(op, {x, inverse}, [&](Scalars &g, Values v) { return rounded(g, scale, g.mul(v[0], v[1])); });
  return apply(op, {normal, factor}, [&](Scalars &g, Values v) { return g.convert(to, g.mul(v[0], v[1])); });
}

Node *Builder::lowerLayerNorm(nn::LayerNormOp op, const Space &space) {
  const DType scale = *dtypeOf(op.scaleType()), to = resultType(op);
  Node *x = asFloat(value(op.getX(), space));
  if (!x)
    return nullptr;
  Node *middle = x->type == DType::F32 ? reduction(op, Node::Reduction::Mean, x)
                                       : apply(op, {reduction(op, Node::Reduction::Sum, x)},
                                               [&](Scalars &, Values v) { return mean(v[0]); });
  Node *centred = apply(op, {x, middle}, [](Scalars &g, Values v) { return g.sub(v[0], v[1]); });
  Node *inverse = inverseRoot(op, sumOfSquares(op, centred), op.getEps());
  Node *normal = apply(op, {centred, inverse},
                       [&](Scalars &g, Values v) { return rounded(g, scale, g.mul(v[0], v[1])); });
  auto operand = [&](Value of) {
    return apply(op, {converted(value(of, space), x->type)},
                 [&](Scalars &g, Values v) { return rounded(g, scale, v[0]); });
  };
  Node *result = apply(op, {normal, operand(op.getWeight())},
                       [&](Scalars &g, Values v) { return rounded(g, scale, g.mul(v[0], v[1])); });
  if (op.getBias())
    return apply(op, {result, operand(op.getBias())},
                 [&](Scalars &g, Values v) { return g.convert(to, g.add(v[0], v[1])); });
  return apply(op, {result}, [&](Scalars &g, Values v) { return g.convert(to, v[0]); });
}

Node *Builder::lowerRope(nn::RopeOp op, const Space &space) {
  const DType compute = *dtypeOf(op.computeType()), to = resultType(op);
  const int64_t rotary = op.getRotaryDim(), half = rotary / 2;
  const bool interleaved = op.getInterleaved(), whole = space.width == Dim(rotary);
  const int64_t headSize = forms[space.form].heads ? graph.headSize : 0;
  Node *x = asFloat(value(op.getX(), space));
  if (!x)
    return nullptr;
  const DType type = x->type;
  Node *partner = move(
      op, x, {interleaved ? ColumnMap::Kind::NextPartner : ColumnMap::Kind::HalfPartner, half, headSize});
  auto table = [&](Value operand) -> Node * {
    const DimShape &shape = context.shape(operand);
    if (shape.empty() || (shape.back() != Dim(half) && shape.back() != Dim(rotary)))
      return fail("cos and sin of nn.rope with a last dim that is neither the rotary dim nor half of it");
    Space narrow = space;
    narrow.width = shape.back();
    Node *node = converted(value(operand, narrow), type);
    if (shape.back() == Dim(rotary))
      return whole ? node : move(op, node, {ColumnMap::Kind::Clamp, half, headSize});
    return move(op, node,
                {interleaved ? ColumnMap::Kind::PairFold : ColumnMap::Kind::HalfFold, half, headSize});
  };
  auto times = [&](Scalars &g, Values v) { return rounded(g, compute, g.mul(v[0], v[1])); };
  Node *straight = apply(op, {x, table(op.getCos())}, times);
  Node *crossed = apply(op, {partner, table(op.getSin())}, times);
  /// The column within its head; of 32 bits where it takes a division.
  auto place = [&](Scalars &g) {
    const scalar::Value column = graph.column;
    return headSize ? g.mod(g.convertRegister(DType::U32, column), g.integer(DType::U32, headSize)) : column;
  };
  auto isBelow = [&](Scalars &g, int64_t limit) {
    const scalar::Value at = place(g);
    return g.compare(Kind::Less, at, g.like(at, static_cast<double>(limit)));
  };
  Node *turned = apply(op, {straight, crossed}, [&](Scalars &g, Values v) {
    const scalar::Value at = place(g);
    const scalar::Value isFirst =
        interleaved ? g.compare(Kind::Equal, g.mod(at, g.like(at, 2)), g.like(at, 0)) : isBelow(g, half);
    return g.select(isFirst, rounded(g, compute, g.sub(v[0], v[1])), rounded(g, compute, g.add(v[0], v[1])));
  });
  if (whole)
    return apply(op, {turned}, [&](Scalars &g, Values v) { return g.convert(to, v[0]); });
  return apply(op, {turned, x},
               [&](Scalars &g, Values v) { return g.convert(to, g.select(isBelow(g, rotary), v[0], v[1])); });
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
  SmallVector<Node *> operands{x, scale};
  if (zero)
    operands.push_back(asFloat(quantisationOperand(zero, op->getOperand(0), axis, block, space)));
  if (dequantize)
    return apply(op, operands, [&](Scalars &g, Values v) {
      return scalar::dequantized(g, to, v[0], v[1], zero ? v[2] : scalar::Value());
    });
  return quotient(op, operands, [&](Scalars &g, Values v) {
    return scalar::quantized(g, to, v[0], v[1], zero ? v[2] : scalar::Value());
  });
}

/// An op that divides its first operand by its second. One divisor of many elements is taken apart once.
Node *Builder::quotient(Operation *op, ArrayRef<Node *> operands, Formula formula) {
  Node *x = operands[0], *scale = operands[1];
  SmallVector<Node *> all(operands);
  if (x && scale && x->type == DType::F32 && scale->type == DType::F32 && scale->level != Level::Element)
    all[1] = divisor(op, scale);
  return apply(op, all, formula);
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
  Node *size = apply(op, {x}, [](Scalars &g, Values v) { return magnitude(g, v[0]); });
  Node *largest = reduction(op, Node::Reduction::Max, size, perGroup);
  const double limit = to == DType::F8E4M3 ? 448 : to == DType::F8E5M2 ? 57344 : 127;
  Node *scale = apply(op, {largest}, [&](Scalars &g, Values v) {
    const scalar::Value isZero = g.compare(Kind::Equal, v[0], g.like(v[0], 0));
    return g.convert(scaleType, g.select(isZero, g.like(v[0], 1), g.div(v[0], g.like(v[0], limit))));
  });
  if (result == 1)
    return scale;
  return quotient(op, {x, scale}, [&](Scalars &g, Values v) { return scalar::quantized(g, to, v[0], v[1]); });
}

Node *Builder::lower(Operation *op, unsigned result, const Space &space) {
  if (auto constant = dyn_cast<nn::ConstantOp>(op)) {
    if (!constantScalar(constant.getResult()))
      return fail("a constant of several values inside the region");
    return apply(nullptr, {}, [&](Scalars &g, Values) { return constantValues(g, constant)[0]; });
  }
  if (op->hasTrait<nn::Pointwise>()) {
    auto formula = cast<nn::ScalarFormula>(op);
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
    return apply(op, operands, [&](Scalars &g, Values v) { return formula.formula(g, v); });
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
    const bool isOnlyRow = context.shape(reduce.getY()).empty(); // which leaves no dims to drop
    if (space.dropped == reduce.getKeepdims() && !isOnlyRow)
      return fail("a value per row is used along another dim");
    return lowerReduce(reduce, value(reduce.getX(), {space.outer, graph.width, false}));
  }
  if (isa<nn::AllReduceOp>(op))
    return fail(context.algorithm ? "nn.all_reduce of what the same kernel computes"
                                  : "nn.all_reduce waits for the other ranks");
  if (auto gather = dyn_cast<nn::GatherOp>(op))
    return gathered(gather, space);
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
                             ArrayRef<Dim>(graph.outerDims[space.outer]))
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
