// com.microsoft MoE and QMoE: router, experts of one or two products each, and the weighted sum of their
// outputs.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Numbers of the inputs of one of the products; -1: the op has no such input.
struct ProductInputs {
  int weight, bias, scales = -1, zeroPoints = -1, wholeScale = -1;
  StringRef bits = {}; ///< the attribute that overrides expert_weight_bits
};

/// One MoE or QMoE node.
class Experts {
public:
  explicit Experts(NodeImporter &n) : n(n), quantised(n.opType() == "QMoE") {
    first = quantised ? ProductInputs{2, 4, 3, 11, 15, "fc1_expert_weight_bits"} : ProductInputs{2, 3};
    second = quantised ? ProductInputs{5, 7, 6, 12, 16, "fc2_expert_weight_bits"} : ProductInputs{4, 5};
    third = quantised ? ProductInputs{8, 10, 9, 13, -1, "fc3_expert_weight_bits"} : ProductInputs{6, 7};
  }

  void import();

private:
  bool has(int input) const { return input >= 0 && n.has(static_cast<unsigned>(input)); }
  Value input(int number) { return n.operand(static_cast<unsigned>(number)); }
  DimShape shape(int number) { return n.shape(static_cast<unsigned>(number)); }
  Value wide(Value x) { return n.cast(x, n.f32Type()); }

  void route();
  void routeBySparseMixer(Value logits);
  bool findLayout(const Dim &width);
  Dim rowsOf(const ProductInputs &product);
  int64_t bitsOf(const ProductInputs &product);
  Value weightOf(const ProductInputs &product, const Dim &rows, const Dim &depth);
  Value floatWeightOf(const ProductInputs &product, const Dim &rows, const Dim &depth);
  Value unpackedZeroPoints(const ProductInputs &product, int64_t bits, int64_t experts, int64_t rows,
                           int64_t blocks);
  Value multiply(Value x, const ProductInputs &product, const Dim &depth);
  Value activate(Value x, StringRef name);
  Value gated(Value gate, Value up);

  NodeImporter &n;
  bool quantised;
  ProductInputs first, second, third;
  bool isLegacy = false;    ///< weights are [experts, k, n]
  bool isPrepacked = false; ///< weights are in the order of the mixed GEMM, declared as [experts, k, n]
  std::string kind = "int"; ///< what a quantised weight is: int, or the float types fp4, nvfp4 and fp8
  bool isFloat4() const { return kind == "fp4" || kind == "nvfp4"; }
  Value index, weights; ///< [rows, slots]; the weights are f32
};

/// For each row the slots' experts and their weights.
void Experts::route() {
  const int64_t slots = n.intAttribute("k", 1);
  Value logits = wide(n.operand(1));
  if (n.failed())
    return;
  if (slots < 1)
    return n.fail("k is " + Twine(slots));
  const bool normalise = n.intAttribute("normalize_routing_weights", 0) != 0;
  if (n.intAttribute("use_sparse_mixer", 0) != 0)
    return slots == 2 ? routeBySparseMixer(logits) : n.fail("use_sparse_mixer needs k = 2");
  auto topOf = [&](Value scores) {
    index = n.build<nn::TopKOp>(scores, {n.i64("axis", 1), n.dims("k", Dim(slots))}, n.i64Type());
  };
  auto picked = [&](Value scores) {
    return n.build<nn::GatherElementsOp>({scores, index}, n.i64("axis", 1));
  };
  if (quantised && n.has(14)) { // scores to choose by and weights apart
    topOf(logits);
    weights = picked(wide(n.operand(14)));
    if (normalise)
      weights = n.div(weights, n.reduce(weights, "sum", {1}));
    return;
  }
  if (normalise) { // what is left of a softmax over all when it is divided by its sum
    topOf(logits);
    weights = n.build<nn::SoftmaxOp>(picked(logits), n.i64("axis", 1));
    return;
  }
  topOf(logits);
  weights = picked(n.build<nn::SoftmaxOp>(logits, n.i64("axis", 1)));
}

/// Each of two experts gets its part of a softmax over the scores that are near its own, the second without
/// the first.
void Experts::routeBySparseMixer(Value logits) {
  constexpr double twiceJitter = 0.02;
  Type f32 = n.f32Type();
  const Dim experts = n.shapeOf(logits).back();
  Value lowest = n.scalar(f32, -std::numeric_limits<double>::infinity());
  SmallVector<Value> indices, gates;
  Value scores = logits;
  for (int slot = 0; slot < 2; ++slot) {
    Value best = n.build<nn::TopKOp>(scores, {n.i64("axis", 1), n.dims("k", Dim(1))}, n.i64Type());
    Value threshold = n.build<nn::GatherElementsOp>({scores, best}, n.i64("axis", 1));
    Value scale = n.build<nn::MaxOp>({n.build<nn::AbsOp>(logits), threshold});
    Value far = n.build<nn::GreaterOp>({n.div(n.sub(threshold, logits), scale), n.scalar(f32, twiceJitter)});
    Value near = n.build<nn::SoftmaxOp>(n.build<nn::WhereOp>({far, lowest, scores}), n.i64("axis", 1));
    indices.push_back(best);
    gates.push_back(n.build<nn::GatherElementsOp>({near, best}, n.i64("axis", 1)));
    Value positions = n.reshape(countFrom(n, 0, experts), {1, experts});
    scores = n.build<nn::WhereOp>({n.build<nn::EqualOp>({best, positions}), lowest, scores});
  }
  index = n.concat(indices, 1);
  weights = n.concat(gates, 1);
}

int64_t Experts::bitsOf(const ProductInputs &product) {
  if (kind != "int")
    return isFloat4() ? 4 : 8;
  return n.intAttribute(product.bits, n.intAttribute("expert_weight_bits", 4));
}

/// Whether weights are prepacked, which their shape says where no attribute does.
bool Experts::findLayout(const Dim &width) {
  const int64_t attribute = n.intAttribute("weights_prepacked", -1), bits = bitsOf(first);
  const DimShape given = shape(first.weight);
  if (n.failed() || given.size() != 3 || (bits != 4 && bits != 8))
    return false; // which is an error elsewhere
  const Dim last = given[2] * Dim(8 / bits);
  if (kind != "int") // those of 4 bits are declared so, whatever their order
    return isFloat4();
  return attribute == 1 || (attribute == -1 && !(last == width) && given[1] == width);
}

/// How many columns the product has.
Dim Experts::rowsOf(const ProductInputs &product) {
  const DimShape given = shape(product.weight);
  return isPrepacked ? given[2] * Dim(8 / bitsOf(product)) : given[isLegacy ? 2 : 1];
}

/// [experts, rows, depth], of a quantised weight decoded to the type of the op's input; rows and depth as
/// multiplied.
Value Experts::weightOf(const ProductInputs &product, const Dim &rows, const Dim &depth) {
  if (!quantised)
    return input(product.weight);
  if (kind != "int")
    return floatWeightOf(product, rows, depth);
  const DimShape packed = shape(product.weight);
  const int64_t bits = bitsOf(product);
  const int64_t block = n.intAttribute("block_size", 0);
  if (n.failed())
    return {};
  if (bits != 4 && bits != 8) {
    n.fail("expert weights of " + Twine(bits) + " bits are not supported, only of 4 and 8");
    return {};
  }
  if (packed.size() != 3 || !packed[0].isStatic() || !rows.isStatic() || !depth.isStatic()) {
    n.fail("expert weights of an unknown size");
    return {};
  }
  const int64_t experts = packed[0].value(), outer = rows.value(), inner = depth.value();
  const int64_t length = block > 0 ? block : inner, blocks = (inner + length - 1) / length;
  const auto number = static_cast<unsigned>(product.weight);
  Value values = isPrepacked ? prepackedWeight(n, number, {experts, outer, inner, bits, true})
                             : packedWeight(n, number, bits, {experts, outer, inner});
  if (!has(product.scales)) {
    n.fail("quantised expert weights without scales");
    return {};
  }
  Value scales = n.reshape(input(product.scales), {experts, outer, blocks});
  Type code = mlirType(n.context(), bits == 4 ? DType::U4 : DType::U8);
  Value zero = has(product.zeroPoints)
                   ? unpackedZeroPoints(product, bits, experts, outer, blocks)
                   : n.expand(n.scalar(code, static_cast<double>(1 << (bits - 1))), {experts, outer, blocks});
  return n.build<nn::DequantizeOp>({values, scales, zero}, {n.i64("axis", 2), n.i64("block_size", length)},
                                   n.inputType(0));
}

/// The same of floats: of 4 bits with scales in blocks along k and one for each expert; of 8 with scales of
/// square blocks, or of experts alone.
Value Experts::floatWeightOf(const ProductInputs &product, const Dim &rows, const Dim &depth) {
  const DimShape given = shape(product.weight);
  if (n.failed())
    return {};
  if (given.size() != 3 || !given[0].isStatic() || !rows.isStatic() || !depth.isStatic()) {
    n.fail("expert weights of an unknown size");
    return {};
  }
  const int64_t experts = given[0].value(), outer = rows.value(), inner = depth.value();
  const int64_t square = kind == "fp8" ? n.intAttribute("block_size", 0) : 0;
  if (!has(square > 0 || isFloat4() ? product.scales : product.wholeScale) ||
      (isFloat4() && !has(product.wholeScale))) {
    n.fail("experts of quant_type '" + kind + "' without their scales");
    return {};
  }
  Value whole =
      has(product.wholeScale) ? n.reshape(wide(input(product.wholeScale)), {experts, 1, 1}) : Value();
  Value values, scales;
  int64_t block = inner;
  if (isFloat4()) {
    block = kind == "fp4" ? 32 : 16;
    const auto number = static_cast<unsigned>(product.weight);
    values = kind == "nvfp4" && n.intAttribute("weights_prepacked", -1) == 1
                 ? packedFloats(n, number, {experts, outer, inner})
                 : n.transpose(packedFloats(n, number, {experts, inner, outer}), {0, 2, 1});
    scales = n.mul(wide(input(product.scales)), whole);
  } else {
    values = input(product.weight);
    if (!n.failed() && NodeImporter::typeOf(values) != mlirType(n.context(), DType::F8E4M3))
      n.fail("expert weights that are not f8E4M3FN, with quant_type 'fp8'");
    if (square > 0) {
      block = square;
      const int64_t high = (outer + block - 1) / block, blocks = (inner + block - 1) / block;
      scales = n.reshape(wide(input(product.scales)), {experts, high, 1, blocks});
      scales = n.reshape(n.expand(scales, {experts, high, block, blocks}), {experts, high * block, blocks});
      scales = n.slice(scales, 1, 0, outer);
    } else {
      scales = n.expand(whole, {experts, outer, 1});
    }
  }
  if (n.failed())
    return {};
  return n.build<nn::DequantizeOp>({values, scales}, {n.i64("axis", 2), n.i64("block_size", block)},
                                   n.inputType(0));
}

/// [experts, rows, blocks]. In the file each row of blocks fills whole bytes; one for each row fills those of
/// an expert.
Value Experts::unpackedZeroPoints(const ProductInputs &product, int64_t bits, int64_t experts, int64_t rows,
                                  int64_t blocks) {
  const auto number = static_cast<unsigned>(product.zeroPoints);
  if (n.inputType(number) != mlirType(n.context(), DType::U8)) {
    n.fail("zero points that are not packed integers are not supported");
    return {};
  }
  const int64_t perByte = 8 / bits;
  auto padded = [&](int64_t count) { return (count + perByte - 1) / perByte * perByte; };
  if (n.intAttribute("block_size", 0) > 0)
    return n.slice(packedWeight(n, number, bits, {experts, rows, padded(blocks)}), 2, 0, blocks);
  Value each = n.slice(packedWeight(n, number, bits, {experts, padded(rows)}), 1, 0, rows);
  return n.reshape(each, {experts, rows, 1});
}

/// x, [rows, slots or 1, depth], times the slots' weights, with their biases.
Value Experts::multiply(Value x, const ProductInputs &product, const Dim &depth) {
  const DimShape given = shape(product.weight);
  if (n.failed())
    return {};
  if (given.size() != 3) {
    n.fail("expert weights of rank " + Twine(given.size()));
    return {};
  }
  Value w = weightOf(product, rowsOf(product), depth);
  Value y = n.build<nn::ExpertMatmulOp>({x, w, index}, n.flag("transpose_w", !isLegacy), n.inputType(0));
  return has(product.bias) ? n.add(y, n.build<nn::GatherOp>({input(product.bias), index}, n.i64("axis", 0)))
                           : y;
}

/// In f32.
Value Experts::activate(Value x, StringRef name) {
  if (name == "relu" || name == "relu2") {
    Value y = n.build<nn::ReluOp>(x);
    return name == "relu" ? y : n.build<nn::SquareOp>(y);
  }
  if (name == "gelu" || name == "geglu")
    return n.build<nn::GeluOp>(x, n.text("approximate", "tanh"));
  if (name == "silu")
    return n.build<nn::SiluOp>(x);
  if (name != "identity")
    n.fail("activation_type '" + name + "' is not supported");
  return x;
}

/// What two products of one row become: act(gate) * up, or G * sigmoid(alpha G) * (U + beta) with G and U
/// clamped.
Value Experts::gated(Value gate, Value up) {
  const std::string name = n.stringAttribute("activation_type", "relu");
  if (name != "swiglu")
    return n.mul(activate(gate, name), up);
  Type f32 = n.f32Type();
  auto number = [&](StringRef attribute, double otherwise) {
    return n.scalar(f32, n.floatAttribute(attribute, otherwise));
  };
  if (n.intAttribute("swiglu_limit_after_activation", 0) != 0)
    n.fail("swiglu_limit_after_activation is not supported");
  if (n.hasAttribute("swiglu_limit") && !std::isinf(n.floatAttribute("swiglu_limit", 0))) {
    Value limit = number("swiglu_limit", 0), least = n.scalar(f32, -n.floatAttribute("swiglu_limit", 0));
    gate = n.build<nn::MinOp>({gate, limit});
    up = n.build<nn::MinOp>({n.build<nn::MaxOp>({up, least}), limit});
  }
  const bool isSilu = n.floatAttribute("activation_alpha", 1) == 1;
  Value activated = isSilu ? n.build<nn::SiluOp>(gate)
                           : n.mul(gate, n.build<nn::SigmoidOp>(n.mul(gate, number("activation_alpha", 1))));
  const bool isShifted = n.floatAttribute("activation_beta", 0) != 0;
  return n.mul(activated, isShifted ? n.add(up, number("activation_beta", 0)) : up);
}

void Experts::import() {
  kind = n.stringAttribute("quant_type", "int");
  if (kind != "int" && kind != "fp8" && !isFloat4())
    return n.fail("quant_type '" + kind + "' is none of int, fp4, nvfp4 and fp8");
  for (unsigned scale = 17; quantised && scale < 21; ++scale)
    if (n.has(scale))
      return n.fail("a scale of activations (input " + Twine(scale) + ") is not supported");
  if (kind != "int") // which says how many bits there are, and how long blocks of 4 bits are
    n.ignore({"expert_weight_bits", "fc1_expert_weight_bits", "fc2_expert_weight_bits",
              "fc3_expert_weight_bits", "weights_prepacked", "block_size"});
  const DimShape given = n.shape(0);
  Value x = n.operand(0);
  if (n.failed())
    return;
  if (given.size() < 2)
    return n.fail("input of rank " + Twine(given.size()));
  const Dim width = given.back(), rows = product(DimShape(given.begin(), given.end() - 1));
  const DimShape down = shape(second.weight);
  if (n.failed())
    return;
  if (down.size() != 3)
    return n.fail("expert weights of rank " + Twine(down.size()));
  route();
  isLegacy = !quantised && !(down[1] == width);
  isPrepacked = quantised && findLayout(width);
  const std::string activation = n.stringAttribute("activation_type", "relu");
  const int64_t fused = n.intAttribute("swiglu_fusion", 0);
  const bool gates = activation == "swiglu" || activation == "geglu";
  const Dim packed = rowsOf(first);
  Value hidden = multiply(n.reshape(x, {rows, 1, width}), first, width);
  Dim inner = packed;
  if (gates && fused != 0) {
    inner = packed.floorDiv(2);
    if (fused != 1 && fused != 2)
      return n.fail("swiglu_fusion is " + Twine(fused));
    Value gate =
        n.slice(hidden, 2, 0, inner, fused == 1 ? 2 : 1); // then cast: a product's halves are columns
    Value up = fused == 1 ? n.slice(hidden, 2, 1, inner, 2) : n.slice(hidden, 2, inner, inner);
    hidden = gated(wide(gate), wide(up));
  } else if (has(third.weight)) {
    hidden = gated(wide(hidden), wide(multiply(n.reshape(x, {rows, 1, width}), third, width)));
  } else if (gates) {
    return n.fail("activation_type '" + activation + "' needs swiglu_fusion or a third weight");
  } else {
    hidden = activate(wide(hidden), activation);
  }
  Value y = wide(multiply(n.cast(hidden, n.inputType(0)), second, inner));
  if (n.failed())
    return;
  Value weighted = n.mul(y, n.reshape(weights, {rows, n.shapeOf(weights).back(), 1}));
  n.result(0, n.reshape(n.cast(n.reduce(weighted, "sum", {1}, /*keepdims=*/false), n.inputType(0)), given));
}

void experts(NodeImporter &n) { Experts(n).import(); }

} // namespace

void registerExperts(HandlerTable &table) {
  table.add("com.microsoft", "MoE", 3, 8, experts);
  table.add("com.microsoft", "QMoE", 3, 22, experts);
}

} // namespace fusion::onnx
