// Caches of GroupQueryAttention that hold codes, each an element divided by a scale: of 8 bits, or of 4, from
// -8 to 7 with 8 added, two neighbours to a byte.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

CodedCache::CodedCache(NodeImporter &node, char which, unsigned pastInput, unsigned scaleInput)
    : n(node), elements(node.inputType(0)) {
  if (node.failed())
    return;
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
  const int64_t bits = node.intAttribute("kv_cache_bit_width", 8);
  isPacked = bits == 4;
  if (bits != 8 && bits != 4) {
    node.fail("a key/value cache of " + std::to_string(bits) + " bits is not supported");
    return;
  }
  if (!node.has(pastInput) || !node.has(scaleInput)) {
    node.fail("a quantised key/value cache needs its past and its scale");
    return;
  }
  codes = node.inputType(pastInput);
  const DType type = *dtypeOf(codes);
  if (isPacked ? type != DType::U8 : type != DType::I8 && type != DType::F8E4M3) {
    node.fail("a key/value cache of codes of " + std::string(isPacked ? "4 bits in " : "") +
              std::string(name(type)) + " is not supported");
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
  const Type type = isPacked ? mlirType(n.context(), DType::I8) : codes;
  Value encoded = n.rankOf(scale) == 0
                      ? n.build<nn::QuantizeOp>({x, scale}, {}, type)
                      : n.build<nn::QuantizeOp>({n.div(x, scale), n.scalar(n.f32Type(), 1)}, {}, type);
  return isPacked ? packed(encoded) : encoded;
}

Value CodedCache::packed(Value x) {
  if (n.failed())
    return {};
  const auto pairs = n.shapeOf(x).back().dividedBy(2);
  if (!pairs) {
    n.fail("a key/value cache of 4 bits with heads of " + n.shapeOf(x).back().str() + " elements");
    return {};
  }
  auto number = [&](double value) { return n.scalar(NodeImporter::typeOf(x), value); };
  auto half = [&](int64_t first) {
    Value code = n.slice(x, n.rankOf(x) - 1, first, *pairs, 2);
    code = n.build<nn::MinOp>({n.build<nn::MaxOp>({code, number(-8)}), number(7)});
    return n.cast(n.add(code, number(8)), codes);
  };
  const Value low = half(0), high = half(1);
  return n.failed() ? Value() : n.add(low, n.mul(high, n.scalar(codes, 16)));
}

Value CodedCache::decoded(Value cache) {
  if (!codes || n.failed())
    return cache;
  if (isPacked) {
    const Value code = n.sub(n.cast(unpackedHalves(n, cache), n.f32Type()), n.scalar(n.f32Type(), 8));
    return n.cast(n.mul(code, scale), elements);
  }
  if (n.rankOf(scale) == 0)
    return n.build<nn::DequantizeOp>({cache, scale}, {}, elements);
  return n.cast(n.mul(n.cast(cache, n.f32Type()), scale), elements);
}

} // namespace fusion::onnx
