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
void swish(NodeImporter &node) {
  Value x = node.operand(0);
  double alpha = node.floatAttribute("alpha", 1.0);
  if (alpha == 1.0)
    return node.result(0, node.build<nn::SiluOp>(x));
  Value slope = node.mul(x, node.scalar(NodeImporter::typeOf(x), alpha));
  node.result(0, node.mul(x, node.build<nn::SigmoidOp>(slope)));
}

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
}

} // namespace fusion::onnx
