// com.microsoft products with weights of floats of 4 and 8 bits and scales for blocks along k.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"
#include "ir/import/SmallFloats.h"

using namespace mlir;

namespace fusion::onnx {

Value packedFloats(NodeImporter &node, unsigned input, const Shape &shape) {
  Value codes = packedWeight(node, input, DType::U4, shape);
  if (node.failed())
    return {};
  Value values = decodedFloats(node.builder(), node.location(), codes, FloatCode::E2M1);
  node.owner().setShape(values, DimShape(shape.begin(), shape.end()));
  return values;
}

namespace {

/// The scales of rows in blocks along k as [rows, blocks]; a failure where there are others.
Value blockScales(NodeImporter &node, Value scales, int64_t rows, int64_t depth, int64_t block) {
  const int64_t blocks = (depth + block - 1) / block;
  if (node.failed())
    return {};
  if (!(product(node.shapeOf(scales)) == Dim(rows * blocks))) {
    node.fail("scales of " + shapeString(node.shapeOf(scales)) + " are not those of " + Twine(rows) +
              " rows in " + Twine(blocks) + " blocks of " + Twine(block));
    return {};
  }
  return node.reshape(scales, {rows, blocks});
}

Value decodedWeight(NodeImporter &node, Value values, Value scales, int64_t block, Type type) {
  return node.build<nn::DequantizeOp>({values, scales}, {node.i64("axis", 1), node.i64("block_size", block)},
                                      type);
}

void finish(NodeImporter &node, Value x, Value weight, unsigned bias) {
  Value y = node.build<nn::MatmulOp>({x, weight}, node.flag("transpose_b", true), node.inputType(0));
  node.result(0, node.has(bias) ? node.add(y, node.operand(bias)) : y);
}

/// With a scale for the activations these are of 8 bits too, and the product is of what both decode to in
/// f32.
void fp8Weight(NodeImporter &node) {
  enum : unsigned { xInput, weightInput, scalesInput, xScaleInput, biasInput };
  const int64_t block = node.intAttribute("block_size", 128);
  const DimShape given = node.shape(weightInput);
  const Type f32 = node.f32Type(), f8 = mlirType(node.context(), DType::F8E4M3);
  if (node.failed())
    return;
  if (given.size() != 2 || !given[0].isStatic() || !given[1].isStatic() || block <= 0 ||
      node.inputType(weightInput) != f8)
    return node.fail("needs a weight of f8E4M3FN with two known dims, and block_size");
  Value scales =
      blockScales(node, node.cast(node.operand(scalesInput), f32), given[0].value(), given[1].value(), block);
  Value x = node.operand(xInput), weight = node.operand(weightInput);
  if (node.failed())
    return;
  if (!node.has(xScaleInput))
    return finish(node, x, decodedWeight(node, weight, scales, block, node.inputType(0)), biasInput);
  Value scale = node.reshape(node.cast(node.operand(xScaleInput), f32), {});
  x = node.build<nn::QuantizeOp>({node.cast(x, f32), scale}, {}, f8);
  x = node.build<nn::DequantizeOp>({x, scale}, {}, f32);
  finish(node, x, decodedWeight(node, weight, scales, block, f32), biasInput);
}

/// Scales are f8E4M3FN in bytes, times one of f32 for the whole weight.
void fp4Weight(NodeImporter &node) {
  enum : unsigned { xInput, weightInput, scalesInput, scaleInput, xScaleInput, biasInput };
  const int64_t block = node.intAttribute("block_size", 16);
  const DimShape given = node.shape(weightInput);
  if (node.failed())
    return;
  if (given.size() != 2 || !given[0].isStatic() || !given[1].isStatic() || block <= 0)
    return node.fail("needs a weight with two known dims, and block_size");
  const int64_t rows = given[0].value(), depth = 2 * given[1].value();
  const int64_t blocks = (depth + block - 1) / block;
  const Type f32 = node.f32Type();
  Value scales = node.cast(packedWeight(node, scalesInput, DType::F8E4M3, {rows, blocks}), f32);
  Value whole = node.cast(node.operand(scaleInput), f32);
  if (node.failed())
    return;
  scales = node.mul(scales, node.reshape(whole, {}));
  Value values = packedFloats(node, weightInput, {rows, depth});
  finish(node, node.operand(xInput), decodedWeight(node, values, scales, block, node.inputType(0)),
         biasInput);
}

} // namespace

void registerFloatWeights(HandlerTable &table) {
  table.add("com.microsoft", "MatMulBlockQuantizedFp8Weight", 3, 5, fp8Weight);
  table.add("com.microsoft", "MatMulBlockQuantizedFp4Weight", 4, 6, fp4Weight);
}

} // namespace fusion::onnx
