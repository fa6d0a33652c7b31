// Quantisation: to and from 4-, 8- and 16-bit types, and integer matrix products.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// The attributes axis and block_size where they mean something: with one scale for all they do not.
SmallVector<NamedAttribute> quantisationAttributes(NodeImporter &node, Value scale) {
  int64_t block = node.intAttribute("block_size", 0);
  if (node.failed() || product(node.shapeOf(scale)) == Dim(1))
    return {};
  SmallVector<NamedAttribute> attributes = {
      node.i64("axis", node.axis(node.intAttribute("axis", 1), node.rank(0)))};
  if (block != 0)
    attributes.push_back(node.i64("block_size", block));
  return attributes;
}

/// The zero point with the scale's shape. f8 has none but zero, which is left out; so is a missing one.
void addZeroPoint(NodeImporter &node, SmallVectorImpl<Value> &operands, unsigned input) {
  if (!node.has(input) || llvm::isa_and_nonnull<FloatType>(node.inputType(input)))
    return;
  Value zeroPoint = node.operand(input);
  if (!node.failed() && product(node.shapeOf(zeroPoint)) == Dim(1))
    zeroPoint = node.reshape(zeroPoint, node.shapeOf(operands[1]));
  operands.push_back(zeroPoint);
}

void quantizeLinear(NodeImporter &node) {
  Value x = node.operand(0), scale = node.operand(1);
  if (node.failed())
    return;
  Type byte = mlirType(node.context(), DType::U8);
  Type target = node.has(2) ? node.inputType(2) : byte;
  if (node.intAttribute("output_dtype", 0) != 0)
    target = node.typeAttribute("output_dtype", target);
  if (node.intAttribute("saturate", 1) == 0 && llvm::isa<FloatType>(target))
    return node.fail("f8 without saturation is not supported");
  if (node.intAttribute("precision", 0) != 0 && node.typeAttribute("precision", {}) != node.f32Type())
    return node.fail("precision other than float32 is not supported");
  if (!llvm::isa<FloatType>(NodeImporter::typeOf(x)))
    x = node.cast(x, node.f32Type());
  SmallVector<Value> operands = {x, scale};
  addZeroPoint(node, operands, 2);
  node.result(0, node.build<nn::QuantizeOp>(operands, quantisationAttributes(node, scale), target));
}

void dequantizeLinear(NodeImporter &node) {
  Value scale = node.operand(1);
  Type target = NodeImporter::typeOf(scale);
  if (node.intAttribute("output_dtype", 0) != 0)
    target = node.typeAttribute("output_dtype", target);
  SmallVector<Value> operands = {node.operand(0), scale};
  addZeroPoint(node, operands, 2);
  node.result(0, node.build<nn::DequantizeOp>(operands, quantisationAttributes(node, scale), target));
}

/// An integer operand less its zero point, as i32. A zero point of rank 1 has an entry per row (`byRow`) or
/// per column.
Value shiftedOperand(NodeImporter &node, unsigned input, unsigned zeroPointInput, bool byRow) {
  Type i32 = mlirType(node.context(), DType::I32);
  Value x = node.cast(node.operand(input), i32);
  if (!node.has(zeroPointInput))
    return x;
  Value zeroPoint = node.cast(node.operand(zeroPointInput), i32);
  if (node.failed())
    return {};
  if (product(node.shapeOf(zeroPoint)) == Dim(1))
    zeroPoint = node.reshape(zeroPoint, {});
  else if (byRow && node.rankOf(zeroPoint) == 1)
    zeroPoint = node.reshape(zeroPoint, {node.shapeOf(zeroPoint)[0], 1});
  return node.sub(x, zeroPoint);
}

} // namespace

Value integerMatmul(NodeImporter &node, WithZeroPoint left, WithZeroPoint right, bool transposeLeft,
                    bool transposeRight) {
  Value a, b;
  if (!node.has(left.zeroPoint) && !node.has(right.zeroPoint) &&
      node.inputType(left.value) == node.inputType(right.value)) {
    a = node.operand(left.value); // accumulates in i32 as it is
    b = node.operand(right.value);
  } else {
    a = shiftedOperand(node, left.value, left.zeroPoint, !transposeLeft);
    b = shiftedOperand(node, right.value, right.zeroPoint, transposeRight);
  }
  return node.build<nn::MatmulOp>(
      {a, b}, {node.flag("transpose_a", transposeLeft), node.flag("transpose_b", transposeRight)},
      mlirType(node.context(), DType::I32));
}

Value scaleOperand(NodeImporter &node, unsigned input, bool byRow) {
  Value scale = node.cast(node.operand(input), node.f32Type());
  if (node.failed())
    return {};
  if (product(node.shapeOf(scale)) == Dim(1))
    return node.reshape(scale, {});
  if (byRow && node.rankOf(scale) == 1)
    return node.reshape(scale, {node.shapeOf(scale)[0], 1});
  return scale;
}

Value dequantised(NodeImporter &node, unsigned value, unsigned scale, unsigned zeroPoint, int64_t axis) {
  SmallVector<Value> operands = {node.operand(value), node.cast(node.operand(scale), node.f32Type())};
  addZeroPoint(node, operands, zeroPoint);
  if (node.failed())
    return {};
  SmallVector<NamedAttribute> attributes;
  if (!(product(node.shapeOf(operands[1])) == Dim(1)))
    attributes.push_back(node.i64("axis", axis));
  return node.build<nn::DequantizeOp>(operands, attributes, node.f32Type());
}

Value quantised(NodeImporter &node, Value x, unsigned scale, unsigned zeroPoint) {
  if (!node.failed() && product(node.shape(scale)) != Dim(1))
    node.fail("the result has more than one scale");
  Type type = node.has(zeroPoint) ? node.inputType(zeroPoint) : mlirType(node.context(), DType::U8);
  if (node.failed())
    return {};
  SmallVector<Value> operands = {node.cast(x, node.f32Type()),
                                 node.reshape(node.cast(node.operand(scale), node.f32Type()), {})};
  addZeroPoint(node, operands, zeroPoint);
  return node.build<nn::QuantizeOp>(operands, {}, type);
}

Dynamic dynamicallyQuantised(NodeImporter &node, Value x) {
  if (node.failed())
    return {};
  Type f32 = node.f32Type(), byte = mlirType(node.context(), DType::U8);
  auto axes = llvm::to_vector(llvm::seq<int64_t>(0, node.rankOf(x)));
  Value zero = node.scalar(f32, 0), limit = node.scalar(f32, 255);
  Value largest = node.build<nn::MaxOp>({node.reduce(x, "max", axes, false), zero});
  Value smallest = node.build<nn::MinOp>({node.reduce(x, "min", axes, false), zero});
  Value range = node.sub(largest, smallest);
  Value isFlat = node.build<nn::EqualOp>({range, zero});
  Value scale = node.div(node.build<nn::WhereOp>({isFlat, limit, range}), limit); // 1 as in onnxruntime
  Value shift = node.sub(zero, node.div(smallest, scale));
  shift = node.build<nn::MinOp>({node.build<nn::MaxOp>({shift, zero}), limit});
  Value zeroPoint = node.cast(node.build<nn::RoundOp>(shift), byte);
  return {node.build<nn::QuantizeOp>({x, scale, zeroPoint}, {}, byte), scale, zeroPoint};
}

namespace {

/// One u8 scale and zero point for the whole tensor, from its range widened to include 0.
void dynamicQuantizeLinear(NodeImporter &node) {
  const Dynamic x = dynamicallyQuantised(node, node.operand(0));
  node.result(0, x.value);
  node.result(1, x.scale);
  node.result(2, x.zeroPoint);
}

void matMulInteger(NodeImporter &node) { node.result(0, integerMatmul(node, {0, 2}, {1, 3})); }

void qLinearMatMul(NodeImporter &node) {
  Value sums = integerMatmul(node, {0, 2}, {3, 5});
  Value factor = node.mul(scaleOperand(node, 1, true), scaleOperand(node, 4, false));
  if (!node.failed() && product(node.shape(6)) != Dim(1))
    return node.fail("y_scale has more than one element");
  Value quotient = node.mul(node.cast(sums, node.f32Type()), node.div(factor, scaleOperand(node, 6, false)));
  Value zeroPoint = node.operand(7);
  zeroPoint = node.failed() ? Value() : node.reshape(zeroPoint, {});
  node.result(0, node.build<nn::QuantizeOp>({quotient, node.scalar(node.f32Type(), 1), zeroPoint}, {},
                                            NodeImporter::typeOf(zeroPoint)));
}

} // namespace

void registerQuantisation(HandlerTable &table) {
  table.add("", "QuantizeLinear", 2, 3, quantizeLinear);
  table.add("", "DequantizeLinear", 2, 3, dequantizeLinear);
  table.add("", "DynamicQuantizeLinear", 1, 1, dynamicQuantizeLinear);
  table.add("", "MatMulInteger", 2, 4, matMulInteger);
  table.add("", "QLinearMatMul", 8, 8, qLinearMatMul);
  for (StringRef op : {"QuantizeLinear", "DequantizeLinear"})
    table.add("com.microsoft", op, 2, 3, op == "QuantizeLinear" ? quantizeLinear : dequantizeLinear);
}

} // namespace fusion::onnx
