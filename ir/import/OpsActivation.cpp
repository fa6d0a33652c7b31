// Activations: Gelu and Swish of ONNX, and the contrib forms with a bias or another slope.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

Value gelu(NodeImporter &node, Value x, StringRef form) {
  return node.build<nn::GeluOp>(x, node.text("approximate", form));
}

void onnxGelu(NodeImporter &node) {
  std::string form = node.stringAttribute("approximate", "none");
  if (form != "none" && form != "tanh")
    return node.fail("approximate is '" + form + "', neither none nor tanh");
  node.result(0, gelu(node, node.operand(0), form));
}

/// x * sigmoid(alpha * x), op by op in the type of x.
Value swished(NodeImporter &node, Value x) {
  const double alpha = node.floatAttribute("alpha", 1.0);
  if (alpha == 1.0 || node.failed())
    return node.build<nn::SiluOp>(x);
  return node.mul(x, node.build<nn::SigmoidOp>(node.mul(x, node.scalar(NodeImporter::typeOf(x), alpha))));
}

void swish(NodeImporter &node) { node.result(0, swished(node, node.operand(0))); }

/// The same in f32, rounded once.
void quickGelu(NodeImporter &node) {
  Value x = node.operand(0);
  auto alpha = static_cast<float>(node.floatAttribute("alpha", 1.702));
  if (alpha == 1.702f)
    return node.result(0, gelu(node, x, "quick"));
  if (alpha == 1.0f)
    return node.result(0, node.build<nn::SiluOp>(x));
  Value wide = node.cast(x, node.f32Type());
  Value slope = node.mul(wide, node.scalar(node.f32Type(), alpha));
  node.result(0, node.cast(node.mul(wide, node.build<nn::SigmoidOp>(slope)), NodeImporter::typeOf(x)));
}

void biasedGelu(NodeImporter &node, StringRef form) {
  Value x = node.operand(0);
  node.result(0, gelu(node, node.has(1) ? node.add(x, node.operand(1)) : x, form));
}

/// The sum with the bias: its left half times GELU of its right half.
void biasSplitGelu(NodeImporter &node) {
  Value x = node.add(node.operand(0), node.operand(1));
  if (node.failed())
    return;
  const int64_t last = node.rankOf(x) - 1;
  auto half = node.shapeOf(x).back().dividedBy(2);
  if (!half)
    return node.fail("a last dim of " + node.shapeOf(x).back().str() + " does not divide into two");
  node.result(0,
              node.mul(node.slice(x, last, 0, *half), gelu(node, node.slice(x, last, *half, *half), "none")));
}

void biasAdd(NodeImporter &node) {
  node.result(0, node.add(node.add(node.operand(0), node.operand(1)), node.operand(2)));
}

void swiGlu(NodeImporter &node) { node.result(0, node.mul(swished(node, node.operand(0)), node.operand(1))); }

/// silu(alpha * gate) / alpha * (up + beta), clamped, in f32 and rounded once, or twice if asked to.
Value clampedGate(NodeImporter &node, Value gate, Value up) {
  const Type type = node.inputType(0), f32 = node.f32Type();
  const double limit = node.floatAttribute("limit", 0), alpha = node.floatAttribute("activation_alpha", 1),
               beta = node.floatAttribute("activation_beta", 0);
  gate = node.cast(gate, f32);
  up = node.cast(up, f32);
  auto number = [&](double value) { return node.scalar(f32, value); };
  if (limit > 0) {
    gate = node.build<nn::MinOp>({gate, number(limit)});
    up = node.build<nn::MinOp>({node.build<nn::MaxOp>({up, number(-limit)}), number(limit)});
  }
  Value slope = alpha == 1 ? gate : node.mul(gate, number(alpha));
  Value activated = node.mul(gate, node.build<nn::SigmoidOp>(slope));
  if (node.intAttribute("round_activation", 0) != 0)
    activated = node.cast(node.cast(activated, type), f32);
  return node.cast(node.mul(activated, beta == 0 ? up : node.add(up, number(beta))), type);
}

/// Of two operands, or two halves of one.
void clampedSwiGlu(NodeImporter &node) {
  Value gate = node.operand(0), up = node.has(1) ? node.operand(1) : Value();
  if (node.failed())
    return;
  if (!up) {
    const int64_t last = node.rankOf(gate) - 1;
    const auto half = last < 0 ? std::nullopt : node.shapeOf(gate).back().dividedBy(2);
    if (!half)
      return node.fail("an operand of " + shapeString(node.shapeOf(gate)) +
                       " does not divide into two halves");
    up = node.slice(gate, last, *half, *half);
    gate = node.slice(gate, last, 0, *half);
  }
  node.result(0, clampedGate(node, gate, up));
}

/// One product whose first columns are a router's logits, and the others gate and up of an expert.
void routerGateUp(NodeImporter &node) {
  const int64_t logits = node.intAttribute("router_size", 0);
  const std::string name = node.stringAttribute("activation", "swiglu");
  if (!node.failed() && name != "swiglu")
    return node.fail("the activation '" + name + "' is not supported");
  const Value y = node.build<nn::MatmulOp>({node.operand(0), node.operand(1)});
  if (node.failed())
    return;
  const DimShape shape = node.shapeOf(y);
  const auto half = shape.empty() ? std::nullopt : (shape.back() - logits).dividedBy(2);
  if (logits < 1 || !half || (half->isStatic() && half->value() < 1))
    return node.fail("router_size is " + Twine(logits) + " for a product of " + shapeString(shape));
  node.result(0, node.slice(y, -1, 0, logits));
  node.result(1,
              clampedGate(node, node.slice(y, -1, logits, *half), node.slice(y, -1, *half + logits, *half)));
}

/// z * sigmoid(z) with z = scale * x; each of these rounds.
void scaledSilu(NodeImporter &node) {
  const Type type = node.inputType(0);
  Value x = node.operand(0), scale = node.has(1)
                                         ? node.cast(node.operand(1), node.f32Type())
                                         : node.scalar(node.f32Type(), node.floatAttribute("alpha", 1));
  if (node.failed())
    return;
  Value z = node.cast(node.mul(node.cast(x, node.f32Type()), node.reshape(scale, {})), type);
  node.result(0, node.mul(z, node.build<nn::SigmoidOp>(z)));
}

} // namespace

void registerActivations(HandlerTable &table) {
  table.add("", "Gelu", 1, 1, onnxGelu);
  table.add("", "Swish", 1, 1, swish);
  table.add("com.microsoft", "Gelu", 1, 1, [](NodeImporter &node) { biasedGelu(node, "none"); });
  table.add("com.microsoft", "BiasGelu", 2, 2, [](NodeImporter &node) { biasedGelu(node, "none"); });
  table.add("com.microsoft", "FastGelu", 1, 2, [](NodeImporter &node) { biasedGelu(node, "tanh"); });
  table.add("com.microsoft", "BiasSplitGelu", 2, 2, biasSplitGelu);
  table.add("com.microsoft", "BiasAdd", 3, 3, biasAdd);
  table.add("com.microsoft", "QuickGelu", 1, 1, quickGelu);
  table.add("", "SwiGLU", 2, 2, swiGlu);
  table.add("com.microsoft", "SwiGLU", 1, 2, clampedSwiGlu);
  table.add("com.microsoft", "RouterGateUpProj", 2, 2, routerGateUp);
  table.add("com.microsoft", "ScaledSiLU", 1, 2, scaledSilu);
}

} // namespace fusion::onnx
