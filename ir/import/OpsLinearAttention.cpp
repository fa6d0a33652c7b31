// LinearAttention, of ONNX and of com.microsoft, which also shares keys among the heads of the values.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

enum : unsigned { queryInput, keyInput, valueInput, pastInput, decayInput, betaInput };

struct Rule {
  bool decays = false, corrects = false; ///< forgets by `decay`; writes what the state lacks, by `beta`
};

std::optional<Rule> ruleOf(NodeImporter &node) {
  const std::string rule = node.stringAttribute("update_rule", "gated_delta");
  const bool decays = rule == "gated" || rule == "gated_delta",
             corrects = rule == "delta" || rule == "gated_delta";
  if (!decays && !corrects && rule != "linear")
    node.fail("update_rule '" + rule + "' is none of linear, gated, delta and gated_delta");
  if (decays && !node.has(decayInput))
    node.fail("update_rule '" + rule + "' needs decay (input 4)");
  if (corrects && !node.has(betaInput))
    node.fail("update_rule '" + rule + "' needs beta (input 5)");
  return node.failed() ? std::nullopt : std::optional(Rule{decays, corrects});
}

/// How many heads of `width` a packed operand has; 0 with a failure where that is not known.
int64_t headsOf(NodeImporter &node, unsigned input, const Dim &width) {
  const Dim packed = node.owner().resolve(node.shape(input)[2]);
  if (packed.isStatic() && width.isStatic() && width.value() > 0 && packed.value() % width.value() == 0)
    return packed.value() / width.value();
  node.fail("input " + Twine(input) + " of " + shapeString(node.shape(input)) +
            " does not divide into heads of " + width.str());
  return 0;
}

Value zeroState(NodeImporter &node, const DimShape &shape) {
  return node.expand(node.scalar(node.inputType(queryInput), 0), shape);
}

void linearAttention(NodeImporter &node) {
  const int64_t queryHeads = node.intAttribute("q_num_heads", 0),
                heads = node.intAttribute("kv_num_heads", 0);
  node.ignore({"chunk_size"}); // how, not what
  if (node.intAttribute("state_window", 0) != 0)
    return node.fail("state_window is not supported: only the state behind the last token is kept");
  if (queryHeads <= 0 || heads <= 0)
    return node.fail("needs q_num_heads and kv_num_heads");
  for (unsigned input : {queryInput, keyInput, valueInput})
    if (node.rank(input) != 3)
      return node.fail("input " + Twine(input) + " has rank " + Twine(node.rank(input)) + ", not 3");
  const std::optional<Rule> rule = ruleOf(node);
  if (!rule)
    return;
  const Value q = splitHeads(node, node.operand(queryInput), queryHeads);
  const Value v = splitHeads(node, node.operand(valueInput), heads);
  if (node.failed())
    return;
  const Dim width = node.owner().resolve(node.shapeOf(q)[3]);
  const int64_t keyHeads = headsOf(node, keyInput, width);
  if (node.failed())
    return;
  const Value k = splitHeads(node, node.operand(keyInput), keyHeads);
  double scale = node.floatAttribute("scale", 0);
  if (scale == 0)
    scale = defaultScale(node, q);
  if (node.failed())
    return;
  const DimShape values = node.shapeOf(v);
  const Value past = node.has(pastInput) ? node.operand(pastInput)
                                         : zeroState(node, {values[0], values[1], width, values[3]});
  SmallVector<Value> operands = {q, k, v, past};
  if (rule->decays)
    operands.push_back(splitHeads(node, node.operand(decayInput), heads));
  if (rule->corrects) {
    const bool isShared = node.rank(betaInput) == 3 && node.shape(betaInput)[2] == Dim(1);
    operands.push_back(splitHeads(node, node.operand(betaInput), isShared ? 1 : heads));
  }
  if (node.failed())
    return;
  const int32_t segments[] = {1, 1, 1, 1, rule->decays, rule->corrects};
  const NamedAttribute attributes[] = {
      node.f32("scale", scale),
      node.builder().getNamedAttr("operandSegmentSizes", node.builder().getDenseI32ArrayAttr(segments))};
  const auto results = node.create(nn::LinearAttentionOp::getOperationName(), operands, attributes,
                                   {node.inputType(queryInput), NodeImporter::typeOf(past)});
  if (node.failed())
    return;
  node.result(0, mergeHeads(node, results[0]));
  node.result(1, results[1]);
}

} // namespace

void registerLinearAttention(HandlerTable &table) {
  table.add("", "LinearAttention", 3, 6, linearAttention);
  table.add("com.microsoft", "LinearAttention", 3, 6, linearAttention);
  table.preferToFunction("com.microsoft", "LinearAttention"); // a Scan over the tokens
}

} // namespace fusion::onnx
