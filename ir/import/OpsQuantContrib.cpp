// Contrib ops on 8-bit tensors: what they compute in between is f32, what they multiply is integers.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Inputs of an op of one operand: value, scale and zero point, then those of the result.
Value onlyOperand(NodeImporter &node) { return dequantised(node, 0, 1, 2); }

template <class Op>
void binary(NodeImporter &node) {
  Value y = node.build<Op>({dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5)});
  node.result(0, quantised(node, y, 6, 7));
}

void sigmoid(NodeImporter &node) {
  node.result(0, quantised(node, node.build<nn::SigmoidOp>(onlyOperand(node)), 3, 4));
}

void leakyRelu(NodeImporter &node) {
  Value x = onlyOperand(node);
  Type f32 = node.f32Type();
  Value below = node.mul(x, node.scalar(f32, node.floatAttribute("alpha", 0.01)));
  Value isBelow = node.build<nn::LessOp>({x, node.scalar(f32, 0)});
  node.result(0, quantised(node, node.build<nn::WhereOp>({isBelow, below, x}), 3, 4));
}

void softmax(NodeImporter &node) {
  const int64_t rank = node.rank(0), opset = node.intAttribute("opset", 13);
  const int64_t axis = node.axis(node.intAttribute("axis", opset < 13 ? 1 : -1), rank);
  if (!node.failed() && opset < 13 && axis != rank - 1)
    return node.fail("an axis before the last is not supported for opset " + Twine(opset));
  node.result(0, quantised(node, node.build<nn::SoftmaxOp>(onlyOperand(node), node.i64("axis", axis)), 3, 4));
}

void where(NodeImporter &node) {
  Value y =
      node.build<nn::WhereOp>({node.operand(0), dequantised(node, 1, 2, 3), dequantised(node, 4, 5, 6)});
  node.result(0, quantised(node, y, 7, 8));
}

void concat(NodeImporter &node) {
  SmallVector<Value> parts;
  for (unsigned i = 2; i + 1 < node.inputCount(); i += 3)
    parts.push_back(dequantised(node, i, i + 1, i + 2));
  if (parts.empty())
    return node.fail("nothing to concatenate");
  const int64_t axis = node.axis(node.intAttribute("axis", 0), node.rank(2));
  node.result(0, quantised(node, node.concat(parts, axis), 0, 1));
}

void reduceMean(NodeImporter &node) {
  std::vector<int64_t> axes = node.intsAttribute("axes");
  const int64_t rank = node.rank(0);
  if (axes.empty())
    llvm::append_range(axes, llvm::seq<int64_t>(0, rank));
  for (int64_t &axis : axes)
    axis = node.axis(axis, rank);
  Value mean = node.reduce(onlyOperand(node), "mean", axes, node.intAttribute("keepdims", 1) != 0);
  node.result(0, quantised(node, mean, 3, 4));
}

/// alpha * a scale * b scale * (A B + C), in f32 or quantised.
void gemm(NodeImporter &node) {
  const bool transposeA = node.intAttribute("transA", 0) != 0,
             transposeB = node.intAttribute("transB", 0) != 0;
  const double alpha = node.floatAttribute("alpha", 1);
  Value sums = integerMatmul(node, {0, 2}, {3, 5}, transposeA, transposeB);
  if (node.has(6))
    sums = node.add(sums, node.operand(6));
  Value factor = node.mul(scaleOperand(node, 1, false), scaleOperand(node, 4, false));
  if (alpha != 1)
    factor = node.mul(factor, node.scalar(node.f32Type(), alpha));
  Value y = node.mul(node.cast(sums, node.f32Type()), factor);
  node.result(0, node.has(7) ? quantised(node, y, 7, 8) : y);
}

void matMulIntegerToFloat(NodeImporter &node) {
  Value sums = integerMatmul(node, {0, 4}, {1, 5});
  Value factor = node.mul(scaleOperand(node, 2, true), scaleOperand(node, 3, false));
  Value y = node.mul(node.cast(sums, node.f32Type()), factor);
  if (node.has(6))
    y = node.add(y, node.cast(node.operand(6), node.f32Type()));
  node.result(0, node.failed() ? Value() : node.cast(y, node.inputType(2)));
}

void dynamicQuantizeMatMul(NodeImporter &node) {
  const Type i32 = mlirType(node.context(), DType::I32);
  const Dynamic a = dynamicallyQuantised(node, node.operand(0));
  Value left = node.sub(node.cast(a.value, i32), node.cast(a.zeroPoint, i32));
  Value right = node.cast(node.operand(1), i32);
  if (node.has(3)) {
    Value zeroPoint = node.cast(node.operand(3), i32);
    if (!node.failed() && product(node.shapeOf(zeroPoint)) == Dim(1))
      zeroPoint = node.reshape(zeroPoint, {});
    right = node.sub(right, zeroPoint);
  }
  Value sums = node.build<nn::MatmulOp>({left, right}, {}, i32);
  Value y = node.mul(node.cast(sums, node.f32Type()), node.mul(a.scale, scaleOperand(node, 2, false)));
  node.result(0, node.has(4) ? node.add(y, node.operand(4)) : y);
}

} // namespace

void registerQuantisedContrib(HandlerTable &table) {
  auto add = [&](StringRef op, unsigned least, unsigned most, Handler handler) {
    table.add("com.microsoft", op, least, most, std::move(handler));
  };
  add("QLinearAdd", 2, 8, binary<nn::AddOp>);
  add("QLinearMul", 2, 8, binary<nn::MulOp>);
  add("QLinearSigmoid", 2, 5, sigmoid);
  add("QLinearLeakyRelu", 2, 5, leakyRelu);
  add("QLinearSoftmax", 2, 5, softmax);
  add("QLinearWhere", 3, 9, where);
  add("QLinearConcat", 3, HandlerTable::anyNumber, concat);
  add("QLinearReduceMean", 2, 5, reduceMean);
  add("QGemm", 5, 9, gemm);
  add("MatMulIntegerToFloat", 4, 7, matMulIntegerToFloat);
  add("DynamicQuantizeMatMul", 3, 5, dynamicQuantizeMatMul);
}

} // namespace fusion::onnx
