// Integer weights in the order of onnxruntime's mixed GEMM for CUDA (fpA_intB), put back into rows along k.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

Value prepackedWeight(NodeImporter &node, unsigned input, PrepackedShape shape) {
  const int64_t tile = 64;                   // elements along k that lie together, of one row after another
  const int64_t fragment = 128 / shape.bits; // elements along k whose order follows the tensor cores' operand
  const int64_t word = 32 / shape.bits;      // elements whose even ones lie before its odd ones
  const int64_t together = shape.rowsTogether ? 16 / shape.bits : 1;
  const int64_t experts = shape.experts, rows = shape.rows, depth = shape.depth;
  if (depth % (together > 1 ? tile : fragment) != 0 || rows % together != 0) {
    node.fail("input " + Twine(input) + " of " + Twine(rows) + "x" + Twine(depth) +
              " values is no weight prepacked for the mixed GEMM of CUDA");
    return {};
  }
  auto swapped = [&](Value x, Shape dims) {
    return node.transpose(node.reshape(x, DimShape(dims.begin(), dims.end())), {0, 2, 1, 3});
  };
  const int64_t all = experts * rows * depth;
  Value x = packedWeight(node, input, shape.bits, {all / word, word});
  x = swapped(x, {all / word, 2, word / 2, 1});
  x = swapped(x, {experts * rows / together, depth / tile, together, tile});
  x = swapped(x, {all / fragment, 4, fragment / 8, 2});
  return node.failed() ? Value() : node.reshape(x, {experts, rows, depth});
}

} // namespace fusion::onnx
