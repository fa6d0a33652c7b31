// Values of 16 bits as whole vectors: products, sums and differences of f16 and bf16 two at a time, and half
// the registers for what is live. An element is taken out where something needs it as f32.
#include "codegen/schedule/RowBody.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

/// Whether the value is a product, sum or difference in pairs of two of the node's operands, or one of two
/// such by the column, as in a rotation, if no vector lies on both sides.
bool BodyPrinter::isPairArithmetic(const Node *node, scalar::Value value, DType type) const {
  const scalar::Node &scalar = graph.scalars[value];
  if (const scalar::Node *pair = graph.scalars.pairOperation(value))
    return scalar.roundedTo == type && llvm::all_of(pair->operands, [&](scalar::Value operand) {
             return llvm::any_of(node->operands, [&](const Node *one) { return one->value == operand; });
           });
  if (scalar.kind != scalar::Kind::Select || value != node->value)
    return false;
  const scalar::Node &condition = graph.scalars[scalar.operands[0]];
  return condition.kind == scalar::Kind::Less && condition.operands[0] == graph.column &&
         graph.scalars[condition.operands[1]].kind == scalar::Kind::Integer &&
         graph.scalars[condition.operands[1]].integer % layout.vector == 0 &&
         isPairArithmetic(node, scalar.operands[1], type) && isPairArithmetic(node, scalar.operands[2], type);
}

/// The same on vectors: `column < 64 ? sub_vec(p0, p1) : add_vec(p0, p1)`.
std::string BodyPrinter::pairText(const Node *node, scalar::Value value, const Position &position) {
  if (const scalar::Node *pair = graph.scalars.pairOperation(value)) {
    SmallVector<std::string> vectors;
    for (scalar::Value operand : pair->operands)
      vectors.push_back(packedVector(
          *llvm::find_if(node->operands, [&](const Node *one) { return one->value == operand; }), position));
    return fmt::format("{}_vec({}, {})", body::pairFunction(pair->kind), vectors[0], vectors[1]);
  }
  const scalar::Node &select = graph.scalars[value];
  const int64_t limit = graph.scalars[graph.scalars[select.operands[0]].operands[1]].integer;
  const std::string first = pairText(node, select.operands[1], position);
  return fmt::format("{} < {} ? {} : {}", position.chunk, limit, first,
                     pairText(node, select.operands[2], position));
}

void BodyPrinter::choosePacked() {
  if (!layout.inRegisters || !vectors() || layout.shifted || layout.inCluster() || exchange)
    return;
  // What could be a vector of 16-bit elements, by the type; and what makes it worth while: arithmetic in
  // pairs.
  std::map<const Node *, DType> possible;
  std::set<const Node *> pairs;
  auto source = [&](const Node *node) -> const Node * {
    while (node->kind == Node::Kind::Move && movesChunks(node->map) &&
           node->map.kind != ColumnMap::Kind::PairFold && !plan.live.contains(node))
      node = node->operands[0];
    return node;
  };
  for (const Node &node : graph.nodes) { // operands come before what reads them
    if (!uses.contains(&node) || node.level != Level::Element)
      continue;
    for (DType type : {DType::F16, DType::BF16}) {
      if (node.kind == Node::Kind::Load) {
        if (node.access.type == type && !node.summed && readsVectors(node.access) &&
            (!plan.live.contains(&node) || llvm::is_contained(preloads, &node)))
          possible[&node] = type;
        continue;
      }
      if (node.kind != Node::Kind::Apply)
        continue;
      if (isPairArithmetic(&node, node.value, type) && llvm::all_of(node.operands, [&](const Node *operand) {
            auto found = possible.find(source(operand));
            return found != possible.end() && found->second == type;
          })) {
        possible[&node] = type;
        pairs.insert(&node);
      } else if (graph.scalars.isRoundedLast(node.value, type) && !node.readsColumn) {
        possible[&node] = type;
      }
    }
  }
  for (const Node *node : pairs) {
    packed[node] = {possible.at(node), true};
    for (const Node *operand : node->operands)
      if (const Node *from = source(operand); from->kind == Node::Kind::Apply && !pairs.contains(from))
        packed[from] = {possible.at(from), false};
  }
}

bool BodyPrinter::isPacked(const Node *node, const Position &position) const {
  return packed.contains(node) && !position.held.empty() && position.vector == layout.vector;
}

const BodyPrinter::Position &BodyPrinter::ofWholeVector(const Position &position) const {
  return position.map.kind == ColumnMap::Kind::NextPartner ? *position.from : position;
}

std::string BodyPrinter::packedVector(const Node *node, const Position &lane) {
  const Position &position = ofWholeVector(lane);
  if (position.key.empty() && packed.contains(node) && isLive(node))
    return arrays.at(node) + "[at.k]";
  if (node->kind == Node::Kind::Move)
    return packedVector(node->operands[0], moved(position, node->map));
  if (node->kind == Node::Kind::Load)
    return vectorNames.at({node, position.key.empty() ? "" : position.chunk});
  std::string &known = packedNames[{node, position.key}];
  if (!known.empty())
    return known;
  const auto &[type, inPairs] = packed.at(node);
  const std::string vector = fmt::format("Vec<{}, {}>", body::spelling(type), layout.vector);
  std::string name;
  if (!inPairs) {
    const std::string wide = writer.fresh("y");
    writer.line(fmt::format("Vec<f32, {}> {};", layout.vector, wide));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", layout.vector));
    const auto outside = elementNames;
    std::set<std::string> columns;
    for (const auto &[key, other] : positions)
      if (!other.column.empty())
        columns.insert(key);
    const std::string value = applied(node, position, /*rounded=*/false);
    writer.line(fmt::format("{}[i] = {};", wide, value));
    writer.line("}");
    // What was named in this loop is not known after it.
    elementNames = outside;
    for (auto &[key, other] : positions)
      if (!columns.contains(key))
        other.column.clear();
    name = local(vector, "p", fmt::format("vec_from_f32<{}>({})", body::spelling(type), wide));
  } else {
    const std::string text = pairText(node, node->value, position);
    comment(node);
    name = local(vector, "p", text);
  }
  if (auto live = plan.live.find(node);
      position.key.empty() && live != plan.live.end() && live->second == current)
    writer.line(fmt::format("{}[at.k] = {};", arrays.at(node), name));
  return packedNames[{node, position.key}] = name;
}

} // namespace fusion::row
