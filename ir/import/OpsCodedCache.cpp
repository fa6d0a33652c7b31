// Caches of GroupQueryAttention that hold codes of 8 bits, each an element divided by a scale.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

CodedCache::CodedCache(NodeImporter &node, char which, unsigned pastInput, unsigned scaleInput)
    : n(node), elements(node.inputType(0)) {
  const std::string attribute = std::string(1, which) + "_quant_type";
  const std::string kind = node.stringAttribute(attribute, "NONE");
  if (kind == "NONE") {
    if (node.has(scaleInput))
      node.fail(std::string(1, which) + "_scale without " + attribute);
    return;
  }
  if (kind != "PER_TENSOR" && kind != "PER_CHANNEL") {
    node.fail(attribute + " is '" + kind + "', not NONE, PER_TENSOR or PER_CHANNEL");
    return;
  }
  if (node.intAttribute("kv_cache_bit_width", 8) != 8) {
    node.fail("a key/value cache of " + std::to_string(node.intAttribute("kv_cache_bit_width", 8)) +
                     " bits is not supported");
    return;
  }
  if (!node.has(pastInput) || !node.has(scaleInput)) {
    node.fail("a quantised key/value cache needs its past and its scale");
    return;
  }
  codes = node.inputType(pastInput);
  const DType type = *dtypeOf(codes);
  if (type != DType::I8 && type != DType::F8E4M3) {
    node.fail("a key/value cache of codes of " + std::string(name(type)) + " is not supported");
    return;
  }
  scale = node.cast(node.operand(scaleInput), node.f32Type());
  if (!node.failed() && product(node.shapeOf(scale)) == Dim(1))
    scale = node.reshape(scale, {});
  else if (kind == "PER_TENSOR" && !node.failed())
    node.fail("one scale for all is expected, not " + shapeString(node.shapeOf(scale)));
}

Value CodedCache::encoded(Value x) {
  if (!codes || n.failed())
    return x;
  x = n.cast(x, n.f32Type());
  if (n.rankOf(scale) == 0)
    return n.build<nn::QuantizeOp>({x, scale}, {}, codes);
  return n.build<nn::QuantizeOp>({n.div(x, scale), n.scalar(n.f32Type(), 1)}, {}, codes);
}

Value CodedCache::decoded(Value cache) {
  if (!codes || n.failed())
    return cache;
  if (n.rankOf(scale) == 0)
    return n.build<nn::DequantizeOp>({cache, scale}, {}, elements);
  return n.cast(n.mul(n.cast(cache, n.f32Type()), scale), elements);
}

} // namespace fusion::onnx
